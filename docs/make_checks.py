"""Draw the picture of every check: its numbers in a case in which it fires and in one in which it does not.

Needs torch: nets of the clinic are trained a little, which takes seconds. Example: python docs/make_checks.py CS005
"""

import re
import sys
from collections.abc import Sequence
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any

from check_examples import RESULTS, Example, find_methods, make_examples
from check_readings import READINGS, Mark, Reading
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.auditing.checks import all_checks
from creditscope.files import write_whole
from creditscope.plots import FORMATS
from creditscope.plots._panel import set_log
from creditscope.plots._style import BODY, GREY, SMALL, styled, text_width, wrap_text
from creditscope.record import Record, load_records
from creditscope.text import number

FOLDER = Path(__file__).parent / "images" / "checks"
FIRES, CALM, GROUND = "#b2182b", "#2166ac", "#fbe7e4"
WIDTH, ROW = 6.4, 0.145
"""Inches."""
SCREEN = 1.3
Span = tuple[float, float]


def draw_pair(code: str, fires: Example, passes: Example) -> Figure:
    """Two panels on one axis of values, a row for each place."""
    reading, pair = READINGS[code], (fires, passes)
    marks = [example.marks for example in pair]
    room = WIDTH / 2 - 0.3 - max(text_width(mark.place) for own in marks for mark in own)
    subjects = [wrap_text(example.subject, width=room) for example in pair]
    rows, lines = max(2, *map(len, marks)), max(map(len, subjects))
    heads = (("✗ fires" if fires.finding.is_issue else "✗ gives a tip", FIRES), ("✓ does not fire", CALM))
    with styled():
        fig = Figure(figsize=(WIDTH, 0.85 + 0.12 * lines + ROW * rows))
        fig.set_layout_engine("constrained", wspace=0.06)
        axes = fig.subplots(1, 2, sharex=True)
        if reading.log:
            set_log(axes[0], "x", minor=False)
        edges = _find_edges(reading, [mark for own in marks for mark in own])
        for ax, own, subject, (head, colour) in zip(axes, marks, subjects, heads, strict=True):
            ax.set(xlim=edges, ylim=(rows - 0.5, -0.5))
            said = "\n".join([*subject, *[" "] * (lines - len(subject)), " "])  # the last line is the limit's
            ax.set_title(said, loc="left", size=SMALL, color=GREY, linespacing=1.2)
            above = 5 + 1.25 * SMALL * (lines + 1)
            _write(ax, head, (0, 1), (0, above), color=colour, size=BODY, weight="bold")
            _draw_marks(ax, own, reading, edges, rows)
        fig.supxlabel(reading.quantity, size=BODY)
    return fig


def _find_edges(reading: Reading, marks: Sequence[Mark]) -> Span:
    """Of all values, bounds and limits, with room; on the left for words where there is no number."""
    found = [v for mark in marks for v in (mark.value, mark.low, mark.high, mark.limit) if v is not None]
    known = [v for v in found if v > 0 or not reading.log]
    low, high = min(known), max(known)
    if reading.log:
        reach = max(high / low, 10.0)
        return low / reach ** (0.9 if any(mark.value is None for mark in marks) else 0.08), high * reach**0.08
    room = 0.08 * (high - min(low, 0.0))
    return min(low, 0.0) - room, high + room


def _draw_marks(ax: Axes, marks: Sequence[Mark], reading: Reading, edges: Span, rows: int) -> None:
    """Grounds on which a check fires, the last down to the end of the rows, dashed limits, and the numbers."""
    ax.set_yticks(range(len(marks)), [mark.place for mark in marks])
    ax.tick_params(axis="y", length=0)
    ax.minorticks_off()
    top, end = -0.5, edges[reading.side == "above"]
    for limit, own in groupby(enumerate(marks), lambda item: item[1].limit):
        last = [y for y, _ in own][-1]
        tall = [top, rows - 0.5 if last == len(marks) - 1 else last + 0.5]
        if limit is not None:
            ax.fill_betweenx(tall, limit, end, color=GROUND, lw=0, zorder=0)
            ax.plot([limit] * 2, tall, color=FIRES, lw=0.9, ls="--", zorder=1)
        top = tall[1]
    for y, mark in enumerate(marks):
        look = {"color": FIRES, "marker": "X", "ms": 5} if mark.fired else {"color": CALM, "marker": "o", "ms": 4}
        if mark.value is None:
            _write(ax, reading.nothing, (0, y), (10, 0), ax.get_yaxis_transform(), va="center", size=SMALL, color=FIRES)
            ax.plot([0.025], [y], transform=ax.get_yaxis_transform(), zorder=3, **look)
            continue
        if mark.low is not None and mark.high is not None:
            ax.plot([mark.low, mark.high], [y, y], color=look["color"], lw=1.1, zorder=2)
        ax.plot([mark.value], [y], ls="", zorder=3, **look)
    limits = {mark.limit for mark in marks if mark.limit is not None}
    if limits:
        said = f"limit {number(limits.pop(), 'g')}" if len(limits) == 1 else "limit"
        at = next(mark.limit for mark in marks if mark.limit is not None)
        _write(ax, said, (at, 1), (0, 1), ax.get_xaxis_transform(), ha="center", size=SMALL, color=FIRES)


def _write(ax: Axes, text: str, at: Span, away: Span, where: Any = None, **look: Any) -> None:
    """A text some points away from a place of the axes."""
    how = {"xycoords": where or ax.transAxes, "textcoords": "offset points", "annotation_clip": False}
    ax.annotate(text, at, away, **how, **look)


def write_pictures(codes: Sequence[str], records: Sequence[Record], folder: Path = FOLDER) -> list[Path]:
    """A file for each code, text as text; the same whenever the numbers are."""
    methods, files = find_methods(records), dict[Path, str | bytes]()
    for code in codes:
        fig = draw_pair(code, *make_examples(code, methods))
        with styled(), rc_context({"svg.fonttype": "none"}):
            fig.savefig(drawn := BytesIO(), format="svg", metadata=FORMATS["svg"])
        files[folder / f"{code}.svg"] = _enlarge(drawn.getvalue().decode())
    return write_whole(files)


def _enlarge(drawn: str) -> str:
    """As wide as a page on a screen, where letters of 7 pt are small."""

    def wider(size: re.Match) -> str:
        return f'{size[1]}="{float(size[2]) * SCREEN:g}pt"'

    return re.sub(r'\b(width|height)="([\d.]+)pt"', wider, drawn, count=2)


if __name__ == "__main__":
    write_pictures(sys.argv[1:] or [check.code for check in all_checks()], load_records(RESULTS / "paper"))
