"""BP and DFA over training, with and without a terminal LayerNorm: the size of the stream and of BP's gradient."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page
from creditscope.paper.figures._over_training import SECOND_GRADIENT, STREAM, Net, OverTraining
from creditscope.record import Record

FIGURE = OverTraining(
    heading="Stream and reference gradient over training, with and without a terminal LayerNorm.",
    nets=(
        Net("ResMLP with terminal LayerNorm", "resmlp", terminal_norm=True),
        Net("ResMLP without terminal LayerNorm", "resmlp", terminal_norm=False),
    ),
    rules=("bp", "dfa"),
    columns=(STREAM, SECOND_GRADIENT),
    gradient=SECOND_GRADIENT,
)
describe = FIGURE.describe


@register_figure("snapshot_resmlp")
def plot_snapshot_resmlp(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the plain runs of BP and DFA on ResMLP; what is missing is a marked gap."""
    return FIGURE.plot(records, page)
