"""What each trained block is worth, rule by rule: accuracy lost when it alone is put back to its initial weights."""

import math
from collections.abc import Sequence
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
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key
from creditscope.paper.figures._league import Board, Entry, find_boards, letters
from creditscope.plots import Caption, Statement
from creditscope.plots._style import BAND, FAINT, INK
from creditscope.record import Record
from creditscope.text import count

TITLE = "What each trained block is worth: accuracy lost when it alone is put back to its initial weights."
READING = (
    "A row for each rule at its defaults (EP at as many steps as it was given), those that take most of BP's gain "
    "first; a column for each block, from its line on to the right the accuracy lost without what it learned, mean "
    "and 95 % t interval over seeds; from line to line it is as many pp as the axis says. Hollow: under the penalty λ."
)
ROW = {False: 0.135, True: 0.125}
"""Height of a row, inches; on a narrow page."""


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


@register_figure("trained_depth")
def plot_trained_depth(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from records of the studies `league` and `league_more`: a panel for each net and task."""
    boards, _ = find_boards(records)
    panels = []
    for board in boards:
        rows = pick_rows(board)
        draw, height = partial(draw_board, rows=rows), ROW[page.narrow] * len(rows) + 0.55
        panels.append(Panel(find_title(board, rows), draw, least=2.7, height=height))
    return draw_page(page, panels, keys=partial(_keys, boards))


def find_title(board: Board, rows: dict[str, list[Rewinding]]) -> str:
    """How many blocks are missed under BP when put back, and under how many rules as many are."""
    missed = {rule: [own.used.low for own in both if own.used] for rule, both in rows.items()}
    plain = rows["bp"][0].used if "bp" in rows else None
    if plain is None:
        return f"{board.name}: accuracy lost without what a block learned"
    as_many = sum(max(lows, default=0) >= plain.low for rule, lows in missed.items() if rule != "bp")
    which = "all" if plain.low == len(plain.blocks) else f"{plain.low} of"
    return (
        f"{board.name}: {which} {count(len(plain.blocks), 'block')} are missed when put back under BP, and under "
        f"{as_many} of {len(missed) - 1} rules, with λ or without"
    )


def draw_board(ax: Axes, rows: dict[str, list[Rewinding]]) -> None:
    """Columns side by side on one axis, all to one scale."""
    found = [one for both in rows.values() for own in both for one in own.lost.values()]
    bounds = [0.0, *(b for one in found for b in (one.low, one.mean, one.high) if b is not None)]
    taps = sorted({tap for both in rows.values() for own in both for tap in own.lost})
    step = 5 * max(1, math.ceil(1.12 * (max(bounds) - min(bounds)) / 5))
    for column, tap in enumerate(taps):
        ax.axvline(column, color=FAINT, lw=0.6, zorder=1)
        for y, both in enumerate(rows.values()):
            for i, own in enumerate(both):
                if tap not in own.lost:
                    continue
                found, at = own.lost[tap], y + 0.22 * (2 * i - len(both) + 1)
                name = f"{own.entry.name} {tap}"
                ax.plot(column + np.array(found.ends) / step, [at, at], color=INK, lw=0.7, zorder=2, gid=f"{name} bar")
                face = "white" if own.entry.penalty else INK
                look = {"mfc": face, "mec": INK, "mew": 0.6, "ms": 3.0, "ls": ""}
                ax.plot([column + found.mean / step], [at], "o", zorder=3, gid=name, **look)
    for y in range(1, len(rows)):
        ax.axhline(y - 0.5, color=BAND, lw=0.4, zorder=0)
    ax.set_yticks(range(len(rows)), [both[0].entry.method.facts.rule.label for both in rows.values()])
    ax.set_xticks(range(len(taps)), [str(tap) for tap in taps])
    ax.set(xlim=(-0.3, len(taps) - 0.05), ylim=(len(rows) - 0.5, -0.5), xlabel=f"block; from line to line {step} pp")
    ax.tick_params(axis="y", length=0)


def _keys(boards: Sequence[Board], drawn: set[str]) -> list[Artist]:
    penalties = sorted({e.penalty for board in boards for e in board.entries if e.penalty})
    small = {"marker": "o", "mec": INK, "mew": 0.6, "ms": 3.5, "ls": ""}
    hollow = [grey_key(f"λ = {p:g}", mfc="white", **small) for p in penalties]
    return [grey_key("without penalty", mfc=INK, **small), *hollow]


def describe(records: Sequence[Record]) -> Caption:
    """Of every row that is drawn what each block is worth, and how many are used."""
    boards, gaps = find_boards(records)
    panels, said = letters(boards), list[Statement]()
    for board in boards:
        for own in (own for both in pick_rows(board).values() for own in both):
            of = {"group": own.entry.name, "panel": panels[board.name]}
            for tap, found in own.lost.items():
                said.append(Statement(f"accuracy lost without block {tap}, pp", value=found, form="+.1f", **of))
            if own.used:
                said.append(Statement("blocks used", value=own.used.short, **of))
    settings = "; ".join(f"{panels[b.name]}{': ' * bool(panels[b.name])}{b.setting}" for b in boards)
    return Caption(TITLE, READING, settings, tuple(said), gaps)
