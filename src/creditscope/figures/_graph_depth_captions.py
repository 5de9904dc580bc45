"""The sentences of figure `graph_depth`, computed from the records: they change when the data do."""

from collections.abc import Sequence

import numpy as np

from creditscope.auditing.stats import Interval
from creditscope.figures._graph_grid import Grid, changes, list_depths, paired
from creditscope.figures._selection import plural
from creditscope.figures._style import number
from creditscope.studies.graph_depth import BP_VARIANTS, RULES, Method


def captions(grid: Grid, task: str) -> list[str]:
    """For one graph, paragraphs: the best BP where it is deep, then every rule against it and against other BPs."""
    return [_best(grid, task), *(_against(grid, task, rule) for rule in RULES)]


def _best(grid: Grid, task: str) -> str:
    """Which BP is best, depth by depth."""
    by_method: dict[Method, list[str]] = {}
    for depth in grid.deep:
        best = grid.best_bp(task, depth)
        if best is not None:
            mean = float(np.mean(list(grid.cell(task, depth, best).values("accuracy").values())))
            by_method.setdefault(best, []).append(f"{number(mean)} at {list_depths([depth])}")
    said = [f"{', '.join(changes(m)) or 'as in the recipe'}, {', '.join(where)}" for m, where in by_method.items()]
    return f"Best BP: {'; '.join(said)}." if said else "No BP on record."


def _against(grid: Grid, task: str, rule: Method) -> str:
    """A rule minus the best BP at each deep depth, then minus BP by the recipe and with each single change."""
    found = {depth: _over_best(grid, task, depth, rule) for depth in grid.deep}
    known = {depth: difference for depth, difference in found.items() if difference}
    if not known:
        return f"{grid.name(rule)}: nothing to compare."
    clauses = []
    for answer, word in {"above": "above", "below": "below", "": "not told apart"}.items():
        depths = [depth for depth, difference in known.items() if compare(difference) == answer]
        if depths:
            sizes = ", ".join(signed(known[depth]) for depth in depths)
            clauses.append(f"{word} at {list_depths(depths)} ({sizes})")
    pairs = _pairs(list(known.values()))
    return f"{grid.name(rule)} − best BP (n\u00a0=\u00a0{pairs}): {', '.join(clauses)}.{_still(grid, task, rule)}"


def _over_best(grid: Grid, task: str, depth: int, rule: Method) -> Interval | None:
    best = grid.best_bp(task, depth)
    own = grid.cell(task, depth, rule).values("accuracy")
    return paired(own, grid.cell(task, depth, best).values("accuracy")) if best else None


def _still(grid: Grid, task: str, rule: Method) -> str:
    """Over the deep depths: above which BP is it, by the recipe and after each single change?"""
    own = grid.over_deep(task, rule)
    answers: dict[str, list[str]] = {"above": [], "below": [], "": []}
    for method in BP_VARIANTS:
        difference = paired(own, grid.over_deep(task, method)) if len(changes(method)) < 2 else None
        if difference is not None:
            name = ", ".join(changes(method)) or "by the recipe"
            answers[compare(difference)].append(f"{name} ({signed(difference)})")
    if not any(answers.values()):
        return ""
    above = f"above BP {', '.join(answers['above'])}" if answers["above"] else "above no BP"
    others = [f"{word} {', '.join(answers[a])}" for a, word in (("below", "below"), ("", "undecided")) if answers[a]]
    return f" Over these depths {'; '.join([above, *others])}."


def compare(difference: Interval) -> str:
    """Above, below, or neither: whether the 95 % interval leaves out 0."""
    if difference.low is None or difference.high is None:
        return ""
    return "above" if difference.low > 0 else "below" if difference.high < 0 else ""


def signed(difference: Interval) -> str:
    """In pp, ± half the width of its interval."""
    mean = _sign(difference.mean)
    if difference.low is None or difference.high is None:
        return mean
    return f"{mean}\u00a0±\u00a0{difference.high - difference.mean:.1f}"


def _sign(value: float) -> str:
    return ("+" if value >= 0 else "") + number(value, digits=1)


def _pairs(differences: Sequence[Interval]) -> str:
    """Seeds behind them."""
    counts = sorted({difference.n for difference in differences})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def footer(grid: Grid) -> str:
    """The recipe, the seeds, and what is compared, from the specs."""
    spec, facts = grid.spec, [grid.facts(task) for task in grid.tasks]
    optimiser = {"adam": "Adam", "adamw": "AdamW", "sgd": "SGD"}[spec.optimiser]
    coupled = "decoupled" if spec.optimiser == "adamw" else "an L2 term in the gradient"
    where = "all layers" if spec.decay_on == "all" else "the first layer"
    rows = ", ".join(
        f"{task} {known.test_rows}" for task, known in zip(grid.tasks, facts, strict=True) if known is not None
    )
    return (
        f"GCN, hidden width {spec.net_options['width']}, {optimiser}, lr {spec.lr:g} ({spec.schedule}), decay "
        f"{spec.weight_decay:g} on {where} ({coupled}; 0 where it says no decay), initial gain 1 unless stated, "
        f"{spec.epochs} epochs, {spec.precision}, {plural('seed', grid.seeds)} (n\u00a0=\u00a0{len(grid.seeds)}); test "
        f"nodes: {rows}. Differences in pp of accuracy, paired over seeds, ± half of the 95\u00a0% t interval (not "
        f"corrected for their number); above and below: it leaves out 0. The best of {len(BP_VARIANTS)} BP variants is "
        f"chosen on the test nodes it is compared on, which favours BP. Γ: mean cosine of credit and gradient over "
        f"taps, at the end; BP's is 1 by definition and drawn once."
    )
