"""The one style of all figures: colours, markers, sizes, and text that is measured before it is placed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations
from typing import Literal

import numpy as np
from matplotlib import style
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.legend import Legend
from matplotlib.patches import FancyBboxPatch
from matplotlib.textpath import text_to_path

from creditscope.looks import LOOKS, Look

WIDTH = 7.2
"""Double-column width, inches."""
FONT = "DejaVu Sans"  # ships with matplotlib: the same figure everywhere
Corner = Literal["upper left", "upper right"]
BODY, SMALL = 7.0, 6.2
MARK = 6 / 72
"""Width of a point that has a label, inches."""
PAD = 0.06
"""Room around the text of a caption box, inches."""
INK, GREY, FAINT, BAND = "#222222", "#666666", "#8c8c8c", "#dedede"
BLUE, RED = LOOKS["bp"].colour, LOOKS["dfa"].colour
AMBER = "#b35806"

RC = {
    "font.family": FONT,
    "font.size": BODY,
    "axes.titlesize": BODY,
    "axes.labelsize": BODY,
    "axes.labelpad": 2.0,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "ytick.minor.size": 1.5,
    "xtick.major.pad": 2.0,
    "ytick.major.pad": 2.0,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "text.hinting": "none",  # widths then do not depend on the resolution
    "figure.dpi": 200,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in this style; the caller's settings come back afterwards (an `rc_context` inside)."""
    with style.context(["default", RC]):
        yield


def text_width(text: str, *, size: float = SMALL, italic: bool = False, bold: bool = False) -> float:
    """Width of one line in inches, measured from the font."""
    slant, weight = "italic" if italic else "normal", "bold" if bold else "normal"
    font = FontProperties(family=FONT, size=size, style=slant, weight=weight)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / 72


def wrap_text(text: str, *, width: float, size: float = SMALL, italic: bool = False) -> list[str]:
    """Break at spaces into lines of at most `width` inches (a single longer word keeps its own line)."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size=size, italic=italic) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def fit_size(text: str, *, width: float, bold: bool = False) -> float:
    """The body size, or the smaller one at which the line is `width` inches wide."""
    return BODY * min(1.0, width / text_width(text, size=BODY, bold=bold))


def line_height() -> float:
    """Distance of two small lines of text in inches."""
    return 1.28 * SMALL / 72


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

    So it does where two points lie on one another, and labels around them would name neither.
    Limits and other texts come first; `dots` are small marks that a label may be near but not on. Labels have `gid`.
    """
    inch = ax.figure.dpi
    places = [ax.transData.transform((x, y)) / inch for _, x, y in points]
    if any(np.hypot(*(one - other)) < MARK for one, other in combinations(places, 2)):
        return
    spots = [ax.transData.transform(dot) / inch for dot in dots]
    boxes = [text.get_window_extent() for text in ax.texts]
    taken = [(box.x0 / inch, (box.y0 + box.y1) / 2 / inch, box.width / inch) for box in boxes]
    chosen = []
    for (look, _, _), (x, y) in zip(points, places, strict=True):
        width = text_width(look.label, size=BODY, bold=True)
        lefts, middles = (x + 0.09, x - width - 0.09, x - width / 2), (y, y + 0.14, y - 0.14)
        sides = [(left, middle) for middle in middles for left in lefts if (left, middle) != (lefts[2], y)]
        others = [place for place in places if tuple(place) != (x, y)]
        clashes = [_count_clashes(ax, (*side, width), others, taken) for side in sides]
        for i, (left, middle) in enumerate(sides):
            clashes[i] += sum(left < x < left + width and abs(y - middle) < 0.06 for x, y in spots)
        if min(clashes):
            return
        chosen.append(sides[int(np.argmin(clashes))])
        taken.append((*chosen[-1], width))
    for (look, _, _), (left, middle) in zip(points, chosen, strict=True):
        x, y = ax.transData.inverted().transform((left * inch, middle * inch))
        ax.text(x, y, look.label, color=look.colour, size=BODY, weight="bold", va="center", zorder=6, gid=gid)


def _count_clashes(ax: Axes, box: tuple[float, float, float], points: Sequence, taken: Sequence) -> int:
    """How many points, labels and borders a label (left, middle, width; inches) would touch."""
    left, middle, width = box
    height = 0.13
    frame = ax.bbox.x0 / ax.figure.dpi + 0.03, ax.bbox.x1 / ax.figure.dpi - 0.03
    count = 10 * (left < frame[0] or left + width > frame[1])
    count += sum(left - 0.06 < x < left + width + 0.06 and abs(y - middle) < height for x, y in points)
    return count + sum(left < x + w and x < left + width and abs(y - middle) < height for x, y, w in taken)
