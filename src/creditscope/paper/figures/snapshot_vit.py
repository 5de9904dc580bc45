"""BP and DFA over the training of a small vision transformer: the size of its class token and of BP's gradient there.

Figure F3. Every number, also those in the caption, comes from the snapshots of the records.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._trajectories import SECOND_GRADIENT, STREAM, Trajectories, Wanted
from creditscope.paper.figures._trajectory_captions import caption_row
from creditscope.paper.figures._trajectory_figure import TrajectoryFigure
from creditscope.record import Record

ROWS = (Wanted("ViT-Mini with terminal LayerNorm, class token", "vit", terminal_norm=True),)


def _captions(found: Trajectories) -> list[str]:
    return [caption_row(row, SECOND_GRADIENT) for row in found.rows]


FIGURE = TrajectoryFigure(
    rows=ROWS,
    rules=("bp", "dfa"),
    quantities=(STREAM, SECOND_GRADIENT),
    gradient=SECOND_GRADIENT,
    panel_height=1.75,
    captions=_captions,
)
describe = FIGURE.describe


@register_figure("snapshot_vit")
def plot_snapshot_vit(records: Sequence[Record]) -> Figure:
    """Draw the figure from the plain runs of BP and DFA on a ViT; what is missing is a marked gap."""
    return FIGURE.plot(records)
