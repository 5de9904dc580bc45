"""A change of units is no finding: a trained net whose stream is multiplied by c, and what two protocols say of it."""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from creditscope.auditing import audit
from creditscope.auditing.checks import PUBLISHED
from creditscope.auditing.judge import judge_run
from creditscope.auditing.methods import group_methods
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_ROWS, Thresholds
from creditscope.auditing.verdict import Verdict
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key, say_setting
from creditscope.paper.studies.rescaling import DerivedRecord
from creditscope.plots import Caption, Statement
from creditscope.plots._lines import Line
from creditscope.plots._panel import draw_series, label_ends, last_known, set_log
from creditscope.plots._quantities import mean_sd, take_log
from creditscope.plots._style import AMBER, BAND, GREY, INK, SMALL
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked, pick
from creditscope.rule_styles import LOOKS, Look
from creditscope.text import power, subscript

BLUE, RED = LOOKS["bp"].colour, LOOKS["dfa"].colour
SIZES = {"h": (INK, "s", "-"), "g": (BLUE, "o", "-")}
CONSTANT = {"g_rel": (BLUE, "D", "-"), "accuracy": (INK, "o", "--"), "g_noise": (AMBER, "^", ":")}
"""Colour, marker and line of what goes with c, and of what does not."""
QUIET, ALARM, MIXED = ("o", BLUE), ("X", RED), ("v", AMBER)
MEANINGS = {QUIET: "no alarm; trustworthy", ALARM: "alarm; walk back", MIXED: "some seeds; undecided or not measured"}
NEAR = 0.05
"""How far from 1 an exponent may be that is said to be 1."""
BLOCKS = "CS011"
"""Not asked: no block of a rescaled net was put back."""
TITLE = "One trained net in other units: its stream multiplied by c."
READING = (
    "After training the stem and the last weights and biases of every block are multiplied by c. Points are means and"
    " bars ± sd of log10 over seeds. A: norms at the last tap, medians over test rows, with the published floor of "
    f"‖g‖ per sample, which was stated for a mean over {PUBLISHED_ROWS} rows. B: g_rel = ‖g‖·‖h‖ / ‖e‖ at that tap, "
    "accuracy, and g_noise, the share of g that float64 changes, at the worst tap, with its limit. C: whether "
    f"published thresholds and CS002 raise an alarm, and the verdict, without {BLOCKS}: no block is put back."
)


@dataclass(frozen=True)
class Rescaled:
    """The same seeds at every c, a cell each, and the frozen baselines."""

    picked: Picked
    frozen: list[Record]

    @property
    def factors(self) -> np.ndarray:
        return np.array(self.picked.along("c"))

    def values(self, quantity: str, tap: int | None = None) -> np.ndarray:
        """(seeds, factors), or (seeds, factors, taps)."""
        return np.stack([cell.values(quantity, tap=tap) for cell in self.picked], axis=1)

    def exponents(self, name: str) -> np.ndarray:
        """x in ‖h_L‖ ∝ cˣ, or of g, by seed; NaN if there is one c."""
        logs, span = take_log(self.values(f"{name}_norm", -1)), np.ptp(np.log10(self.factors)) or np.nan
        return (logs[:, -1] - logs[:, 0]) / span

    def worst_noise(self) -> np.ndarray:
        """The largest over taps, (seeds, factors); −∞ where it was not measured."""
        return np.fmax.reduce(self.values("g_noise"), axis=-1, initial=-np.inf)

    def judge(self, cell: Cell) -> tuple[dict[str, int], Verdict]:
        """At one c: how many seeds raise each alarm, and the verdict over seeds."""
        method = audit([*cell.records, *self.frozen], mute=(BLOCKS,)).methods[0]
        alarms = {}
        for check in (PUBLISHED["growth"], PUBLISHED["floor"]):
            name = f"{self.at_last_tap(check.code)} (published)"
            alarms[name] = sum(judge_run(check, r, Thresholds()).is_issue for r in cell.records)
        own = [finding for findings in method.seed_findings.values() for finding in findings]
        return {**alarms, "CS002": sum(f.is_issue for f in own if f.code == "CS002")}, method.verdict

    def at_last_tap(self, text: str) -> str:
        """The text with the last tap's number for L."""
        last = len(self.picked.first.facts.taps) - 1
        return text.replace("h_L", subscript("h", last)).replace("g_L", subscript("g", last))

    def count_flipped(self) -> int | None:
        """Test rows answered right or wrong otherwise than at the smallest c, at most; None if not kept."""
        answers = [[_answers(r) for r in cell.records] for cell in self.picked]
        if any(own is None for row in answers for own in row):
            return None
        return max(int((own != first).sum()) for row in answers for own, first in zip(row, answers[0], strict=True))


def _answers(record: Record) -> np.ndarray | None:
    """Which test rows were answered right."""
    if record.last.correct is None:
        return None
    bits = np.frombuffer(base64.b64decode(record.last.correct), dtype=np.uint8)
    return np.unpackbits(bits)[: record.facts.test_rows]


def select(records: Sequence[Record]) -> Rescaled:
    """The rescaled runs of one setting on the seeds that have every factor, and their frozen baselines."""
    derived = [r for r in records if isinstance(r, DerivedRecord)]
    if not derived:
        raise CreditscopeError(
            f"Expected runs measured under rescaling, but got none among {len(records)} records. "
            "creditscope figure rescaling measures them."
        )
    setting = pick(derived, vary={}).spec.setting()  # which refuses several
    cells = {}
    for c in sorted({r.condition for r in derived}):
        cells[c,] = replace(pick([r for r in derived if r.condition == c], vary={})[()], key=(c,))
    frozen = [r for r in records if r.spec and r.spec.frozen and r.spec.setting() == setting]
    return Rescaled(Picked(("c",), cells, ()).shared(), frozen)


@register_figure("rescaling")
def plot_rescaling(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `rescaling`: rescaled runs and their frozen baselines."""
    found = select(records)
    sizes = {found.at_last_tap(f"‖{n}_L‖"): (found.values(f"{n}_norm", -1), look) for n, look in SIZES.items()}
    free = (found.values("g_rel", -1), found.values("accuracy"), found.worst_noise())
    constant = {name: (values, CONSTANT[name]) for name, values in zip(CONSTANT, free, strict=True)}
    marks: dict[tuple[str, str], str] = {}

    def draw_sizes(ax: Axes) -> None:
        _draw_curves(ax, found, sizes)
        _draw_limit(ax, PUBLISHED_FLOOR, "published\nfloor", above=True)
        ax.set_ylabel("per sample, median")

    def draw_constant(ax: Axes) -> None:
        _draw_curves(ax, found, constant)
        _draw_limit(ax, Thresholds().noise, "limit of g_noise (CS002)")
        ax.set_ylabel("without units")

    def keys(drawn: set[str]) -> list[Line2D]:
        dots = [Line2D([], [], marker=m[0], color=m[1], ls="", ms=4.5, label=said) for m, said in marks.items()]
        lines = [grey_key("mean ± sd of log10 over seeds", marker="|")] * any(gid.endswith(" line") for gid in drawn)
        return [*lines, *dots]

    draws = (draw_sizes, draw_constant, lambda ax: marks.update(_draw_verdicts(ax, found)))
    panels = [
        Panel(title, partial(_draw_by_factor, own), least)
        for title, own, least in zip(find_titles(found), draws, (1.7, 1.8, 2.0), strict=True)
    ]
    return draw_page(page, panels, keys=keys)


def find_titles(found: Rescaled) -> tuple[str, str, str]:
    """How ‖g‖ goes with c, that no answer changes, and whether the verdict does; else what is drawn."""
    words = list(dict.fromkeys(found.judge(cell)[1].word for cell in found.picked))
    alarms = [any(found.judge(cell)[0].values()) for cell in found.picked]
    same = len(words) == 1 and len(set(alarms)) > 1
    names = [found.at_last_tap(f"‖{name}_L‖") for name in SIZES]
    powers = [float(np.mean(found.exponents(name))) for name in SIZES]
    return (
        f"{names[0]} goes with c, {names[1]} with 1/c"
        if np.allclose(powers, (1, -1), atol=NEAR)
        else "What the units change",
        "No test row is answered differently" if found.count_flipped() == 0 else "What they do not",
        f"Alarms come with c; {words[0]} at every c" if same else "What is concluded",
    )


def _draw_by_factor(draw: Callable[[Axes], None], ax: Axes) -> None:
    set_log(ax, "x", minor=False)
    draw(ax)
    ax.set_xlabel("factor c")
    ax.minorticks_off()


def _draw_limit(ax: Axes, limit: float, said: str, *, above: bool = False) -> None:
    """A dashed line with its name below it at the left, or above it at the right."""
    ax.axhline(limit, color=GREY, lw=0.8, ls="--", zorder=1, gid=said.replace("\n", " "))
    how: dict[str, Any] = {
        "xycoords": ax.get_yaxis_transform(),
        "textcoords": "offset points",
        "size": SMALL,
        "color": GREY,
    }
    how |= {"ha": "right", "va": "bottom"} if above else {"ha": "left", "va": "top"}
    ax.annotate(said, (int(above), limit), (0, 2) if above else (3, -3), **how)


def _draw_curves(ax: Axes, found: Rescaled, curves: Mapping[str, tuple[np.ndarray, tuple[str, str, str]]]) -> None:
    """10^(mean ± sd of log10 over seeds) of each, named at its end."""
    set_log(ax)
    ax.minorticks_off()
    method, ends = group_methods([found.picked.first])[0], []
    for name, (values, (colour, marker, dashes)) in curves.items():
        look = Look(name, colour, marker, dark=colour)
        mean, sd = mean_sd(take_log(values))
        y, bars = 10**mean, (10**mean - 10 ** (mean - sd), 10 ** (mean + sd) - 10**mean)
        draw_series(ax, Line(method, look, dashes), found.factors, y, bars, joined=range(len(y)))
        ends.append((look, last_known(y)))
    label_ends(ax, ends)


def _draw_verdicts(ax: Axes, found: Rescaled) -> dict[tuple[str, str], str]:
    """A row for each alarm and one for the verdict, a mark for each c; gives the marks that are there."""
    used, marks = set(), {}
    for cell in found.picked:
        alarms, verdict = found.judge(cell)
        all_, words = len(cell.runs), {"trustworthy": QUIET, "walk back": ALARM}
        marks = {name: QUIET if not fired else ALARM if fired == all_ else MIXED for name, fired in alarms.items()}
        marks["verdict"] = words.get(verdict.word, MIXED)
        for y, (name, (marker, colour)) in enumerate(marks.items()):
            ax.plot(cell.key, [y], marker, color=colour, ms=5.5, mew=0, zorder=3, gid=name)
        used |= set(marks.values())
    ax.set_yticks(range(len(marks)), [name.replace(" (", "\n(") for name in marks])
    ax.set_ylim(len(marks) - 0.5, -0.5)
    ax.tick_params(axis="y", length=0)
    for y in range(len(marks)):
        ax.axhline(y, color=BAND, lw=0.8, zorder=1)
    return {mark: said for mark, said in MEANINGS.items() if mark in used}


def describe(records: Sequence[Record]) -> Caption:
    """How norms go with c, the largest changes of what has no units, and what is concluded at every c."""
    found = select(records)
    first, said = found.picked.first, []
    for name in SIZES:
        quantity = found.at_last_tap(f"exponent of c in ‖{name}_L‖")
        said.append(Statement.over(quantity, "BP", found.exponents(name), panel="A"))
    accuracy, g_rel, noise = found.values("accuracy"), found.values("g_rel", -1), found.worst_noise()
    changes = {
        "largest change of accuracy, pp": 100 * np.abs(accuracy - accuracy[:, :1]),
        "largest change of g_rel, %": 100 * np.abs(g_rel / g_rel[:, :1] - 1),
        "largest g_noise": noise,
        "largest distance of cos(a, g) from 1": np.abs(found.values("cos") - 1),
    }
    largest = {name: float(np.max(values)) for name, values in changes.items()}
    said += [Statement(name, "BP", v, panel="B", form=".2g") for name, v in largest.items() if np.isfinite(v)]
    if (flipped := found.count_flipped()) is not None:
        rows = f"{flipped} of {first.facts.test_rows:,}"
        said.append(Statement("test rows answered differently", "BP", rows, panel="B"))
    for cell in found.picked:
        group, (alarms, verdict) = f"c = {'1' if cell.key == (1.0,) else power(cell.key[0])}", found.judge(cell)
        for name, fired in alarms.items():
            said.append(Statement(f"seeds with {name}", group, f"{fired} of {len(cell.runs)}", panel="C"))
        said.append(Statement("verdict", group, verdict.word, ", ".join(verdict.codes), panel="C"))
    rows = f"measured on {first.last.rows:,} test rows, accuracy on {first.facts.test_rows:,}"
    gaps = (*(f"c = {gap}" for gap in found.picked.gaps), *["frozen baselines: not on record"] * (not found.frozen))
    return Caption(TITLE, READING, f"{say_setting(found.picked)}; {rows}", tuple(said), gaps)
