"""The style of the paper's figures: that of all plots, and caption boxes and keys at a place in inches."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import FancyBboxPatch

from creditscope.plots._labels import find_places
from creditscope.plots._style import (
    AMBER,
    BAND,
    BODY,
    FAINT,
    GREY,
    INK,
    MARK,
    SMALL,
    WIDTH,
    line_height,
    styled,
    text_width,
    wrap_text,
)
from creditscope.rule_styles import LOOKS, Look

__all__ = [
    "AMBER",
    "BAND",
    "BLUE",
    "BODY",
    "FAINT",
    "GREY",
    "INK",
    "MARK",
    "PAD",
    "RED",
    "SMALL",
    "WIDTH",
    "draw_caption",
    "draw_key",
    "fit_size",
    "key_height",
    "label_points",
    "line_height",
    "styled",
    "text_width",
    "wrap_text",
]

Corner = Literal["upper left", "upper right"]
PAD = 0.06
"""Room around the text of a caption box, inches."""
BLUE, RED = LOOKS["bp"].colour, LOOKS["dfa"].colour


def fit_size(text: str, *, width: float, bold: bool = False) -> float:
    """The body size, or the smaller one at which the line is `width` inches wide."""
    return BODY * min(1.0, width / text_width(text, size=BODY, bold=bold))


def draw_caption(fig: Figure, lines: Sequence[str], *, x: float, y: float, width: float, height: float) -> None:
    """Italic lines in a box whose lower left corner is at (x, y) inches of the page."""
    box = FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.04")
    box.set(transform=fig.dpi_scale_trans, facecolor="#fafafa", edgecolor="#c8c8c8", linewidth=0.6)
    fig.add_artist(box)
    where = {"transform": fig.dpi_scale_trans, "va": "top", "style": "italic", "size": SMALL, "linespacing": 1.2}
    fig.text(x + PAD, y + height - PAD, "\n".join(lines), **where)


def key_height(keys: Sequence[Artist]) -> float:
    """Inches that `draw_key` needs; labels may have several lines."""
    return sum(1 + str(key.get_label()).count("\n") for key in keys) * 1.2 * SMALL / 72 + 0.015 * len(keys)


def draw_key(ax: Axes, keys: Sequence[Artist], *, x: float, y: float, loc: Corner) -> None:
    """A legend of `ax` with its corner `loc` at (x, y) inches of the page; an axes may have several."""
    page = ax.figure.dpi_scale_trans
    spacing = {"borderpad": 0, "borderaxespad": 0, "labelspacing": 0.25, "handlelength": 1.6, "handletextpad": 0.5}
    labels = [str(key.get_label()) for key in keys]
    ax.add_artist(Legend(ax, keys, labels, loc=loc, bbox_to_anchor=(x, y), bbox_transform=page, **spacing))


def label_points(
    ax: Axes, points: Sequence[tuple[Look, float, float]], dots: Sequence[tuple[float, float]], *, gid: str
) -> None:
    """Write each rule's label beside its point, or none where one would touch something: the key tells them apart.

    Limits and other texts come first; `dots` are small marks that a label may be near but not on. Labels have `gid`.
    """
    inch, places = ax.figure.dpi, find_places(ax, points, dots)
    for (look, _, _), (left, middle) in zip(points, places, strict=bool(places)):
        x, y = ax.transData.inverted().transform((left * inch, middle * inch))
        ax.text(x, y, look.label, color=look.colour, size=BODY, weight="bold", va="center", zorder=6, gid=gid)
