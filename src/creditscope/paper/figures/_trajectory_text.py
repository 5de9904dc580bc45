"""Trajectories as text: where every rule ends in every net, when published limits were crossed, and the sentences."""

from collections.abc import Sequence

import numpy as np
from rich.console import Group as Lines
from rich.text import Text

from creditscope.auditing.tables import fit_tables, render_plain
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.paper.figures._trajectories import (
    ACCURACY,
    PUBLISHED,
    STREAM,
    TOP_GRADIENT,
    Group,
    Quantity,
    Row,
    Trajectories,
)
from creditscope.paper.figures._trajectory_captions import when
from creditscope.paper.figures._words import spread_cell
from creditscope.plots._quantities import mean_sd
from creditscope.text import DASH, number


def write_trajectories(found: Trajectories, gradient: Quantity, *, captions: Sequence[str], footer: str) -> str:
    """One line per net and rule, gaps too; then what the captions say."""
    cells = [(row, group) for row in found.rows for group in row.groups]
    symbol = "‖g_L‖" if gradient.tap is None else f"‖g_{gradient.tap}‖"
    columns = {
        "‖h_L‖": [_end(row, group, STREAM) for row, group in cells],
        symbol: [_end(row, group, gradient) for row, group in cells],
        "accuracy": [_end(row, group, ACCURACY) for row, group in cells],
    }
    if gradient != TOP_GRADIENT:
        below = [_first(group, group.first_below(gradient, PUBLISHED_FLOOR)) for _, group in cells]
        columns[f"{symbol} < {number(PUBLISHED_FLOOR, 'g')}"] = below
    for check in PUBLISHED:
        columns[check.code] = [_first(group, group.first_epochs(check)) for _, group in cells]
    labels = [f"{row.wanted.title}, {group.style.label}" for row, group in cells]
    said = [f"{row.wanted.title}. {text}" for row, text in zip(found.rows, captions, strict=True)]
    note = (
        "At the end: geometric mean of the norms, mean ± sd of the accuracy, over seeds. Limits: the first epoch of "
        "training at which a run was measured beyond them."
    )
    return render_plain(
        lambda width: Lines(*fit_tables("", labels, columns, width), *map(Text, (note, *said, footer, *found.notes)))
    )


def _end(row: Row, group: Group, quantity: Quantity) -> str:
    if not group.records:
        return group.gap if quantity is STREAM else DASH
    mean, sd = mean_sd(group.values(quantity, row.epochs)[:, -1])
    if np.isnan(mean):
        return DASH
    if quantity.log:
        return number(10 ** float(mean), ".3g")
    return spread_cell(float(mean), float(sd), digits=3)


def _first(group: Group, epochs: Sequence[int | None]) -> str:
    return when(epochs).removeprefix("at ") if group.records else DASH
