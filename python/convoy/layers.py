"""Translates layers of PyTorch to parts of a stage's text."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx, nn


class Refused(Exception):
    """The reason why PyTorch runs a layer."""


def _pair(value: Any) -> tuple[int, int]:
    """Returns a number or a pair of numbers as a pair."""
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[1]))


def _sizes(word: str, *sizes: int) -> str:
    """Returns a word of a stage's text with its sizes, such as "stride2x1"."""
    return word + (str(sizes[0]) if len(set(sizes)) == 1 else "x".join(map(str, sizes)))


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


def conv_text(conv: nn.Conv2d) -> str:
    """Returns the part of the stage's text from its channels to its options."""
    text = f"c{conv.in_channels}k{conv.out_channels}r{conv.kernel_size[0]}s{conv.kernel_size[1]}"
    return (text + _sizes("stride", *conv.stride) + _sizes("pad", *_padding(conv)) + _sizes("dil", *conv.dilation)
            + f"groups{conv.groups}")  # fmt: skip


_RELU = {torch.relu, torch.relu_, nn.functional.relu, nn.functional.relu_, "relu", "relu_"}


def number(value: float) -> str:
    """Returns the shortest text that reads back as the same float, without ".0": 2 for 2.0."""
    return repr(float(value)).removesuffix(".0")


def act_of(node: fx.Node, module: nn.Module | None) -> str | None:
    """Returns the rider for an activation, or None if the node is no activation that a stage can have."""
    if type(module) is nn.ReLU or (module is None and node.op != "call_module" and node.target in _RELU):
        return "relu"
    if type(module) is nn.ReLU6 or node.target is nn.functional.relu6:
        return "relu6"
    if type(module) is nn.Hardtanh:
        return f"clip({number(module.min_val)},{number(module.max_val)})"
    if type(module) is nn.LeakyReLU:
        return f"leaky({number(module.negative_slope)})"
    return None


def pool_of(node: fx.Node, module: nn.Module | None) -> str | None:
    """Returns the rider for a max-pool, or None if the node is no pool that a stage can have."""
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
    window, stride, pad, dil = map(_pair, values)
    return (f"max{window[0]}x{window[1]}s{stride[0]}x{stride[1]}p{pad[0]}x{pad[1]}d{dil[0]}x{dil[1]}"
            + "ceil" * bool(ceil))  # fmt: skip


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
