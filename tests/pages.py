"""What tests ask of a drawn page."""

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(fig: Figure) -> str:
    """All text of the figure on one line, with plain spaces."""
    found = fig.findobj(Text)
    return " ".join(" ".join(t.get_text() for t in found if isinstance(t, Text)).split()).replace("\u00a0", " ")


def assert_clear(fig: Figure) -> None:
    """Every text, without the line that leads to it, lies on the page and on no other; ticks are left to matplotlib."""
    fig.draw_without_rendering()
    axes = [axis for ax in fig.axes for axis in (ax.xaxis, ax.yaxis)]
    ticks = [label for axis in axes for label in axis.get_ticklabels(which="both")]
    found = [t for t in fig.findobj(Text) if isinstance(t, Text) and t.get_visible() and t.get_text().strip()]
    boxes = [(t.get_text(), Text.get_window_extent(t)) for t in found if t not in ticks]
    for text, box in boxes:
        assert fig.bbox.x0 <= box.x0 < box.x1 <= fig.bbox.x1, text
        assert fig.bbox.y0 <= box.y0 < box.y1 <= fig.bbox.y1, text
    for i, (text, box) in enumerate(boxes):
        for other, other_box in boxes[:i]:
            assert not box.padded(-1).overlaps(other_box.padded(-1)), (text, other)
