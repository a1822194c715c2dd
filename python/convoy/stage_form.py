"""Stages whose type, n, h and w come from each x, as PyTorch's operators take them."""

from __future__ import annotations

import functools
from typing import Any

from ._core import Error, InvalidOperand, Stage

_AXES = {"n", "h", "c", "k", "r"}  # a stage needs them
# The keywords of the stages that convoy.torch.stage computes. A stage with another one is refused.
_KNOWN = {"dtype", "n", "h", "w", "c", "k", "r", "s", "stride", "pad", "dil", "groups", "layout", "out", "bias", "act",
          "pool", "strict"}  # fmt: skip
_ACTS = ("none", "relu", "relu6", "clip", "leaky")


def stage_of(text: str) -> Stage:
    """Returns the stage of a text. Its h and w may be too small for the filter or pool, because x has its own."""
    try:
        return Stage(text)
    except Error:
        try:
            keywords = Stage.keywords_of(text)
            if keywords.keys() >= _AXES:
                return Stage(**keywords | {"h": 4096, "w": 4096})
        except Error:
            pass
        raise


def unknown(stage: Stage, known: set[str]) -> str:
    """Returns the parts of the stage that are not in `known`, for a message; "" if there are none."""
    return ", ".join(f"'{stage.layout if name == 'layout' else name}'"
                     for name in Stage.keywords_of(stage) if name not in known)  # fmt: skip


class Form:
    """A stage whose type, n, h and w come from each x.

    Attributes:
        stage: The stage, with some type, n, h and w.
        act: Its `Activation`.
        pool: The arguments of PyTorch's max_pool2d after the input: window, stride, padding, dilation and ceil_mode.
            None without a pool.
        last: Whether x and y are channels_last.
        weight_shape: The weights' shape in PyTorch's order, (K, C/groups, R, S).
    """

    def __init__(self, text: str) -> None:
        self.stage = stage = stage_of(text)
        found = unknown(stage, _KNOWN) or (f"'{stage.act}'" if stage.act.kind not in _ACTS else "")
        if found:
            raise Error(f"{text}: a stage with {found}, expected only convolution, bias, activation and pool. Run it "
                        "with a convoy.Plan.")  # fmt: skip
        self.c, self.k, self.r, self.s, self.groups = stage.c, stage.k, stage.r, stage.s, stage.groups
        self.stride, self.pad, self.dilation = stage.stride, stage.pad, stage.dil
        self.bias, self.last, self.act, pool = stage.bias, stage.layout == "nhwc", stage.act, stage.pool
        self.weight_shape = (self.k, self.c // self.groups, self.r, self.s)
        self.pool = pool and (pool.window, pool.stride, pool.pad, pool.dil, pool.ceil)

    def of(self, dtype: str, n: int, h: int, w: int) -> Stage:
        """Returns the stage for an x of this type and size."""
        return self.stage.replace(dtype=dtype, n=n, h=h, w=w)

    # Stage.p and Stage.out_h are the same sizes. These formulas also take the symbolic sizes of torch.compile.

    def unpooled(self, h: Any, w: Any) -> tuple[Any, Any]:
        """Returns height and width before the pool, for numbers and symbolic sizes."""
        (top, left, bottom, right), (dh, dw), (uh, uw) = self.pad, self.dilation, self.stride
        return ((h + top + bottom - dh * (self.r - 1) - 1) // uh + 1,
                (w + left + right - dw * (self.s - 1) - 1) // uw + 1)  # fmt: skip

    def _pooled(self, axis: int, size: Any) -> Any:
        """Returns the pooled height (axis 0) or width (axis 1) by PyTorch's rule, for numbers and symbolic sizes."""
        window, stride, pad, dilation = (pair[axis] for pair in self.pool[:4])
        span = size + 2 * pad - dilation * (window - 1) - 1
        if not self.pool[4]:
            return span // stride + 1
        pooled = (span + stride - 1) // stride + 1
        return pooled - 1 if (pooled - 1) * stride >= size + pad else pooled

    def sizes(self, h: Any, w: Any) -> tuple[Any, Any]:
        """Returns height and width of y. Raises InvalidOperand if PyTorch's operators would raise an error."""
        if h < 1 or w < 1:
            raise InvalidOperand(f"x: images of {h} x {w} pixels, expected at least one row and one column. Only the "
                                 "batch may be empty, as in PyTorch. Leave such images out.")  # fmt: skip
        p, q = self.unpooled(h, w)
        if p < 1 or q < 1:
            raise InvalidOperand(f"x: images of {h} x {w} pixels, smaller with their padding than the filter of "
                                 f"{self.r} x {self.s} of the stage {self.stage}. Pad them, or leave them out.")
        if not self.pool:
            return p, q
        sizes = self._pooled(0, p), self._pooled(1, q)
        if sizes[0] < 1 or sizes[1] < 1:
            raise InvalidOperand(f"x: images of {h} x {w} pixels, {p} x {q} before the pool, smaller than its "
                                 f"window in the stage {self.stage}. Pad them, or leave them out.")
        return sizes

    def bounds(self) -> tuple[float, float] | None:
        """Returns (lo, hi) of relu6 and clip, or None for other activations."""
        if self.act.kind == "relu6":
            return 0.0, 6.0
        return (self.act.lo, self.act.hi) if self.act.kind == "clip" else None

    def slope(self) -> float | None:
        """Returns the slope of leaky, or None for other activations."""
        return self.act.slope if self.act.kind == "leaky" else None


@functools.cache
def form_of(text: str) -> Form:
    """Returns the Form of a text; it is made once."""
    return Form(text)
