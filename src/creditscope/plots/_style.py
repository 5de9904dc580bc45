"""The one style of all drawings: fonts, sizes, colours, and text that is measured before it is placed."""

from collections.abc import Iterator
from contextlib import contextmanager

from matplotlib import style
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.textpath import text_to_path

from creditscope.errors import CreditscopeError
from creditscope.text import visible

WIDTH = 7.2
"""Double-column width, inches."""
FONT = "DejaVu Sans"  # ships with matplotlib: the same figure everywhere
BODY, SMALL = 7.5, 7.0  # what printed pages are asked for, at the width at which a figure is drawn
MARK = 6 / 72
"""Width of a point that has a label, inches."""
INK, GREY, FAINT, BAND = "#222222", "#666666", "#8c8c8c", "#dedede"
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
    "svg.hashsalt": "creditscope",  # the same names in it every time
}


@contextmanager
def styled() -> Iterator[None]:
    """Draw and save in this style; the caller's settings come back afterwards (an `rc_context` inside)."""
    _find_font()
    with style.context(["default", RC]):
        yield


def _find_font() -> None:
    """An error in words if there is no font to write with, nor one that matplotlib would take instead."""
    try:
        findfont(FONT)
    except ValueError as error:
        raise CreditscopeError(
            f"Expected the font {FONT}, which comes with matplotlib, but got no font at all. Install matplotlib again."
        ) from error


def text_width(text: str, *, size: float = SMALL, bold: bool = False) -> float:
    """Width of one line in inches, measured from the font."""
    _find_font()
    font = FontProperties(family=FONT, size=size, weight="bold" if bold else "normal")
    return text_to_path.get_text_width_height_descent(text.replace(r"\$", "$"), font, ismath=False)[0] / 72


def as_drawn(text: str) -> str:
    """A name as matplotlib writes it: one line, and no mathematics between dollar signs."""
    return visible(text).replace("$", r"\$")


def wrap_text(text: str, *, width: float, size: float = SMALL) -> list[str]:
    """Break at spaces into lines of at most `width` inches (a single longer word keeps its own line)."""
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size=size) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def line_height() -> float:
    """Distance of two small lines of text in inches."""
    return 1.28 * SMALL / 72
