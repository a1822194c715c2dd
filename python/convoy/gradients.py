"""Gradients of stages by ATen: the backward passes of the operators of convoy.torch."""

from __future__ import annotations

import torch

from .stage_form import Form, form_of

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_TORCH = {name: dtype for dtype, name in DTYPES.items()}


def output_dtype(form: Form, dtype: torch.dtype) -> torch.dtype:
    """Returns the type of y for an x of this type."""
    name = form.stage.output_dtype
    return dtype if name == form.stage.dtype else _TORCH[name]


def fold(weight, bias, gamma, beta, mean, var, eps):
    """Returns weights and bias of a convolution in f32, with the batch-norm after it folded in."""
    scale = torch.rsqrt(var.float() + eps)
    scale = scale if gamma is None else scale * gamma.float()
    shift = -mean.float() if bias is None else bias.float() - mean.float()
    shift = shift * scale if beta is None else shift * scale + beta.float()
    return weight.float() * scale.reshape(-1, *[1] * (weight.dim() - 1)), shift


def stage_gradients(gy, x, weight, bias, text, wanted):
    """Returns the gradients of x, weight and bias. ATen repeats the convolution and the layers after it."""
    aten, form = torch.ops.aten, form_of(text)
    dtype = x.dtype if x.is_cuda else torch.float32
    gy, wide, w = gy.to(dtype), x.to(dtype), weight.to(dtype)
    top, left, bottom, right = form.pad
    even = top == bottom and left == right
    if not even:
        wide = torch.nn.functional.pad(wide, (left, right, top, bottom))
    pad = [top, left] if even else [0, 0]
    if form.act or form.pool:
        pre = sums(wide, w, bias, form, pad, dtype)
        if form.pool:
            after = activated(pre, form)
            _, idx = aten.max_pool2d_with_indices(after, *form.pool)
            gy = aten.max_pool2d_with_indices_backward(gy, after, *form.pool, idx)
        if (bounds := form.bounds()) is not None:
            gy = aten.hardtanh_backward(gy, pre, *bounds)
        elif (slope := form.slope()) is not None:
            gy = torch.where(pre > 0, gy, gy * slope)
        elif form.act.kind == "relu":
            gy = aten.threshold_backward(gy, pre, 0)
    gx, gw, gb = aten.convolution_backward(gy, wide, w, [form.k], form.stride, pad, form.dilation, False, [0, 0],
                                           form.groups, wanted)  # fmt: skip
    if gx is not None:
        gx = gx if even else gx[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        gx = gx.to(x.dtype)
    return gx, gw, gb


def sums(x, weight, bias, form, pad, dtype):
    """Returns conv + bias, the input of the activation or neuron."""
    bias = None if bias is None else bias.to(dtype)
    return torch.nn.functional.conv2d(x, weight, bias, form.stride, pad, form.dilation, form.groups)


def activated(pre, form):
    """Returns the activation of conv + bias."""
    if (bounds := form.bounds()) is not None:
        return torch.nn.functional.hardtanh(pre, *bounds)
    if (slope := form.slope()) is not None:
        return torch.nn.functional.leaky_relu(pre, slope)
    return pre.relu() if form.act else pre


def setup(ctx, inputs, output):
    """Saves the inputs of `stage` for the backward pass."""
    x, weight, bias, ctx.text, _ = inputs
    ctx.save_for_backward(x, weight, bias)


def cast(gradient, like):
    """Returns a parameter's gradient in the parameter's type, or None if there is no parameter."""
    return None if gradient is None or like is None else gradient.to(like.dtype)


def backward(ctx, gy):
    """Returns the gradients of the arguments of `stage`."""
    x, weight, bias = ctx.saved_tensors
    wanted = [bool(needs) for needs in ctx.stage_needs[:3]]
    wanted[2] = wanted[2] and bias is not None
    gx, gw, gb = stage_gradients(gy, x, weight, bias, ctx.text, wanted)
    return gx, cast(gw, weight), cast(gb, bias), None, None


def setup_norm(ctx, inputs, output):
    """Saves the inputs of `stage_norm` for the backward pass."""
    *tensors, _, ctx.eps, ctx.text, _ = inputs
    ctx.save_for_backward(*tensors)


def backward_norm(ctx, gy):
    """Returns the gradients of the arguments of `stage_norm`."""
    x, weight, bias, gamma, beta, mean, var = ctx.saved_tensors
    folded, shift = fold(weight, bias, gamma, beta, mean, var, ctx.eps)
    needs = ctx.stage_needs
    gx, gf, gs = stage_gradients(gy, x, folded, shift, ctx.text, [bool(needs[0]), any(needs[1:7]), any(needs[1:7])])
    if gf is None:
        return gx, *[None] * 10
    gf, gs = gf.float(), gs.float()
    inverse = torch.rsqrt(var.float() + ctx.eps)
    scale = inverse if gamma is None else inverse * gamma.float()
    centred = -mean.float() if bias is None else bias.float() - mean.float()
    g_scale = (gf * weight.float()).sum((1, 2, 3)) + gs * centred
    g_inverse = g_scale if gamma is None else g_scale * gamma.float()
    gw, gb = gf * scale.reshape(-1, 1, 1, 1), gs * scale
    return (gx, cast(gw, weight), cast(gb, bias), cast(g_scale * inverse, gamma), cast(gs, beta),
            cast(-gb, mean), cast(g_inverse * -0.5 * inverse**3, var), None, None, None, None)  # fmt: skip
