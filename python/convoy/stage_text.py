"""Reads the parts of a stage's text that PyTorch's operators need."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from ._core import Error, InvalidOperand, Stage, Unsupported

_HEAD = re.compile(r"(?:\w+:)?n\d+h\d+w\d+")
_RIDER = re.compile(r"(?<!\de)\+")
_POOL = re.compile(r"max([\dx]+)(?:s([\dx]+))?(?:p([\dx]+))?(?:d([\dx]+))?(ceil)?")


def parts(text: str) -> tuple[str, list[str]]:
    """Returns the text before the first rider, and the riders. The "+" of a number, as in 1e+30, begins no rider."""
    head, *riders = _RIDER.split(text)
    return head, riders


def _pair(text: str | None, default: tuple[int, int]) -> tuple[int, int]:
    """Returns "3" or "3x2" as a pair of numbers."""
    if not text:
        return default
    sizes = [int(size) for size in text.split("x")]
    return sizes[0], sizes[-1]


class Pool(NamedTuple):
    """A max-pool; each pair is (height, width)."""

    window: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    ceil: bool

    def size(self, axis: int, size: Any) -> Any:
        """Returns the pooled height (axis 0) or width (axis 1) by PyTorch's rule, for numbers and symbolic sizes."""
        stride, pad = self.stride[axis], self.pad[axis]
        span = size + 2 * pad - self.dilation[axis] * (self.window[axis] - 1) - 1
        if not self.ceil:
            return span // stride + 1
        pooled = (span + stride - 1) // stride + 1
        return pooled - 1 if (pooled - 1) * stride >= size + pad else pooled


def stage_of(text: str) -> Stage:
    """Returns the stage of a text. Its h and w may be too small for the filter or pool, because x has its own."""
    try:
        return Stage(text)
    except Error:
        head, riders = parts(text)
        options = re.match(r"(?:\w+:)?", head)
        axes = re.sub(r"w\d+", "", head[options.end() :])
        larger, count = re.subn(r"h\d+", "h4096", axes)
        try:
            return Stage("+".join([options[0] + larger, *riders])) if count == 1 else Stage(text)
        except Error:
            pass
        raise


class Form:
    """A stage whose type, n, h and w come from each x."""

    def __init__(self, text: str) -> None:
        self.stage = stage = stage_of(text)
        head, riders = parts(str(stage))
        self._tail = str(stage)[_HEAD.match(head).end() :]
        self.c, self.k, self.r, self.s, self.groups = stage.c, stage.k, stage.r, stage.s, stage.groups
        self.stride, self.pad, self.dilation = stage.stride, stage.pad, stage.dil
        self.bias, self.last = stage.bias, stage.layout == "nhwc"
        self.weight_shape = (self.k, self.c // self.groups, self.r, self.s)
        self.act, self.pool = "", None
        for rider in riders:
            if rider == "norm" or rider.startswith(("keep", "if", "lif")):
                raise Unsupported(f"{text}: a stage with '{rider}', expected only convolution, bias, activation and "
                                  "pool. Run it with a convoy.Plan.")  # fmt: skip
            if found := _POOL.fullmatch(rider):
                window = _pair(found[1], (1, 1))
                self.pool = Pool(window, _pair(found[2], window), _pair(found[3], (0, 0)), _pair(found[4], (1, 1)),
                                 found[5] is not None)  # fmt: skip
            elif rider.startswith(("relu", "clip", "leaky")):
                self.act = rider
            elif rider not in ("bias", "strict"):
                raise Unsupported(f"{text}: '{rider}', which convoy.torch does not know. Run the stage with a "
                                  "convoy.Plan.")  # fmt: skip

    def text(self, dtype: str, n: int, h: int, w: int) -> str:
        """Returns the stage's text for an x of this type and size."""
        return f"{dtype}:n{n}h{h}w{w}{self._tail}"

    def unpooled(self, h: Any, w: Any) -> tuple[Any, Any]:
        """Returns height and width before the pool, for numbers and symbolic sizes."""
        (top, left, bottom, right), (dh, dw), (uh, uw) = self.pad, self.dilation, self.stride
        return ((h + top + bottom - dh * (self.r - 1) - 1) // uh + 1,
                (w + left + right - dw * (self.s - 1) - 1) // uw + 1)  # fmt: skip

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
        sizes = self.pool.size(0, p), self.pool.size(1, q)
        if sizes[0] < 1 or sizes[1] < 1:
            raise InvalidOperand(f"x: images of {h} x {w} pixels, {p} x {q} before the pool, smaller than its "
                                 f"window in the stage {self.stage}. Pad them, or leave them out.")
        return sizes

    def bounds(self) -> tuple[float, float] | None:
        """Returns (lo, hi) of relu6 and clip, or None for other activations."""
        if self.act == "relu6":
            return 0.0, 6.0
        if self.act.startswith("clip"):
            lo, hi = self.act[5:-1].split(",")
            return float(lo), float(hi)
        return None

    def slope(self) -> float | None:
        """Returns the slope of leaky, or None for other activations."""
        return float(self.act[6:-1]) if self.act.startswith("leaky") else None


@functools.cache
def form_of(text: str) -> Form:
    """Returns the Form of a text; it is made once."""
    return Form(text)
