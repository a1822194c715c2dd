"""Stages as PyTorch operators, for eager and compiled models, with gradients.

`import convoy` does not import PyTorch; `import convoy.torch` does.

Example:
    >>> import torch, convoy.torch
    >>> layer = convoy.torch.StageModule("n1h8c3k16r3pad1+bias+relu+max2")
    >>> x = torch.randn(4, 3, 32, 32).to(memory_format=torch.channels_last)
    >>> layer(x).shape
    torch.Size([4, 16, 16, 16])
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import derivatives, gradients
from ._core import InvalidOperand, Plan, Stage, _is_plain, _places
from .gradients import DTYPES, fold, output_dtype
from .records import a_kind
from .stage_form import Form, form_of
from .weights import Kept, place_of, ready, source_of, sources

__all__ = ["StageModule", "plan", "spike", "stage"]  # noqa: F822

_DTYPES = DTYPES
_FLOAT, _LAST = torch.float32, torch.channels_last
_threads = torch.get_num_threads

_library = torch.library.Library("convoy", "DEF")
_library.define("stage(Tensor x, Tensor weight, Tensor? bias, str stage, bool frozen=False) -> Tensor")
_library.define(
    "stage_norm(Tensor x, Tensor weight, Tensor? bias, Tensor? gamma, Tensor? beta, Tensor mean, Tensor var, "
    "Tensor? batches, float eps, str stage, bool frozen=False) -> Tensor"
)


def _checked(form: Form, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raises InvalidOperand for a wrong operand. A plan's own errors would name the axes in Convoy's order."""
    if x.dtype not in _DTYPES:
        raise InvalidOperand(f"x: {x.dtype}, expected float32, float16 or bfloat16. Convert it: x.float().")
    if x.dim() != 4 or x.shape[1] != form.c:
        raise InvalidOperand(f"x: {list(x.shape)}, expected [N, {form.c}, H, W] for the stage {form.stage}.")
    if tuple(weight.shape) != form.weight_shape:
        raise InvalidOperand(f"weight: {list(weight.shape)}, expected {list(form.weight_shape)}, in PyTorch's order "
                             "[K, C/groups, R, S].")  # fmt: skip
    if (bias is not None) != form.bias:
        found, wanted = ("None", "a tensor") if bias is None else ("a tensor", "None")
        raise InvalidOperand(f"bias: {found}, expected {wanted} for the stage {form.stage}.")
    if bias is not None and tuple(bias.shape) != (form.k,):
        raise InvalidOperand(f"bias: {list(bias.shape)}, expected [{form.k}] for the stage {form.stage}.")
    for name, tensor in (("weight", weight), ("bias", bias)):
        if tensor is not None and tensor.dtype not in _DTYPES:
            raise InvalidOperand(f"{name}: {tensor.dtype}, expected float32 or x's type {x.dtype}. Convert it: "
                                 f"{name}.to(x.dtype).")  # fmt: skip
        if tensor is not None and tensor.device != x.device:
            raise InvalidOperand(f"{name}: on {tensor.device}, expected x's device {x.device}. Move it: "
                                 f"{name}.to(x.device).")  # fmt: skip


def _made(form: Form, x: Tensor) -> Plan:
    """Returns a new plan for x, without weights."""
    n, _, h, w = x.shape
    return Plan(form.of(_DTYPES[x.dtype], n, h, w), device=str(x.device),
                threads=torch.get_num_threads() if x.device.type == "cpu" else 0, openmp=True,
                axes="nchw" if form.last else "auto", weights_layout="kcrs")  # fmt: skip


_plans = Kept(1024)


def _strided(**named: Tensor | None) -> None:
    """Raises InvalidOperand, which names the tensor, for a tensor without ordinary memory of its own."""
    for name, tensor in named.items():
        if tensor is not None and tensor.layout is not torch.strided:
            raise InvalidOperand(f"{name}: a tensor of the layout {tensor.layout}, expected torch.strided. Convert it: "
                                 f"{name}.to_dense().")  # fmt: skip
        if tensor is not None and tensor.untyped_storage().nbytes() < tensor.element_size() * (
            tensor.storage_offset() + 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        ) and tensor.numel():
            raise InvalidOperand(f"{name}: a storage of {tensor.untyped_storage().nbytes()} bytes, expected one that "
                                 f"holds {list(tensor.shape)}. untyped_storage().resize_(0) empties it; fill it again.")


def _plan(text: str, x: Tensor, given: tuple, bias: Tensor | None, frozen: bool = False,
          key: tuple | None = None) -> tuple[Plan, Tensor | None]:  # fmt: skip
    """Returns the plan for x with the present weights, and the bias as the plan reads it.

    given: the weight, and the bias if it must be converted. Checks the operands of a new plan; runs check the rest.
    """
    if key is None:
        _strided(x=x, weight=given[0], bias=bias)
        key = (text, _threads(), frozen, x.shape, x.dtype, x.device, *map(place_of, given))

    def make() -> Plan:
        form = form_of(text)
        _strided(x=x, weight=given[0], bias=bias)
        _checked(form, x, given[0], bias)
        return _made(form, x)

    # Convoy's spiking operator shares the weights of a single place.
    place = place_of(given[0]) if len(given) == 1 else tuple(map(place_of, given))
    plan, converted = ready(_plans, key, place, given, make, frozen)
    return plan, bias if len(given) == 1 else converted


def _empty(form: Form, x: Tensor) -> Tensor:
    """Returns y with undefined values: dense, in the stage's memory format."""
    p, q = form.sizes(x.shape[2], x.shape[3])
    return torch.empty((x.shape[0], form.k, p, q), dtype=output_dtype(form, x.dtype), device=x.device,
                       memory_format=_LAST if form.last else torch.contiguous_format)  # fmt: skip


def as_read(bias: Tensor | None) -> Tensor | None:
    """Returns the bias as a plan reads it: f32 and contiguous."""
    if bias is None or (bias.dtype is torch.float32 and bias.is_contiguous()):
        return bias
    if bias.dtype not in _DTYPES:
        raise InvalidOperand(f"bias: {bias.dtype}, expected float32 or x's type. Convert it: bias.to(x.dtype).")
    return bias.float().contiguous()


_formats: dict[str, torch.memory_format] = {}  # the memory format that each stage's text asks for


def _dense(x: Tensor, text: str) -> Tensor:
    """Returns x, or a copy of it, dense in the stage's memory format."""
    format = _formats.get(text)
    if format is None:
        format = _formats[text] = _LAST if form_of(text).last else torch.contiguous_format
    return x if x.is_contiguous(memory_format=format) else x.contiguous(memory_format=format)


def _run(x: Tensor, weight: Tensor, bias: Tensor | None, text: str, frozen: bool = False) -> Tensor:
    """Computes the stage: the operator's implementation."""
    if frozen:  # only the weights are
        bias = as_read(bias)
    # Another bias than plans read is converted when it changes.
    given = (weight,) if bias is None or (bias.dtype is _FLOAT and bias.is_contiguous()) else (weight, bias)
    places, key = _places(x, *given), None
    if places is not None:
        threads = _threads()
        key = (text, threads, frozen, places)
        found = _plans.find(key)
        if found is not None and found.current(given, frozen, threads):
            return found.plan(_dense(x, text), bias if len(given) == 1 else found.bias)
    else:
        _strided(x=x)
        if x.numel() == 0:
            return _fake(x, weight, bias, text)
    plan, bias = _plan(text, x, given, bias, frozen, key)
    return plan(_dense(x, text), bias)


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None, text: str, frozen: bool = False) -> Tensor:
    """Returns an output of the right shape without computing it, for compilers."""
    form = form_of(text)
    _checked(form, x, weight, bias)
    return _empty(form, x)


def _norm_place(tensors: tuple, eps: float) -> tuple:
    """Returns eps and the place of each tensor, as a key."""
    return (eps, *(None if tensor is None else place_of(tensor) for tensor in tensors))


def folded(weight, bias, gamma, beta, mean, var, batches, eps):
    """Returns weights and bias with the batch-norm folded in.

    The result is the same two tensors until the content of an argument changes; the caller must not write to them.
    If gradients are needed, or a compiler is tracing, new tensors are made at each call. `batches`, which is
    num_batches_tracked, is not read.
    """
    given = (weight, bias, gamma, beta, mean, var)
    tensors = [tensor for tensor in given if tensor is not None]
    due = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if due or torch.compiler.is_compiling() or derivatives.has_tangent(tensors) or _transforms() is not None:
        return fold(*given, eps)
    source = source_of(("folded", _norm_place(given, eps)), tensors, eps)
    return source.values(source.look(tensors, False), given)


def _run_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text, frozen=False):
    """Computes a stage whose weights have a batch-norm folded in: the operator's implementation."""
    given, threads = (weight, bias, gamma, beta, mean, var), _threads()
    places = _places(x, *given)
    if places is not None:
        key = (text, threads, frozen, eps, places)
        found = _plans.find(key)
        if found is not None and found.current(given, frozen, threads):
            return found.plan(_dense(x, text), found.bias)
    elif x.numel() == 0:
        return _fake_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text)
    _strided(x=x, weight=weight, bias=bias, gamma=gamma, beta=beta, mean=mean, var=var)
    place = _norm_place(given, eps)
    if places is None:
        key = (text, threads, frozen, x.shape, x.dtype, x.device, place)

    def make() -> Plan:
        form = form_of(text)
        _checked(form, x, weight, mean)
        return _made(form, x)

    plan, shift = ready(_plans, key, place, given, make, frozen, eps)
    return plan(_dense(x, text), shift)


def _fake_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text, frozen=False):
    """Returns an output of the right shape without computing it, for compilers."""
    form = form_of(text)
    _checked(form, x, weight, mean)
    return _empty(form, x)


for _device in ("CPU", "CUDA"):
    _library.impl("stage", _run, _device)
    _library.impl("stage_norm", _run_norm, _device)
torch.library.register_fake("convoy::stage", _fake, lib=_library)
torch.library.register_fake("convoy::stage_norm", _fake_norm, lib=_library)


derivatives.register(_library, "stage", gradients.setup, gradients.backward, derivatives.stage, slice(1, 2))
derivatives.register(_library, "stage_norm", gradients.setup_norm, gradients.backward_norm, derivatives.stage_norm,
                     slice(1, 7))  # fmt: skip


def _autocast(name: str, device: str) -> None:
    """Makes autocast cast x, as it does for a convolution. Weights are not cast: packing converts them anyway."""
    operator = getattr(torch.ops.convoy, name).default
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, "AutocastCUDA" if device == "cuda" else "AutocastCPU"))

    def cast(x, *rest):
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return operator(x.to(torch.get_autocast_dtype(device)) if x.dtype in _DTYPES else x, *rest)

    _library.impl(name, cast, "AutocastCUDA" if device == "cuda" else "AutocastCPU")


for _name in ("stage", "stage_norm"):
    for _device in ("cpu", "cuda"):
        _autocast(_name, _device)

_stage, _stage_norm = torch.ops.convoy.stage.default, torch.ops.convoy.stage_norm.default
_compiling, _any_autocast = torch.compiler.is_compiling, torch._C._is_any_autocast_enabled
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms, _jit, _profiled = (torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state,
                                torch._C._autograd._profiler_enabled)  # fmt: skip


def _is_seen() -> bool:
    """Returns whether a compiler, autocast, mode, transform, profiler or forward-mode AD must see the operator."""
    return (_compiling() or _dispatch_modes() or _function_modes() or _any_autocast() or _profiled()
            or _transforms() or _jit() or forward_ad._current_level >= 0)  # fmt: skip


def called(x: Tensor, weight: Tensor, bias: Tensor | None, text: str, frozen: bool = False) -> Tensor:
    """Computes the stage through the operator, or directly if nothing but this function would notice.

    The direct way saves the dispatcher's calls from Python and back to it. It is taken for plain tensors without a
    negative bit if no gradient or tangent is needed and no compiler, autocast, mode, transform or profiler is active.
    """
    if _is_seen() or not _is_plain(x, weight, bias):
        for name, given in (("x", x), ("weight", weight)):
            if not isinstance(given, Tensor):  # PyTorch would print all of it
                raise InvalidOperand(f"{name}: {a_kind(given)}, expected a torch.Tensor.")
        return _stage(x, weight, bias, text, frozen)
    return _run(x, weight, bias, text, frozen)


def called_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text, frozen=False):
    """Computes the stage with a batch-norm folded in, in the same two ways as `called`."""
    if _is_seen() or not _is_plain(x, weight, bias, gamma, beta, mean, var):
        return _stage_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text, frozen)
    return _run_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text, frozen)


def stage(stage: str | Stage, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, frozen: bool = False) -> Tensor:
    """Computes a stage with the operator torch.ops.convoy.stage.

    A plan is made for each shape of x and kept. Each call compares the content of `weight` with the packed weights and
    packs it again if it changed, whatever changed it.

    ATen computes the gradients; for this it repeats the convolution. Under torch.func and forward-mode AD, ATen
    computes the whole stage.

    Args:
        stage: A Stage or its text. Type, n, h and w are taken from x; the values in the text are ignored.
        x: A tensor [N, C, H, W] in f32, f16 or bf16, channels_last. Another tensor is copied to channels_last first.
            A stage with the option `nchw` takes contiguous tensors.
        weight: A tensor [K, C/groups, R, S] in x's type or f32.
        bias: A tensor [K] in x's type or f32, if the stage has `bias`.
        frozen: Do not compare the weights: they keep their values from the first frozen call on.

    Returns:
        A tensor [N, K, P', Q'], channels_last (contiguous with the option `nchw`).

    Raises:
        Error: The stage is illegal, or has `norm`, `keep(...)` or a neuron.
        InvalidOperand: An operand has a wrong shape, type or device. With `frozen`, also if the version counter of
            `weight` moved, an optimizer stepped on it, or it needs a gradient. Other writes to a frozen weight are not
            noticed.

    Example:
        >>> import torch, convoy.torch
        >>> x, weight = torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)
        >>> convoy.torch.stage("n1h8c3k4r3pad1+relu+max2", x, weight).max()
        tensor(27.)
    """
    return called(x, weight, bias, stage if type(stage) is str else str(stage), frozen)


def plan(stage: str | Stage, x: Tensor, weight: Tensor) -> Plan:
    """Returns the plan that the operator runs for these tensors, for example to read its `explain()`.

    Args:
        stage: A Stage or its text, as `convoy.torch.stage` takes it.
        x: A tensor of the shape, type and device that the stage is called with.
        weight: A tensor [K, C/groups, R, S].

    Returns:
        The `Plan`, with these weights.

    Raises:
        Error: The stage is illegal, or has `norm`, `keep(...)` or a neuron.
        InvalidOperand: A tensor has a wrong shape, type or device.

    Example:
        >>> import torch, convoy.torch
        >>> convoy.torch.plan("n1h8c3k4r3pad1", torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3)).stage
        n2h8w8c3k4r3pad1
    """
    form = form_of(str(stage))
    return _plan(str(stage), x, (weight,), torch.empty(form.k, device=x.device) if form.bias else None)[0]


def thaw(*tensors: Tensor) -> None:
    """Makes the next frozen call with these weights compare their content, and pack it again if it changed."""
    addresses = {tensor.untyped_storage()._cdata for tensor in tensors}
    for source in sources():
        if not addresses.isdisjoint(source.addresses):
            source.versions = None


def __getattr__(name: str) -> Any:
    """Returns `spike` of convoy.spiking. That module imports this one, so it is imported last."""
    if name == "spike":
        return _spiking.spike
    raise AttributeError(f"module 'convoy.torch' has no attribute '{name}'")


from . import spiking as _spiking  # noqa: E402
from .stage_module import StageModule  # noqa: E402
