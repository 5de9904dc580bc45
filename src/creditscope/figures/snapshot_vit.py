"""BP and DFA over the training of a small vision transformer: the size of its class token and of BP's gradient there.

Figure F3. Every number, also those in the caption, comes from the snapshots of the records.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.figures import _style, register_figure
from creditscope.figures._trajectories import SECOND_GRADIENT, STREAM, Trajectories, Wanted, select_trajectories
from creditscope.figures._trajectory_captions import caption_row, footer
from creditscope.figures._trajectory_page import compose_trajectories
from creditscope.figures._trajectory_text import write_trajectories
from creditscope.record import Record

RULES = ("bp", "dfa")
ROWS = (Wanted("ViT-Mini with terminal LayerNorm, class token", "vit", terminal_norm=True),)
QUANTITIES = (STREAM, SECOND_GRADIENT)
PANEL = 1.75
"""Height of a panel, inches."""


@register_figure("snapshot_vit")
def plot_snapshot_vit(records: Sequence[Record]) -> Figure:
    """Draw the figure from the plain runs of BP and DFA on a ViT; what is missing is a marked gap."""
    found = _select(records)
    with _style.styled():
        return compose_trajectories(
            found, QUANTITIES, captions=_captions(found), footer=footer(found, QUANTITIES), panel_height=PANEL
        )


def describe(records: Sequence[Record]) -> str:
    """The ends, the epochs at which limits were crossed, and the sentences as text."""
    found = _select(records)
    return write_trajectories(found, SECOND_GRADIENT, captions=_captions(found), footer=footer(found, QUANTITIES))


def _select(records: Sequence[Record]) -> Trajectories:
    return select_trajectories(records, rows=ROWS, rules=RULES, quantities=QUANTITIES)


def _captions(found: Trajectories) -> list[str]:
    return [caption_row(row, SECOND_GRADIENT) for row in found.rows]
