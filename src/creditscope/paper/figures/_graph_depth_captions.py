"""The sentences of figure `graph_depth`, computed from the records: they change when the data do."""

from collections import Counter
from collections.abc import Sequence

from creditscope.auditing.stats import Interval
from creditscope.paper.figures._controls import MARGIN
from creditscope.paper.figures._graph_grid import Grid, changes, graph_name, list_depths
from creditscope.paper.figures._graph_learning import (
    RECIPE,
    compare,
    find_deepest,
    find_subject,
    judge,
    majority,
    sort_by_accuracy,
)
from creditscope.paper.figures._words import (
    OPTIMISERS,
    accuracy_words,
    half_width,
    seed_words,
    share,
    signed,
    with_spread,
)
from creditscope.paper.studies.graph_depth import BP_VARIANTS, METHODS, RULES, Method
from creditscope.text import join_words, span

SAID = {
    "trains": ("trains", "train"),
    "undecided": ("is undecided", "are undecided"),
    "fails": ("fails", "fail"),
    "diverged": ("diverged", "diverged"),
    "not on record": ("is not on record", "are not on record"),
}
"""Of one method and of several, by verdict."""
SHOWN = 3
"""Methods named as the deepest that train; the others are counted."""


def summarise(grid: Grid, task: str) -> str:
    """For one graph, in a line: where BP by the recipe fails, and which rules train there."""
    return f"{graph_name(task)}. {_opening(grid, task)} {_rules(grid, task)}"


def captions(grid: Grid, task: str) -> list[str]:
    """For one graph: where BP by the recipe fails, which rules train there, against which BP, how deep others go."""
    sentences = (_opening, _rules, _against, _deepest, _divergence)
    return [said for sentence in sentences if (said := sentence(grid, task))]


def title(grid: Grid, task: str) -> str:
    """Of the matrix."""
    subject = find_subject(grid, task)
    why = "where BP by the recipe first fails" if subject.failed else "the deepest (BP by the recipe fails nowhere)"
    return f"rule − BP, pp, at {list_depths([subject.depth])}, {why}"


def _opening(grid: Grid, task: str) -> str:
    subject = find_subject(grid, task)
    depth = list_depths([subject.depth])
    cell = grid.cell(task, subject.depth, RECIPE)
    found = cell.interval()
    level = accuracy_words(found) if found else "every seed diverged" if cell.diverged else "not on record"
    base = f"majority class {share(majority(grid, task))}"
    if subject.failed:
        return f"BP by the recipe first fails at {depth} ({level}; {base})."
    return f"BP by the recipe fails at no depth on record (at {depth} {level}; {base})."


def _rules(grid: Grid, task: str) -> str:
    """Which rules train at that depth, which do not."""
    subject = find_subject(grid, task)
    clauses = []
    for verdict, verbs in SAID.items():
        found = [rule for rule in RULES if judge(grid, task, subject.depth, rule) == verdict]
        found = sort_by_accuracy(grid, task, subject.depth, found)
        named = [_with_level(grid, task, subject.depth, rule) for rule in found]
        if named:
            clauses.append(f"{join_words(named)} {verbs[len(named) > 1]}")
        elif verdict == "trains":
            clauses.append("no rule trains")
    where = "There" if subject.failed else f"At {list_depths([subject.depth])}"
    return f"{where} {'; '.join(clauses)}."


def _against(grid: Grid, task: str) -> str:
    """The best rule that trains there, minus BP with each single change and the best BP; whether others are above."""
    depth = find_subject(grid, task).depth
    rules = [rule for rule in RULES if judge(grid, task, depth, rule) == "trains"]
    rule, best = grid.best(task, depth, rules), grid.best(task, depth)
    others = [m for m in BP_VARIANTS if len(changes(m)) == 1 or (m == best and m != RECIPE)]
    if rule is None:
        return f"Best there: {_with_level(grid, task, depth, best)}." if best else ""
    answers: dict[str, list[str]] = {"above": [], "": [], "below": []}
    counts = []
    for method in others:
        difference = grid.difference(task, depth, rule, method)
        if difference is not None:
            level = grid.cell(task, depth, method).interval()
            extra = f"; the best BP, {accuracy_words(level)}" if method == best else ""
            answers[compare(difference)].append(f"{_changed(method)} ({difference_words(difference)}{extra})")
            counts.append(difference.n)
    if not counts:
        return ""
    words = {"above": "above BP with", "": "not told apart from BP with", "below": "below BP with"}
    clauses = [f"{words[answer]} {join_words(found)}" for answer, found in answers.items() if found]
    said = f"{grid.name(rule)}, the best rule, is {', '.join(clauses)}; {_others(grid, task, rule, others)}"
    return f"{said} (pp, n\u00a0=\u00a0{span(min(counts), max(counts), ' to ')})."


def _others(grid: Grid, task: str, best: Method, compared: Sequence[Method]) -> str:
    """Which other rules are above one of the BPs compared with."""
    depth, above = find_subject(grid, task).depth, []
    for rule in RULES:
        found = {m: grid.difference(task, depth, rule, m) for m in compared if rule != best}
        names = [_changed(m) for m, d in found.items() if d is not None and compare(d) == "above"]
        if names:
            above.append(f"{grid.name(rule)} is above BP with {join_words(names)}")
    return ", ".join(above) or "no other rule is above any of these"


def _deepest(grid: Grid, task: str) -> str:
    """The deepest depth at which anything trains, then at which a rule does."""
    depth, methods = find_deepest(grid, task, METHODS)
    if not methods:
        return "Nothing trains at any depth."
    said = f"Deepest to train: {_first_few(grid, task, depth, methods)} at {list_depths([depth])}"
    depth, rules = find_deepest(grid, task, RULES)
    if not rules:
        return f"{said}; no rule does at any depth."
    return f"{said}; of the rules {_first_few(grid, task, depth, rules)} at {list_depths([depth])}."


def _first_few(grid: Grid, task: str, depth: int, methods: Sequence[Method]) -> str:
    named = [_with_level(grid, task, depth, method) for method in methods[:SHOWN]]
    return join_words(named + [f"{len(methods) - SHOWN} more"] * (len(methods) > SHOWN))


def _divergence(grid: Grid, task: str) -> str:
    """How many runs diverged, where, and whose they are."""
    methods, where = Counter[str](), []
    for depth in grid.depths:
        methods += Counter({_phrase(grid, m): len(grid.cell(task, depth, m).diverged) for m in METHODS})
        diverged, missing = grid.lost(task, depth, METHODS)
        if diverged:
            runs = len(METHODS) * len(grid.seeds) - missing
            where.append(f"{diverged} of {runs} runs at {list_depths([depth])}")
    if not where:
        return "No run diverged."
    whose = [f"{name} {count}" for name, count in methods.most_common()]
    return f"Diverged: {join_words(where)} ({', '.join(whose)})."


def _phrase(grid: Grid, method: Method) -> str:
    """A method inside a sentence."""
    if method.rule != "bp":
        return grid.name(method)
    return f"BP with {_changed(method)}" if changes(method) else "BP by the recipe"


def _changed(method: Method) -> str:
    return " + ".join(changes(method))


def _with_level(grid: Grid, task: str, depth: int, method: Method) -> str:
    found = grid.cell(task, depth, method).interval()
    return f"{_phrase(grid, method)} ({accuracy_words(found)})" if found else _phrase(grid, method)


def difference_words(difference: Interval) -> str:
    """In pp, ± half the width of its interval."""
    return with_spread(difference.mean, half_width(difference), write=signed)


def say_chosen(grid: Grid) -> str:
    """How the best were found."""
    bps = len(grid.with_runs(BP_VARIANTS))
    return f"Best rule and best of {bps} BPs are chosen on the test nodes they are compared on."


def footer(grid: Grid) -> str:
    """The recipe, the seeds, and what is compared, from the specs."""
    spec, facts = grid.spec, [grid.facts(task) for task in grid.tasks]
    coupled = "decoupled" if spec.optimiser == "adamw" else "an L2 term in the gradient"
    where = "all layers" if spec.decay_on == "all" else "the first layer"
    rows = ", ".join(
        f"{graph_name(task)} {known.test_rows}"
        for task, known in zip(grid.tasks, facts, strict=True)
        if known is not None
    )
    return (
        f"GCN, hidden width {spec.net_options['width']}, {OPTIMISERS[spec.optimiser]}, lr {spec.lr:g} "
        f"({spec.schedule}), decay {spec.weight_decay:g} on {where} ({coupled}; 0 where it says no decay), initial "
        f"gain 1 unless stated, {spec.epochs} epochs, {spec.precision}, {seed_words(grid.seeds)}; test nodes: {rows}. "
        f"Mean ± half of the 95\u00a0% t interval over seeds that did not diverge. Fails: its mean is not above the "
        f"majority class by {100 * MARGIN:g}\u00a0pp; trains: the lower end of its interval is and no run diverged. "
        f"Differences are paired over seeds; above, below: the interval leaves out 0 (not corrected for their "
        f"number). Γ: mean cosine of credit and gradient over taps, at the end; BP's is 1 by definition, none "
        f"where the gradient is 0, and drawn once."
    )
