"""Why BP returns zero in a deep GCN: the collapsing recipe under one change at a time, as a table and as intervals.

Every number, also those in the captions, comes from the first and last snapshots of the records.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from creditscope.paper.figures import _style, register_figure
from creditscope.paper.figures._controls import Block, Controls, select_controls
from creditscope.paper.figures._controls_captions import COLUMNS, footer, summarise
from creditscope.paper.figures._controls_text import write_controls
from creditscope.paper.figures._page import LETTERS, MARGIN, add_axes, draw_footer, wrap_footer
from creditscope.paper.figures._style import AMBER, BAND, BLUE, GREY, INK, PAD, RED, SMALL, WIDTH, line_height
from creditscope.record import Record

LOOKS = {"learns": ("o", BLUE), "undecided": ("v", AMBER), "zeros gone": ("X", AMBER), "fails": ("X", RED)}
"""Marker and colour of a row by its answer; others are open circles."""
PITCH, HEADING, DEPTH = 0.128, 0.22, 0.2
"""Height of a row, of the headings of the columns, and of a line that names a depth; inches."""
ACCURACY, ZEROS = (5.16, 1.16), (6.44, 0.68)
"""Left edge and width of the two panels, inches."""


EDGES = (1.96, 2.41, 2.84, 3.32, 3.62, 3.95, 4.36, 5.04)
"""Right edges of the columns of the table, inches."""


@register_figure("bottleneck_controls")
def plot_bottleneck_controls(records: Sequence[Record]) -> Figure:
    """Draw the figure from the records of study `bottleneck_controls`: BP under every control at every depth."""
    found = select_controls(records)
    with _style.styled():
        return _compose(found)


def describe(records: Sequence[Record]) -> str:
    """The tables and sentences as text."""
    return write_controls(select_controls(records))


def _compose(found: Controls) -> Figure:
    """Depths from top to bottom, each a table with two panels beside its rows; key, caption and footer below."""
    width = WIDTH - 2 * MARGIN
    text = [
        line
        for block in found.blocks
        for line in _style.wrap_text(summarise(block), width=width - 2 * PAD, italic=True)
    ]
    foot, keys = wrap_footer([footer(found), " ".join(found.notes)]), _keys(found)
    box, box_bottom = len(text) * line_height() + 2 * PAD, len(foot) * line_height() + 0.1
    key_top = box_bottom + box + 0.1 + max(map(_style.key_height, keys))
    height = len(found.blocks[0].rows) * PITCH
    bottom = key_top + 0.38
    top = bottom + len(found.blocks) * (height + DEPTH)
    fig = Figure(figsize=(WIDTH, top + HEADING))
    limit = _accuracy_limit(found)
    for i, block in enumerate(found.blocks):
        y = top - (i + 1) * (height + DEPTH)
        places = {"table": (MARGIN, ACCURACY[0] - 0.1), "accuracy": ACCURACY, "zeros": ZEROS}
        axes = {kind: add_axes(fig, x, y, w, height, label=f"{block.depth} {kind}") for kind, (x, w) in places.items()}
        draw_table(axes["table"], block, letter=LETTERS[i % len(LETTERS)], headed=i == 0)
        draw_accuracy(axes["accuracy"], block, limit=limit)
        draw_zeros(axes["zeros"], block)
        for kind, title in (("accuracy", "test accuracy"), ("zeros", "zero gradients")):
            if i == 0:
                axes[kind].text(0, -0.75, title, va="bottom", size=SMALL, color=GREY)
            axes[kind].tick_params(axis="x", labelbottom=i == len(found.blocks) - 1)
    for x, group in zip((0.1, 2.2, 4.6), keys, strict=True):
        _style.draw_key(fig.axes[0], group, x=MARGIN + x, y=key_top, loc="upper left")
    _style.draw_caption(fig, text, x=MARGIN, y=box_bottom, width=width, height=box)
    draw_footer(fig, foot, top=box_bottom - 0.06)
    return fig


def _accuracy_limit(found: Controls) -> float:
    """Right end of all accuracy panels."""
    known = [row.accuracy() for block in found.blocks for row in block.rows]
    return min(1.03, max((i.high or i.mean) for i in known if i is not None) + 0.05)


def _draw_rows(ax: Axes, block: Block) -> None:
    """One row per control, from top to bottom, with faint lines between."""
    ax.set_ylim(len(block.rows) - 0.5, -0.5)
    ax.set_yticks([])
    for y in range(len(block.rows) - 1):
        ax.axhline(y + 0.5, color=BAND, lw=0.5, zorder=0)


def draw_table(ax: Axes, block: Block, *, letter: str, headed: bool) -> None:
    """The numbers of every control; places in inches."""
    inches = ax.get_window_extent().width / ax.figure.dpi
    _draw_rows(ax, block)
    ax.set_xlim(0, inches)
    ax.axis("off")
    for y in range(-1, len(block.rows)):
        ax.plot([0, inches], [y + 0.5] * 2, color=GREY if y < 0 else BAND, lw=0.5, clip_on=False)
    said: dict[str, Any] = {"va": "center", "size": SMALL}
    heading = {"va": "bottom", "size": SMALL, "color": GREY, "linespacing": 1.1}
    ax.text(0, -0.75, f"{letter}   L = {block.depth}", va="bottom", weight="bold")
    for name, right in zip(COLUMNS, EDGES, strict=True):
        ax.text(right, -0.75, name if headed else "", ha="right", multialignment="right", **heading)
    for y, row in enumerate(block.rows):
        _, colour = LOOKS.get(row.answer, ("o", INK))
        ax.text(0, y, row.control.name, **said)
        for (name, say), right in zip(COLUMNS.items(), EDGES, strict=True):
            judged = name == "answer" and row.answer in LOOKS
            own: dict[str, Any] = {**said, "color": colour, "weight": "bold"} if judged else said
            ax.text(right, y, say(row), ha="right", gid=f"{row.control.name} {name}", **own)


def draw_accuracy(ax: Axes, block: Block, *, limit: float) -> None:
    """Mean, 95 % t interval and seeds of every control, with the majority class and chance."""
    _draw_rows(ax, block)
    ax.set_xlim(0, limit)
    for value, style, name in ((block.facts.best_constant, "--", "majority"), (block.facts.chance, ":", "chance")):
        if value is not None:
            ax.axvline(value, color=GREY, lw=0.7, ls=style, zorder=1, gid=name)
    for y, row in enumerate(block.rows):
        found = row.accuracy()
        if found is None:
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            where = {"ha": "center", "va": "center", "size": SMALL - 0.6, "bbox": ground}
            ax.text(0.5 * limit, y, "not on record", gid="gap", **where)
            continue
        marker, colour = LOOKS.get(row.answer, ("o", INK))
        low, high = (np.nan if bound is None else bound for bound in (found.low, found.high))
        ax.plot(np.clip([low, high], 0, 1), [y, y], color=colour, lw=0.9, zorder=3, solid_capstyle="butt")
        ax.plot(
            list(row.accuracies().values()), [y] * len(row.accuracies()), "|", color=colour, ms=3, mew=0.6, zorder=3
        )
        face = colour if row.answer in LOOKS else "white"
        look = {"mfc": face, "mec": colour, "mew": 0.7 if face == "white" else 0, "ms": 4}
        ax.plot(found.mean, y, marker, zorder=4, gid=row.control.name, **look)
    ax.set_xticks(*_ticks(limit))


def _ticks(limit: float) -> tuple[list[float], list[str]]:
    """0, .2, .4 … up to the limit."""
    found = [i / 5 for i in range(6) if i / 5 <= limit]
    return found, [f"{x:g}".lstrip("0") or "0" for x in found]


def draw_zeros(ax: Axes, block: Block) -> None:
    """Shares of weight gradients (layers × seeds) that are zero, by float32 norm and element by element."""
    _draw_rows(ax, block)
    for y, row in enumerate(block.rows):
        for kind, (count, total), colour, height in (
            ("norm", row.zero_norms(), "#9ecae1", 0.62),
            ("elements", row.all_zero(), "#08519c", 0.3),
        ):
            if total:
                ax.barh(y, count / total, height, color=colour, lw=0, zorder=2, gid=f"{kind} {row.control.name}")
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])


def _keys(found: Controls) -> list[list[Artist]]:
    """Answers; what the accuracies are; the two kinds of zero."""
    n = len(found.seeds)
    words = {
        "learns": "learns: the change removes the collapse",
        "undecided": "undecided",
        "zeros gone": "fails, but without zero gradients",
        "fails": "fails: the collapse stays",
    }
    used = {row.answer for block in found.blocks for row in block.rows}
    answers: list[Artist] = [
        Line2D([], [], ls="", marker=LOOKS[a][0], color=LOOKS[a][1], ms=4, mew=0, label=word)
        for a, word in words.items()
        if a in used
    ]
    answers.append(
        Line2D(
            [],
            [],
            ls="",
            marker="o",
            mec=INK,
            mfc="white",
            ms=4,
            mew=0.7,
            label="compared with, or not judged",
        )
    )
    seen = f"mean, 95 % t interval over {n} seeds" if n > 1 else "one seed, no interval"
    lines: list[Artist] = [
        Line2D([], [], color=INK, lw=0.9, marker="o", mfc="white", ms=4, mew=0.7, label=seen),
        Line2D([], [], color=INK, ls="", marker="|", ms=4, mew=0.6, label="each seed"),
        Line2D([], [], color=GREY, lw=0.7, ls="--", label="majority class"),
        Line2D([], [], color=GREY, lw=0.7, ls=":", label="chance"),
    ]
    zeros: list[Artist] = [
        Patch(facecolor="#9ecae1", label="share with a float32 norm of 0"),
        Patch(facecolor="#08519c", label="share with all elements 0"),
    ]
    return [answers, lines, zeros]
