"""The standard pair looks fine, the layers do not: accuracy and Γ beside cosine and gradient size per layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from creditscope.auditing import audit
from creditscope.auditing.checks import Outcome
from creditscope.auditing.checks.cs010_at_chance import AtChance
from creditscope.auditing.methods import Moment
from creditscope.auditing.tap_credit import judge_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._architecture import Lane, architecture_height, draw_architecture
from creditscope.paper.figures._layout import LETTERS, draw_key, grey_key, head, say_missing, say_setting
from creditscope.plots import Caption, Statement, credit, pair, sizes
from creditscope.plots._lines import lines_of
from creditscope.plots._panel import laid_out_once
from creditscope.plots._quantities import NotMeasuredError, take_log
from creditscope.plots._style import BAND, FAINT, GREY, SMALL, WIDTH, styled
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked, pick, spec_of
from creditscope.rule_styles import rule_looks
from creditscope.text import number, subscript

RULES = ("bp", "block_fa", "dfa")
REFERENCE = "bp"
PANELS = 2.5
"""Height of the row of panels, inches."""
TITLE = "Accuracy and Γ beside what every tap is told, and the size of the gradient that it is held against."
READING = (
    "Above: where each rule sends credit. A: every seed, and their mean; regions by Γ above 0 and by the accuracy from "
    "which CS010 finds one run above chance. B: mean and 95 % t interval over seeds, on the band of a random "
    "orientation of one run; hollow where credit is exact by construction; the table has what CS005 answers. C: "
    "geometric mean over seeds of the median over test rows, and one sd of log10."
)


@register_figure("audit_hero")
def plot_audit_hero(records: Sequence[Record], *, rules: Sequence[str] = RULES) -> Figure:
    """Draw the figure from trained, unpenalised records of `rules` on one task and net; Γ beside the layers.

    BP comes first. A rule without records is a marked gap; only seeds that all rules have are drawn.
    """
    found = select(records, rules)
    panels: dict[str, Callable[..., Any]] = {
        "The standard reporting pair": partial(_draw_pair, found),
        "Credit against gradient, per tap": credit,
        "Reference gradient, per tap": sizes,
    }
    with styled():
        drawing = architecture_height(len(found.cells))
        fig = Figure(figsize=(WIDTH, drawing + PANELS), layout="constrained")
        above, below = fig.subfigures(2, height_ratios=(drawing, PANELS))  # pyright: ignore[reportGeneralTypeIssues]
        with laid_out_once(fig, notes=False):
            draw_architecture(above.add_subplot(label="architecture"), found.first.facts, _make_lanes(found))
            axes = below.subplots(1, len(panels), width_ratios=(1.1, 1, 1))
            for letter, ax, (title, draw) in zip(LETTERS, axes, panels.items(), strict=False):
                head(ax, letter, title)
                try:
                    draw(found.records, ax=ax)
                except NotMeasuredError:
                    say_missing(ax, "not measured")
            band = Patch(color=BAND, label="random orientation of one run, 95 %")
            hollow = grey_key("exact credit", marker="o", ls="", mfc="white")
            draw_key(below, [grey_key("a seed", marker="o", ls="", ms=2.6), band, hollow])
    return fig


def describe(records: Sequence[Record], *, rules: Sequence[str] = RULES) -> Caption:
    """Pair, cosine per tap and gradient against BP's by rule, with the answers of checks."""
    found, limits = select(records, rules), Thresholds()
    first, constant = found.first, found.first.facts.best_constant
    rows = f"{first.facts.test_rows or first.last.rows_covered:,} test rows"
    setting = f"{say_setting(found)}; cosine and ‖g‖ on {first.last.rows:,} test rows"
    said = [s for cell in found.drawn for s in _state(cell, found[REFERENCE], limits)]
    said += [
        Statement("least accuracy above chance", "CS010", chance_level(found), rows, panel="A"),
        Statement("accuracy of the best constant guess", "all", constant, panel="A"),
        Statement("least alignment of interest, δ", "CS005", limits.alignment, panel="B"),
    ]
    return Caption(TITLE, READING, setting, tuple(sorted(said, key=lambda s: s.panel)), found.gaps)


def select(records: Sequence[Record], rules: Sequence[str]) -> Picked:
    """On the seeds that the rules share, BP first."""
    ordered = sorted(rules, key=lambda rule: rule != REFERENCE)
    return pick(records, vary={"rule": "rule"}, where={"rule": ordered, "penalty": 0.0}).shared()


def chance_level(found: Picked) -> float | None:
    """The accuracy from which CS010 finds a run of this setting above chance; None where it does not judge."""
    moment, low, high = Moment.of(found.first), 0.0, 1.0

    def clears(accuracy: float) -> bool:
        supposed = replace(moment, snapshot=replace(moment.snapshot, accuracy=accuracy))
        return AtChance().judge(supposed, Thresholds()).outcome == Outcome.PASSED

    if not clears(high):
        return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if clears(middle) else (middle, high)
    return high


def _state(cell: Cell, reference: Cell, limits: Thresholds) -> list[Statement]:
    """All of one rule."""
    facts, judged = cell.first.facts, audit(cell.records).methods[0]
    says = {f.code: f"{f.code} {f.outcome.value}" for f in judged.findings}
    group, top = judged.method, f"‖{subscript('g', len(facts.taps) - 1)}‖"
    over = partial(Statement.over, group=group)
    said = [
        over("accuracy", values=cell.values("accuracy"), verdict=says.get("CS010", ""), panel="A"),
        over("Γ", values=cell.values("gamma"), verdict=says.get("CS006", ""), panel="A"),
    ]
    asked = facts.inexact_taps if facts.rule.approximates == "gradient" else ()
    told = judge_taps([Moment.of(r) for r in cell.records], asked, limits) if asked else []
    if isinstance(told, str):
        said, told = [*said, Statement("CS005", group, told, "not judged", panel="B")], []
    answers = dict.fromkeys(facts.exact_taps, "exact") | {a.tap: a.answer for a in told}
    for tap, cos in enumerate(cell.values("cos").T):
        said.append(over(f"cosine at {subscript('h', tap)}", values=cos, verdict=answers.get(tap, ""), panel="B"))
    if bounds := [a.under.high for a in told if a.answer == "below"]:
        said.append(Statement("upper bound of taps below δ", group, max(bounds), panel="B"))
    size, noise = cell.values("g_norm", tap=-1), cell.values("g_noise")
    said.append(over(f"median {top}", values=size[size > 0], log=True, panel="C"))
    if reference and reference is not cell:
        orders = take_log(size) - take_log(reference.values("g_norm", tap=-1))
        said.append(over(f"{top} against BP, orders of magnitude", values=orders, panel="C"))
    most = None if np.isnan(noise).all() else float(np.nanmax(noise))
    return [*said, Statement("largest share of g that float64 changes", group, most, says.get("CS002", ""), "C", ".2g")]


def _make_lanes(found: Picked) -> list[Lane]:
    """A rule without runs has a lane, too, which says why."""
    looks = rule_looks(found.along("rule"), labels={})
    looks |= {spec_of(line.method.first).rule: line.look for line in lines_of(found.records)}
    said = {rule: cell.first.facts if cell else next(iter(cell.lost.values())) for (rule,), cell in found.cells.items()}
    return [Lane(looks[rule].label, looks[rule].colour, facts) for rule, facts in said.items()]


def _draw_pair(found: Picked, records: Sequence[Record], *, ax: Axes) -> None:
    """Limits with room for the four regions, then their tints and names, then the pair."""
    gammas, accuracies = (np.concatenate([c.values(name) for c in found.drawn]) for name in ("gamma", "accuracy"))
    chance = chance_level(found)
    low, high = np.nanmin([*accuracies, chance or 0.0]), np.nanmax([*accuracies, chance or 0.0])
    room = max(high - low, 0.05)
    bottom, top = low - 0.22 * room, high + 0.3 * room
    left, right = np.nanmin([-0.42, *(gammas - 0.15)]), np.nanmax([1.2, *(gammas + 0.2)])
    pair(records, ax=ax, guess=chance is None)
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=np.arange(np.ceil(left * 2), right * 2) / 2)
    ax.set_yticks([tick for tick in MaxNLocator(6).tick_values(bottom, top) if max(bottom, 0) <= tick <= min(top, 1)])
    if chance is None:
        return
    ax.axhline(chance, color=FAINT, lw=0.6, zorder=1, gid="chance")
    across, up = (left, 0, right), (bottom, chance, top)
    for i, j, tint in ((1, 1, "#e3f2e1"), (0, 0, "#f9e0de"), (0, 1, "#f1f1f1"), (1, 0, "#f1f1f1")):
        size = across[i + 1] - across[i], up[j + 1] - up[j]
        ax.add_patch(Rectangle((across[i], up[j]), *size, facecolor=tint, lw=0, zorder=0))
    raised, lowered = top - 0.03 * (top - bottom), bottom + 0.1 * room
    for x, y, text, colour, ha, va in (
        (right - 0.03, raised, "looks like learning", "#2f7d32", "right", "top"),
        (left + 0.03, lowered, "neither", "#a8322a", "left", "center"),
        (left / 2, raised, "accuracy\nonly", GREY, "center", "top"),
        (0.05, lowered, "Γ only", GREY, "left", "center"),
        (right - 0.03, lowered, f"chance: < {number(chance, '.3g')}", GREY, "right", "center"),
    ):
        ax.text(x, y, text, color=colour, size=SMALL, ha=ha, va=va, zorder=1)
