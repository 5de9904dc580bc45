"""How large the states of deep GCNs are, layer by layer: magnitude M, and the share of it that differs between nodes.

Every number comes from the last snapshots of the records of study `bp_bottleneck`.
"""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.paper.figures import _depths, register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page
from creditscope.plots import Caption, Statement
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked
from creditscope.text import number, subscript

DIFFER = 0.1
"""Least D/M at which nodes are said to differ."""
TITLE = "Size of the states of deep GCNs, and how much of it differs between nodes."
READING = (
    "H₀ is the input, the last state the output. A: medians and, as bands, quartiles over seeds, after training, of M, "
    "the root mean square of the entries of a state; 0 is exactly 0. B: the median of D, the same of the state minus "
    "its mean over nodes, by that of M."
)


@register_figure("forward_magnitude")
def plot_forward_magnitude(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw M and D/M of every state, a line per depth, from the records of study `bp_bottleneck`."""
    found = _depths.pick_depths(records)

    def draw_sizes(ax: Axes) -> None:
        floor = _depths.draw_log_axis(ax, [magnitude(cell) for cell in found.drawn])
        _depths.draw_by_layer(ax, found, magnitude, floor=floor, labels=not page.narrow)
        ax.set(xlabel="state Hₗ", ylabel="M")

    def draw_shares(ax: Axes) -> None:
        _depths.draw_by_layer(ax, found, dispersion, labels=not page.narrow)
        ax.set(xlabel="state Hₗ", ylabel="D/M", ylim=(0, 1.04))

    titles = find_titles(found)
    panels = [Panel(title, draw, least=1.6) for title, draw in zip(titles, (draw_sizes, draw_shares), strict=True)]
    return draw_page(page, panels, keys=lambda _: _depths.depth_keys(found, named=not page.narrow), share={"x": "all"})


def find_titles(found: Picked) -> tuple[str, str]:
    """From where on states are exactly 0, and the least share that differs between nodes; else what is drawn."""
    zeros = {_depths.name(cell): np.flatnonzero(_depths.quartiles(magnitude(cell))[1] == 0) for cell in found.drawn}
    gone = [f"{depth}: exactly 0 from {subscript('H', int(own[0]))} on" for depth, own in zeros.items() if len(own)]
    least = np.nanmin([np.nanmin(np.append(dispersion(cell)[0, 1:], np.inf)) for cell in found.drawn])
    return (
        "; ".join(gone) or "Magnitude of each state",
        f"Nodes keep differing: D/M is {number(math.floor(100 * least) / 100, '.2f')} or more"
        if DIFFER <= least < np.inf
        else "Share of it that differs between nodes",
    )


def describe(records: Sequence[Record]) -> Caption:
    """From where to where M goes, where it is exactly 0 or unknown, and the range of D/M."""
    found = _depths.pick_depths(records)
    said = [statement for cell in found.drawn for statement in _state(cell)]
    setting, gaps = _depths.say_recipe(found.first, found.seeds), tuple(f"L = {gap}" for gap in found.gaps)
    return Caption(TITLE, READING, setting, tuple(said), gaps)


def magnitude(cell: Cell) -> np.ndarray:
    """M, (seeds, states)."""
    return cell.values("layers.rms")


def dispersion(cell: Cell) -> np.ndarray:
    """D/M of the medians over seeds, (1, states); NaN where M is 0."""
    sizes, spread = (_depths.quartiles(cell.values(field))[1:2] for field in ("layers.rms", "layers.dispersion"))
    return spread / np.where(sizes > 0, sizes, np.nan)


def _state(cell: Cell) -> list[Statement]:
    sizes, shares = _depths.quartiles(magnitude(cell))[1], dispersion(cell)[0, 1:]
    unknown, zeros = ([subscript("H", int(i)) for i in np.flatnonzero(own)] for own in (np.isnan(sizes), sizes == 0))
    known, shares = sizes[~np.isnan(sizes)].tolist(), shares[~np.isnan(shares)].tolist()
    found = {
        "M of the first state": known[0] if known else None,
        "M of the last state": known[-1] if known else None,
        "first state that is exactly 0": zeros[0] if zeros else "none",
        **({"states without M": ", ".join(unknown)} if unknown else {}),
        "D/M after H₀, least": min(shares, default=None),
        "D/M after H₀, most": max(shares, default=None),
    }
    return [Statement(quantity, _depths.name(cell), value) for quantity, value in found.items()]
