"""Connects the operators of convoy.torch to autograd, forward-mode AD and the transforms of torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ._core import InvalidOperand
from .gradients import activated, fold, output_dtype, sums
from .stage_form import Form, form_of

_transforms = torch._C._functorch.peek_interpreter_stack


def has_tangent(tensors: list[Tensor]) -> bool:
    """Returns whether a tensor has a tangent of forward-mode AD."""
    if forward_ad._current_level < 0:
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def no_gradient(frozen: bool, *weights: Tensor | None) -> None:
    """Raises InvalidOperand for frozen weights that need a gradient."""
    if frozen and torch.is_grad_enabled() and any(w is not None and w.requires_grad for w in weights):
        raise InvalidOperand("weight: it requires a gradient, expected none of a frozen stage. Run it under "
                             "torch.no_grad(), call weight.requires_grad_(False), or pass frozen=False.")  # fmt: skip


def register(library: Any, name: str, setup: Callable, backward: Callable, composite: Callable, packed: slice) -> None:
    """Registers the operator's kernel for autograd. packed: the arguments that are weights.

    Under a transform of torch.func, and for tangents of forward-mode AD, the stage is computed with PyTorch's own
    operators (`composite`), which have every derivative. A compiler that traces a transform uses `composite` as well.
    """
    operator = getattr(torch.ops.convoy, name).default
    arguments = operator._schema.arguments

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, *given: Any) -> Any:
            with torch._C._AutoDispatchBelowAutograd():
                output = operator.redispatch(keys & torch._C._after_autograd_keyset, *given)
            setup(ctx, given, output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            ctx.stage_needs = ctx.needs_input_grad[1:]
            # As in PyTorch's own backward formulas, the types are those of the forward pass under any autocast.
            device = ctx.saved_tensors[0].device.type
            with torch.autocast(device, enabled=False):
                return (None, *backward(ctx, *gradients))

    count = len(arguments)

    def kernel(keys: Any, *given: Any) -> Any:
        if len(given) == count and given[-1]:
            no_gradient(True, *given[packed])
        due = torch.is_grad_enabled() and torch._C._any_requires_grad(*given)
        if due or forward_ad._current_level >= 0 or _transforms() is not None:
            # The dispatcher leaves out arguments with default values.
            every = (*given, *(argument.default_value for argument in arguments[len(given) :]))
            if _transforms() is not None or has_tangent([one for one in given if isinstance(one, Tensor)]):
                return composite(*every)
            if due:
                return Function.apply(keys, *every)
        with torch._C._AutoDispatchBelowAutograd():
            return operator.redispatch(keys & torch._C._after_autograd_keyset, *given)

    library.impl(name, kernel, "Autograd", with_keyset=True)


def convolved(form: Form, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Returns conv + bias of x [N, C, H, W]."""
    top, left, bottom, right = form.pad
    even = top == bottom and left == right
    wide = x.to(dtype)
    if not even:
        wide = torch.nn.functional.pad(wide, (left, right, top, bottom))
    return sums(wide, weight.to(dtype), bias, form, [top, left] if even else [0, 0], dtype)


def pooled(form: Form, y: Tensor) -> Tensor:
    """Returns y after the stage's pool."""
    return torch.nn.functional.max_pool2d(y, *form.pool) if form.pool else y


def stage(x, weight, bias, text, frozen=False):
    """Computes a stage with PyTorch's own operators."""
    form = form_of(text)
    dtype = x.dtype if x.is_cuda else torch.float32
    y = pooled(form, activated(convolved(form, x, weight, bias, dtype), form))
    return y.to(output_dtype(form, x.dtype))


def stage_norm(x, weight, bias, gamma, beta, mean, var, batches, eps, text, frozen=False):
    """Computes a stage with a batch-norm folded in, with PyTorch's own operators."""
    return stage(x, *fold(weight, bias, gamma, beta, mean, var, eps), text)
