"""How large the states of deep GCNs are, layer by layer: magnitude M, and dispersion D between nodes.

Every number, also those in the captions, comes from the last snapshots of the records of study `bp_bottleneck`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._bottleneck_captions import caption_magnitude, footer
from creditscope.paper.figures._depths import DepthGroup, select_depths
from creditscope.paper.figures._log_axis import LogScale, draw_floor, draw_log_axis
from creditscope.paper.figures._page import LETTERS, Panel, compose_page
from creditscope.paper.figures._stats import quartiles
from creditscope.paper.figures._style import GREY
from creditscope.record import Record

SERIES = {
    "rms": ("M, root mean square of $H_l$", "-", "o"),
    "dispersion": ("D, the same of $H_l$ minus its node mean", "--", "s"),
}
"""Label, line and marker of each measure."""
MARKS: dict[str, Any] = {"o": {"marker": "o", "ms": 2.6}, "s": {"marker": "s", "ms": 4.8, "mfc": "none", "mew": 0.8}}
"""Squares around circles, so that both are seen where M and D are alike."""


@register_figure("forward_magnitude")
def plot_forward_magnitude(records: Sequence[Record]) -> Figure:
    """Draw M and D of every layer, a panel per depth, from the records of study `bp_bottleneck`."""
    found = select_depths(records)
    if len(found.groups) > len(LETTERS):
        known = ", ".join(str(group.depth) for group in found.groups)
        raise CreditscopeError(
            f"Expected at most {len(LETTERS)} depths, a panel each, but got {len(found.groups)}: {known}. Pass the "
            "records of fewer depths."
        )
    values = [group.layers(name) for group in found.drawn for name in SERIES]
    scale = LogScale.of(*values, zeros=any((v == 0).any() for v in values))
    panels = []
    for letter, group in zip(LETTERS, found.groups, strict=False):
        said = caption_magnitude(group) if group.records else "No run of this depth is on record."
        draw = partial(draw_magnitude, group=group, scale=scale)
        panels.append(Panel(letter, group.label, draw, _keys(group), said))
    with _style.styled():
        return compose_page(panels, footer=[footer(found, sizes_only=True), " ".join(found.notes)])


def draw_magnitude(ax: Axes, *, group: DepthGroup, scale: LogScale) -> None:
    """M and D of one depth; exact zeros at a labelled floor."""
    draw_log_axis(ax, scale)
    ax.set(
        xlim=(-0.3 - 0.03 * group.depth, 0.3 + 1.03 * group.depth), xlabel="state $H_l$", ylabel="size of its entries"
    )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if not group.records:
        ax.text(0.5, 0.5, "not on record", transform=ax.transAxes, ha="center", color=GREY)
        return
    zeros = False
    for name, (_, line, marker) in SERIES.items():
        values = group.layers(name)
        zeros |= bool((values == 0).any())
        low, middle, high = (np.maximum(q, scale.floor) for q in quartiles(values))
        x = np.arange(len(middle))
        ax.fill_between(x, low, high, color=group.colour, alpha=0.18, lw=0, zorder=2)
        ax.plot(x, middle, color=group.colour, ls=line, lw=1.1, zorder=4, gid=name, **MARKS[marker])
    if zeros:
        draw_floor(ax, scale.floor, "exactly 0 (drawn here)", x=0.0)


def _keys(group: DepthGroup) -> list[Line2D]:
    return [
        Line2D([], [], color=group.colour, ls=line, lw=1.1, label=label, **MARKS[marker])
        for label, line, marker in SERIES.values()
    ]
