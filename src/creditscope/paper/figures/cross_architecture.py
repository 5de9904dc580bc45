"""BP, FA and DFA over the training of three nets: the stream, BP's gradient at the last tap, and accuracy."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page
from creditscope.paper.figures._over_training import ACCURACY, STREAM, TOP_GRADIENT, Net, OverTraining
from creditscope.record import Record

FIGURE = OverTraining(
    heading="Stream, reference gradient and accuracy over training in three nets.",
    nets=(
        Net("ViT-Mini with terminal LayerNorm, class token", "vit", terminal_norm=True),
        Net("ResMLP without terminal LayerNorm", "resmlp", terminal_norm=False),
        Net("StudentNet, no LayerNorm", "student"),
    ),
    rules=("bp", "fa", "dfa"),
    columns=(STREAM, TOP_GRADIENT, ACCURACY),
    gradient=TOP_GRADIENT,
    row_height=1.0,
)
describe = FIGURE.describe


@register_figure("cross_architecture")
def plot_cross_architecture(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the plain runs of BP, FA and DFA on three nets; what is missing is a marked gap."""
    return FIGURE.plot(records, page)
