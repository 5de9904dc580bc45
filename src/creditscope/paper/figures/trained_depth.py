"""What each trained block is worth, rule by rule: accuracy lost when it alone is put back to its initial weights."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.auditing.depth import TrainedDepth, rewound_blocks, trained_depth
from creditscope.auditing.stats import Interval, t_interval
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import LETTERS, PAGE, Page, Panel, draw_page, grey_key
from creditscope.paper.figures._league import Board, Entry, find_boards
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, FAINT, GREY, INK, SMALL
from creditscope.record import Record
from creditscope.text import count

TITLE = "What each trained block is worth: accuracy lost when it alone is put back to its initial weights."
READING = (
    "A row for each rule at its defaults (EP at as many steps as it was given), those that take most of BP's gain "
    "first; a column for each block, from its line on to the right the accuracy lost without what it learned, mean "
    "and 95 % t interval over seeds; from line to line it is as many pp as the axis says. Nets of as many blocks share "
    "a panel, task beside task. Hollow: under the penalty λ; titles count a rule by the better of its marks."
)
ROW = {False: 0.135, True: 0.125}
"""Height of a row, inches; on a narrow page."""
APART = 0.4
"""Columns between two tasks."""


@dataclass(frozen=True)
class Rewinding:
    """One method, block by block."""

    entry: Entry

    @cached_property
    def lost(self) -> dict[int, Interval]:
        """By tap, pp."""
        found = [own for r in self.entry.method.whole if (own := rewound_blocks(r.last))]
        taps = sorted(set.intersection(*map(set, found))) if found else []
        return {tap: t_interval([100 * own[tap] for own in found]) for tap in taps}

    @cached_property
    def used(self) -> TrainedDepth | None:
        """How many blocks cost what counts."""
        return trained_depth(self.entry.method.whole, Thresholds())


def pick_rows(board: Board) -> dict[str, list[Rewinding]]:
    """By rule, its first row and that under the penalty; the rule that takes most of BP's gain first, BP on top."""
    found: dict[str, list[Entry]] = {}
    for entry in board.entries:
        own = found.setdefault(entry.rule, [])
        if not own or (entry.spec.rule_options == own[0].spec.rule_options and entry.penalty):
            own.append(entry)
    order = sorted(found, key=lambda rule: (rule != "bp", -max(board.stands(e).mean for e in found[rule])))
    return {rule: [Rewinding(entry) for entry in found[rule]] for rule in order}


@dataclass(frozen=True)
class Beside:
    """The boards of one net with as many blocks, task beside task, and their rows."""

    boards: tuple[Board, ...]

    @cached_property
    def rows(self) -> list[dict[str, list[Rewinding]]]:
        """Of each board, by rule."""
        return [pick_rows(board) for board in self.boards]

    @cached_property
    def rules(self) -> dict[str, str]:
        """From top to bottom, in the order of the first board, and their labels."""
        return {rule: both[0].entry.method.facts.rule.label for own in self.rows for rule, both in own.items()}


def count_blocks(board: Board) -> int:
    """How many can be put back."""
    return sum(board.entries[0].method.facts.residual)


def place_beside(boards: Sequence[Board]) -> list[Beside]:
    """A panel for each net and number of blocks, in the order in which they come."""
    found: dict[tuple[str, int], list[Board]] = {}
    for board in boards:
        found.setdefault((board.net, count_blocks(board)), []).append(board)
    return [Beside(tuple(own)) for own in found.values()]


@register_figure("trained_depth")
def plot_trained_depth(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from records of the studies `league` and `league_more`: a panel for each depth."""
    boards, _ = find_boards(records)
    panels = []
    for beside in place_beside(boards):
        height = ROW[page.narrow] * (len(beside.rules) + (len(beside.boards) > 1)) + 0.55
        panels.append(Panel(find_title(beside), partial(draw_beside, beside=beside), least=2.9, height=height))
    return draw_page(page, panels, keys=partial(_keys, boards))


def find_title(beside: Beside) -> str:
    """How many blocks are missed under BP when put back, and under how many rules as many are."""
    said = []
    for board, rows in zip(beside.boards, beside.rows, strict=True):
        missed = {rule: [own.used.low for own in both if own.used] for rule, both in rows.items()}
        plain = rows["bp"][0].used if "bp" in rows else None
        if plain is None:
            return f"{board.name}: accuracy lost without what a block learned"
        as_many = sum(max(lows, default=0) >= plain.low for rule, lows in missed.items() if rule != "bp")
        blocks = count(len(plain.blocks), "block")
        which = f"all {blocks}" if plain.low == len(plain.blocks) else f"{plain.low} of {blocks}"
        said.append(f"{which} under BP on {board.task}, and under {as_many} of {len(missed) - 1} rules")
    return f"{beside.boards[0].net}; missed when put back: {'; '.join(said)}"


def draw_beside(ax: Axes, beside: Beside) -> None:
    """Columns side by side on one axis, all to one scale."""
    found = [one for rows in beside.rows for both in rows.values() for own in both for one in own.lost.values()]
    bounds = [0.0, *(b for one in found for b in (one.low, one.mean, one.high) if b is not None)]
    step = 5 * max(1, math.ceil(1.12 * (max(bounds) - min(bounds)) / 5))
    ticks: dict[float, str] = {}
    named, left = len(beside.boards) > 1, 0.0
    for board, rows in zip(beside.boards, beside.rows, strict=True):
        taps = sorted({tap for both in rows.values() for own in both for tap in own.lost})
        columns = {tap: left + i for i, tap in enumerate(taps)}
        ticks |= {column: str(tap) for tap, column in columns.items()}
        for column in columns.values():
            ax.axvline(column, color=FAINT, lw=0.6, zorder=1, ymax=1 - named / (len(beside.rules) + 1))
        if named and taps:
            ax.text(left, -1, board.task, va="center", size=SMALL, color=GREY, gid="task")
        for y, rule in enumerate(beside.rules):
            both = rows.get(rule, [])
            for i, own in enumerate(both):
                draw_row(ax, own, columns, step, y + 0.22 * (2 * i - len(both) + 1), board.task)
        left += len(taps) + APART
    for y in range(1, len(beside.rules)):
        ax.axhline(y - 0.5, color=BAND, lw=0.4, zorder=0)
    ax.set_yticks(range(len(beside.rules)), list(beside.rules.values()))
    ax.set_xticks(list(ticks), list(ticks.values()))
    right = left - APART - 0.05
    ax.set(xlim=(-0.3, right), ylim=(len(beside.rules) - 0.5, -0.5 - named))
    ax.set_xlabel(f"block; from line to line {step} pp")
    ax.tick_params(axis="y", length=0)


def draw_row(ax: Axes, own: Rewinding, columns: Mapping[int, float], step: float, y: float, task: str) -> None:
    """What each block of one method is worth."""
    face = "white" if own.entry.penalty else INK
    for tap, lost in own.lost.items():
        name, column = f"{task} {own.entry.name} {tap}", columns[tap]
        ax.plot(column + np.array(lost.ends) / step, [y, y], color=INK, lw=0.7, zorder=2, gid=f"{name} bar")
        look = {"mfc": face, "mec": INK, "mew": 0.6, "ms": 3.0, "ls": ""}
        ax.plot([column + lost.mean / step], [y], "o", zorder=3, gid=name, **look)


def _keys(boards: Sequence[Board], drawn: set[str]) -> list[Artist]:
    penalties = sorted({e.penalty for board in boards for e in board.entries if e.penalty})
    small = {"marker": "o", "mec": INK, "mew": 0.6, "ms": 3.5, "ls": ""}
    hollow = [grey_key(f"λ = {p:g}", mfc="white", **small) for p in penalties]
    return [grey_key("without penalty", mfc=INK, **small), *hollow]


def describe(records: Sequence[Record]) -> Caption:
    """Of every row that is drawn what each block is worth, and how many are used."""
    boards, gaps = find_boards(records)
    panels, said = place_beside(boards), list[Statement]()
    names = LETTERS if len(panels) > 1 else " "
    for letter, beside in zip(names, panels, strict=False):
        for board, rows in zip(beside.boards, beside.rows, strict=True):
            for own in (own for both in rows.values() for own in both):
                of = {"group": own.entry.name, "panel": letter.strip()}
                for tap, found in own.lost.items():
                    what = f"accuracy lost on {board.task} without block {tap}, pp"
                    said.append(Statement(what, value=found, form="+.1f", **of))
                if own.used:
                    said.append(Statement(f"blocks used on {board.task}", value=own.used.short, **of))
    settings = "; ".join(
        f"{letter.strip()}{': ' * bool(letter.strip())}{' and '.join(board.setting for board in beside.boards)}"
        for letter, beside in zip(names, panels, strict=False)
    )
    return Caption(TITLE, READING, settings, tuple(said), gaps)
