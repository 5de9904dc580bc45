"""Does a penalty on what blocks add rescue DFA? Its course, credit of deep taps beside nulls and controls, its cost."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.methods import first_epoch
from creditscope.auditing.stats import NULL_SDS, Interval
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_ROWS
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key, say_missing, say_setting
from creditscope.paper.figures._over_training import symbol, under_floor, when
from creditscope.paper.studies.penalty_rescue import EARLY_UNTIL, STRONG, WEAK, find_early
from creditscope.plots import Caption, Statement, over_epochs
from creditscope.plots._lines import lines_of
from creditscope.plots._panel import label_ends, last_known
from creditscope.plots._quantities import mean_and_half, mean_sd, take_log, title
from creditscope.plots._style import BAND, GREY, INK, SMALL
from creditscope.record import Record, Snapshot
from creditscope.record.pick import Cell, Picked, pick, spec_of
from creditscope.record.schema import DESCENT_ROWS, FRESH_MOVES
from creditscope.record.table import richness
from creditscope.rule_styles import LOOKS, Look
from creditscope.text import count, number

EARLY, PLAIN, WEAKLY, STRONGLY = "early DFA", "DFA", f"DFA, λ {WEAK:g}", f"DFA, λ {STRONG:g}"
BP, PENALISED, FROZEN_DFA, FROZEN_BP, EXACT = "BP", f"BP, λ {STRONG:g}", "DFA, frozen", "BP, frozen", "BP gradient"
TRAINED = {PLAIN: ("dfa", 0.0), WEAKLY: ("dfa", WEAK), STRONGLY: ("dfa", STRONG)}
TRAINED |= {BP: ("bp", 0.0), PENALISED: ("bp", STRONG)}
FROZEN = {FROZEN_DFA: ("dfa", 0.0), FROZEN_BP: ("bp", 0.0)}
"""Rule and penalty of every condition; early DFA is the run of DFA that was measured in full over its first epochs."""
LAMBDA = {PLAIN: "λ = 0", STRONGLY: f"λ = {STRONG:g}"}
TRACED, JUDGED = (PLAIN, STRONGLY), (EARLY, WEAKLY, STRONGLY)
COMPARED = {PENALISED: (BP, STRONGLY), STRONGLY: (PLAIN, FROZEN_DFA, FROZEN_BP), BP: (STRONGLY,)}
METRICS = {
    "cosine": ("cos", "fresh_cos", "fresh_sd"),
    "ρ": ("rho", "fresh_rho", "fresh_rho_sd"),
    "descent": ("descent", "fresh_descent", "fresh_descent_sd"),
}
"""A measure per tap, its mean with fresh feedback, and the sd of that over draws."""
DEEP = 2
"""The first of the deep taps, which go up to L."""
TITLE = "Stream and gradient of DFA with and without a penalty on what blocks add, credit of deep taps, and accuracy."
READING = (
    "A cross: no value. A: thin lines are seeds, thick ones their geometric mean; dashed the published floor, "
    f"{PUBLISHED_FLOOR:g} per sample (1e-7 for a mean over {PUBLISHED_ROWS} rows). B: mean over taps {DEEP} to L, with"
    " 95 % t interval over seeds; early DFA at the last snapshot before growth (CS001) or the floor gives alarm, at "
    f"latest epoch {EARLY_UNTIL}, the others at the end; grey: 95 % of fresh feedback at the same snapshots, over "
    f"draws (ρ and descent: {FRESH_MOVES}) and seeds; hollow: the gradient itself, 1 by definition but for ρ; descent "
    f"is on at most {DESCENT_ROWS} rows. C: dots are seeds, with mean and 95 % t interval. Differences are paired over"
    " seeds; they are above or below 0 if their 95 % t interval is."
)


@register_figure("penalty_rescue")
def plot_penalty_rescue(records: Sequence[Record], *, credit_norm: str = "none", page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `penalty_rescue` under one normalisation of credit.

    A condition without records is a marked gap; only seeds that all conditions have are drawn.
    """
    found = select(records, credit_norm)
    looks = {name: LOOKS[rule] for name, (rule, _) in (TRAINED | FROZEN).items()}
    looks |= {EARLY: LOOKS["dfa"], EXACT: LOOKS["bp"]}
    looks |= {line.look.label: line.look for line in lines_of([r for name in TRAINED for r in found[name].records])}

    def keys(drawn: set[str]) -> list[Artist]:
        marks: list[Artist] = []
        for name in (*JUDGED, EXACT) if EXACT in drawn else ():
            look: dict[str, Any] = {"color": looks[name].colour, "marker": looks[name].marker}
            look["mfc"] = "white" if name == EXACT else looks[name].colour
            marks.append(Line2D([], [], ls="", ms=4, label=name, **look))
        null, floor = Patch(color=BAND, label="fresh feedback, 95 %"), grey_key("published floor", ls="--")
        return [*marks, *[null] * bool(marks), *[floor] * ("published floor" in drawn)]

    course, metrics, cost = find_titles(_say(found))
    panels = [
        Panel(course, partial(_draw_courses, found, looks), height=2.1, least=1.75, shape=(2, 1)),
        Panel(metrics, partial(_draw_metrics, found, looks), height=1.9, least=1.9),
        Panel(cost, partial(_draw_cost, found, looks), height=1.9, least=1.85),
    ]
    return draw_page(page, panels, keys=keys)


def find_titles(said: Sequence[Statement]) -> tuple[str, str, str]:
    """By how much the stream grows, what credit deep taps get, and what the penalty costs BP; else what is drawn."""
    means = {(s.quantity, s.group): s.value.mean for s in said if isinstance(s.value, Interval)}
    grown = [
        (q, means[q, STRONGLY], means[q, PLAIN]) for q, group in means if group == PLAIN and (q, STRONGLY) in means
    ]
    stream = next((own for own in grown if "‖h" in own[0]), None)
    told = next((s for s in said if (s.quantity, s.group) == ("deep cosine over fresh feedback", STRONGLY)), None)
    cost = means.get(("difference of accuracy, pp", f"{PENALISED} less {BP}"))
    left = means.get(("difference of accuracy, pp", f"{PENALISED} less {STRONGLY}"))
    return (
        f"Penalty: {stream[0].partition(',')[0].removeprefix('median ')} grows {number(stream[1], '.1f')} orders, "
        f"not {number(stream[2], '.1f')}"
        if stream and 0 <= stream[1] < stream[2]
        else "Stream and gradient",
        f"Penalty: deep cosine {number(means['deep cosine', STRONGLY], '.2f')}, above fresh feedback"
        if told and told.verdict == "above 0"
        else "Credit of deep taps",
        f"Penalty costs BP {number(-cost, '.1f')} pp; {number(left, '.1f')} pp to DFA remain"
        if cost is not None and left is not None and cost < 0 < left
        else "Accuracy",
    )


def describe(records: Sequence[Record], *, credit_norm: str = "none") -> Caption:
    """Changes over training, deep credit against fresh feedback, accuracy and its differences."""
    found = select(records, credit_norm)
    setting = f"{say_setting(found)}; credit norm {credit_norm}; {count(found.first.last.rows, 'test row')}"
    return Caption(TITLE, READING, setting, tuple(_say(found)), found.gaps)


def _say(found: Picked) -> list[Statement]:
    said = [s for name in TRACED if found[name] for s in _state_course(name, found[name])]
    said += [s for name in JUDGED if found[name] for s in _state_credit(name, found[name])]
    accuracies = {name: cell.values("accuracy") for (name,), cell in found.cells.items() if cell and name != EARLY}
    said += [Statement.over("accuracy", name, values, panel="C") for name, values in accuracies.items()]
    for above, below in ((one, other) for one, others in COMPARED.items() for other in others):
        if found[above] and found[below]:
            gain = 100 * (accuracies[above] - accuracies[below])
            said.append(_state_difference("difference of accuracy, pp", f"{above} less {below}", gain, "C"))
    return said


def select(records: Sequence[Record], credit_norm: str) -> Picked:
    """The conditions, with DFA under one normalisation of credit, on the seeds that they share."""
    own = [r for r in records if r.spec and r.spec.credit_norm == (credit_norm if r.spec.rule == "dfa" else "none")]
    if not any(spec_of(r).rule == "dfa" for r in own):
        raise CreditscopeError(
            f"Expected records of dfa with credit norm {credit_norm}, but got none among {len(records)} records. "
            "creditscope figure penalty_rescue trains them."
        )
    where = {"rule": ("dfa", "bp"), "penalty": (0.0, WEAK, STRONG), "frozen": (False, True)}
    vary = {**{name: name for name in where}, "full": lambda spec: spec.tier == "full"}
    found = pick(own, vary=vary, where=where, choose=_worth)
    if len(found.first.facts.taps) <= DEEP:
        raise CreditscopeError("Expected a net of at least two blocks, for the deep taps 2..L, but got one.")
    cells = {}
    for name, condition in {EARLY: TRAINED[PLAIN], **TRAINED, **FROZEN}.items():
        full, other = (found[*condition, name in FROZEN, measured] for measured in (True, False))
        kept = {seed: r for seed, r in full.runs.items() if _early_snapshots(r) > 1}
        late = dict.fromkeys(full.runs.keys() - kept.keys(), "not measured in its first epochs")
        early = replace(full, runs=kept, lost=full.lost | late)
        cells[name,] = replace(early if name == EARLY else full if full and not other else other, key=(name,))
    return Picked(("condition",), cells, found.seeds).shared()


def _early_snapshots(record: Record) -> int:
    return sum(s.epoch <= EARLY_UNTIL for s in record.snapshots)


def _worth(record: Record) -> tuple:
    """What chooses among the records of one run: most early snapshots of one in full, most later ones of another."""
    early = _early_snapshots(record)
    return early if spec_of(record).tier == "full" else len(record.snapshots) - early, richness(record)


def _moments(cell: Cell) -> list[Snapshot]:
    """What a condition is read at, by seed."""
    return [find_early(r).snapshot if cell.key == (EARLY,) else r.last for r in cell.records]


def _deep(cell: Cell, field: str, of: Callable = np.mean) -> np.ndarray:
    """Mean over the deep taps, by seed; NaN unless all of them have it."""
    rows = [np.array(getattr(s.taps, field)[DEEP:], dtype=float) for s in _moments(cell)]
    return np.array([of(row) if len(row) else np.nan for row in rows], dtype=float)


def _null(cell: Cell, metric: str) -> tuple[float, float, float]:
    """What fresh feedback gives: mean and 95 % over draws and seeds; the matrices of taps are drawn independently."""
    _, fresh, fresh_sd = METRICS[metric]
    within = mean_sd(_deep(cell, fresh_sd, lambda sd: np.linalg.norm(sd) / len(sd)) ** 2)[0]
    mean, between = map(float, mean_sd(_deep(cell, fresh)))
    reach = NULL_SDS * float(np.sqrt(within + np.nan_to_num(between) ** 2))
    return mean, mean - reach, mean + reach


def _state_course(name: str, cell: Cell) -> list[Statement]:
    """Change of stream and gradient, and when the gradient goes under the floor."""
    said, g = [], symbol(cell.first.facts, "g_norm", -1)
    for quantity in ("h_norm", "g_norm"):
        logs = take_log(cell.course(quantity, tap=-1)[1])
        change = f"{symbol(cell.first.facts, quantity, -1)}, change in orders of magnitude"
        said.append(Statement.over(change, name, logs[:, -1] - logs[:, 0], panel="A"))
    epochs = when([first_epoch(r, lambda s: under_floor(s, -1)) for r in cell.records])
    return [*said, Statement(f"first epoch with {g} under the floor", name, epochs, panel="A")]


def _state_credit(name: str, cell: Cell) -> list[Statement]:
    """Deep measures, beside those of fresh feedback at the same snapshots; of early DFA when it is read."""
    said = []
    for metric, (own, fresh, _) in METRICS.items():
        values, gain = _deep(cell, own), _deep(cell, own) - _deep(cell, fresh)
        null = Interval(*_null(cell, metric), len(cell.runs), over="draws and seeds")
        said += [
            Statement.over(f"deep {metric}", name, values, panel="B"),
            Statement(f"deep {metric} of fresh feedback", name, null if np.isfinite(null.mean) else None, panel="B"),
            _state_difference(f"deep {metric} over fresh feedback", name, gain, "B"),
        ]
    if name == EARLY:
        read = Counter(s.epoch for s in _moments(cell))
        epochs = ", ".join(f"{epoch} ({count(n, 'seed')})" for epoch, n in sorted(read.items()))
        alarms = sum(find_early(r).fired is not None for r in cell.records)
        said += [
            Statement.over("deep ρ", EXACT, _deep(cell, "rho_exact"), panel="B"),
            Statement("epoch at which it is read", name, epochs, panel="B"),
            Statement(f"seeds with alarm until epoch {EARLY_UNTIL}", name, float(alarms), panel="B"),
            Statement("draws of fresh feedback, cosine", name, float(_moments(cell)[0].fresh_draws), panel="B"),
        ]
    return said


def _state_difference(quantity: str, group: str, values: np.ndarray, panel: str) -> Statement:
    """Whether it is above or below 0, by its interval; a single seed does not tell."""
    said = Statement.over(quantity, group, values, panel=panel)
    if not isinstance(said.value, Interval) or said.value.low is None or said.value.high is None:
        return said
    return replace(said, verdict="above 0" if said.value.low > 0 else "below 0" if said.value.high < 0 else "open")


def _draw_courses(found: Picked, looks: dict[str, Look], above: Axes, below: Axes) -> None:
    """‖h‖ above ‖g‖ on one time axis; lines are named by their λ."""
    drawn = [record for name in TRACED for record in found[name].records]
    for ax, quantity in ((above, "h_norm"), (below, "g_norm")):
        if drawn:
            over_epochs(drawn, quantity, tap=-1, ax=ax, labels=False)
            means = {line.get_gid(): np.asarray(line.get_ydata()) for line in ax.lines}
            ends = {name: means.get(f"{name} mean", np.array([])) for name in TRACED}
            label_ends(ax, [(replace(looks[name], label=LAMBDA[name]), last_known(y)) for name, y in ends.items()])
            ax.set_ylabel(symbol(found.first.facts, quantity, -1).removeprefix("median "))
            ax.minorticks_off()
            ax.xaxis.set_major_locator(MaxNLocator(3, integer=True, min_n_ticks=1))
        else:
            say_missing(ax)
    below.axhline(PUBLISHED_FLOOR, color=GREY, lw=0.8, ls="--", zorder=1, gid="published floor")
    above.set_xlabel("")
    above.tick_params(labelbottom=False)


def _draw_means(ax: Axes, name: str, look: Look, x: np.ndarray, values: Sequence[np.ndarray], **how: Any) -> np.ndarray:
    """Means and t intervals over seeds, which are given back; a cross below where there is none."""
    mean, half = mean_and_half(values)
    look_of = {"color": look.colour, "marker": look.marker, "ms": 4.5, "elinewidth": 0.8, "capsize": 1.5, **how}
    ax.errorbar(x, mean, np.nan_to_num(half), gid=name, zorder=3, **look_of)
    gone, below = np.isnan(mean), ax.get_xaxis_transform()
    ax.plot(x[gone], np.full(gone.sum(), 0.02), "x", color=look.colour, ms=4, transform=below, gid=f"{name} gap")
    return mean


def _draw_metrics(found: Picked, looks: dict[str, Look], ax: Axes) -> None:
    """Conditions side by side for every measure, each on its null, beside the gradient itself."""
    x, one = np.arange(len(METRICS)), np.ones(min(1, len(found[EARLY].runs)))
    ax.axhline(0, color=INK, lw=0.6, zorder=1)
    for shift, name in zip((-0.3, -0.1, 0.1), JUDGED, strict=True):
        _draw_means(ax, name, looks[name], x + shift, [_deep(found[name], own) for own, *_ in METRICS.values()], ls="")
        if found[name]:
            _, low, high = np.array([_null(found[name], metric) for metric in METRICS]).T
            ax.bar(x + shift, high - low, 0.19, bottom=low, color=BAND, lw=0, zorder=0, gid=f"{name} null")
    _draw_means(ax, EXACT, looks[EXACT], x + 0.3, [one, _deep(found[EARLY], "rho_exact"), one], ls="", mfc="white")
    ax.set_xticks(x, list(METRICS))
    ax.set_ylabel("mean over deep taps")


def _draw_cost(found: Picked, looks: dict[str, Look], ax: Axes) -> None:
    """Accuracy without and with the penalty, what is left between the rules, and frozen blocks."""
    x, ends, last = np.arange(2.0), [], []
    for names in ((BP, PENALISED), (PLAIN, STRONGLY)):
        look, values = looks[names[0]], [found[name].values("accuracy") for name in names]
        mean = _draw_means(ax, names[0], look, x, values, lw=1.1)
        dots = {"color": look.colour, "ms": 1.6, "ls": "", "marker": "o", "gid": f"{names[0]} seeds"}
        ax.plot(np.repeat(x - 0.08, [len(own) for own in values]), np.concatenate(values), **dots)
        ends.append((look, last_known(mean)))
        last.append(mean[1])
    for name in FROZEN:
        if found[name]:
            level = float(np.nanmean(found[name].values("accuracy")))
            ax.axhline(level, color=looks[name].colour, lw=0.8, ls=":", zorder=1, gid=name)
            ends.append((replace(looks[name], label=name), level))
    if np.isfinite(last).all():
        bracket = {"arrowstyle": "|-|,widthA=0.25,widthB=0.25", "lw": 0.7, "shrinkA": 0, "shrinkB": 0}
        ax.annotate("", (1.16, last[0]), (1.16, last[1]), arrowprops=bracket)
        gap = number(100 * (last[0] - last[1]), ".1f")
        ax.text(1.11, sum(last) / 2, f"{gap} pp", ha="right", va="center", size=SMALL)
    label_ends(ax, ends)
    ax.set(xlim=(-0.3, 1.3), ylabel=title("accuracy"))
    ax.set_xticks(x, ["λ = 0", f"λ = {STRONG:g}"])
