"""Packs the weights of all stages of a fused model together, on a GPU: two kernels per call of the model.

The first call with inputs of some sizes packs stage by stage, and notes the plans. Later calls compare the weights of
all of them at once, before the first stage. A stage that was not noted, or whose tensors are other ones by now, packs
by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn

from ._core import _all_places, _RepackGroup
from .fusing_stages import Stage
from .layers import HOOKS
from .weights import Entry, call, version

__all__ = ["Together", "together"]

_MOST = 8  # sizes of inputs, each with plans of its own
# Modules and functions that never write to the model's weights. Code of the user's might, while the model runs.
_PACKAGES = ("torch", "torchvision", "_operator", "math", "builtins")


class _Group:
    """The plans of one set of input sizes, and the tensors that their weights are made from."""

    __slots__ = ("counters", "entries", "known", "places", "plans", "versions")

    def __init__(self, places: bytes, tensors: list[Tensor | None], noted: list[tuple]) -> None:
        self.places = places
        self.plans = _RepackGroup(len(noted))
        self.entries: list[tuple[Entry, list[int]]] = []  # with the numbers of their tensors
        self.known = {entry for entry, *_ in noted}  # also those that can only be packed by themselves
        self.counters: list[int] = []  # at the last call
        self.versions: dict[Entry, list[int]] = {}
        device = next(tensor for tensor in tensors if tensor is not None).device
        numbers = {tensor.data_ptr(): number for number, tensor in enumerate(tensors) if tensor is not None}
        numbers_of_same = {id(tensor): number for number, tensor in enumerate(tensors)}
        for entry, given, eps in {id(one[0]): one for one in noted}.values():
            there = [tensor for tensor in given if tensor is not None]
            if any(tensor.data_ptr() not in numbers or tensor.device != device for tensor in there):
                continue  # no parameter of the model's layers, or on another GPU
            norm = None
            if len(given) > 1:
                if entry.shift is None:
                    entry.shift = torch.empty(given[0].shape[0], device=device)
                norm = (*given[1:], *[None] * (6 - len(given)), entry.shift)
            if self.plans.add(entry.plan, given[0].detach(), norm, eps or 0.0):
                self.entries.append((entry, [numbers_of_same.get(id(tensor), numbers[tensor.data_ptr()])
                                             for tensor in there]))  # fmt: skip

    def pack(self, tensors: list[Tensor | None]) -> dict[Entry, list[int]]:
        """Packs changed weights on the current stream. Returns the entries, with the version counters of now."""
        counters = [0 if tensor is None else version(tensor) for tensor in tensors]
        if counters != self.counters:
            self.versions = {entry: [counters[number] for number in numbers] for entry, numbers in self.entries}
            self.counters = counters
        self.plans.enqueue(next(tensor for tensor in tensors if tensor is not None))
        for entry, _ in self.entries:
            entry.seen, entry.bias = None, entry.shift
        return self.versions


class Together:
    """Packs the weights of a fused model's stages at the start of each call."""

    def __init__(self, stages: list[Stage], hooks: list[dict]) -> None:
        self._where = [(layer.__dict__[kind], name) for stage in stages for layer, kind, name in (
            (stage.conv, "_parameters", "weight"), (stage.conv, "_parameters", "bias"),
            (stage.norm, "_parameters", "weight"), (stage.norm, "_parameters", "bias"),
            (stage.norm, "_buffers", "running_mean"), (stage.norm, "_buffers", "running_var"),
        ) if layer is not None]  # fmt: skip
        self._hooks = hooks  # of the layers that PyTorch runs between the stages
        self._groups: dict[tuple, _Group] = {}

    def run(self, runner: nn.Module, arguments: tuple, named: dict[str, Any]) -> Any:
        """Runs the model, with the weights of all known stages packed first."""
        container, name = self._where[0]
        if (not container[name].is_cuda or any(self._hooks) or torch._C._len_torch_dispatch_stack()
                or torch.cuda.is_current_stream_capturing()):  # fmt: skip
            return runner(*arguments, **named)
        tensors = [container.get(name) for container, name in self._where]
        places = _all_places(tensors)
        if places is None:
            return runner(*arguments, **named)
        key = (torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else None, torch.get_num_threads(),
               *((one.shape, one.dtype) if isinstance(one, Tensor) else None for one in (*arguments, *named.values())))
        group = self._groups.get(key)
        if group is not None and group.places != places:
            group = None
        before = call.packed, call.noted
        call.packed, call.noted = group and group.pack(tensors), []
        try:
            y = runner(*arguments, **named)
            if group is None and call.noted:
                self._keep(key, _Group(places, tensors, call.noted))
            elif group is not None and any(entry not in group.known for entry, *_ in call.noted):
                self._groups.pop(key, None)  # other plans than at the call that was noted: the next one notes them
            return y
        finally:
            call.packed, call.noted = before

    def _keep(self, key: tuple, group: _Group) -> None:
        """Keeps a group, instead of the one that was made first if there are too many."""
        self._groups.pop(key, None)
        while len(self._groups) >= _MOST:
            self._groups.pop(next(iter(self._groups)), None)
        self._groups[key] = group


def _is_known(code: Any) -> bool:
    """Returns whether a class or function comes from a package that leaves weights alone."""
    return (getattr(code, "__module__", None) or "torch").partition(".")[0] in _PACKAGES


def together(graph: fx.Graph, modules: Mapping[str, nn.Module]) -> Together | None:
    """Returns a Together for the stages of the graph, or None if their weights must be packed stage by stage or are
    frozen.

    modules: those that the graph calls, by their names in it.
    """
    called = [modules[node.target] for node in graph.nodes if node.op == "call_module"]
    stages = [module for module in called if type(module) is Stage]
    others = [module for module in called if type(module) is not Stage]
    functions = [node.target for node in graph.nodes if node.op == "call_function"]
    inner = [module for other in others for module in other.modules()]
    if not stages or stages[0].rest or not all(map(_is_known, [*map(type, inner), *functions])):
        return None
    if any("forward" in module.__dict__ for module in inner):
        return None
    return Together(stages, [module.__dict__[name] for module in inner for name in HOOKS if name in module.__dict__])
