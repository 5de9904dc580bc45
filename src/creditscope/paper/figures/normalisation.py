"""What normalising credit does to DFA: accuracy, use of depth, deep cosine and growth by norm, λ, optimiser and net."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from creditscope.auditing import audit
from creditscope.auditing.depth import DepthUse, paired_interval, use_of_depth
from creditscope.auditing.methods import Method, group_methods
from creditscope.auditing.stats import known_mean
from creditscope.auditing.thresholds import Thresholds
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key, say_setting
from creditscope.plots import Caption, Estimate, Statement, forest
from creditscope.plots._style import FAINT, GREY, INK
from creditscope.record import Record, RunSpec
from creditscope.record.pick import Cell, Key, Picked, pick, spec_of
from creditscope.record.spec import COMPARED_NORMS
from creditscope.record.table import largest_growth
from creditscope.rule_styles import LOOKS
from creditscope.text import number, power

OPTIMISERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
TERMINAL = {True: "terminal LayerNorm", False: "no terminal norm"}
FREE = ("rule", "frozen", "optimiser", "lr", "weight_decay", "net_options.terminal_norm")
BLUE, RED = LOOKS["bp"].colour, LOOKS["dfa"].colour
FACES = (("o", "white"), ("^", "#f4c7c3"), ("s", "#e58a82"), ("D", RED), ("v", "#5c0a14"))
"""Marker and face by rank of λ, light to dark."""
REFERENCES: dict[str, dict[str, Any]] = {
    "BP": {"color": BLUE, "lw": 1.0, "label": "BP"},
    "frozen BP": {"color": BLUE, "lw": 1.0, "ls": "--", "label": "frozen blocks, stem by BP"},
    "frozen DFA": {"color": RED, "lw": 1.0, "ls": "-.", "label": "frozen blocks, stem by DFA (same norm)"},
}
TITLE = "DFA with credit as it is, normalised per batch and normalised per sample."
READING = (
    "A row of panels for each optimiser and net, in them a row for each normalisation of credit. Marks are means with "
    "95 % t intervals over seeds (growth: of its logarithm), ticks seeds. Use of depth is accuracy over the better "
    "frozen baseline, paired over seeds; the deep cosine is the mean over taps 2..L, of the credit before it is "
    "normalised. Dotted: the thresholds of CS004 and CS001, whose answers stand beside the numbers."
)


@dataclass(frozen=True)
class Column:
    """A measure: where it is neutral, and the check that judges it with its threshold."""

    title: str
    short: str
    """Over a narrow panel."""
    neutral: float | None = None
    code: str = ""
    limit: float | None = None
    log: bool = False


COLUMNS = (
    Column("accuracy", "accuracy"),
    Column("use of depth, pp", "depth, pp", 0, "CS004", 100 * Thresholds().depth_gain),
    Column("deep cosine", "deep cosine", 0),
    Column("largest growth over a block", "growth", 1, "CS001", Thresholds().growth, log=True),
)


def measure(cell: Cell, use: DepthUse | None) -> list[np.ndarray]:
    """The columns by seed."""
    gains = [100 * gain for gain in use.gains] if use else []
    cosines = [known_mean(r.last.taps.cos[2:]) for r in cell.records]
    growths = [largest_growth(r.facts, r.last) for r in cell.records]
    return [np.array(column, dtype=float) for column in (cell.values("accuracy"), gains, cosines, growths)]


def kind_of(spec: RunSpec) -> str | None:
    """DFA, BP or one of them frozen; BP as it is, and frozen blocks without a penalty, which has nothing to act on."""
    if (spec.frozen and spec.penalty) or (spec.rule == "bp" and (spec.penalty or spec.credit_norm != "none")):
        return None
    return f"{'frozen ' * spec.frozen}{LOOKS[spec.rule].label}"


def setting_of(spec: RunSpec) -> str:
    """Optimiser, net and rate."""
    terminal = TERMINAL[bool(spec.net_options.get("terminal_norm", True))]
    return f"{OPTIMISERS[spec.optimiser]}, {terminal}, lr {spec.lr:g}"


def select(records: Sequence[Record]) -> Picked:
    """In every setting DFA by norm and λ, frozen DFA by norm, BP and frozen BP; what is missing is a gap."""
    plain = [r for r in records if r.spec and r.spec.rule in ("dfa", "bp") and not r.facts.rule.variant]
    axes = {"setting": setting_of, "runs": kind_of, "norm": "credit_norm", "penalty": "penalty"}
    where = {"frozen": (False, True), "credit_norm": COMPARED_NORMS.__contains__}
    found = pick(plain, vary=axes, where=where, free=FREE)
    penalties = sorted({penalty for _, runs, _, penalty in found.cells if runs == "DFA"})
    if not penalties:
        raise CreditscopeError(
            f"Expected records of dfa by credit norm and penalty, but got none among {len(records)} records. "
            "creditscope figure normalisation trains them."
        )
    if len(found.first.facts.taps) < 3:
        raise CreditscopeError(
            "Expected a net of at least two blocks, for a cosine of the deep taps 2..L, but got one."
        )
    for optimiser in OPTIMISERS:
        specs = [spec for spec in map(spec_of, found.records) if spec.optimiser == optimiser]
        if len(rates := sorted({(spec.lr, spec.weight_decay) for spec in specs})) > 1:
            raise CreditscopeError(
                f"Expected one learning rate and weight decay for {optimiser}, but got "
                f"{', '.join(f'{lr:g} and {decay:g}' for lr, decay in rates)}. Pass the records of one of them."
            )
    names = [", ".join(words) for words in product(OPTIMISERS.values(), TERMINAL.values())]
    settings = sorted(found.along("setting"), key=lambda setting: names.index(setting.rpartition(", ")[0]))
    keys: list[Key] = [("DFA", *condition) for condition in product(COMPARED_NORMS, penalties)]
    keys += [("frozen DFA", norm, 0.0) for norm in COMPARED_NORMS] + [("BP", "none", 0.0), ("frozen BP", "none", 0.0)]
    return Picked(found.axes, {(s, *key): found[s, *key] for s, key in product(settings, keys)}, found.seeds)


def key_of(method: Method) -> Key:
    """Of the cell that a method is in."""
    spec = spec_of(method.first)
    return setting_of(spec), kind_of(spec), spec.credit_norm, spec.penalty


@register_figure("normalisation")
def plot_normalisation(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `normalisation`: DFA in every condition, frozen and BP references."""
    found = select(records)
    uses = {key_of(method): use_of_depth(method) for method in group_methods(found.records)}
    settings = found.along("setting")
    penalties = sorted({cell.key[3] for cell in found if cell.key[1] == "DFA"})
    faces = (FACES[0], FACES[3]) if len(penalties) == 2 else FACES
    looks = {penalty: faces[i % len(faces)] for i, penalty in enumerate(penalties)}

    def draw(setting: str, *row: Axes) -> None:
        cells = [cell for cell in found if cell.key[:2] == (setting, "DFA")]
        columns = zip(*(measure(cell, uses.get(cell.key)) for cell in cells), strict=True)
        for column, values, ax in zip(COLUMNS, columns, row, strict=True):
            estimates = []
            for cell, own in zip(cells, values, strict=True):
                marker, face = looks[cell.key[3]]
                lost = "" if cell else "not on record"
                lost = f"{len(cell.diverged)}/{len(found.seeds)} diverged" if cell.diverged else lost
                look = {"marker": marker, "face": face, "note": lost * (column is COLUMNS[0])}
                estimates.append(Estimate(cell.key[2], own, f"λ = {power(cell.key[3])}", **look))
            forest(estimates, log=column.log, ax=ax, labels=False)
            ax.tick_params(axis="y", labelleft=column is COLUMNS[0])
            for value, colour, dashes in ((column.neutral, FAINT, "-"), (column.limit, GREY, ":")):
                if value is not None:
                    ax.axvline(value, lw=0.7, zorder=1, color=colour, ls=dashes)
            if not column.log:
                ax.xaxis.set_major_locator(MaxNLocator(2 if page.narrow else 3))
        _draw_references(row[0], found, setting)
        row[0].set_ylabel("credit norm")

    def keys(drawn: set[str]) -> list[Line2D]:
        dot = {"mec": INK, "mew": 0.6, "ms": 4.5, "ls": ""}
        marks = [Line2D([], [], marker=m, mfc=face, label=f"λ = {power(p)}", **dot) for p, (m, face) in looks.items()]
        marks += [Line2D([], [], **look) for look in REFERENCES.values()]
        limits = " and ".join(f"{column.limit:g} ({column.code})" for column in COLUMNS if column.limit)
        marks += [grey_key("mean, 95 % t interval", marker="o", mfc="white"), grey_key("each seed", marker="|", ls="")]
        return [*marks, grey_key(f"thresholds: {limits}", ls=":")]

    above = tuple(column.short for column in COLUMNS)
    height = 0.1 + min(0.14 * len(COMPARED_NORMS) * (len(penalties) + 1), 1.6)
    titles = {setting: find_title(found, setting) for setting in settings}
    shape = 1, len(COLUMNS)
    panels = [Panel(titles[own], partial(draw, own), height=height, shape=shape, above=above) for own in settings]
    return draw_page(page, panels, keys=keys, share={"x": "col", "y": "all"})


def find_title(found: Picked, setting: str) -> str:
    """Which normalisation costs most accuracy at the largest λ, where its interval is above 0; else the setting."""
    penalty = max(cell.key[3] for cell in found if cell.key[1] == "DFA")
    plain, costs = found[setting, "DFA", "none", penalty].by_seed("accuracy"), {}
    for norm in COMPARED_NORMS:
        own = found[setting, "DFA", norm, penalty].by_seed("accuracy")
        cost = paired_interval(plain, own)
        if cost and cost.low is not None and cost.low > 0:
            costs[norm] = cost.mean
    if not costs:
        return setting
    worst = max(costs, key=costs.__getitem__)
    pp = number(100 * costs[worst], ".1f")
    return f"{setting}: norm '{worst}' costs {pp} pp" + (f" at λ = {power(penalty)}" if penalty else "")


def _draw_references(ax: Axes, found: Picked, setting: str) -> None:
    """Mean accuracies of BP and of frozen blocks; those of frozen DFA in the row of their norm."""
    rows = len(COMPARED_NORMS)
    spans = [(runs, "none", -0.5, rows - 0.5) for runs in ("BP", "frozen BP")]
    spans += [("frozen DFA", norm, y - 0.4, y + 0.4) for y, norm in enumerate(COMPARED_NORMS)]
    for runs, norm, top, bottom in spans:
        if values := found[setting, runs, norm, 0.0].by_seed("accuracy"):
            mean = np.mean([*values.values()])
            ax.plot([mean, mean], [top, bottom], gid=f"{runs} {norm}", zorder=1, **REFERENCES[runs])


def describe(records: Sequence[Record]) -> Caption:
    """The columns by condition, with what CS004 and CS001 say; accuracies held against, and the cost of each norm."""
    found = select(records)
    judged, statements = audit(found.records), []
    both = zip(judged.groups, judged.methods, strict=True)
    methods = {key_of(group): (use_of_depth(group), method.findings) for group, method in both}
    for cell in found:
        setting, runs, norm, penalty = cell.key
        if runs != "DFA":
            group = f"{runs}, {norm}" if runs == "frozen DFA" else runs
            statements.append(Statement.over("accuracy", group, cell.values("accuracy"), panel=setting))
            continue
        use, findings = methods.get(cell.key, (None, ()))
        said = {"group": f"{norm}, λ = {power(penalty)}", "panel": setting}
        for column, values in zip(COLUMNS, measure(cell, use), strict=True):
            verdict = "".join(f"{f.code} {f.outcome}" for f in findings if f.code == column.code)
            statements.append(Statement.over(column.title, values=values, log=column.log, verdict=verdict, **said))
        if norm != "none":
            plain, own = (found[setting, "DFA", n, penalty].by_seed("accuracy") for n in ("none", norm))
            cost = paired_interval(*({s: 100 * a for s, a in each.items()} for each in (plain, own)))
            statements.append(Statement("accuracy without normalisation minus with it, pp", value=cost, **said))
        lost = f"{len(cell.diverged)} of {len(found.seeds)}"
        statements += [Statement("runs that diverged", value=lost, **said)] * bool(cell.diverged)
    setting = f"{say_setting(found)}; cosines on {found.first.last.rows:,} test rows"
    return Caption(TITLE, READING, setting, tuple(statements), found.gaps)
