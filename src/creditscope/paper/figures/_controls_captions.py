"""The words of figure `bottleneck_controls`, computed from the records: its table, and which explanation survives."""

import math
from collections.abc import Callable, Sequence

from creditscope.paper.figures._controls import (
    CONFIDENCE,
    MARGIN,
    Answer,
    Block,
    Controls,
    Row,
    collapsed,
    count_collapsed,
)
from creditscope.paper.figures._words import OPTIMISERS, accuracy_words, seed_words, share
from creditscope.text import DASH, join_words, power


def explain(block: Block) -> str:
    """For one depth: is there a collapse, which changes remove it, and what that leaves as its cause."""
    head = f"L\u00a0=\u00a0{block.depth}: {_symptoms(block)}"
    if not collapsed(block.baseline, block.majority):
        return f"{head} Without a collapse in every seed no control is judged at this depth."
    parts = [
        head,
        _survivors(block),
        _elsewhere(block),
        _zeros_only(block),
        _ruled_out(block),
        _undecided(block),
        _first_step(block),
    ]
    return " ".join(filter(None, parts))


def summarise(block: Block) -> str:
    """The same in a line, without what the table says: whether there is a collapse, and the changes by their answer."""
    said = f"L\u00a0=\u00a0{block.depth}: the baseline {_collapse(block)}"
    if not collapsed(block.baseline, block.majority):
        return f"{said}, so no control is judged."
    rows = [row for row in _with(block, "learns") if row.control.against is None]
    names = join_words([row.control.name for row in rows])
    parts = [f"{said}.", f"Learning returns with {names}." if rows else "No single change is shown to bring it back."]
    return " ".join([*parts, _elsewhere(block)]).strip()


def _collapse(block: Block) -> str:
    count, seeds = count_collapsed(block.baseline, block.majority)
    return f"collapses in {count} of {seeds} seeds" if count else "does not collapse"


def _symptoms(block: Block) -> str:
    """Accuracy and zeros of the baseline."""
    norms, zeros = block.baseline.zero_norms(), block.baseline.all_zero()
    found = block.baseline.accuracy()
    level = "unmeasured" if found is None else accuracy_words(found)
    return (
        f"the baseline {_collapse(block)} (accuracy {level}; majority class {share(block.majority)}); {norms[0]} of "
        f"{norms[1]} weight gradients have a float32 norm of 0, and in {zeros[0]} every element is 0."
    )


def _survivors(block: Block) -> str:
    """What brings learning back; several that each suffice are joint causes."""
    rows = [row for row in _with(block, "learns") if row.control.against is None]
    undecided = _with(block, "undecided")
    if not rows:
        said = "No single change is shown to bring learning back"
        return f"{said}." if undecided else f"{said}: either several causes each suffice, or one was not tested."
    blamed = _blames(rows)
    said = f"Learning returns with {_list(rows)}"
    if len(blamed) == 1:
        which = "that are decided" if undecided else "tested"
        return f"{said}: of the explanations {which} only {blamed[0]} {_verb(blamed, 'survive')}."
    causes = f"Each suffices alone, so {join_words(blamed)} are joint causes"
    return f"{said}. {causes}: take away one and there is no collapse."


def _elsewhere(block: Block) -> str:
    """What brings learning back beside another change, which does not suffice alone; no cause follows from it."""
    said = []
    for row in _with(block, "learns"):
        if row.control.against is not None:
            where = row.control.against.name
            name = row.control.name.removesuffix(f" on {where}")
            said.append(f"On {where}, {name} brings learning back ({accuracy_words(row.accuracy())}).")
    return " ".join(said)


def _zeros_only(block: Block) -> str:
    """What takes the zeros away and no more, unless another change of the same kind does more or may do."""
    rows = _with(block, "zeros gone")
    if not rows:
        return ""
    blamed = _blames(rows, but=_with(block, "learns", "undecided"))
    conclusion = f": {join_words(blamed)} {_verb(blamed, 'explain')} the zeros, not the failure" if blamed else ""
    return f"With {_list(rows)} the zeros go and learning does not return{conclusion}."


def _ruled_out(block: Block) -> str:
    """What leaves both as they are, unless another change of the same kind does more or may do."""
    rows = _with(block, "fails")
    if not rows:
        return ""
    blamed = _blames(rows, but=_with(block, "learns", "undecided", "zeros gone"))
    conclusion = f": {join_words(blamed)} {_verb(blamed, 'are')} not needed for it" if blamed else ""
    return f"The collapse stays with {_list(rows)}{conclusion}."


def _undecided(block: Block) -> str:
    rows = _with(block, "undecided")
    return f"Undecided over these seeds: {_list(rows)}." if rows else ""


def _first_step(block: Block) -> str:
    """The decay term against the data gradient before the first step, also where learning returns despite decay."""
    ratio = block.baseline.decay_ratio()
    if math.isnan(ratio):
        return ""
    learning = [(row, value) for row in _with(block, "learns") if (value := row.decay_ratio()) > 0]
    others = ", ".join(f"{ratio_words(value)} with {row.control.name}" for row, value in learning)
    said = f"At step 0 the decay term is {ratio_words(ratio)} times the data gradient (median over layers and seeds)"
    return f"{said}; {others}." if others else f"{said}."


def _with(block: Block, *answers: Answer) -> list[Row]:
    return [row for row in block.rows if row.answer in answers]


def _blames(rows: Sequence[Row], *, but: Sequence[Row] = ()) -> list[str]:
    """What the rows blame, each once, but for what others blame; of the baseline, so none that is held against more."""
    others = {row.control.blames for row in but}
    found = dict.fromkeys(row.control.blames for row in rows if row.control.against is None)
    return [blame for blame in found if blame not in others]


def _verb(subjects: Sequence[str], verb: str) -> str:
    one = len(subjects) == 1 and not subjects[0].endswith("weights")
    return {"are": "is"}.get(verb, f"{verb}s") if one else verb


def _list(rows: Sequence[Row]) -> str:
    return ", ".join(f"{row.control.name} ({accuracy_words(row.accuracy())})" for row in rows)


def ratio_words(value: float) -> str:
    """Two digits without a leading zero, or a power of ten where that is shorter.

    >>> ratio_words(25.04), ratio_words(0.0599), ratio_words(3.2e-5), ratio_words(0.0), ratio_words(float("nan"))
    ('25', '.06', '3×10⁻⁵', '0', '–')
    """
    if math.isnan(value):
        return DASH
    if value == 0 or value == float("inf"):
        return "0" if value == 0 else "∞"
    if 0.01 <= value < 1000:
        return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}".lstrip("0")
    return power(value)


def _count(pair: tuple[int, int]) -> str:
    return f"{pair[0]}/{pair[1]}" if pair[1] else DASH


def _share(value: float) -> str:
    return DASH if math.isnan(value) else share(value)


def _error(value: float) -> str:
    return DASH if math.isnan(value) else power(value, digits=1)


COLUMNS: dict[str, Callable[[Row], str]] = {
    "accuracy": lambda row: accuracy_words(row.accuracy()),
    "zero\nnorm": lambda row: _count(row.zero_norms()),
    "all\nzero": lambda row: _count(row.all_zero()),
    "output\nerror": lambda row: _error(row.output_error()),
    "probe": lambda row: _share(row.probe()),
    "spread": lambda row: _share(row.dispersion()),
    "decay/\ngrad.": lambda row: ratio_words(row.decay_ratio()),
    "answer": lambda row: row.answer,
}
"""Of the table: heading, and what it says of a row."""


def footer(found: Controls) -> str:
    """The recipe, the seeds and what the columns are."""
    spec, facts = found.spec, found.blocks[0].facts
    return (
        f"{spec.task}, GCN, hidden width {spec.net_options['width']}, BP. Baseline: {OPTIMISERS[spec.optimiser]}, lr "
        f"{spec.lr:g} ({spec.schedule}; the same under SGD), L2 decay {spec.weight_decay:g} on all layers (decoupled: "
        f"AdamW, as large and on all layers), gain 1, {spec.epochs} epochs, {spec.precision}; "
        f"{seed_words(found.seeds)}; accuracy on {facts.test_rows} test nodes, ± half of the 95\u00a0% t interval "
        f"over seeds. Zero gradients: of all layers and seeds, training loss; norms in float32 also of float64 runs. "
        f"Output error: ‖∂L/∂Z‖ of the logits; probe: median over hidden layers and seeds; spread: RMS about the mean "
        f"node over RMS, last hidden layer; decay/grad.: decay · ‖W‖ / ‖∂L/∂W‖ before training, median over layers "
        f"and seeds; the others: medians over seeds."
    )


def define_answers(found: Controls) -> str:
    """Each answer that occurs."""
    margin, used = f"{100 * MARGIN:g}\u00a0pp", {row.answer for block in found.blocks for row in block.rows}
    meanings: dict[Answer, str] = {
        "learns": f"lower {100 * CONFIDENCE:g}\u00a0% bounds of accuracy over the majority class and over the runs "
        f"compared with are above {margin}",
        "fails": f"no seed is above the majority class by {margin}",
        "zeros gone": f"no seed is above the majority class by {margin}, but, unlike in the runs compared with, no "
        "float32 norm is 0",
        "undecided": f"a seed is above the majority class by {margin}, but not both of the lower bounds over it and "
        "over the runs compared with are",
        "not judged": f"a seed of the runs compared with is above the majority class by {margin}",
    }
    said = "; ".join(f"{answer}: {meaning}" for answer, meaning in meanings.items() if answer in used)
    held = "Controls are compared with the baseline, PairNorm with the row-normalised Â"
    return f"{held}; {said}." if said else f"{held}."
