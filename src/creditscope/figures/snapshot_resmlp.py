"""BP and DFA over training, with and without a terminal LayerNorm: the size of the stream and of BP's gradient.

Figure F3. Every number, also those in the captions, comes from the snapshots of the records; one set of seeds serves
all panels.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.figures import _style, register_figure
from creditscope.figures._trajectories import SECOND_GRADIENT, STREAM, Trajectories, Wanted, select_trajectories
from creditscope.figures._trajectory_captions import caption_row, contrast_norms, footer
from creditscope.figures._trajectory_page import compose_trajectories
from creditscope.figures._trajectory_text import write_trajectories
from creditscope.record import Record

RULES = ("bp", "dfa")
ROWS = (
    Wanted("ResMLP with terminal LayerNorm", "resmlp", terminal_norm=True),
    Wanted("ResMLP without terminal LayerNorm", "resmlp", terminal_norm=False),
)
QUANTITIES = (STREAM, SECOND_GRADIENT)
PANEL = 1.55
"""Height of a panel, inches."""


@register_figure("snapshot_resmlp")
def plot_snapshot_resmlp(records: Sequence[Record]) -> Figure:
    """Draw the figure from the plain runs of BP and DFA on ResMLP; what is missing is a marked gap."""
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
    """One per net; the second also holds the two against each other."""
    said = [caption_row(row, SECOND_GRADIENT) for row in found.rows]
    with_norm, without = found.rows
    return [said[0], f"{said[1]} {contrast_norms(with_norm, without, SECOND_GRADIENT, rule='dfa')}".strip()]
