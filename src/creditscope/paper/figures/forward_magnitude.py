"""How large the states of deep GCNs are, layer by layer: magnitude M, and the share of it that differs between nodes.

Every number comes from the last snapshots of the records of study `bp_bottleneck`.
"""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from creditscope.paper.figures import _depths, register_figure
from creditscope.paper.figures._layout import draw_key, head, make_page
from creditscope.plots import Caption, Statement
from creditscope.plots._style import styled
from creditscope.record import Record
from creditscope.record.pick import Cell
from creditscope.text import subscript

TITLE = "Size of the states of deep GCNs, and how much of it differs between nodes."
READING = (
    "A: medians and, as bands, quartiles over seeds, after training, of M, the root mean square of the entries of a "
    "state; 0 is exactly 0. B: the median of D, the same of the state minus its mean over nodes, by that of M. H₀ is "
    "the input, the last state the output."
)


@register_figure("forward_magnitude")
def plot_forward_magnitude(records: Sequence[Record]) -> Figure:
    """Draw M and D/M of every state, a line per depth, from the records of study `bp_bottleneck`."""
    found = _depths.pick_depths(records)
    with styled():
        fig, ((sizes, shares),) = make_page(1, 2, height=2.6, sharex=True)
        floor = _depths.draw_log_axis(sizes, [magnitude(cell) for cell in found.drawn])
        _depths.draw_by_layer(sizes, found, magnitude, floor=floor)
        _depths.draw_by_layer(shares, found, dispersion)
        head(sizes, "A", "Magnitude of each state")
        head(shares, "B", "Share of it that differs between nodes")
        sizes.set(xlabel="state $H_l$", ylabel="M")
        shares.set(xlabel="state $H_l$", ylabel="D/M", ylim=(0, 1.04))
        draw_key(fig, _depths.depth_keys(found))
    return fig


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
