"""The sentences of figure `normalisation`, computed from the records: they change when the data do."""

import numpy as np

from creditscope.auditing.depth import paired_interval
from creditscope.auditing.methods import accuracies
from creditscope.auditing.stats import t_bounds
from creditscope.auditing.thresholds import Thresholds
from creditscope.paper.figures._conditions import NORMS, Condition, Grid, Setting
from creditscope.paper.figures._words import interval_words, seed_words
from creditscope.text import name_options, power


def caption(grid: Grid) -> str:
    """What normalisation costs at the largest gain of λ, where depth is used, where the stream is overwritten."""
    sentences = [_cost(grid), _depth(grid), _growth(grid), _diverged(grid)]
    return " ".join(filter(None, sentences))


def _cost(grid: Grid) -> str:
    """Accuracy without normalisation minus with it, at the λ whose unnormalised rule is best in the first setting."""
    first = grid.settings[0]
    means = {p: float(np.mean(c.accuracy())) for p in grid.penalties if (c := _get(first, "none", p)) and c.runs}
    if not means:
        return ""
    best = max(means, key=means.__getitem__)
    clauses = []
    for setting in grid.settings:
        found = [_difference(setting, norm, best) for norm in NORMS[1:]]
        clauses.append(f"{setting.label}: {', '.join(found)}")
    said = f"Accuracy without normalisation minus with it, in pp at λ\u00a0=\u00a0{power(best)}, paired over seeds "
    return f"{said}[95\u00a0% t interval]: {'; '.join(clauses)}."


def _difference(setting: Setting, norm: str, penalty: float) -> str:
    plain, other = _get(setting, "none", penalty), _get(setting, norm, penalty)
    if plain is None or other is None or not plain.runs.keys() & other.runs.keys():
        return f"{norm} nothing to compare"
    found = paired_interval(*({s: 100 * a for s, a in accuracies(c.runs).items()} for c in (plain, other)))
    if found is None:
        return f"{norm} unmeasured"
    return f"{norm} {interval_words(found)}"


def _depth(grid: Grid) -> str:
    """By the rule of CS004: the lower bound of the gain over the better frozen baseline."""
    limits = Thresholds()
    used, judged = dict.fromkeys(NORMS, 0), dict.fromkeys(NORMS, 0)
    for setting in grid.settings:
        if not setting.bp_gain() >= limits.task_gain:
            continue
        for condition in setting.conditions.values():
            gains = setting.gains(condition)
            if len(gains) >= limits.seeds:
                low, _ = t_bounds(gains.tolist(), confidence=limits.depth_confidence)
                judged[condition.norm] += 1
                used[condition.norm] += low >= limits.depth_gain
    if not any(judged.values()):
        return f"Use of depth is not judged: it needs {limits.seeds} seeds with both baselines."
    counts = ", ".join(f"{norm} {used[norm]} of {judged[norm]}" for norm in NORMS if judged[norm])
    bound = f"{limits.depth_confidence:.0%} lower bound over {100 * limits.depth_gain:g}\u00a0pp".replace(
        "%", "\u00a0%"
    )
    return f"Depth is used ({bound}) in conditions that stayed finite: {counts}."


def _growth(grid: Grid) -> str:
    """Which conditions have a mean growth above the limit of CS001, by setting."""
    limit, said = Thresholds().growth, []
    for setting in grid.settings:
        over = [c for c in setting.conditions.values() if c.runs and _geometric_mean(c.growth()) > limit]
        by_penalty = {p: [c.norm for c in over if c.penalty == p] for p in grid.penalties}
        named = [
            f"{'every norm' if len(norms) == len(NORMS) else ' and '.join(norms)} at λ\u00a0=\u00a0{power(penalty)}"
            for penalty, norms in by_penalty.items()
            if norms
        ]
        said += [f"{setting.label} ({', '.join(named)})"] if named else []
    if not said:
        return f"No block overwrites the stream (geometric mean growth over {limit:g})."
    return f"A block overwrites the stream (geometric mean growth over {limit:g}): {'; '.join(said)}."


def _geometric_mean(values: np.ndarray) -> float:
    """As drawn: the mean of log10."""
    known = values[np.isfinite(values) & (values > 0)]
    return float(10 ** np.log10(known).mean()) if len(known) else np.nan


def _diverged(grid: Grid) -> str:
    lost = {norm: sum(len(c.diverged) for c in _conditions(grid, norm)) for norm in NORMS}
    if not any(lost.values()):
        return "No run diverged."
    total = {norm: sum(len(c.diverged) + len(c.runs) for c in _conditions(grid, norm)) for norm in NORMS}
    return f"Diverged runs: {', '.join(f'{norm} {lost[norm]} of {total[norm]}' for norm in NORMS)}."


def footer(grid: Grid) -> str:
    """Task, net, seeds, rates, what is held against what."""
    spec = grid.spec
    options = name_options({name: value for name, value in spec.net_options.items() if name != "terminal_norm"})
    return (
        f"{spec.task}, {spec.net} ({options}), DFA, {spec.epochs} epochs, {seed_words(grid.seeds)}. Rows: "
        f"normalisation of credit. Use of depth: accuracy minus the better of the two frozen baselines, paired over "
        f"seeds. Deep cosine on {_rows(grid)} test rows, before normalisation."
    )


def _rows(grid: Grid) -> int:
    runs = [r for s in grid.settings for c in s.conditions.values() for r in c.runs.values()]
    return runs[0].last.rows if runs else 0


def _get(setting: Setting, norm: str, penalty: float) -> Condition | None:
    return setting.conditions.get((norm, penalty))


def _conditions(grid: Grid, norm: str) -> list[Condition]:
    return [c for s in grid.settings for c in s.conditions.values() if c.norm == norm]
