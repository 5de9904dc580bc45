"""The sentences of the figures of trajectories, computed from the records: they change when the data do."""

from collections.abc import Sequence

import numpy as np

from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH, Thresholds
from creditscope.paper.figures._page import LETTERS
from creditscope.paper.figures._selection import spec_of
from creditscope.paper.figures._trajectories import (
    ACCURACY,
    PUBLISHED,
    REFERENCE,
    STREAM,
    Group,
    Quantity,
    Row,
    Trajectories,
)
from creditscope.paper.figures._words import number, seed_words, share, with_spread
from creditscope.plots._quantities import mean_sd
from creditscope.text import join_words, power, span, with_options

NEVER = "never"
GROWTH = PUBLISHED[0]


def caption_row(row: Row, gradient: Quantity, *, accuracy: bool = False) -> str:
    """What happens to stream and gradient over training, when published limits are crossed, whether g is resolved."""
    if not row.drawn:
        return "No run of this net was finished." if row.any_record else "No run of this net is on record."
    sentences = [
        _say_stream(row),
        _say_gradient(row, gradient),
        _say_floor(row, gradient),
        _say_growth(row),
        _say_accuracy(row) if accuracy else "",
        _say_noise(row, gradient),
    ]
    return " ".join(filter(None, sentences))


def contrast_norms(with_norm: Row, without: Row, gradient: Quantity, *, rule: str) -> str:
    """How a rule's gradient and stream end with a terminal norm, against without it; paired over seeds."""
    pair = with_norm.group(rule), without.group(rule)
    if pair[0] is None or pair[1] is None:
        return ""
    seeds = [[record.spec.seed for record in group.records if record.spec] for group in pair if group]
    if seeds[0] != seeds[1]:
        return ""
    ends = {
        q: pair[0].values(q, with_norm.epochs)[:, -1] - pair[1].values(q, without.epochs)[:, -1]
        for q in (gradient, STREAM)
    }
    symbols = [quantity.symbol(with_norm.facts) for quantity in ends]
    (down, spread), (up, _) = ((float(x) for x in mean_sd(values)) for values in ends.values())
    if np.isnan([down, up]).any():
        return ""
    return (
        f"At the end, {pair[0].style.label} with a terminal norm has a {symbols[0]} that is {_orders(down, spread)} "
        f"orders of magnitude {'smaller' if down < 0 else 'larger'} than without one, and a {symbols[1]} that is "
        f"{_fold(abs(up))} {'smaller' if up < 0 else 'larger'} (paired over seeds)."
    )


def _change(row: Row, group: Group, quantity: Quantity) -> tuple[float, float]:
    """Mean and sd over seeds of the change of log10 from the first drawn epoch to the last."""
    values = group.values(quantity, row.epochs)
    mean, sd = mean_sd(values[:, -1] - values[:, 0])
    return float(mean), float(sd)


def _say_stream(row: Row) -> str:
    changes = [(group.style.label, _change(row, group, STREAM)[0]) for group in row.drawn]
    sizes = [_fold(abs(change)) for _, change in changes]
    cells = [(*pair, size, size == _fold(0.0)) for pair, size in zip(changes, sizes, strict=True)]
    said = _list_changes(cells, "grows", "shrinks")
    return f"From epoch {row.epochs[0]} to {row.epochs[-1]} {STREAM.symbol(row.facts)} {said}."


def _say_gradient(row: Row, gradient: Quantity) -> str:
    changes = [(group.style.label, *_change(row, group, gradient)) for group in row.drawn]
    cells = [(label, change, _orders(change, sd), _orders(change) == _orders(0.0)) for label, change, sd in changes]
    return f"In orders of magnitude {gradient.symbol(row.facts)} {_list_changes(cells, 'rises by', 'falls by')}."


def _list_changes(cells: Sequence[tuple[str, float, str, bool]], up: str, down: str) -> str:
    """Of (rule, change, its size in words, whether that is none): who changes how; a verb is said once in a row."""
    said, before = [], ""
    for label, change, size, kept in cells:
        verb = "is unmeasured" if np.isnan(change) else "keeps its size" if kept else up if change > 0 else down
        words = [verb] * (verb != before) + [size] * (verb in (up, down))
        said.append(" ".join([*words, f"under {label}"]))
        before = verb
    return join_words(said)


def _fold(orders: float) -> str:
    """A factor in words.

    >>> _fold(0.5), _fold(5.0)
    ('3.2-fold', '10⁵-fold')
    """
    factor = 10.0**orders
    if not np.isfinite(factor) or factor >= 1000:
        return f"{power(factor, digits=1)}-fold"
    return f"{number(factor, digits=1 if factor < 10 else 0)}-fold"


def _orders(change: float, spread: float = np.nan) -> str:
    return with_spread(abs(change), spread)


def _say_floor(row: Row, gradient: Quantity) -> str:
    found = [(group, group.first_below(gradient, PUBLISHED_FLOOR)) for group in row.drawn]
    known = [(g, epochs) for g, epochs in found if not np.isnan(g.values(gradient, row.epochs)).all()]
    floor = f"the published floor, {power(PUBLISHED_FLOOR, digits=2)},"
    symbol = gradient.symbol(row.facts)
    return _say_when(f"{symbol} is under {floor}", f"{symbol} is {NEVER} under {floor}", known)


def _say_growth(row: Row) -> str:
    if row.facts is None or not any(row.facts.residual):
        return ""
    found = [(group, group.first_epochs(GROWTH)) for group in row.drawn]
    limit = f"The limit of growth over one block, {PUBLISHED_GROWTH:g}-fold,"
    return _say_when(f"{limit} is crossed", f"{limit} is {NEVER} crossed", found)


def _say_when(crossing: str, no_crossing: str, found: Sequence[tuple[Group, list[int | None]]]) -> str:
    """When each rule first crosses a limit, as the words before that say; those that never do come last."""
    crossed = [f"first {when(epochs)} under {group.style.label}" for group, epochs in found if when(epochs) != NEVER]
    never = [group.style.label for group, epochs in found if when(epochs) == NEVER]
    if not crossed:
        return f"{no_crossing} under {join_words(never)}." if never else ""
    return f"{crossing} {join_words([*crossed, *([f'{NEVER} under {join_words(never)}'] if never else [])])}."


def when(epochs: Sequence[int | None]) -> str:
    """First epochs over seeds, in words.

    >>> when([3, 4, None]), when([3]), when([None, None])
    ('at epoch 3–4 (2 of 3 seeds)', 'at epoch 3', 'never')
    """
    known = [epoch for epoch in epochs if epoch is not None]
    if not known:
        return NEVER
    share_of = f" ({len(known)} of {len(epochs)} seeds)" if len(epochs) > 1 else ""
    return f"at epoch {span(min(known), max(known))}{share_of}"


def _say_accuracy(row: Row) -> str:
    """Means at the end, and the paired distance from BP."""
    ends = {group.rule: group.values(ACCURACY, row.epochs)[:, -1] for group in row.drawn}
    seeds = {group.rule: [r.spec.seed for r in group.records if r.spec] for group in row.drawn}
    said = []
    for group in row.drawn:
        own = f"{group.style.label} {_mean_words(*mean_sd(ends[group.rule]))}"
        if group.rule != REFERENCE and REFERENCE in ends and seeds[group.rule] == seeds[REFERENCE]:
            own += _distance(ends[group.rule] - ends[REFERENCE])
        said.append(own)
    return f"Test accuracy at the end: {join_words(said)}."


def _mean_words(mean: np.ndarray, sd: np.ndarray) -> str:
    if np.isnan(mean):
        return "unmeasured"
    return with_spread(float(mean), float(sd), write=share, digits=2)


def _distance(differences: np.ndarray) -> str:
    mean, sd = (100 * float(value) for value in mean_sd(differences))
    if np.isnan(mean):
        return ""
    return f" ({_orders(mean, sd)}\u00a0pp {'below' if mean < 0 else 'above'} BP)"


def _say_noise(row: Row, gradient: Quantity) -> str:
    """Whether float64 confirms the gradient that is drawn, at every drawn epoch where that was looked at."""
    noise = Quantity("g_noise", tap=gradient.tap)
    found = {g.style.label: 10 ** g.values(noise, row.epochs) for g in row.drawn}
    worst = {label: float(np.nanmax(values)) for label, values in found.items() if not np.isnan(values).all()}
    limit, symbol = Thresholds().noise, gradient.symbol(row.facts).strip("‖")
    if not worst:
        return ""
    poor = [f"{label} ({value:.2g})" for label, value in worst.items() if value > limit]
    if poor:
        said = f"is unresolved: at its worst, float64 differs by more than {limit:g} of it for {', '.join(poor)}."
    else:
        said = f"is no rounding noise: float64 differs by at most {power(max(worst.values()))} of it."
    return " ".join(filter(None, [f"{symbol} {said}", _say_worst_tap(row, gradient, limit)]))


def _say_worst_tap(row: Row, gradient: Quantity, limit: float) -> str:
    """The tap whose gradient is least resolved at the end of a drawn run, as CS002 sees it, if that is another one."""
    found = [
        (value, tap, group.style.label, record)
        for group in row.drawn
        for record in group.records
        for tap, value in enumerate(record.last.taps.g_noise)
        if value is not None and value > limit
    ]
    if not found:
        return ""
    value, tap, label, record = max(found, key=lambda one: (one[0], one[1] == gradient.tap_in(one[3].facts)))
    if tap == gradient.tap_in(record.facts):
        return ""
    tokens = "" if record.facts.class_token is None else " over all tokens"
    return (
        f"At tap {tap} the gradient is unresolved (CS002): under {label}, seed {spec_of(record).seed}, float64 differs "
        f"by {share(value)} of it{tokens} at the end."
    )


def footer(found: Trajectories, quantities: Sequence[Quantity]) -> str:
    """Task, net, epochs and rows of every net; seeds; what lines and bands are."""
    settings: dict[str, list[str]] = {}
    for row, letter in zip(found.rows, LETTERS, strict=False):
        if row.any_record is not None:
            settings.setdefault(_setting(row), []).append(letter)
    several = len(found.rows) > 1
    parts = [f"{', '.join(letters)}: {said}" if several else said for said, letters in settings.items()]
    n = len(found.seeds)
    logs = " of log10 for norms" if any(not q.log for q in quantities) else " of log10"
    bands = f"lines are means and bands ± sd over seeds (ddof 1){logs}" if n > 1 else "one seed, so no bands"
    seeds = f"{seed_words(found.seeds)}; {bands}" if n else "No finished run"
    others = "Limits are judged at all snapshots of a run. No penalty, no normalisation of credit"
    return ". ".join([*parts, seeds[:1].upper() + seeds[1:], others]) + "."


def _setting(row: Row) -> str:
    record = row.any_record
    assert record is not None
    assert record.spec is not None
    spec, facts = record.spec, record.facts
    shape = {"width": facts.tap_shapes[-1][-1], "depth": len(facts.gamma_taps)}
    options = {name: value for name, value in {**shape, **spec.net_options}.items() if name != "terminal_norm"}
    whose = "norms" if facts.class_token is None else "norms of the class token"
    drawn = f", drawn at the {len(row.epochs)} that all runs were measured at" if row.epochs else ""
    rows = f"{whose} are medians over {record.last.rows} test rows"
    return f"{spec.task}, {with_options(spec.net, options)}, {spec.epochs} epochs{drawn}; {rows}"
