"""Translates layers of PyTorch to keywords of a convoy.Stage."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn

from ._core import Pool


class Refused(Exception):
    """The reason why PyTorch runs a layer."""


def _pair(value: Any) -> tuple[int, int]:
    """Returns a number or a pair of numbers as a pair."""
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _padding(conv: nn.Conv2d) -> tuple[int, int, int, int]:
    """Returns the padding (top, left, bottom, right)."""
    if conv.padding_mode != "zeros":
        raise Refused(f"padding_mode '{conv.padding_mode}', expected 'zeros'")
    if conv.padding == "valid":
        return 0, 0, 0, 0
    if conv.padding == "same":  # PyTorch puts the odd pixel at the end
        high, wide = (d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True))
        return high // 2, wide // 2, high - high // 2, wide - wide // 2
    (top, left) = _pair(conv.padding)
    return top, left, top, left


def sums_of(layer: nn.Conv2d | nn.Linear) -> dict[str, Any]:
    """Returns the keywords for the channels, filters and options of a convolution or linear layer."""
    if isinstance(layer, nn.Linear):
        return dict(c=layer.in_features, k=layer.out_features, r=1)
    r, s = layer.kernel_size
    return dict(c=layer.in_channels, k=layer.out_channels, r=r, s=s, stride=layer.stride, pad=_padding(layer),
                dil=layer.dilation, groups=layer.groups)  # fmt: skip


_RELU = {torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_, "relu", "relu_"}


def act_of(node: fx.Node, module: nn.Module | None) -> str | None:
    """Returns the keyword `act` for an activation, or None if the node is no activation that a stage can have."""
    if type(module) is nn.ReLU or (module is None and node.op != "call_module" and node.target in _RELU):
        return "relu"
    if type(module) is nn.ReLU6 or node.target is nn.functional.relu6:
        return "relu6"
    if type(module) is nn.Hardtanh:
        return f"clip({float(module.min_val)},{float(module.max_val)})"
    if type(module) is nn.LeakyReLU:
        return f"leaky({float(module.negative_slope)})"
    return None


def pool_of(node: fx.Node, module: nn.Module | None) -> Pool | None:
    """Returns the keyword `pool` for a max-pool, or None if the node is no pool that a stage can have."""
    if type(module) is nn.MaxPool2d or (isinstance(module, nn.MaxPool2d) and hasattr(module, "step_mode")):
        values = [module.kernel_size, module.stride, module.padding, module.dilation]
        ceil, indices = module.ceil_mode, module.return_indices
    elif node.op == "call_function" and node.target in (nn.functional.max_pool2d, torch.max_pool2d):
        names = ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
        given = dict(zip(names, node.args[1:], strict=False)) | node.kwargs
        if any(isinstance(value, fx.Node) for value in given.values()):
            return None
        values = [given.get(name, default) for name, default in zip(names, (None, None, 0, 1), strict=False)]
        ceil, indices = given.get("ceil_mode", False), given.get("return_indices", False)
    else:
        return None
    if indices:
        return None
    values[1] = values[1] or values[0]
    return Pool(*map(_pair, values), ceil=bool(ceil))


HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# The classes' methods as PyTorch defines them. If a class was given another forward, its layers compute something else.
_FORWARDS = {kind: (kind.forward, getattr(kind, "_conv_forward", None))
             for kind in (nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.MaxPool2d, nn.ReLU, nn.ReLU6, nn.Hardtanh,
                          nn.LeakyReLU)}  # fmt: skip


def hooked(module: nn.Module) -> bool:
    """Returns whether the module has hooks."""
    return any(module.__dict__.get(name) for name in HOOKS)


def why_not_plain(module: nn.Module) -> str:
    """Returns why a stage cannot replace a call of the layer; "" if it can."""
    if hooked(module):
        return "it has hooks, which would not be called"
    kind = type(module)
    known = _FORWARDS.get(kind, (None, None))
    for name, own in zip(("forward", "_conv_forward"), known, strict=True):
        if name in module.__dict__ or (own is not None and getattr(kind, name) is not own):
            return f"its {name} was replaced"
    return ""


def plain(module: nn.Module) -> bool:
    """Returns whether a stage can replace a call of the layer."""
    return not why_not_plain(module)


def steady(norm: nn.Module) -> bool:
    """Returns whether the batch-norm uses statistics of its own, and counts their changes."""
    return (type(norm) is nn.BatchNorm2d and norm.running_mean is not None and norm.num_batches_tracked is not None
            and not norm.training and plain(norm))  # fmt: skip


def follower(node: fx.Node, modules: dict[str, nn.Module]) -> tuple[fx.Node | None, nn.Module | None]:
    """Returns the only reader of a node's value and its module, or (None, None) if it is not a layer of one input."""
    users = list(node.users)
    if len(users) != 1 or not users[0].args or users[0].args[0] is not node:
        return None, None
    module = modules.get(users[0].target) if users[0].op == "call_module" else None
    return (None, None) if module is not None and not plain(module) else (users[0], module)
