"""BP and DFA over the training of a small ViT: the size of its class token and of BP's gradient there."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page
from creditscope.paper.figures._over_training import SECOND_GRADIENT, STREAM, Net, OverTraining
from creditscope.record import Record

FIGURE = OverTraining(
    heading="Stream and reference gradient of a ViT's class token over training.",
    nets=(Net("ViT-Mini with terminal LayerNorm, class token", "vit", terminal_norm=True),),
    rules=("bp", "dfa"),
    columns=(STREAM, SECOND_GRADIENT),
    gradient=SECOND_GRADIENT,
)
describe = FIGURE.describe


@register_figure("snapshot_vit")
def plot_snapshot_vit(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the plain runs of BP and DFA on a ViT; what is missing is a marked gap."""
    return FIGURE.plot(records, page)
