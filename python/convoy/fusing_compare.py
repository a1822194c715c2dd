"""Compares the results of a fused model on the sample with those of the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ._core import Error, InternalError

# The difference that another order of sums, and folded norms, may cause, as a part of the largest value.
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}


def _differing(gap: Tensor, bound: float, n: int, images: set[int]) -> set[int] | None:
    """Returns the images of n that differ, or None if one of them is not among `images`, which may differ."""
    for axis in [axis for axis in range(min(gap.dim(), 2)) if gap.shape[axis] == n]:
        found = {int(i) for i in (gap > bound).movedim(axis, 0).flatten(1).any(1).nonzero().flatten()}
        if found <= images:
            return found
    return None


def compare(
    wanted: Any, found: Any, tolerance: float | None, n: int = 0, images: frozenset[int] | set[int] = frozenset()
) -> tuple[float, float, set[int]]:
    """Returns (largest difference, largest value, images whose results differ). Raises Error for a larger difference.

    images: those of the n images that may differ in any way.
    """
    difference = scale = 0.0
    differing: set[int] = set()
    tensors = [leaf for leaf in pytree.tree_leaves(wanted) if isinstance(leaf, Tensor) and leaf.numel()]
    if tensors and not any(tensor.isfinite().any() for tensor in tensors):
        raise Error("fuse: the model gives no finite value on the sample, so there is nothing to compare. Give a "
                    "sample without NaN and infinities, or correct the model's parameters.")  # fmt: skip
    for one, other in zip(pytree.tree_leaves(wanted), pytree.tree_leaves(found), strict=True):
        if not isinstance(one, Tensor):
            continue
        if one.shape != other.shape or one.dtype != other.dtype:
            raise InternalError(f"fuse: the fused model gives {other.dtype} {list(other.shape)} on the sample, "
                                f"expected {one.dtype} {list(one.shape)}. Leave that part out, and report "
                                "this.")  # fmt: skip
        if one.numel() == 0:
            continue
        one, other = one.double(), other.double()
        largest = one.nan_to_num(0, 0, 0).abs().max().item()
        same = (one == other) | (one.isnan() & other.isnan())
        gaps = torch.where(same, 0, (one - other).abs()).nan_to_num(float("inf"))
        gap = gaps.max().item()
        bound = (tolerance if tolerance is not None else _TOLERANCE.get(_type_of(wanted), 1e-3)) * largest
        if gap > bound:
            its = _differing(gaps, bound, n, images) if images else None
            if its is None:
                raise Error(f"fuse: the fused model differs by {gap:.3g} on the sample, expected at most {bound:.3g} "
                            f"(the largest value is {largest:.3g}). Pass a larger tolerance= if this is right, or "
                            "leave the part out.")  # fmt: skip
            differing |= its
        difference, scale = max(difference, gap), max(scale, largest)
    return difference, scale, differing


def _type_of(outputs: Any) -> torch.dtype | None:
    """Returns the type of the first tensor."""
    return next((leaf.dtype for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor)), None)
