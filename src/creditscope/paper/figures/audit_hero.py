"""The standard pair looks fine, the layers do not: accuracy and Γ beside cosine and gradient size per layer."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from creditscope.auditing import audit
from creditscope.auditing.checks import Outcome
from creditscope.auditing.checks.cs010_at_chance import AtChance
from creditscope.auditing.methods import Moment
from creditscope.auditing.stats import Interval
from creditscope.auditing.tap_credit import judge_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._architecture import Lane, architecture_height, draw_architecture
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key, say_missing, say_setting
from creditscope.plots import Caption, Statement, credit, pair, sizes
from creditscope.plots._lines import lines_of
from creditscope.plots._panel import HEADS, when_laid_out
from creditscope.plots._quantities import NotMeasuredError, take_log
from creditscope.plots._style import BAND, FAINT, GREY, SMALL, text_width
from creditscope.record import Record
from creditscope.record.pick import Cell, Picked, pick, spec_of
from creditscope.rule_styles import rule_looks
from creditscope.text import number, subscript

RULES = ("bp", "block_fa", "dfa")
REFERENCE = "bp"
COSINE = "cosine at "
ORDERS = 1.0
"""Orders of magnitude from which on a gradient is said to be smaller."""
TITLE = "Accuracy and Γ beside what every tap is told, and the size of the gradient that it is held against."
READING = (
    "Above: where each rule sends credit. A: every seed, and their mean; regions by Γ above 0 and by the accuracy from "
    "which CS010 finds one run above chance. B: mean and 95 % t interval over seeds, on the band of a random "
    "orientation of one run; hollow where credit is exact by construction; the table has what CS005 answers. C: "
    "geometric mean over seeds of the median over test rows, and one sd of log10."
)


@register_figure("audit_hero")
def plot_audit_hero(records: Sequence[Record], *, rules: Sequence[str] = RULES, page: Page = PAGE) -> Figure:
    """Draw the figure from trained, unpenalised records of `rules` on one task and net; Γ beside the layers.

    BP comes first. A rule without records is a marked gap; only seeds that all rules have are drawn.
    """
    found = select(records, rules)
    lanes, titles = _make_lanes(found), find_titles(found)
    draws = (partial(_draw_pair, found), credit, sizes)

    def draw(panel: Callable[..., Any], ax: Axes) -> None:
        try:
            panel(found.records, ax=ax)
        except NotMeasuredError:
            say_missing(ax, "not measured")
        if panel is sizes:
            ax.set_ylabel("median ‖gₗ‖")
        elif panel is draws[0]:
            ax.set_xlabel("Γ, mean cosine")

    def keys(drawn: set[str]) -> list[Artist]:
        band = Patch(color=BAND, label="random orientation of one run, 95 %")
        hollow = grey_key("exact credit", marker="o", ls="", mfc="white")
        marks = {" seeds": grey_key("a seed", marker="o", ls="", ms=2.6), " hollow": hollow}
        kept = [key for end, key in marks.items() if any(gid.endswith(end) for gid in drawn)]
        return [*kept, *[band] * ("null" in drawn)]

    route = partial(draw_architecture, facts=found.first.facts, lanes=lanes, width=page.width)
    panels = [Panel(title, partial(draw, own), height=1.75) for title, own in zip(titles, draws, strict=True)]
    return draw_page(page, panels, keys=keys, top=Panel("", route, height=architecture_height(len(lanes))))


def find_titles(found: Picked) -> tuple[str, str, str]:
    """What the panels show, where the data say it; else what they are of."""
    limits, reference, level = Thresholds(), found[REFERENCE], chance_level(found)
    said = {cell.first.facts.rule.label: _state(cell, reference, limits) for cell in found.drawn}
    pair = [(float(np.mean(cell.values("gamma"))), float(np.mean(cell.values("accuracy")))) for cell in found.drawn]
    alike = level is not None and len(pair) > 1 and all(gamma > 0 and accuracy > level for gamma, accuracy in pair)
    cosines = {rule: [s for s in own if s.quantity.startswith(COSINE)] for rule, own in said.items()}
    below = {rule: [tap for tap, s in enumerate(own) if s.verdict == "below"] for rule, own in cosines.items()}
    worst = max(below, key=lambda rule: len(below[rule]), default="")
    verb = "gets" if len(below.get(worst, ())) == 1 else "get"
    orders = {
        rule: (s.quantity.partition(" ")[0], s.value)
        for rule, own in said.items()
        for s in own
        if s.quantity.endswith("orders of magnitude") and isinstance(s.value, Interval) and s.value.mean < -ORDERS
    }
    least = min(orders, key=lambda rule: orders[rule][1].mean, default="")
    return (
        f"By the pair all {len(pair)} rules look like learning" if alike else "The standard reporting pair",
        f"{worst}: {name_taps(below[worst])} {verb} less than {number(limits.alignment, 'g')}"
        if worst and below[worst]
        else "Credit against gradient, per tap",
        f"{least}: {orders[least][0]} {number(-orders[least][1].mean, '.1f')} orders below {REFERENCE.upper()}"
        if least
        else "Reference gradient, per tap",
    )


def name_taps(taps: Sequence[int]) -> str:
    """Those in a row as the first and the last.

    >>> name_taps([2, 3, 4]), name_taps([1, 3]), name_taps([4])
    ('h₂–h₄', 'h₁, h₃', 'h₄')
    """
    names = [subscript("h", tap) for tap in taps]
    in_a_row = len(taps) > 2 and list(taps) == list(range(taps[0], taps[-1] + 1))
    return f"{names[0]}–{names[-1]}" if in_a_row else ", ".join(names)


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
        said.append(over(f"{COSINE}{subscript('h', tap)}", values=cos, verdict=answers.get(tap, ""), panel="B"))
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
    raised, lowered = top - 0.03 * (top - bottom), (bottom + chance) / 2
    words = [
        (
            right - 0.03,
            chance + 0.03 * room,
            "looks like\nlearning",
            {"color": "#2f7d32", "ha": "right", "va": "bottom"},
            right,
        ),
        (left / 2, raised, "accuracy only", {"color": GREY, "ha": "center", "va": "top", "rotation": 90}, right),
        (left / 2, lowered, "neither", {"color": "#a8322a", "ha": "center", "va": "center"}, -left),
        (0.03, lowered, "Γ only", {"color": GREY, "ha": "left", "va": "center"}, right / 2),
        (
            right - 0.03,
            lowered,
            f"< {number(chance, '.3g')}",
            {"color": GREY, "ha": "right", "va": "center"},
            right / 2,
        ),
    ]

    def place() -> None:
        inches = ax.get_window_extent().width / ax.figure.dpi / (right - left)
        for x, y, text, how, free in words:
            if max(map(text_width, text.split("\n"))) < free * inches:
                ax.text(x, y, text, size=SMALL, zorder=1, **how)

    when_laid_out(ax, HEADS, place)
