"""Stages with a spiking neuron as a PyTorch operator with surrogate gradients: convoy.torch.spike."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import derivatives
from ._core import Error, InvalidOperand, Plan, Stage, Unsupported
from .gradients import cast, sums
from .stage_form import Form, form_of, stage_of, unknown
from .torch import _DTYPES, _library, _strided, as_read
from .weights import Kept, place_of, ready

__all__ = ["SURROGATES", "SpikeForm", "spike", "spike_form"]

# Surrogate derivatives g'(x) of the step function, with SpikingJelly's names and formulas.
SURROGATES = {
    "sigmoid": lambda x, alpha: alpha * (s := torch.sigmoid(alpha * x)) * (1 - s),
    "atan": lambda x, alpha: alpha / 2 / (1 + (math.pi / 2 * alpha * x).square()),
}

# The keywords of the stages that convoy.torch.spike computes. A stage with another one is refused.
_KNOWN = {"dtype", "n", "h", "w", "c", "k", "r", "s", "stride", "pad", "dil", "groups", "out", "bias", "act", "soft",
          "t", "hold", "pool", "strict"}  # fmt: skip

_library.define("spike(Tensor x, Tensor weight, Tensor? bias, Tensor? v, str stage, str surrogate, float alpha, "
                "bool detach_reset, bool frozen=False) -> (Tensor, Tensor)")  # fmt: skip


class SpikeForm:
    """A spiking stage whose type, n, h and w come from each x, and without `hold` also its number of steps."""

    def __init__(self, text: str) -> None:
        self.stage = stage = stage_of(text)
        act = stage.act
        if act.kind not in ("if", "lif"):
            raise Unsupported(f"{text}: a stage without a neuron, expected if(...) or lif(...). Run it with "
                              "convoy.torch.stage.")  # fmt: skip
        if found := unknown(stage, _KNOWN):
            raise Unsupported(f"{text}: a stage with {found}, expected only convolution, bias, neuron and pool. "
                              "Run it with a convoy.Plan.")  # fmt: skip
        self.text = str(stage)
        self.leaky, self.threshold = act.kind == "lif", act.threshold
        self.tau = act.tau if self.leaky else 1.0
        self.soft, self.hold, self.steps = stage.soft, stage.hold, stage.t
        # The stage without its neuron has the sizes, the filters and the pool.
        self.form: Form = form_of(str(stage.replace(act=None, soft=False, t=1, hold=False)))

    def of(self, dtype: str, steps: int, n: int, h: int, w: int) -> Stage:
        """Returns the stage for this type and these sizes."""
        return self.stage.replace(dtype=dtype, t=steps, n=n, h=h, w=w)


_forms: dict[str, SpikeForm] = {}


def spike_form(text: str) -> SpikeForm:
    """Returns the SpikeForm of a text; it is made once."""
    found = _forms.get(text)
    if found is None:
        found = _forms[text] = SpikeForm(text)
    return found


def _checked(form: SpikeForm, x: Tensor, weight: Tensor, bias: Tensor | None, v: Tensor | None) -> tuple:
    """Returns (steps, n, h, w) and the shape of v. Raises InvalidOperand for a wrong operand."""
    plain = form.form
    axes, names = (4, "[N, C, H, W]") if form.hold else (5, "[T, N, C, H, W]")
    if x.dtype not in _DTYPES:
        raise InvalidOperand(f"x: {x.dtype}, expected float32, float16 or bfloat16. Convert it: x.float().")
    if x.dim() != axes or x.shape[-3] != plain.c:
        raise InvalidOperand(f"x: {list(x.shape)}, expected {names} with C = {plain.c} for the stage {form.stage}.")
    if tuple(weight.shape) != plain.weight_shape:
        raise InvalidOperand(f"weight: {list(weight.shape)}, expected {list(plain.weight_shape)}, in PyTorch's order "
                             "[K, C/groups, R, S].")  # fmt: skip
    if (bias is not None) != plain.bias or (bias is not None and tuple(bias.shape) != (plain.k,)):
        raise InvalidOperand(f"bias: {None if bias is None else list(bias.shape)}, expected "
                             f"{[plain.k] if plain.bias else None} for the stage {form.stage}.")  # fmt: skip
    steps = form.steps if form.hold else x.shape[0]
    n, h, w = x.shape[-4], x.shape[-2], x.shape[-1]
    plain.sizes(h, w)
    sizes = [n, plain.k, *plain.unpooled(h, w)]
    if v is not None and list(v.shape) != sizes:
        raise InvalidOperand(f"v: {list(v.shape)}, expected the membranes {sizes} of the values before the pool.")
    for name, tensor in (("weight", weight), ("bias", bias), ("v", v)):
        if tensor is not None and tensor.device != x.device:
            raise InvalidOperand(f"{name}: on {tensor.device}, expected x's device {x.device}. Move it: "
                                 f"{name}.to(x.device).")  # fmt: skip
    return (steps, n, h, w), sizes


_plans = Kept(256)


def _last(x: Tensor) -> Tensor:
    """Returns [.., C, H, W] as a dense [.., H, W, C]: a view if the memory has that order, else a copy."""
    return x.movedim(-3, -1).contiguous()


def _plan(form: SpikeForm, x: Tensor, weight: Tensor, sizes: tuple, frozen: bool) -> Plan:
    """Returns the plan for x with the present weights."""
    place = place_of(weight)

    def make() -> Plan:
        threads = torch.get_num_threads() if x.device.type == "cpu" else 0
        return Plan(form.of(_DTYPES[x.dtype], *sizes), device=str(x.device), threads=threads, openmp=True,
                    axes="nhwc", weights_layout="kcrs")  # fmt: skip

    key = (form.text, frozen, sizes, x.dtype, x.device, torch.get_num_threads(), place)
    return ready(_plans, key, place, (weight,), make, frozen)[0]


def _run(x, weight, bias, v, text, surrogate, alpha, detach_reset, frozen=False):
    """Computes spikes and membranes: the operator's implementation."""
    form = spike_form(text)
    _strided(x=x, weight=weight, bias=bias, v=v)
    sizes, _ = _checked(form, x, weight, bias, v)
    y, after = _fake(x, weight, bias, v, text, surrogate, alpha, detach_reset)
    if y.numel() == 0:
        return y, after.zero_() if v is None else after.copy_(v)
    plan = _plan(form, x, weight, sizes, frozen)
    before = None if v is None else _last(v.float())
    plan.run(_last(x), as_read(bias), out=y.movedim(-3, -1), membrane=before, membrane_out=after.movedim(-3, -1))
    return y, after


def _dense(shape: tuple, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Returns a new tensor [.., C, H, W] whose memory is a dense [.., H, W, C].

    It is not a view, so it may be detached in place.
    """
    *several, c, h, w = shape
    strides, size = [1, w * c, c], h * w * c
    for axis in reversed(several):
        strides.insert(0, size)
        size = size * axis
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)


def _fake(x, weight, bias, v, text, surrogate, alpha, detach_reset, frozen=False):
    """Returns outputs of the right shapes without computing them, for compilers."""
    form = spike_form(text)
    (steps, n, h, w), (_, k, p, q) = _checked(form, x, weight, bias, v)
    y = _dense((steps, n, k, *form.form.sizes(h, w)), x.dtype, x.device)
    return y, _dense((n, k, p, q), torch.float32, x.device)


def _setup(ctx, inputs, output):
    """Saves the inputs of the forward pass for the backward pass."""
    x, weight, bias, v, *rest = inputs
    ctx.save_for_backward(x, weight, bias, v)
    ctx.rest = rest


def charge(form: SpikeForm, v: Tensor, z: Tensor) -> Tensor:
    """Returns the membranes after they take the input z, before they fire."""
    return v + (z - v) / form.tau if form.leaky else v + z


def _unrolled(form: SpikeForm, z: Tensor, v: Tensor, steps: int) -> tuple[list[Tensor], list[Tensor]]:
    """Returns the charged membranes and the spikes, one tensor per step.

    z has the sums of the convolution, [T, N, K, P, Q], or [N, K, P, Q] with `hold`.
    """
    charged, spikes = [], []
    for t in range(steps):
        h = charge(form, v, z if form.hold else z[t])
        s = (h >= form.threshold).to(h.dtype)
        # As in the kernels, an infinite charge is reset to 0, not to inf * 0.
        v = h - s * form.threshold if form.soft else torch.where(s > 0, 0, h)
        charged.append(h)
        spikes.append(s)
    return charged, spikes


def gradients(form, gy, gv, x, weight, bias, v, surrogate, alpha, detach_reset, wanted):
    """Returns the gradients of x, weight, bias and v, backwards through the steps. ATen repeats the forward pass."""
    aten, plain = torch.ops.aten, form.form
    dtype = x.dtype if x.is_cuda or x.dtype is torch.float64 else torch.float32
    derivative = SURROGATES[surrogate]
    wide, w = (x if form.hold else x.flatten(0, 1)).to(dtype), weight.to(dtype)
    top, left, bottom, right = plain.pad
    even = top == bottom and left == right
    if not even:
        wide = torch.nn.functional.pad(wide, (left, right, top, bottom))
    pad = [top, left] if even else [0, 0]
    z = sums(wide, w, bias, plain, pad, dtype)
    steps = gy.shape[0]
    z = z if form.hold else z.unflatten(0, (steps, x.shape[1]))
    first = torch.zeros_like(z if form.hold else z[0]) if v is None else v.to(dtype)
    charged, spikes = _unrolled(form, z, first, steps)
    gy = gy.to(dtype)
    gv = torch.zeros_like(first) if gv is None else gv.to(dtype)
    by_step: list[Tensor] = []
    for t in reversed(range(steps)):
        gs, h, s = gy[t], charged[t], spikes[t]
        if pool := plain.pool:
            _, idx = aten.max_pool2d_with_indices(s, *pool)
            gs = aten.max_pool2d_with_indices_backward(gs.contiguous(), s, *pool, idx)
        slope = derivative(h - form.threshold, alpha)
        if form.soft:
            gh = gv + slope * (gs if detach_reset else gs - form.threshold * gv)
        else:
            gh = gv * (1 - s) + slope * (gs if detach_reset else gs - gv * h)
        by_step.append(gh / form.tau if form.leaky else gh)
        gv = gh * (1 - 1 / form.tau) if form.leaky else gh
    gz = sum(by_step[1:], by_step[0]) if form.hold else torch.stack(by_step[::-1]).flatten(0, 1)
    gx, gw, gb = aten.convolution_backward(gz, wide, w, [plain.k], plain.stride, pad, plain.dilation, False, [0, 0],
                                           plain.groups, wanted)  # fmt: skip
    if gx is not None:
        gx = gx if even else gx[:, :, top : top + x.shape[-2], left : left + x.shape[-1]]
        gx = (gx if form.hold else gx.unflatten(0, (steps, x.shape[1]))).to(x.dtype)
    return gx, cast(gw, weight), cast(gb, bias), None if v is None else gv.to(v.dtype)


def _backward(ctx, gy, gv):
    """Returns the gradients of the operator's arguments."""
    x, weight, bias, v = ctx.saved_tensors
    text, surrogate, alpha, detach_reset, _ = ctx.rest
    wanted = [bool(needs) for needs in ctx.stage_needs[:3]]
    wanted[2] = wanted[2] and bias is not None
    form = spike_form(text)
    return (*gradients(form, gy, gv, x, weight, bias, v, surrogate, alpha, detach_reset, wanted), *[None] * 5)


for _device in ("CPU", "CUDA"):
    _library.impl("spike", _run, _device)
torch.library.register_fake("convoy::spike", _fake, lib=_library)


_WHOLE = {
    "sigmoid": lambda x, alpha: torch.sigmoid(alpha * x),
    "atan": lambda x, alpha: torch.atan(math.pi / 2 * alpha * x) / math.pi,
}


def _step(x: Tensor, name: str, alpha: float) -> Tensor:
    """Returns 1 for x >= 0, else 0, by PyTorch's operators, with the surrogate's derivatives of every order."""
    smooth = _WHOLE[name](torch.where(x == x, x, 0), alpha)  # NaN does not fire
    return (x >= 0).to(x.dtype) + (smooth - smooth.detach())


def _composite(x, weight, bias, v, text, surrogate, alpha, detach_reset, frozen=False):
    """Computes spikes and membranes with PyTorch's own operators, which have every derivative."""
    form = spike_form(text)
    (steps, n, _, _), _ = _checked(form, x, weight, bias, v)
    plain, dtype = form.form, x.dtype if x.is_cuda else torch.float32
    z = derivatives.convolved(plain, x if form.hold else x.flatten(0, 1), weight, bias, dtype)
    z = z if form.hold else z.unflatten(0, (steps, n))
    v = torch.zeros_like(z if form.hold else z[0]) if v is None else v.to(dtype)
    spikes = []
    for t in range(steps):
        h = charge(form, v, z if form.hold else z[t])
        s = _step(h - form.threshold, surrogate, alpha)
        cut = s.detach() if detach_reset else s
        v = h - cut * form.threshold if form.soft else h * (1 - cut)
        spikes.append(derivatives.pooled(plain, s))
    return torch.stack(spikes).to(x.dtype), v.float()


derivatives.register(_library, "spike", _setup, _backward, _composite, slice(1, 2))

_spike = torch.ops.convoy.spike.default


def spike(stage: str | Stage, x: Tensor, weight: Tensor, bias: Tensor | None = None, v: Tensor | None = None, *,
          surrogate: str = "sigmoid", alpha: float | None = None, detach_reset: bool = False,
          frozen: bool = False) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Computes a spiking stage with the operator torch.ops.convoy.spike.

    The backward pass replaces the derivative of the neuron's step function by that of the surrogate, as SpikingJelly
    does. ATen repeats the convolution for it.

    Args:
        stage: A Stage or its text, with a neuron: if(...) or lif(...). Type, n, h and w are taken from x, and without
            `hold` also the number of steps t; the values in the text are ignored.
        x: A tensor [T, N, C, H, W] in f32, f16 or bf16; with `hold` [N, C, H, W], which is the input of every step.
        weight: A tensor [K, C/groups, R, S].
        bias: A tensor [K], if the stage has `bias`.
        v: The membranes before the first step, [N, K, P, Q]. None: all are 0.
        surrogate: "sigmoid" or "atan".
        alpha: The parameter of the surrogate. None: 4 for "sigmoid", 2 for "atan".
        detach_reset: Send no gradient through the reset, as SpikingJelly's argument of this name.
        frozen: Do not compare the weights, as in `convoy.torch.stage`.

    Returns:
        Two tensors, the spikes [T, N, K, P', Q'], and the membranes after the last step, [N, K, P, Q] f32.

    Raises:
        Error: The stage is illegal or has no neuron, or the surrogate is unknown.
        InvalidOperand: An operand has a wrong shape, type or device, or a frozen weight changed.

    Example:
        >>> import torch, convoy.torch
        >>> x = torch.full((3, 1, 1, 2, 2), 0.5)
        >>> y, v = convoy.torch.spike("n1h2c1k1r1+if(1)+max2", x, torch.ones(1, 1, 1, 1))
        >>> y.flatten().tolist(), v.flatten().tolist()
        ([0.0, 1.0, 0.0], [0.5, 0.5, 0.5, 0.5])
    """
    if surrogate not in SURROGATES:
        raise Error(f"surrogate: '{surrogate}', expected one of {', '.join(SURROGATES)}.")
    alpha = alpha if alpha is not None else (4.0 if surrogate == "sigmoid" else 2.0)
    return _spike(x, weight, bias, v, str(stage), surrogate, float(alpha), bool(detach_reset), bool(frozen))
