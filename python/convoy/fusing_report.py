"""What convoy.fuse tells of a model that it fused."""

from __future__ import annotations

from typing import NamedTuple

from .fusing_graph import Spikes
from .fusing_stages import Row

__all__ = ["Report"]


class Report(NamedTuple):
    """What fuse did; seen as a table.

    difference: the largest on the sample; scale: the largest value there. spikes: of spiking stages, how many differ,
    each on the model's own input of it. images: of the sample's `batch`, whose results differ for that reason.
    frozen: whether weights are packed once.
    """

    rows: list[Row]
    difference: float
    scale: float
    spikes: Spikes | None = None
    images: tuple[int, ...] = ()
    batch: int = 0
    frozen: bool = False

    def __str__(self) -> str:
        cells = [("layers", "stage", "kernel")]
        cells += [(row.names, row.stage or "-", row.kernel or "not fused: " + row.reason) for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(2)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in cells]
        lines.append(f"largest difference on the sample: {self.difference:.3g} of {self.scale:.3g}")
        if self.spikes is not None:
            lines.append(f"{self.spikes}; images whose results differ: {len(self.images)} of {self.batch}")
        if self.frozen:
            lines.append("frozen: weights are packed once, and their changes are not seen")
        return "\n".join(lines)

    __repr__ = __str__
