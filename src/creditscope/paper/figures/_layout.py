"""What the paper's figures share: a page of panels that lays itself out, their headings, and a key below them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from creditscope.auditing.methods import Method, group_methods
from creditscope.plots._style import BODY, GREY, INK, WIDTH
from creditscope.record.pick import Picked
from creditscope.text import count

LETTERS = "ABCDEFGHIJ"
"""Of panels, or of rows of them."""


def make_page(rows: int, columns: int, *, height: float, **grid: Any) -> tuple[Figure, np.ndarray]:
    """A figure as wide as a text of two columns, and its axes, (rows, columns)."""
    fig = Figure(figsize=(WIDTH, height), layout="constrained")
    return fig, fig.subplots(rows, columns, squeeze=False, **grid)


def head(ax: Axes, letter: str, title: str) -> None:
    """A letter and a short title over a panel, in place of the note on its marks, which the caption has."""
    ax.set_title(f"{letter}   {title}" if letter else title, loc="left", weight="bold", size=BODY, color=INK)


def draw_key(fig: Figure, keys: Sequence[Artist], *, columns: int = 4) -> None:
    """One key for the page, below it."""
    fig.legend(handles=list(keys), loc="outside lower center", ncols=columns)


def grey_key(label: str, **look: Any) -> Line2D:
    """What a mark means that no colour tells."""
    return Line2D([], [], color=GREY, label=label, **{"ms": 4.0, "lw": 1.0, **look})


def say_missing(ax: Axes, text: str = "not on record") -> None:
    """Words where a panel has nothing to draw."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)


def say_setting(found: Picked) -> str:
    """Task, net and recipe, and the seeds."""
    method: Method = group_methods([found.first])[0]
    return f"{method.setting}; {count(len(found.seeds), 'seed')}"
