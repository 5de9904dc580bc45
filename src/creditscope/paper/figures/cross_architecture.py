"""BP, FA and DFA over training in three architectures: the size of the stream, of BP's gradient, and accuracy.

Figure F4. Every number, also those in the captions, comes from the snapshots of the records; one set of seeds serves
all panels.
"""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._trajectories import ACCURACY, STREAM, TOP_GRADIENT, Trajectories, Wanted
from creditscope.paper.figures._trajectory_captions import caption_row
from creditscope.paper.figures._trajectory_figure import TrajectoryFigure
from creditscope.record import Record

ROWS = (
    Wanted("ViT-Mini with terminal LayerNorm, class token", "vit", terminal_norm=True),
    Wanted("ResMLP without terminal LayerNorm", "resmlp", terminal_norm=False),
    Wanted("StudentNet, no LayerNorm", "student"),
)


def _captions(found: Trajectories) -> list[str]:
    return [caption_row(row, TOP_GRADIENT, accuracy=True) for row in found.rows]


FIGURE = TrajectoryFigure(
    rows=ROWS,
    rules=("bp", "fa", "dfa"),
    quantities=(STREAM, TOP_GRADIENT, ACCURACY),
    gradient=TOP_GRADIENT,
    panel_height=1.3,
    captions=_captions,
)
describe = FIGURE.describe


@register_figure("cross_architecture")
def plot_cross_architecture(records: Sequence[Record]) -> Figure:
    """Draw the figure from the plain runs of BP, FA and DFA on three nets; what is missing is a marked gap."""
    return FIGURE.plot(records)
