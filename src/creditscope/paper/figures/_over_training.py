"""Figures over training: nets from top to bottom, quantities from left to right, a line per rule."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.checks import PUBLISHED
from creditscope.auditing.judge import first_fired
from creditscope.auditing.methods import first_epoch
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._layout import (
    Page,
    Panel,
    draw_page,
    grey_key,
    line_keys,
    say_missing,
    say_setting,
)
from creditscope.plots import Caption, Statement, over_epochs
from creditscope.plots._lines import lines_of
from creditscope.plots._quantities import HEAD, of_taps, take_log, title
from creditscope.plots._style import GREY
from creditscope.record import Facts, Record, RunSpec, Snapshot
from creditscope.record.pick import Cell, Picked, pick
from creditscope.text import number, span, subscript

TRACED = ("growth", "floor")
"""Published diagnostics that look at a moment of a run."""
PLAIN = {"penalty": 0.0, "credit_norm": "none", "targets": "true"}
STREAM, SECOND_GRADIENT = ("head_taps.h_norm", -1), ("head_taps.g_norm", 2)
TOP_GRADIENT, ACCURACY = ("head_taps.g_norm", -1), ("accuracy", None)
ROOM, NEAR = 2.0, 100.0
"""Factors: around the data, and from the floor within which it is shown."""
READING = (
    "Thin lines are seeds, thick ones their mean (of log10 for norms); norms are medians over test rows, in a ViT of "
    "the class token. Dashed: the published floor of ‖g‖, where it is near{}."
)


@dataclass(frozen=True)
class Net:
    """Which net a row is about; `terminal_norm` None: either."""

    title: str
    name: str
    terminal_norm: bool | None = None

    def holds(self, spec: RunSpec) -> bool:
        """Whether a run is one of this net."""
        return spec.net == self.name and self.terminal_norm in (None, spec.net_options.get("terminal_norm", True))


@dataclass(frozen=True)
class OverTraining:
    """Rows of nets, columns of (quantity, tap); `gradient` is the one whose published floor is told."""

    heading: str
    nets: tuple[Net, ...]
    rules: tuple[str, ...]
    columns: tuple[tuple[str, int | None], ...]
    gradient: tuple[str, int]
    row_height: float = 1.15

    def select(self, records: Sequence[Record]) -> dict[Net, Picked | None]:
        """The plain runs of every net, on the seeds that its rules share."""
        found: dict[Net, Picked | None] = {}
        for net in self.nets:
            plain = [r for r in records if r.spec and not r.facts.rule.variant and r.spec.rule in self.rules]
            own = [r for r in plain if r.spec and net.holds(r.spec) and _is_plain(r.spec)]
            asked = {"rule": self.rules}
            found[net] = pick(own, vary={"rule": "rule"}, where=asked, lost=True).shared() if own else None
        if not any(found.values()):
            nets = ", ".join(net.title for net in self.nets)
            raise CreditscopeError(
                f"Expected plain runs of {', '.join(self.rules)} on {nets}, but got none among {len(records)} records. "
                "creditscope figure trains them."
            )
        return found

    def plot(self, records: Sequence[Record], page: Page) -> Figure:
        """Draw it; what is missing is a marked gap."""
        found = self.select(records)
        drawn = {
            net: [r for cell in own or () for r in (*cell.records, *cell.diverged.values())]
            for net, own in found.items()
        }
        known = next(own[0].facts for own in drawn.values() if own)
        above = tuple(symbol(known, *column) for column in self.columns)
        looks = {line.look.label: line.look for own in drawn.values() if own for line in lines_of(own)}
        limits = self._find_limits(drawn)

        def keys(shown: set[str]) -> list[Line2D]:
            dashes = {"published floor": "--", "chance": ":"}
            return [
                *line_keys(looks.values(), page),
                *(grey_key(name, ls=own) for name, own in dashes.items() if name in shown),
            ]

        panels = []
        for net, picked in found.items():
            draw = partial(self._draw_row, drawn[net], limits, last=net is self.nets[-1], labels=not page.narrow)
            shape = (1, len(self.columns))
            title = self._find_title(net, picked)
            panels.append(Panel(title, draw, height=self.row_height, shape=shape, above=above))
        return draw_page(page, panels, keys=keys, share={"y": "col"})

    def _find_title(self, net: Net, picked: Picked | None) -> str:
        """Under which rules the gradient falls under the published floor in most seeds, by how much; else that none."""
        if not picked or not picked.drawn:
            return net.title
        quantity, tap = self.gradient
        said, below = symbol(picked.first.facts, quantity, tap).removeprefix("median "), []
        for cell in picked.drawn:
            under = [first_epoch(r, lambda s: under_floor(s, tap)) is not None for r in cell.records]
            if 2 * sum(under) > len(under):
                values = cell.course(quantity, tap=tap)[1]
                fall = -float(np.nanmean(take_log(values[:, -1]) - take_log(values[:, 0])))
                below.append(f"under {cell.first.facts.rule.label} {said} falls by {number(fall, '.1f')} orders")
        return f"{net.title}: {'; '.join(below) if below else f'{said} stays above the floor'}"

    def _find_limits(self, drawn: dict[Net, list[Record]]) -> dict[int, tuple[float, float]]:
        """Of every column of sizes, by its number, the least and the largest value that is drawn."""
        found = {}
        for column, (quantity, tap) in enumerate(self.columns):
            if tap is None:
                continue
            records = [record for own in drawn.values() for record in own]
            shots = [(r.facts, snapshot) for r in records for snapshot in r.snapshots]
            values = np.array([of_taps(facts, snapshot, quantity)[tap] for facts, snapshot in shots], dtype=float)
            values = values[np.isfinite(values) & (values > 0)]
            found[column] = (float(values.min()), float(values.max())) if values.size else (1.0, 1.0)
        return found

    def _draw_row(
        self, drawn: Sequence[Record], limits: dict[int, tuple[float, float]], *row: Axes, last: bool, labels: bool
    ) -> None:
        """One net; runs that diverged are drawn until then. Sizes have one range in all rows, with room around it."""
        for column, ((quantity, tap), ax) in enumerate(zip(self.columns, row, strict=True)):
            if drawn:
                over_epochs(drawn, quantity, tap=tap, ax=ax, labels=labels)
            else:
                say_missing(ax)
            ax.set(xlabel="epoch" if last else "", ylabel="")
            ax.xaxis.set_major_locator(MaxNLocator(4 if labels else 2, integer=True, min_n_ticks=1))
            if column in limits:
                least, most = limits[column]
                ax.set_autoscaley_on(False)  # of one value there is no range
                ax.set_ylim(least / ROOM, most * ROOM)
                ax.minorticks_off()
                if quantity.endswith("g_norm") and least < NEAR * PUBLISHED_FLOOR:
                    ax.axhline(PUBLISHED_FLOOR, color=GREY, lw=0.8, ls="--", zorder=1, gid="published floor")
            elif drawn and drawn[0].facts.chance is not None:
                ax.axhline(drawn[0].facts.chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")

    def describe(self, records: Sequence[Record]) -> Caption:
        """Changes over training, when published limits are crossed, accuracy and rounding noise, by net and rule."""
        found = self.select(records)
        known = {net: picked for net, picked in found.items() if picked}
        statements = [s for net, picked in known.items() for cell in picked.drawn for s in self._state(net, cell)]
        settings = dict.fromkeys(say_setting(picked) for picked in known.values())
        gaps = [f"{net.title}: not on record" for net, picked in found.items() if not picked]
        gaps += [f"{net.title}, {gap}" for net, picked in known.items() for gap in picked.gaps]
        reading = READING.format("; dotted: chance" if ACCURACY in self.columns else "")
        return Caption(self.heading, reading, ". ".join(settings), tuple(statements), tuple(gaps))

    def _state(self, net: Net, cell: Cell) -> list[Statement]:
        group, panel, facts = cell.first.facts.rule.label, net.title, cell.first.facts
        said = []
        for quantity, tap in dict.fromkeys((*self.columns, self.gradient, ACCURACY)):
            name = symbol(facts, quantity, tap)
            _, values = cell.course(quantity, tap=tap)
            if quantity == "accuracy":
                said.append(Statement.over(name, group, values[:, -1], panel=panel))
            else:
                change = take_log(values[:, -1]) - take_log(values[:, 0])
                said.append(Statement.over(f"{name}, change in orders of magnitude", group, change, panel=panel))
        gradient, top = self.gradient
        noise = cell.course("head_taps.g_noise", tap=top)[1]
        below = [first_epoch(r, lambda s: under_floor(s, top)) for r in cell.records]
        epochs = {f"{symbol(facts, gradient, top)} under the floor": below} if top != -1 else {}
        for check in (PUBLISHED[name] for name in TRACED):
            epochs[check.code] = [first_fired(check, r, head_only=True) for r in cell.records]
        said += [Statement(f"first epoch with {name}", group, when(own), panel=panel) for name, own in epochs.items()]
        if not np.isnan(noise).all():
            most = float(np.nanmax(noise))
            said.append(Statement("largest share of g that float64 changes", group, most, panel=panel, form=".1g"))
        return said


def symbol(facts: Facts, quantity: str, tap: int | None) -> str:
    """On an axis and in a table: ‖h₄‖."""
    letter = quantity.removeprefix(HEAD)[0]
    return title(quantity) if tap is None else f"median ‖{subscript(letter, tap % len(facts.taps))}‖"


def _is_plain(spec: RunSpec) -> bool:
    return not spec.frozen and spec.train_last == -1 and all(getattr(spec, name) == v for name, v in PLAIN.items())


def under_floor(snapshot: Snapshot, tap: int) -> bool:
    """Whether BP's gradient there is under the published floor."""
    value = snapshot.head_taps.g_norm[tap]
    return value is not None and value < PUBLISHED_FLOOR


def when(epochs: Sequence[int | None]) -> str:
    """First epochs over seeds.

    >>> when([3, 4, None]), when([None, None])
    ('3–4 (2 of 3 seeds)', 'never')
    """
    known = [epoch for epoch in epochs if epoch is not None]
    return f"{span(min(known), max(known))} ({len(known)} of {len(epochs)} seeds)" if known else "never"
