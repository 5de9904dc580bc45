"""What the paper's figures share: a page of panels that lays itself out at any width, headings, a key and a caption."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from creditscope.auditing.methods import Method, group_methods
from creditscope.errors import CreditscopeError
from creditscope.plots._panel import HEADS, laid_out_once, when_laid_out
from creditscope.plots._style import BODY, GREY, INK, SMALL, as_drawn, line_height, styled, text_width, wrap_text
from creditscope.record.pick import Picked
from creditscope.rule_styles import Look
from creditscope.text import count

if TYPE_CHECKING:
    from creditscope.plots import Caption

LETTERS = "ABCDEFGHIJ"
"""Of panels, or of rows of them."""
WIDTH = 5.5
"""Of the text of most papers, inches."""
NARROW = 4.5
"""Inches: under this lines are named in the key, not at their ends, and words are few."""
LEAST = 2.0
"""Inches: a page narrower than that holds no panel."""
LETTER = 0.13
"""Room of a letter before its title, inches."""
PAD, LINE = 3.0, 1.2 * BODY
"""Over the axes, and from line to line of a title, points."""
GAP = 0.05
"""Between the title of a panel and the next, inches."""
HANDLE = 0.38
"""Room of a mark in the key, and between its columns, inches."""


@dataclass(frozen=True)
class Page:
    """How a figure is put on paper: as wide as it is printed, which panels by their letters, the caption within."""

    width: float = WIDTH
    panels: tuple[str, ...] = ()
    """None named: all of them."""
    caption: "Caption | None" = None

    @property
    def narrow(self) -> bool:
        return self.width < NARROW

    def choose(self, panels: Sequence["Panel"]) -> dict[str, "Panel"]:
        """Those asked for, by their letters; a figure of one panel needs none."""
        if not self.width >= LEAST:
            raise CreditscopeError(f"Expected a width from {LEAST:g} in on, but got {self.width:g}. Give it in inches.")
        found = dict(zip(LETTERS if len(panels) > 1 else " ", panels, strict=False))
        if unknown := [letter for letter in self.panels if letter not in found]:
            letters = ", ".join(found).strip() or "none: it is one panel"
            raise CreditscopeError(f"Expected panels among {letters}, but got {', '.join(unknown)}. Leave them out.")
        return {letter: panel for letter, panel in found.items() if letter in (self.panels or found)}

    def words(self) -> list[str]:
        """The lines of the caption that is written below the panels, without its numbers."""
        said = " ".join([self.caption.title, self.caption.reading, *self.caption.notes()]) if self.caption else ""
        return wrap_text(as_drawn(said), width=self.width - 0.06) if said else []


PAGE = Page()
"""The usual one: every panel, as wide as the text."""


@dataclass(frozen=True)
class Panel:
    """One claim: what the data show in words, and who draws it on its axes, `shape` (rows, columns) of them."""

    title: str
    draw: Callable[..., Any]
    """Takes the axes, row by row."""
    least: float = 1.75
    """Width that it needs, inches; that of a panel of several columns is the page's."""
    height: float = 1.55
    """Without its title, inches."""
    shape: tuple[int, int] = (1, 1)
    above: tuple[str, ...] = ()
    """What its columns are, over the first panel."""


def draw_page(
    page: Page,
    panels: Sequence[Panel],
    *,
    keys: Callable[[set[str]], Sequence[Artist]] | None = None,
    top: Panel | None = None,
    share: Mapping[Literal["x", "y"], Literal["row", "col", "all"]] | None = None,
) -> Figure:
    """Panels from left to right and top to bottom, with one key below for the marks that were drawn (by their ids).

    As many stand in a row as have room and leave no row shorter; `top` is drawn above them unless panels are chosen.
    """
    chosen, top = list(page.choose(panels).items()), None if page.panels else top
    across = max(n for n in range(1, len(chosen) + 1) if n == 1 or _fit(page, chosen, n))
    rows = [chosen[i : i + across] for i in range(0, len(chosen), across)]
    heights = [max(_height(page, panel, row) for _, panel in row) for row in rows]
    words = page.words()
    with styled():
        fig = Figure(layout="constrained")
        parts = {"top": top.height if top else 0.0, "body": sum(heights), "words": line_height() * (len(words) + 1)}
        parts = {name: height for name, height in parts.items() if height and (words or name != "words")}
        fig.set_size_inches(page.width, sum(parts.values()))
        stack = fig.add_gridspec(len(parts), 1, height_ratios=list(parts.values()))
        made = {name: fig.add_subfigure(stack[i, 0]) for i, name in enumerate(parts)}
        with laid_out_once(fig, notes=False):
            if top:
                top.draw(made["top"].add_subplot(label="top"))
            write_heads = _draw_rows(made["body"], rows, heights, share or {})
            drawn = {str(artist.get_gid()) for ax in fig.axes for artist in (*ax.lines, *ax.patches, *ax.collections)}
            parts["body"] += draw_key(made["body"], keys(drawn) if keys else (), page.width)
            fig.set_figheight(sum(parts.values()))
            stack.set_height_ratios(list(parts.values()))
        fig.draw_without_rendering()
        fig.set_layout_engine("none")  # from here on nothing moves
        for write in write_heads:
            write()
        if words:
            where = {"va": "top", "size": SMALL, "linespacing": 1.28, "color": INK}
            made["words"].text(0.03 / page.width, 1, "\n".join(words), gid="caption", **where)
    return fig


def _fit(page: Page, panels: Sequence[tuple[str, Panel]], across: int) -> bool:
    """Whether so many panels of one column fit into every row, and fill them all."""
    rows = [[panel for _, panel in panels[i : i + across]] for i in range(0, len(panels), across)]
    wide = max(sum(panel.least for panel in row) for row in rows)
    return not len(panels) % across and wide <= page.width and all(p.shape[1] == 1 for _, p in panels)


def _height(page: Page, panel: Panel, row: Sequence[tuple[str, Panel]]) -> float:
    """With the lines of its title, about."""
    width = page.width * panel.least / sum(other.least for _, other in row) - 0.1
    lines = len(wrap_text(panel.title, width=width - LETTER, size=BODY)) + bool(panel.above)
    return panel.height + 1.2 * lines * BODY / 72


Head = tuple[str, Panel, list[Axes]]
"""A letter, the panel and its axes."""


def _draw_rows(
    body: Any, rows: Sequence[Sequence[tuple[str, Panel]]], heights: Sequence[float], share: Mapping[Any, str]
) -> list[Callable[[], None]]:
    """Axes of all panels on one grid, so that columns stand below one another; gives what writes their heads."""
    across, wide = len(rows[0]), rows[0][0][1].shape[1]
    deep = max(panel.shape[0] for row in rows for _, panel in row)
    ratios = {"height_ratios": [height / deep for height in heights for _ in range(deep)]}
    ratios |= {"width_ratios": [panel.least for _, panel in rows[0]]} if across > 1 else {}
    grid = body.add_gridspec(len(rows) * deep, across * wide, **ratios)
    made: dict[tuple[int, int], Axes] = {}
    written: list[Callable[[], None]] = []
    for y, row in enumerate(rows):
        heads: list[Head] = []
        for x, (letter, panel) in enumerate(row):
            axes = []
            for down, column in product(range(panel.shape[0]), range(wide)):
                at, top = (y, x * wide + column), y * deep + down
                others = {"all": (0, 0), "col": (0, at[1]), "row": (at[0], 0)}
                shared = {f"share{axis}": made.get(others[how]) for axis, how in share.items()}
                place = grid[top : top + deep + 1 - panel.shape[0], at[1]]
                axes.append(body.add_subplot(place, label=f"{letter}{down or ''}".strip(), **shared))
                made.setdefault(at, axes[-1])
            panel.draw(*axes)
            heads.append((letter.strip(), panel, axes))
        lines: list[list[str]] = []
        named = not y and bool(heads[0][1].above)
        when_laid_out(heads[0][2][0], HEADS, partial(_keep_room, heads, lines, named=named))
        written.append(partial(_write_heads, heads, lines, named=named))
    return written


def _keep_room(heads: Sequence[Head], lines: list[list[str]], *, named: bool) -> None:
    """Wrap titles as wide as their panels; blank lines keep room, as a title would widen the column it begins over."""
    for letter, panel, axes in heads:
        left, right = _find_edges(axes)
        width = (right - left) / axes[0].figure.dpi - (LETTER if letter else 0) - GAP
        lines.append(wrap_text(panel.title, width=width, size=BODY))
    for _, _, axes in heads:
        axes[0].set_title("\n".join([" "] * (max(map(len, lines)) + named)), size=BODY, linespacing=1.2)


def _write_heads(heads: Sequence[Head], lines: Sequence[Sequence[str]], *, named: bool) -> None:
    """Letters and titles of a row, beginning on one line, and over the first row the names of columns."""
    most, how = max(map(len, lines)), dict[str, Any]()
    how |= {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False, "in_layout": False}
    how |= {"va": "bottom", "size": BODY, "linespacing": 1.2}
    for (letter, panel, axes), own in zip(heads, lines, strict=True):
        ax = axes[0]
        left, right = _find_edges(axes)
        wide = max(text_width(line, size=BODY) for line in own) + (LETTER if letter else 0) + GAP
        # further left where a tick that made room has gone, and the edge with it
        left = min(left, max(right - wide * ax.figure.dpi, GAP * ax.figure.dpi))
        x = (left - ax.bbox.x0) / ax.bbox.width
        for column, name in zip(axes, panel.above if named else (), strict=False):
            column.annotate(name, (0.5, 1), (0, PAD), ha="center", color=GREY, gid="column", **how)
        up = PAD + (most - len(own) + named) * LINE
        ax.annotate("\n".join(own), (x, 1), (72 * LETTER if letter else 0, up), ha="left", gid="title", **how)
        if letter:
            top = PAD + (most - 1 + named) * LINE
            ax.annotate(letter, (x, 1), (0, top), ha="left", weight="bold", gid="letter", **how)


def _find_edges(axes: Sequence[Axes]) -> tuple[float, float]:
    """Left and right edge of all that is drawn on the axes, pixels."""
    boxes = [box for ax in axes if (box := ax.get_tightbbox())]
    least = GAP * axes[0].figure.dpi
    return max(min(box.x0 for box in boxes), least), max(box.x1 for box in boxes)


def draw_key(fig: Any, keys: Sequence[Artist], width: float) -> float:
    """One key for the page, below it; the inches that it needs."""
    if not keys:
        return 0.0
    columns = fit_columns([str(key.get_label()) for key in keys], width)
    close = {"handlelength": 1.8, "columnspacing": 1.2, "handletextpad": 0.5, "borderpad": 0.1, "labelspacing": 0.3}
    fig.legend(handles=list(keys), loc="outside lower center", ncols=columns, **close)
    return 0.1 + 1.45 * SMALL / 72 * math.ceil(len(keys) / columns)


def fit_columns(labels: Sequence[str], width: float) -> int:
    """How many columns of a key fit into so many inches; it is filled column by column.

    >>> fit_columns(["a"] * 6, 5.5), fit_columns(["a"] * 6, 1.5), fit_columns(["a long name " * 6], 2.0)
    (6, 3, 1)
    """
    widths = [HANDLE + text_width(label) for label in labels]
    for columns in range(len(labels), 1, -1):
        if sum(max(own) for own in np.array_split(widths, columns)) <= width:
            return columns
    return 1


def grey_key(label: str, **look: Any) -> Line2D:
    """What a mark means that no colour tells."""
    return Line2D([], [], color=GREY, label=label, **{"ms": 4.0, "lw": 1.0, **look})


def line_keys(looks: Iterable[Look], page: Page) -> list[Line2D]:
    """Names of lines, where the page is too narrow to write them at their ends."""
    return [
        Line2D([], [], color=look.colour, marker=look.marker, ms=3.5, label=look.label)
        for look in (looks if page.narrow else ())
    ]


def say_missing(ax: Axes, text: str = "not on record") -> None:
    """Words where a panel has nothing to draw."""
    ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", va="center", color=GREY)


def say_setting(found: Picked) -> str:
    """Task, net and recipe, and the seeds."""
    method: Method = group_methods([found.first])[0]
    return f"{method.setting}; {count(len(found.seeds), 'seed')}"
