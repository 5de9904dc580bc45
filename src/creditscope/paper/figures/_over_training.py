"""Figures over training: nets from top to bottom, quantities from left to right, a line per rule."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from creditscope.auditing.checks import PUBLISHED
from creditscope.auditing.judge import first_fired
from creditscope.auditing.methods import first_epoch
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._layout import LETTERS, draw_key, grey_key, head, make_page, say_missing, say_setting
from creditscope.plots import Caption, Statement, over_epochs
from creditscope.plots._panel import laid_out_once
from creditscope.plots._quantities import HEAD, take_log, title
from creditscope.plots._style import GREY, styled
from creditscope.record import Facts, Record, RunSpec, Snapshot
from creditscope.record.pick import Cell, Picked, pick
from creditscope.text import span, subscript

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
    row_height: float = 1.7

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

    def plot(self, records: Sequence[Record]) -> Figure:
        """Draw it; what is missing is a marked gap."""
        found = self.select(records)
        with styled():
            height = 0.3 + self.row_height * len(found)
            fig, axes = make_page(len(found), len(self.columns), height=height, sharey="col")
            with laid_out_once(fig, notes=False):
                for letter, (net, picked), row in zip(LETTERS, found.items(), axes, strict=False):
                    head(row[0], letter if len(found) > 1 else "", net.title)
                    self._draw_row(row, picked, last=net is self.nets[-1])
                for column, (quantity, _) in enumerate(self.columns):
                    _draw_limits(axes[:, column], quantity, found)
                keys = {"published floor": "--", "chance": ":"}
                shown = {line.get_gid() for ax in fig.axes for line in ax.lines}
                draw_key(fig, [grey_key(name, ls=dashes) for name, dashes in keys.items() if name in shown])
        return fig

    def _draw_row(self, row: Sequence[Axes], picked: Picked | None, *, last: bool) -> None:
        """One net; runs that diverged are drawn until then."""
        drawn = [r for cell in picked or () for r in (*cell.records, *cell.diverged.values())]
        for (quantity, tap), ax in zip(self.columns, row, strict=True):
            if drawn:
                over_epochs(drawn, quantity, tap=tap, ax=ax)
                ax.set_ylabel(symbol(drawn[0].facts, quantity, tap))
            else:
                say_missing(ax)
            ax.set_xlabel("epoch" if last else "")

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


def _draw_limits(column: np.ndarray, quantity: str, found: dict[Net, Picked | None]) -> None:
    """The published floor where the data come near it, or chance; sizes that are all equal have a range, too."""
    values = np.concatenate([line.get_ydata() for ax in column for line in ax.lines] or [np.array([1.0])])
    least, most = np.nanmin(values), np.nanmax(values)
    if quantity != "accuracy":
        for ax in column:
            ax.set_autoscaley_on(False)
        column[0].set_ylim(least / ROOM, most * ROOM)
    for ax, picked in zip(column, found.values(), strict=True):
        if quantity == "accuracy" and picked and picked.first.facts.chance is not None:
            ax.axhline(picked.first.facts.chance, color=GREY, lw=0.8, ls=":", zorder=1, gid="chance")
        elif quantity.endswith("g_norm") and least < NEAR * PUBLISHED_FLOOR:
            ax.axhline(PUBLISHED_FLOOR, color=GREY, lw=0.8, ls="--", zorder=1, gid="published floor")


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
