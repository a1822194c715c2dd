"""A stage's text by its parts: what PyTorch's operators have to know of it."""

from __future__ import annotations

import functools
import re
from typing import Any, NamedTuple

from ._core import Error, InvalidOperand, Stage

_HEAD = re.compile(r"(?:\w+:)?n\d+h\d+w\d+")
_RIDER = re.compile(r"(?<!\de)\+")
_POOL = re.compile(r"max([\dx]+)(?:s([\dx]+))?(?:p([\dx]+))?(?:d([\dx]+))?(ceil)?")


def parts(text: str) -> tuple[str, list[str]]:
    """What is before the first rider, and the riders. The "+" of a number, as in clip(0,1e+30), begins none."""
    head, *riders = _RIDER.split(text)
    return head, riders


def _pair(text: str | None, default: tuple[int, int]) -> tuple[int, int]:
    if not text:
        return default
    sizes = [int(size) for size in text.split("x")]
    return sizes[0], sizes[-1]


class Pool(NamedTuple):
    window: tuple[int, int]
    stride: tuple[int, int]
    pad: tuple[int, int]
    dilation: tuple[int, int]
    ceil: bool

    def size(self, axis: int, size: Any) -> Any:
        """The pooled height (axis 0) or width (1), by PyTorch's rule; also of symbolic sizes."""
        stride, pad = self.stride[axis], self.pad[axis]
        span = size + 2 * pad - self.dilation[axis] * (self.window[axis] - 1) - 1
        if not self.ceil:
            return span // stride + 1
        pooled = (span + stride - 1) // stride + 1
        return pooled - 1 if (pooled - 1) * stride >= size + pad else pooled


def stage_of(text: str) -> Stage:
    """The stage of a text whose h and w may be too small for its filter or pool: x has others."""
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
    """A stage whose type, n, h and w are those of whatever x comes."""

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
                raise Error(f"{text}: a stage with '{rider}', expected one of conv, bias, activation and pool; "
                            "run it by a convoy.Plan.")  # fmt: skip
            if found := _POOL.fullmatch(rider):
                window = _pair(found[1], (1, 1))
                self.pool = Pool(window, _pair(found[2], window), _pair(found[3], (0, 0)), _pair(found[4], (1, 1)),
                                 found[5] is not None)  # fmt: skip
            elif rider.startswith(("relu", "clip", "leaky")):
                self.act = rider
            elif rider not in ("bias", "strict"):
                raise Error(f"{text}: '{rider}', which convoy.torch does not know; run it by a convoy.Plan.")

    def text(self, dtype: str, n: int, h: int, w: int) -> str:
        """The text of the stage for such an x."""
        return f"{dtype}:n{n}h{h}w{w}{self._tail}"

    def unpooled(self, h: Any, w: Any) -> tuple[Any, Any]:
        """Height and width before the pool, also of symbolic ones."""
        (top, left, bottom, right), (dh, dw), (uh, uw) = self.pad, self.dilation, self.stride
        return ((h + top + bottom - dh * (self.r - 1) - 1) // uh + 1,
                (w + left + right - dw * (self.s - 1) - 1) // uw + 1)  # fmt: skip

    def sizes(self, h: Any, w: Any) -> tuple[Any, Any]:
        """Height and width of y, also of symbolic ones. Raises InvalidOperand where PyTorch's operators would."""
        if h < 1 or w < 1:
            raise InvalidOperand(f"x: images of {h} x {w} pixels, expected at least one row and one column, as PyTorch "
                                 "does: only the batch may be empty. Leave such images out.")  # fmt: skip
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
        """(lo, hi) of relu6 and clip."""
        if self.act == "relu6":
            return 0.0, 6.0
        if self.act.startswith("clip"):
            lo, hi = self.act[5:-1].split(",")
            return float(lo), float(hi)
        return None

    def slope(self) -> float | None:
        return float(self.act[6:-1]) if self.act.startswith("leaky") else None


@functools.cache
def form_of(text: str) -> Form:
    return Form(text)
