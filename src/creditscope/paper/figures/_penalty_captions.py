"""The sentences of figure `penalty_rescue`, computed from the records: they change when the data do."""

from collections import Counter

from creditscope.auditing.stats import Interval
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_ROWS, Thresholds
from creditscope.paper.early import EARLY_UNTIL
from creditscope.paper.figures._penalty import DEEP, KINDS, Rescue
from creditscope.paper.figures._penalty_bars import METRICS, Metric, over_null, paired
from creditscope.paper.figures._selection import spec_of
from creditscope.paper.figures._words import interval_words, number, seed_words, signed, with_spread
from creditscope.paper.studies.penalty_rescue import STRONG
from creditscope.plots._quantities import mean_sd, take_log
from creditscope.record.schema import DESCENT_ROWS, FRESH_MOVES
from creditscope.text import count, join_words, power, span, subscript, with_options

TRACED = ("dfa", "strong")
"""Conditions whose trajectories are drawn."""
JUDGED = ("early", "weak", "strong")
"""Conditions held against fresh feedback."""
PP = "\u00a0pp"


def caption_trajectory(found: Rescue) -> str:
    """a: by how many orders of magnitude stream and gradient have changed at the end, and who crosses the floor."""
    traced = [key for key in TRACED if found.runs[key]]
    if not traced:
        return "Neither trajectory is on record."
    first, last = _ends(found, traced[0])
    spread = ", mean ± sd over seeds" if len(found.seeds) > 1 else ""
    changes = []
    for symbol, name in (("h", "h_norm"), ("g", "g_norm")):
        by_key = [f"{_orders(found, key, name)} under {KINDS[key].label}" for key in traced]
        changes.append(f"‖{subscript(symbol, found.last_tap)}‖ {join_words(by_key)}")
    crossed = [f"{_crossing(found, key)} under {KINDS[key].label}" for key in traced]
    return (
        f"Change from epoch {first} to {last}, in orders of magnitude{spread}: {'; '.join(changes)}. "
        f"‖{subscript('g', found.last_tap)}‖ is under the published floor in {join_words(crossed)}."
    )


def _ends(found: Rescue, key: str) -> tuple[int, int]:
    epochs, _ = found.trajectory(key, "h_norm")
    return int(epochs[0]), int(epochs[-1])


def _orders(found: Rescue, key: str, name: str) -> str:
    logs = take_log(found.trajectory(key, name)[1])
    mean, sd = (float(value) for value in mean_sd(logs[:, -1] - logs[:, 0]))
    return with_spread(mean, sd, write=signed)


def _crossing(found: Rescue, key: str) -> str:
    """How many seeds ever go under the floor, and when first."""
    epochs, sizes = found.trajectory(key, "g_norm")
    under = sizes < PUBLISHED_FLOOR
    when = sorted({int(epochs[row.argmax()]) for row in under if row.any()})
    said = f"{int(under.any(1).sum())} of {len(under)} seeds"
    if not when:
        return said
    return f"{said} (first at epoch {span(when[0], when[-1])})"


def caption_metrics(found: Rescue) -> str:
    """b: where DFA is read, and whose credit is better than that of fresh feedback."""
    sentences = [early_words(found), _cosine_words(found)]
    sentences += [_agreement(found, metric) for metric in METRICS[1:]]
    return " ".join(filter(None, sentences))


def early_words(found: Rescue) -> str:
    """The epochs at which DFA is read, and why then."""
    if not found.early:
        return f"{KINDS['early'].label}: {found.gaps['early']}, so that null and control are missing, too."
    counts = sorted(Counter(one.snapshot.epoch for one in found.early).items())
    epochs = [f"{epoch} ({count(n, 'seed')})" if len(counts) > 1 else f"{epoch}" for epoch, n in counts]
    text = (
        f"DFA is read at epoch {join_words(epochs)}, the last snapshot before growth (CS001) or the published "
        f"floor gives alarm, at latest epoch {EARLY_UNTIL}."
    )
    at_once = sum(one.fired is not None and one.snapshot.epoch == 0 for one in found.early)
    calm = sum(one.fired is None for one in found.early)
    if at_once:
        return (
            f"{text} For {count(at_once, 'seed')} that is before training: alarm is given by the first epoch measured."
        )
    return f"{text} No alarm by then in {count(calm, 'seed')}." if calm else text


def _cosine_words(found: Rescue) -> str:
    """Cosine over its own null, with intervals."""
    said = []
    for key in JUDGED:
        gain = over_null(found, METRICS[0], key)
        if gain is not None:
            said.append(f"{KINDS[key].label} {_answer(gain)}, {interval_words(gain, digits=2)}")
    if not said:
        return "No cosine is on record to compare with fresh feedback."
    where = "at the same snapshots, by the 95\u00a0% t interval of the difference"
    return f"Is the cosine above that of fresh feedback {where}? {_start('; '.join(said))}."


def _agreement(found: Rescue, metric: Metric) -> str:
    """Under which conditions another measure is above its null."""
    answers: dict[str, list[str]] = {}
    for key in JUDGED:
        gain = over_null(found, metric, key)
        answers.setdefault("unmeasured" if gain is None else _answer(gain), []).append(KINDS[key].label)
    if list(answers) == ["unmeasured"]:
        return f"{metric.label} has no null on record."
    said = [f"{answer} for {join_words(labels)}" for answer, labels in answers.items()]
    return f"{metric.label}: {'; '.join(said)}."


def _answer(gain: Interval) -> str:
    """Whether it is above 0."""
    if gain.low is None or gain.high is None:
        return "not judged"
    return "yes" if gain.low > 0 else "below" if gain.high < 0 else "no"


def _start(text: str) -> str:
    return text[:1].upper() + text[1:]


def title_cost(found: Rescue) -> str:
    """c: what the penalty does to BP, and what still separates DFA from BP, both penalised, in pp."""
    change, gap = difference(found, "bp strong", "bp"), difference(found, "bp strong", "strong")
    parts = [] if change is None else [f"BP {signed(change.mean)} pp"]
    parts += [] if gap is None else [f"gap left {number(gap.mean, digits=1)} pp"]
    return f"Penalty: {', '.join(parts)}" if parts else "Cost of the penalty"


def difference(found: Rescue, above: str, below: str) -> Interval | None:
    """Accuracy of one condition less that of another in pp, paired over seeds."""
    return paired(100 * found.accuracy(above), 100 * found.accuracy(below))


def caption_cost(found: Rescue) -> str:
    """c: the penalty's cost, what it brings DFA, the gap that is left, and the frozen baselines."""
    strength = f"A penalty of λ\u00a0=\u00a0{power(STRONG)}"
    changes = [
        _changes(name, difference(found, *keys))
        for name, keys in {"BP": ("bp strong", "bp"), "DFA": TRACED[::-1]}.items()
    ]
    gaps = [
        f"{interval_words(gap, unit=PP)} to {KINDS[key].label}"
        for key in ("bp strong", "bp")
        if (gap := difference(found, key, "strong"))
    ]
    sentences = [
        f"{strength} {'; it '.join(filter(None, changes))}." if any(changes) else "",
        f"Gap left for penalised DFA: {join_words(gaps)}." if gaps else "",
        _frozen_words(found),
        "Differences are paired over seeds, with 95\u00a0% t intervals." if len(found.seeds) > 1 else "",
    ]
    return " ".join(filter(None, sentences)) or "Accuracies are not on record."


def _changes(name: str, change: Interval | None) -> str:
    """A verb that the interval bears out."""
    if change is None:
        return ""
    if change.low is None or change.high is None:
        return f"changes {name} by {signed(change.mean)}\u00a0pp (one seed)"
    verb = "lifts" if change.low > 0 else "lowers" if change.high < 0 else "does not clearly change"
    return f"{verb} {name}: {interval_words(change, unit=PP)}"


def _frozen_words(found: Rescue) -> str:
    """Whether penalised DFA is above nets whose blocks were never trained."""
    said = []
    for key in ("frozen dfa", "frozen bp"):
        gain = difference(found, "strong", key)
        if gain is not None:
            word = {"yes": "above", "below": "below", "no": "not clearly above"}.get(_answer(gain), "against")
            said.append(f"{word} {KINDS[key].label} ({interval_words(gain, unit=PP)})")
    return f"Penalised DFA is {join_words(said)}." if said else ""


def footer(found: Rescue) -> str:
    """Task, net, seeds, credit norm, what the bars are."""
    record, n = found.first, len(found.seeds)
    spec = spec_of(record)
    draws = sorted({moment.fresh_draws for moment in found.moments("early")} - {0})
    band = "Band in A: mean ± sd of log10 over seeds; bars in B and C: ± sd over seeds (ddof 1)"
    cosine = METRICS[0].label.lower()
    drawn = f"{'–'.join(map(str, draws))} draws ({cosine}) or {FRESH_MOVES} (ρ, descent)"
    null = f", of the null over {drawn} and seeds" if draws else ""
    bars = (
        f"{band}{null}" if n > 1 else f"One seed, so no bars{', but those of the draws behind the null' * bool(draws)}"
    )
    fewer = f" (descent: {DESCENT_ROWS})" if record.last.rows > DESCENT_ROWS else ""
    g, floor = subscript("g", found.last_tap), power(PUBLISHED_FLOOR, digits=2)
    return (
        f"{spec.task}, {with_options(spec.net, spec.net_options)}, {spec.epochs} epochs, {seed_words(found.seeds)}, "
        f"credit norm {found.credit_norm}. {bars}. Deep: mean over taps {DEEP}..{found.last_tap}, on "
        f"{record.last.rows} test rows{fewer}. Alarms: growth over {Thresholds().growth:g} in a block (CS001); median "
        f"‖{g}‖ per sample under {floor}, the published {power(PUBLISHED_FLOOR / PUBLISHED_ROWS)} for a mean over "
        f"N\u00a0=\u00a0{PUBLISHED_ROWS} rows."
    )
