"""BP and DFA over training, with and without a terminal LayerNorm: the size of the stream and of BP's gradient.

Figure F3. Every number, also those in the captions, comes from the snapshots of the records; one set of seeds serves
all panels.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._trajectories import SECOND_GRADIENT, STREAM, Trajectories, Wanted
from creditscope.paper.figures._trajectory_captions import caption_row, contrast_norms
from creditscope.paper.figures._trajectory_figure import TrajectoryFigure
from creditscope.record import Record

ROWS = (
    Wanted("ResMLP with terminal LayerNorm", "resmlp", terminal_norm=True),
    Wanted("ResMLP without terminal LayerNorm", "resmlp", terminal_norm=False),
)


def _captions(found: Trajectories) -> list[str]:
    """One per net; the second also holds the two against each other."""
    said = [caption_row(row, SECOND_GRADIENT) for row in found.rows]
    with_norm, without = found.rows
    return [said[0], f"{said[1]} {contrast_norms(with_norm, without, SECOND_GRADIENT, rule='dfa')}".strip()]


FIGURE = TrajectoryFigure(
    rows=ROWS,
    rules=("bp", "dfa"),
    quantities=(STREAM, SECOND_GRADIENT),
    gradient=SECOND_GRADIENT,
    panel_height=1.55,
    captions=_captions,
)
describe = FIGURE.describe


@register_figure("snapshot_resmlp")
def plot_snapshot_resmlp(records: Sequence[Record]) -> Figure:
    """Draw the figure from the plain runs of BP and DFA on ResMLP; what is missing is a marked gap."""
    return FIGURE.plot(records)
