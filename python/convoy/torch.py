"""Stages as operators of PyTorch: eager, compiled, with gradients. Imports torch; `import convoy` does not.

    >>> import torch, convoy.torch
    >>> layer = convoy.torch.StageModule("n1h8c3k16r3pad1+bias+relu+max2")
    >>> x = torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last)
    >>> layer(x).shape
    torch.Size([4, 16, 16, 16])
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from . import gradients
from ._core import InvalidOperand, Plan, Stage
from .gradients import fold
from .records import a_kind
from .stage_text import Form, form_of

__all__ = ["StageModule", "plan", "spike", "stage"]  # noqa: F822

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_TORCH = {name: dtype for dtype, name in _DTYPES.items()}
_LAST = torch.channels_last

_library = torch.library.Library("convoy", "DEF")
_library.define("stage(Tensor x, Tensor weight, Tensor? bias, str stage) -> Tensor")
_library.define(
    "stage_norm(Tensor x, Tensor weight, Tensor? bias, Tensor? gamma, Tensor? beta, Tensor mean, Tensor var, "
    "Tensor? batches, float eps, str stage) -> Tensor"
)


class _Kept:
    """What was made of tensors' values, until a tensor's version counter says that they changed.

    A key names storages by their address: the weak reference beside the value keeps the address from being used again.
    """

    def __init__(self, most: int) -> None:
        self._kept: dict[tuple, tuple[list[Any], Any]] = {}
        self._most = most
        self._lock = threading.Lock()

    def find(self, key: tuple) -> Any:
        found = self._kept.get(key)
        return found[1] if found else None

    def keep(self, key: tuple, tensors: list[Tensor], value: Any) -> None:
        references = [StorageWeakRef(tensor.untyped_storage()) for tensor in tensors]
        with self._lock:
            for old in [k for k, (refs, _) in self._kept.items() if any(ref.expired() for ref in refs)]:
                del self._kept[old]
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (references, value)


def _place(tensor: Tensor) -> tuple:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.stride()


def _version(tensor: Tensor) -> Any:
    # Tensors of inference_mode have no counter: a new object equals nothing, so they are read every time.
    return object() if tensor.is_inference() else tensor._version


def _checked(form: Form, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raises what a plan can't: its errors name axes by Convoy's order."""
    if x.dtype not in _DTYPES:
        raise InvalidOperand(f"x: {x.dtype}, expected float32, float16 or bfloat16. Convert it: x.float()")
    if x.dim() != 4 or x.shape[1] != form.c:
        raise InvalidOperand(f"x: {list(x.shape)}, expected [N, {form.c}, H, W] for the stage {form.stage}")
    if tuple(weight.shape) != form.weight_shape:
        raise InvalidOperand(f"weight: {list(weight.shape)}, expected {list(form.weight_shape)} "
                             "([K, C/groups, R, S], as PyTorch has it)")  # fmt: skip
    if (bias is not None) != form.bias:
        raise InvalidOperand(f"bias: {'none' if bias is None else 'one'}, expected {'one' if form.bias else 'none'}: "
                             f"the stage {form.stage} says so")  # fmt: skip
    if bias is not None and tuple(bias.shape) != (form.k,):
        raise InvalidOperand(f"bias: {list(bias.shape)}, expected [{form.k}]")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.device != x.device:
            raise InvalidOperand(f"{name}: on {tensor.device}, expected {x.device}, where x is. Move it: .to(x.device)")


def _made(form: Form, x: Tensor, weights: Any = None) -> Plan:
    n, _, h, w = x.shape
    return Plan(form.text(_DTYPES[x.dtype], n, h, w), weights, device=str(x.device),
                threads=torch.get_num_threads() if x.device.type == "cpu" else 0, openmp=True,
                axes="nchw" if form.last else "auto", weights_layout="kcrs")  # fmt: skip


_plans = _Kept(1024)
_packs = _Kept(1024)
_folded = _Kept(1024)
_packing = threading.Lock()


class _Packed:
    """A plan, and the version of the weights that are packed in it."""

    __slots__ = ("plan", "version")


def give_weights(plan: Plan, weight: Tensor, version: Any) -> None:
    """Packs weights for a plan. On the CPU plans of one packing share them: each size of x has a plan of its own."""
    if not weight.is_cpu:
        plan.set_weights(weight.detach(), weights_layout="kcrs")
        return
    key = (plan.packing, weight.dtype, weight.shape, *_place(weight))
    found = _packs.find(key)
    if found is None or found[1] != version:
        found = plan.pack(weight.detach(), weights_layout="kcrs"), version
        _packs.keep(key, [weight], found)
    plan.use(found[0])


def _plan(text: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Plan:
    """The plan for x, its weights packed as they are now. A new plan's operands are checked; runs check the rest."""
    key = (text, x.shape, x.dtype, x.device, torch.get_num_threads(), weight.dtype, weight.shape,
           weight.untyped_storage()._cdata, weight.storage_offset(), weight.stride(), weight.device)  # fmt: skip
    found = _plans.find(key)
    if found is not None and not weight.is_inference() and found.version == weight._version:
        return found.plan
    with _packing:  # once, where several threads see the change
        version = _version(weight)
        found = _plans.find(key)
        if found is None:
            form = form_of(text)
            _checked(form, x, weight, bias)
            found = _Packed()
            found.plan, found.version = _made(form, x, None if weight.is_cpu else weight.detach()), version
            if weight.is_cpu:
                give_weights(found.plan, weight, version)
            _plans.keep(key, [weight], found)
        elif found.version != version:
            give_weights(found.plan, weight, version)
            found.version = version
        return found.plan


def _empty(form: Form, x: Tensor) -> Tensor:
    """y, its values undefined: dense, of x's memory format."""
    p, q = form.sizes(x.shape[2], x.shape[3])
    name = form.stage.output_dtype
    dtype = x.dtype if name == form.stage.dtype else _TORCH[name]
    return torch.empty((x.shape[0], form.k, p, q), dtype=dtype, device=x.device,
                       memory_format=_LAST if form.last else torch.contiguous_format)  # fmt: skip


def _run(x: Tensor, weight: Tensor, bias: Tensor | None, text: str) -> Tensor:
    if x.numel() == 0:
        return _fake(x, weight, bias, text)
    plan = _plan(text, x, weight, bias)
    if not x.is_contiguous(memory_format=_LAST) or not form_of(text).last:
        x = x.contiguous(memory_format=_LAST if form_of(text).last else torch.contiguous_format)
    if bias is not None and bias.dtype is not torch.float32:
        bias = bias.float()
    return plan(x, bias)


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None, text: str) -> Tensor:
    form = form_of(text)
    _checked(form, x, weight, bias)
    return _empty(form, x)


def folded(weight, bias, gamma, beta, mean, var, batches, eps):
    """Weights and bias with the norm in them, kept until a version counter moves; made anew where gradients are due.

    batches: ATen's batch_norm writes its statistics without counting; num_batches_tracked counts.
    """
    tensors = [tensor for tensor in (weight, bias, gamma, beta, mean, var, batches) if tensor is not None]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return fold(weight, bias, gamma, beta, mean, var, eps)
    key = (eps, bias is None, gamma is None, beta is None, *map(_place, tensors))
    versions = [_version(tensor) for tensor in tensors]
    found = _folded.find(key)
    if found is None or found[0] != versions:
        # Never tensors of inference_mode, even where this runs in it: the plans read the version counter.
        with torch.inference_mode(False), torch.no_grad():
            found = (versions, *fold(*(t.clone() if t is not None and t.is_inference() else t
                                       for t in (weight, bias, gamma, beta, mean, var)), eps))  # fmt: skip
        _folded.keep(key, tensors, found)
    return found[1], found[2]


def _run_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text):
    return _run(x, *folded(weight, bias, gamma, beta, mean, var, batches, eps), text)


def _fake_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text):
    form = form_of(text)
    _checked(form, x, weight, mean)
    return _empty(form, x)


for _device in ("CPU", "CUDA"):
    _library.impl("stage", _run, _device)
    _library.impl("stage_norm", _run_norm, _device)
torch.library.register_fake("convoy::stage", _fake, lib=_library)
torch.library.register_fake("convoy::stage_norm", _fake_norm, lib=_library)


for _name, _backward, _setup in (("stage", gradients.backward, gradients.setup),
                                 ("stage_norm", gradients.backward_norm, gradients.setup_norm)):  # fmt: skip
    torch.library.register_autograd(f"convoy::{_name}", _backward, setup_context=_setup, lib=_library)


def _autocast(name: str, device: str) -> None:
    """Under autocast x is cast, as a convolution's is; weights stay: they are packed in x's type anyway."""
    operator = getattr(torch.ops.convoy, name).default
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, "AutocastCUDA" if device == "cuda" else "AutocastCPU"))

    def cast(x, *rest):
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(x.to(torch.get_autocast_dtype(device)) if x.dtype in _DTYPES else x, *rest)

    _library.impl(name, cast, "AutocastCUDA" if device == "cuda" else "AutocastCPU")


for _name in ("stage", "stage_norm"):
    for _device in ("cpu", "cuda"):
        _autocast(_name, _device)

_stage = torch.ops.convoy.stage.default
_PLAIN = (Tensor, torch.nn.Parameter)
_compiling, _any_autocast = torch.compiler.is_compiling, torch._C._is_any_autocast_enabled
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms, _jit, _profiled = (torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state,
                                torch._C._autograd._profiler_enabled)  # fmt: skip


def called(x: Tensor, weight: Tensor, bias: Tensor | None, text: str) -> Tensor:
    """The operator; where all it would do is run the stage, without the dispatcher's way to Python and back.

    That is: plain tensors, no gradient due, no compiler, autocast, mode, transform or profiler that would see it.
    """
    if _compiling() or _dispatch_modes() or _function_modes() or _any_autocast() or _profiled():
        return _stage(x, weight, bias, text)
    plain = type(x) is Tensor and type(weight) in _PLAIN and (x.is_cpu or x.is_cuda)
    if not plain or _transforms() or _jit():
        for name, given in (("x", x), ("weight", weight)):
            if not isinstance(given, Tensor):  # PyTorch would print all of it
                raise InvalidOperand(f"{name}: {a_kind(given)}, expected a torch.Tensor")
        return _stage(x, weight, bias, text)
    trained = x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)
    if trained and torch.is_grad_enabled():
        return _stage(x, weight, bias, text)
    return _run(x, weight, bias, text)


def stage(stage: str | Stage, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y [N, K, P', Q'] of the stage, by the operator torch.ops.convoy.stage.

    stage: its text or a Stage; type, n, h and w are taken from x, whatever the text says.
    x: [N, C, H, W] f32, f16 or bf16, channels_last (as y then is); another is copied into that first.
    weight: [K, C/groups, R, S] of x's type or f32. bias: [K] where the stage has it.

    A plan is made for each shape of x and kept, the weights packed in it until their version counter
    moves; what changes them behind it (`weight.data.mul_(2)`) is not seen. Gradients come from ATen, which computes the
    convolution again. Raises Error (no such stage, norm, keep(...), neurons) and InvalidOperand.

    >>> import torch, convoy.torch
    >>> x, weight = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
    >>> convoy.torch.stage("n1h8c3k4r3pad1+relu+max2", x, weight).max()
    tensor(27.)
    """
    return called(x, weight, bias, stage if type(stage) is str else str(stage))


def plan(stage: str | Stage, x: Tensor, weight: Tensor) -> Plan:
    """The plan that the operator runs for such an x.

    >>> import torch, convoy.torch
    >>> convoy.torch.plan("n1h8c3k4r3pad1", torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)).stage
    n2h8w8c3k4r3pad1
    """
    form = form_of(str(stage))
    return _plan(str(stage), x, weight, torch.empty(form.k, device=x.device) if form.bias else None)


class StageModule(torch.nn.Module):
    """A stage as a layer: weight [K, C/groups, R, S] and, where the stage has one, bias [K], initialised as Conv2d's.

    >>> import convoy.torch
    >>> layer = convoy.torch.StageModule("n1h8c3k16r3pad1+bias+relu")
    >>> sorted(layer.state_dict()), tuple(layer.weight.shape)
    (['bias', 'weight'], (16, 3, 3, 3))
    """

    def __init__(self, stage: str | Stage, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.text = str(stage)
        form = form_of(self.text)
        self.weight = torch.nn.Parameter(torch.empty(form.weight_shape, device=device, dtype=dtype))
        if form.bias:
            self.bias = torch.nn.Parameter(torch.empty(form.k, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = (self.weight[0].numel() or 1) ** -0.5
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return called(x, self.weight, self.bias, self.text)

    def extra_repr(self) -> str:
        return self.text


def __getattr__(name: str) -> Any:
    """spike, of convoy.spiking, which needs what is above."""
    if name == "spike":
        return _spiking.spike
    raise AttributeError(f"module 'convoy.torch' has no attribute '{name}'")


from . import spiking as _spiking  # noqa: E402
