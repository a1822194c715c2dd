"""Traces a model to a graph, without changing the model. Refuses models whose graph would compute something else."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ._core import Error, Unsupported
from .fusing_changes import global_hooks
from .fusing_spikes import leaf
from .fusing_state import Snapshot
from .layers import hooked
from .records import a_kind

_DESCRIPTIONS = {Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__, Tensor.ndim.__get__,
                 Tensor.layout.__get__, Tensor.is_cuda.__get__, Tensor.requires_grad.__get__, Tensor.size, Tensor.dim,
                 Tensor.__hash__}  # fmt: skip
_DEVICES = ("cpu", "cuda")


def _modes() -> dict[str, Any]:
    """Returns the modes that affect an operation and are not in a graph."""
    cast = {f"autocast on {device}": (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in _DEVICES}  # fmt: skip
    return {"inference_mode": torch.is_inference_mode_enabled(), "no_grad or enable_grad": torch.is_grad_enabled(),
            "the default dtype": torch.get_default_dtype()} | cast  # fmt: skip


@contextlib.contextmanager
def _around(on: bool) -> Iterator[None]:
    """Sets the modes of one of two traces, all on or all off.

    If forward switches a mode on, the trace with modes off shows it; if it switches a mode off, the other trace.
    """
    kept = {device: torch.is_autocast_enabled(device) for device in _DEVICES}
    try:
        for device in _DEVICES:
            torch.set_autocast_enabled(device, on)
        with torch.inference_mode(on), torch.set_grad_enabled(not on):
            yield
    finally:
        for device, was in kept.items():
            torch.set_autocast_enabled(device, was)


class _Reads(TorchFunctionMode):
    """Records which of a model's tensors are used in computations during tracing: their results become constants."""

    def __init__(self, tensors: dict[int, str]) -> None:
        super().__init__()
        self.tensors = tensors
        self.read: set[str] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _DESCRIPTIONS:
            given = pytree.tree_leaves((args, kwargs or {}))
            if not any(isinstance(one, fx.Proxy) for one in given):
                self.read |= {self.tensors[id(one)] for one in given if id(one) in self.tensors}
        return func(*args, **(kwargs or {}))


class _Tracer(fx.Tracer):
    """A tracer that keeps some modules whole, and notices when forward switches a mode."""

    def __init__(self, buffers: bool) -> None:
        super().__init__()
        self.proxy_buffer_attributes = buffers
        self.start = _modes()
        self.switched: tuple[str, str] | None = None

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # PyTorch calls hooks with the module; a fused model has its own graph.
        return super().is_leaf_module(m, module_qualified_name) or leaf(m) or hooked(m) or hasattr(m, "_convoy_fused")

    def create_node(self, kind: str, *rest: Any, **named: Any) -> fx.Node:
        node = super().create_node(kind, *rest, **named)
        if self.switched is None and kind not in ("placeholder", "output") and (now := _modes()) != self.start:
            what = next(name for name in now if now[name] != self.start[name])
            above = [name for name, _ in self.module_stack.values()]
            above = above[:-1] if kind == "call_module" else above
            where = above[-1] if above else ""
            self.switched = what, where
        return node


def missing_arguments(model: nn.Module, arguments: tuple) -> dict[str, None]:
    """Returns the arguments of forward that are None in the sample. The graph is valid only for these."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return {}
    given = list(signature.parameters.values())
    needed = [one.name for one in given if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if needed:
        raise Unsupported(f"model: its forward takes {', '.join(needed)} by keyword only, and a sample has no "
                          "keywords. Wrap the model in a module whose forward(x, ..) takes them by position, and fuse "
                          "that.")  # fmt: skip
    try:
        bound = signature.bind(*arguments)
    except TypeError:
        return {}  # the run on the sample raises the error
    bound.apply_defaults()
    kinds = {one.name for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return {name: None for name, value in bound.arguments.items() if value is None and name in kinds}


def _once(model: nn.Module, missing: dict[str, None], buffers: bool, on: bool) -> tuple[fx.Graph, _Tracer, set[str]]:
    """Traces the model once. Returns the graph, the tracer, and the names of tensors that were read as constants."""
    owned = {id(value): (f"{name}.{key}" if name else key) for name, module in model.named_modules()
             for place in (module.__dict__, module._buffers) for key, value in place.items()
             if isinstance(value, Tensor)}  # fmt: skip
    reads = _Reads(owned)
    before = set(model.__dict__)
    with _around(on):
        tracer = _Tracer(buffers)
        with reads:
            graph = tracer.trace(model, dict(missing) or None)
    graph.constants = {}
    graph._tracer_cls = None  # a pickled graph is loaded with PyTorch's own tracer
    for name in set(model.__dict__) - before:
        if name in (node.target for node in graph.nodes if node.op == "get_attr"):
            graph.constants[name] = model.__dict__.pop(name)
    for node in list(graph.nodes):
        if node.op == "call_function" and getattr(node.target, "__name__", "") == "_assert_is_none":
            graph.erase_node(node)
    for node in graph.nodes:
        if node.op == "placeholder" and str(node.target).rpartition("_")[0] in missing:
            node.target = str(node.target).rpartition("_")[0]
    return graph, tracer, reads.read


def _text_of(graph: fx.Graph) -> list[tuple]:
    """Returns the nodes of a graph in a form that can be compared."""
    return [(node.op, str(node.target), str(node.args), str(node.kwargs)) for node in graph.nodes]


def refuse_written(names: list[str], when: str) -> Error:
    """Returns the Error for a model whose forward writes to these names."""
    several = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Error(f"model: its forward writes {several} {when}, but a graph does not, expected a forward that returns a "
                 "result and keeps nothing. Return the value instead, or fuse those of the model's parts that keep "
                 "nothing, as in model.features = convoy.fuse(model.features, sample_of_it).")  # fmt: skip


def traced(model: nn.Module, remedy: str, arguments: tuple = ()) -> fx.Graph:
    """Returns the model's graph. The model is not changed, also if this raises Error.

    `graph.constants` has the tensors that belong to no module, `graph.baked` the names of tensors that tracing read as
    constants.
    """
    whole = {"_orig_mod": "compiled", "_c": "a script"}
    if found := next((word for name, word in whole.items() if hasattr(model, name)), None):
        raise Unsupported(f"model: {a_kind(model)}, {found}, whose layers torch.fx does not see; expected the model "
                          "itself. Pass the model, and compile or trace the result.")  # fmt: skip
    if hasattr(model, "_convoy_fused"):
        raise Error("model: a fused model, expected one of PyTorch's layers. Pass its `original`.")
    if hooked(model):
        raise Unsupported(f"model: {a_kind(model)} with hooks of its own, expected none: a graph would not call them. "
                          "Remove them, and put them on the fused model.")  # fmt: skip
    if "forward" in model.__dict__:
        raise Unsupported(f"model: {a_kind(model)} whose forward was replaced on the object, expected its class's. "
                          "Fuse a module that has this forward in its class.")  # fmt: skip
    if hooks := global_hooks():
        raise Unsupported(f"model: torch.nn.modules.module.{hooks} has a hook on all modules, which stages would not "
                          "call. Remove it first.")  # fmt: skip
    missing = missing_arguments(model, arguments)
    before = Snapshot(model)
    try:
        return _traced(model, missing, before, remedy)
    finally:
        before.restore()


def _traced(model: nn.Module, missing: dict[str, None], before: Snapshot, remedy: str) -> fx.Graph:
    """Traces the model twice, in different modes, and returns the graph if both are equal."""
    failure: Exception | None = None
    for buffers in (True, False):  # if a graph cannot read a buffer, its values become constants
        graphs = []
        try:
            for on in (False, True):
                graph, tracer, read = _once(model, missing, buffers, on)
                graphs.append(graph)
                if on is False:
                    graph.baked = read
                if names := before.written():
                    raise refuse_written(names, "when it is called")
                if before.drew():
                    raise Unsupported("model: its forward draws random numbers without an input of its layers, and a "
                                      "graph would repeat the same numbers in each call. Draw them like a tensor, as "
                                      "in torch.randn_like(x), or pass them as an argument.")  # fmt: skip
                if tracer.switched is not None:
                    what, where = tracer.switched
                    raise Unsupported(f"model: {f'its {where}' if where else 'its forward'} switches {what} inside "
                                      "forward, but a graph does not: results would have another type, or other "
                                      "gradients. Switch it around the call, or fuse the parts inside.")  # fmt: skip
        except Error:
            raise
        except Exception as error:
            failure = failure or error
            names = before.written()
            before.restore()
            if not buffers and names:
                raise refuse_written(names, "when it is called") from failure
            continue
        if _text_of(graphs[0]) != _text_of(graphs[1]):
            raise Unsupported(f"model: {a_kind(model)} whose forward does other things if no gradient is recorded, "
                              "under autocast, or in its second call, expected the same layers. " + remedy)  # fmt: skip
        return graphs[0]
    raise Unsupported(f"model: {a_kind(model)} that torch.fx cannot trace: {failure}. Expected a forward without "
                      f"control flow on values or sizes. {remedy}") from failure  # fmt: skip
