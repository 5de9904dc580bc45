"""The table of figure `bp_bottleneck`: one row per depth, as cells to draw and as text to print."""

from dataclasses import dataclass

import numpy as np

from creditscope.paper.figures._depths import DepthGroup, Depths
from creditscope.paper.figures._measures import count_all_zero, count_zero_norms
from creditscope.paper.figures._stats import median
from creditscope.paper.figures._words import spread_cell
from creditscope.text import power

HEADINGS = (
    "depth",
    "BP test accuracy, %\nmean ± sd",
    "zero weight gradients\nfloat32 norm",
    "zero weight gradients\nevery element",
    "output error, median\n‖∂L/∂Z‖ of the logits",
    "probe accuracy, median\nlayers 1..L−1",
)


@dataclass(frozen=True)
class Row:
    """What the table says of one depth."""

    depth: int
    runs: int
    accuracy: float
    """Mean over seeds, from 0 to 1."""
    spread: float
    """Standard deviation over seeds (ddof 1); NaN for a single one."""
    zero_norms: tuple[int, int]
    """Weight gradients (layers × runs) whose plain float32 norm is 0, and all whose norm is known."""
    all_zero: tuple[int, int]
    """Weight gradients whose elements are all 0, and all that were looked at."""
    output_error: float
    probe: float

    def cells(self) -> tuple[str, ...]:
        """As drawn."""
        if not self.runs:
            return (f"L = {self.depth}", *["not on record"] * (len(HEADINGS) - 1))
        return (
            f"L = {self.depth}",
            spread_cell(100 * self.accuracy, 100 * self.spread, digits=1),
            "{}/{}".format(*self.zero_norms),
            "{}/{}".format(*self.all_zero),
            power(self.output_error, digits=1),
            "none" if np.isnan(self.probe) else f"{self.probe:.2f}",
        )


def table_rows(found: Depths) -> list[Row]:
    """One row per depth, gaps too."""
    return [_row(group) for group in found.groups]


def table_text(found: Depths) -> str:
    """The table in plain text."""
    headings = [heading.replace("\n", ", ") for heading in HEADINGS]
    lines = [headings, *(list(row.cells()) for row in table_rows(found))]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    return "\n".join(" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)


def _row(group: DepthGroup) -> Row:
    if not group.records:
        return Row(group.depth, 0, np.nan, np.nan, (0, 0), (0, 0), np.nan, np.nan)
    accuracy, ends = group.accuracy(), [record.last for record in group.records]
    known = accuracy[~np.isnan(accuracy)]
    return Row(
        depth=group.depth,
        runs=len(group.records),
        accuracy=float(known.mean()) if len(known) else np.nan,
        spread=float(known.std(ddof=1)) if len(known) > 1 else np.nan,
        zero_norms=count_zero_norms(ends),
        all_zero=count_all_zero(ends),
        output_error=median(group.layers("z_grad")[:, -1]),
        probe=median(group.layers("probe")[:, 1:-1].ravel()),
    )
