"""The report of convoy.fuse on a fused model."""

from __future__ import annotations

from typing import NamedTuple

from .fusing_graph import Spikes
from .fusing_stages import Row

__all__ = ["Report"]


class Report(NamedTuple):
    """The result of fusing a model. Its text is a table.

    Attributes:
        rows: One `Row` per stage, and per layer that PyTorch still runs.
        difference: The largest difference between model and fused model on the sample.
        scale: The largest value of the model's results on the sample.
        spikes: The spikes of the spiking stages that differ on the sample; None without spiking stages. Each stage is
            compared on the model's own input of that stage.
        images: The images of the sample whose results differ because of such spikes.
        batch: The number of images in the sample.
        frozen: Whether weights are packed once, so that their changes are not noticed.
        advice: A sentence on a faster way to call the model; empty if there is none.
    """

    rows: list[Row]
    difference: float
    scale: float
    spikes: Spikes | None = None
    images: tuple[int, ...] = ()
    batch: int = 0
    frozen: bool = False
    advice: str = ""

    def __str__(self) -> str:
        """Returns the table."""
        cells = [("layers", "stage", "kernel")]
        cells += [(row.names, row.stage or "-", row.kernel or "not fused: " + row.reason) for row in self.rows]
        widths = [max(len(row[column]) for row in cells) for column in range(2)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in cells]
        lines.append(f"largest difference on the sample: {self.difference:.3g} of {self.scale:.3g}")
        if self.spikes is not None:
            lines.append(f"{self.spikes}; images whose results differ: {len(self.images)} of {self.batch}")
        if self.frozen:
            lines.append("frozen: weights are packed once, and their changes are not noticed")
        if self.advice:
            lines.append(self.advice)
        return "\n".join(lines)

    __repr__ = __str__
