"""Stages for convoy.fuse of SpikingJelly's convolutions and linear layers with a neuron after them."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ._core import Error, Stage
from .layers import Refused
from .records import a_kind
from .spiking import SURROGATES, spike_form
from .torch import _DTYPES, folded

_JELLY = "spikingjelly.activation_based."


def jelly(module: Any, *names: str) -> bool:
    """Returns whether a module is of exactly one of these classes of SpikingJelly; without names: of any class."""
    kind = type(module)
    return kind.__module__.startswith(_JELLY) and (not names or kind.__name__ in names)


def leaf(module: nn.Module) -> bool:
    """Returns whether the tracer keeps a module whole: layers and neurons of SpikingJelly, and of snnTorch."""
    home = type(module).__module__
    return home.startswith((_JELLY + "layer", _JELLY + "neuron", "snntorch"))


class States:
    """The membranes and other memories of a model's neurons, which are restored after the sample was run."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = [module for module in model.modules() if getattr(module, "_memories", None)]
        self.kept = [(dict(module._memories), module.__dict__.get("v_seq")) for module in self.modules]
        # snnTorch's neurons may keep their memories as buffers.
        others = [module for module in model.modules() if type(module).__module__.startswith("snntorch")]
        self.others = [(module, {name: None if b is None else b.clone() for name, b in module._buffers.items()})
                       for module in others]  # fmt: skip

    def reset(self) -> None:
        """Puts all neurons at rest."""
        for module in self.modules:
            module.reset()
        for module, buffers in self.others:
            module._buffers.update({name: None if b is None else b.clone() for name, b in buffers.items()})

    def restore(self) -> None:
        """Puts the former memories back."""
        for module, buffers in self.others:
            module._buffers.update(buffers)
        for module, (memories, sequence) in zip(self.modules, self.kept, strict=True):
            module._memories.clear()
            module._memories.update(memories)
            if "v_seq" in module.__dict__:
                module.__dict__["v_seq"] = sequence


class Neuron(NamedTuple):
    """The parameters of a neuron. They are compared at each call; a neuron that changed after fusing is refused."""

    leaky: bool
    tau: float
    threshold: float
    soft: bool
    multi: bool

    @property
    def act(self) -> str:
        """The keyword `act` of a stage with this neuron."""
        return f"lif({self.tau},{self.threshold})" if self.leaky else f"if({self.threshold})"


_SNNTORCH = ("snnTorch's {}: it fires if its membrane is above the threshold{}; a stage fires at the threshold and "
             "above it, and resets in the same step")  # fmt: skip


def neuron_of(module: Any) -> Neuron:
    """Returns the parameters of a neuron. Raises Refused if a stage cannot compute it."""
    name = type(module).__name__
    if type(module).__module__.startswith("snntorch"):
        late = getattr(module, "reset_delay", True)
        raise Refused(_SNNTORCH.format(name, ", and resets it one step later" * bool(late)))
    if not jelly(module, "IFNode", "LIFNode"):
        raise Refused(f"a {name} after it, expected IFNode or LIFNode")
    if module.v_reset not in (None, 0.0):
        raise Refused(f"{name}: v_reset is {module.v_reset}, expected 0 (hard) or None (soft)")
    if name == "LIFNode" and not module.decay_input:
        raise Refused("LIFNode: decay_input is False, expected True: v += (x - v)/tau")
    if module.store_v_seq:
        raise Refused(f"{name}: store_v_seq is True, expected False: a stage gives only the last membrane")
    if getattr(module, "_neuron_precision", None) is not None:
        raise Refused(f"{name}: it has a precision of its own, expected float32 membranes")
    if not getattr(module.surrogate_function, "spiking", True):
        raise Refused(f"{name}: its surrogate function does not spike (spiking=False)")
    if not isinstance(module.v_threshold, (int, float)):
        raise Refused(f"{name}: v_threshold is {a_kind(module.v_threshold)}, expected a number")
    leaky = name == "LIFNode"
    return Neuron(leaky, float(module.tau) if leaky else 1.0, float(module.v_threshold), module.v_reset is None,
                  module.step_mode == "m")  # fmt: skip


def rest_of(neuron: Any, sizes: list[int], like: Tensor) -> Tensor | None:
    """Returns the membranes of a neuron after its reset, in float32, or None if they are 0."""
    value = neuron._memories_rv.get("v", 0.0)
    if isinstance(value, Tensor):  # one of another shape is ignored, as in SpikingJelly
        return value.detach().to(like.device, torch.float32) if list(value.shape) == sizes else None
    return torch.full(sizes, float(value), device=like.device) if value != 0 else None


def charge_of(neuron: Neuron, v: Tensor, z: Tensor) -> Tensor:
    """Returns the membranes after they take the input z, before they fire."""
    return v + (z - v) / neuron.tau if neuron.leaky else v + z


def surrogate_of(function: Any) -> tuple[str, float] | None:
    """Returns name and alpha of a surrogate function, or None if the operator has no such surrogate."""
    name = type(function).__name__
    known = {"Sigmoid": "sigmoid", "ATan": "atan"}.get(name)
    return (known, float(function.alpha)) if known in SURROGATES and jelly(function, name) else None


# Facts about membranes that are known without computing them.
_OF_A_LATER = {Tensor.dim, Tensor.size, Tensor.numel, Tensor.shape.__get__, Tensor.dtype.__get__, Tensor.device.__get__,
               Tensor.ndim.__get__, Tensor.requires_grad.__get__}  # fmt: skip


class Later(Tensor):
    """The membranes after the run of a network. They are computed, layer by layer, at their first use."""

    @staticmethod
    def __new__(cls, run: Any, index: int, sizes: list[int], like: Tensor) -> Later:
        made = Tensor._make_wrapper_subclass(cls, sizes, dtype=like.dtype, device=like.device)
        made._run, made._index = run, index
        return made

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def value(self) -> Tensor:
        """Returns the membranes."""
        return self._run.membranes()[self._index]

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function in _OF_A_LATER:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args, **(kwargs or {}))
        real = pytree.tree_map(lambda v: v.value() if isinstance(v, Later) else v, (args, kwargs or {}))
        return function(*real[0], **real[1])

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return cls.__torch_function__(function, types, args, kwargs)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.value().clone()


class SpikeStage(nn.Module):
    """A convolution or linear layer, [norm], neuron, [pool] as one stage. Its membranes are the neuron's `v`.

    stage: the stage on the sample; its type, sizes and number of steps are those of each input.
    """

    def __init__(
        self, conv: nn.Module, norm: Any, neuron: Any, pool: Any, stage: Stage, frozen: bool = False
    ) -> None:
        super().__init__()
        self.rest = (True,) if frozen else ()  # the operator's last argument
        self.conv, self.norm, self.neuron, self.pool = conv, norm, neuron, pool
        self.linear = isinstance(conv, nn.Linear)
        self.facts = neuron_of(neuron)
        self.text = str(stage.replace(t=1, hold=False))  # of a stage whose steps have inputs of their own

    def rebound(self, modules: dict[int, nn.Module]) -> SpikeStage:
        """Returns the stage with other modules: `modules` has the new ones by the id of the old ones."""
        made = copy.copy(self)
        made._modules = {name: module and modules.get(id(module), module) for name, module in self._modules.items()}
        return made

    def layers(self, x: Tensor) -> Tensor:
        """Returns the result of the layers themselves."""
        for layer in (self.conv, self.norm, self.neuron, self.pool):
            x = x if layer is None else layer(x)
        return x

    def parameters_now(self) -> list[Tensor]:
        """Returns the present parameters and statistics."""
        norm = self.norm
        found = [self.conv.weight, self.conv.bias]
        if norm is not None:
            found += [norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.num_batches_tracked]
        return [tensor for tensor in found if tensor is not None]

    def weights(self) -> tuple[Tensor, Tensor | None]:
        """Returns weights [K, C/groups, R, S] and bias, with the batch-norm folded in."""
        conv, norm = self.conv, self.norm
        weight = conv.weight[:, :, None, None] if self.linear else conv.weight
        if norm is None:
            return weight, conv.bias
        return folded(weight, conv.bias, norm.weight, norm.bias, norm.running_mean, norm.running_var,
                      norm.num_batches_tracked, norm.eps)  # fmt: skip

    def check(self) -> None:
        """Raises Error if the neuron changed after fusing."""
        try:
            now: Any = neuron_of(self.neuron)
        except Refused as refused:
            now = refused
        if now != self.facts:
            raise Error(f"fuse: {a_kind(self.neuron)} was changed after fusing: found {now}, expected "
                        f"{self.facts}. Fuse the model again.")  # fmt: skip

    def run(self, x: Tensor, v: Tensor | None) -> tuple[Tensor, Tensor]:
        """Returns spikes and membranes for x [T, N, ..]. An x that is the same in each step is a held input."""
        x = x[..., None, None] if self.linear else x
        held = x.shape[0] if x.shape[0] > 1 and x.stride(0) == 0 else 0
        weight, bias = self.weights()
        surrogate, alpha = surrogate_of(self.neuron.surrogate_function) or ("sigmoid", 4.0)
        if v is not None and self.linear:
            v = v[..., None, None]
        text = f"{self.text}+t{held}+hold" if held else self.text
        y, after = torch.ops.convoy.spike(x[0] if held else x, weight, bias, v, text, surrogate, alpha,
                                          self.neuron.detach_reset, *self.rest)  # fmt: skip
        if not self.linear:
            return y, after
        # For autograd these must not be views: SpikingJelly's detach_net detaches `v` in place.
        return tuple(torch.ops.aten._unsafe_view(one, list(one.shape[:-2])) for one in (y, after))

    def forward(self, x: Tensor) -> Tensor:
        """Computes the stage and updates the neuron's membranes."""
        self.check()
        grads = torch.is_grad_enabled() and surrogate_of(self.neuron.surrogate_function) is None
        if grads or (self.norm is not None and self.norm.training) or x.dtype not in _DTYPES:
            return self.layers(x)
        multi = self.facts.multi
        v = self.neuron.v
        v = v.value() if isinstance(v, Later) else v
        x = x if multi else x[None]
        if isinstance(v, Tensor):  # one of another shape is ignored, as in SpikingJelly
            v = v if list(v.shape) == self.sizes(x) else None
        elif v != 0:
            v = torch.full(self.sizes(x), float(v), device=x.device)
        else:
            v = None
        y, after = self.run(x, v)
        self.neuron.v = after.to(x.dtype)
        if multi:
            self.neuron.v_seq = None
        return y if multi else y[0]

    def sizes(self, x: Tensor) -> list[int]:
        """Returns the shape of the membranes for x [T, N, ..]."""
        form = spike_form(self.text).form
        return [x.shape[1], form.k, *(() if self.linear else form.unpooled(*x.shape[-2:]))]
