"""BP, FA and DFA over training in three architectures: the size of the stream, of BP's gradient, and accuracy.

Figure F4. Every number, also those in the captions, comes from the snapshots of the records; one set of seeds serves
all panels.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.figures import _style, register_figure
from creditscope.figures._trajectories import (
    ACCURACY,
    STREAM,
    TOP_GRADIENT,
    Trajectories,
    Wanted,
    select_trajectories,
)
from creditscope.figures._trajectory_captions import caption_row, footer
from creditscope.figures._trajectory_page import compose_trajectories
from creditscope.figures._trajectory_text import write_trajectories
from creditscope.record import Record

RULES = ("bp", "fa", "dfa")
ROWS = (
    Wanted("ViT-Mini with terminal LayerNorm, class token", "vit", terminal_norm=True),
    Wanted("ResMLP without terminal LayerNorm", "resmlp", terminal_norm=False),
    Wanted("StudentNet, no LayerNorm", "student"),
)
QUANTITIES = (STREAM, TOP_GRADIENT, ACCURACY)
PANEL = 1.3
"""Height of a panel, inches."""


@register_figure("cross_architecture")
def plot_cross_architecture(records: Sequence[Record]) -> Figure:
    """Draw the figure from the plain runs of BP, FA and DFA on three nets; what is missing is a marked gap."""
    found = _select(records)
    with _style.styled():
        return compose_trajectories(
            found, QUANTITIES, captions=_captions(found), footer=footer(found, QUANTITIES), panel_height=PANEL
        )


def describe(records: Sequence[Record]) -> str:
    """The ends, the epochs at which limits were crossed, and the sentences as text."""
    found = _select(records)
    return write_trajectories(found, TOP_GRADIENT, captions=_captions(found), footer=footer(found, QUANTITIES))


def _select(records: Sequence[Record]) -> Trajectories:
    return select_trajectories(records, rows=ROWS, rules=RULES, quantities=QUANTITIES)


def _captions(found: Trajectories) -> list[str]:
    return [caption_row(row, TOP_GRADIENT, accuracy=True) for row in found.rows]
