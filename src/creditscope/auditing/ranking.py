"""Whether cosine and descent rank the methods of one setting alike (the comparison that belongs to CS008)."""

from collections.abc import Sequence
from itertools import combinations

from creditscope.auditing.checks._orientation import asked_taps
from creditscope.auditing.depth import paired_interval
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import Interval
from creditscope.record import Facts, Snapshot
from creditscope.text import number


def rank_notes(methods: Sequence[Method]) -> list[str]:
    """One sentence per setting in which the two rank methods differently, and the seeds resolve it."""
    notes = []
    for setting in dict.fromkeys(m.setting for m in methods):
        scored = [m for m in methods if m.setting == setting and _is_scored(m)]
        notes += [f"{setting}: {note}" for note in [_compare(scored)] if note]
    return notes


def _compare(methods: Sequence[Method]) -> str:
    """The pairs that change places by intervals that leave out zero."""
    cos, descent = ([_by_seed(m, name) for m in methods] for name in ("cos", "descent"))
    swapped = []
    for i, j in combinations(range(len(methods)), 2):
        gaps = paired_interval(cos[i], cos[j]), paired_interval(descent[i], descent[j])
        if gaps[0] is None or gaps[1] is None or gaps[0].mean * gaps[1].mean >= 0 or not all(map(_resolved, gaps)):
            continue
        higher, lower = (i, j) if gaps[0].mean > 0 else (j, i)
        swapped.append(
            f"by cosine {methods[higher].label} is above {methods[lower].label}, by descent below it ("
            f"n = {gaps[0].n}; Δcos {abs(gaps[0].mean):.3f}, Δdescent {number(-abs(gaps[1].mean), '.3f')}, paired)"
        )
    return f"cosine and descent rank the methods differently (CS008): {'; '.join(swapped)}" if swapped else ""


def _is_scored(method: Method) -> bool:
    facts = method.facts
    return facts.rule.approximates == "gradient" and bool(asked_taps(facts)) and bool(_by_seed(method, "descent"))


def _by_seed(method: Method, name: str) -> dict[int, float]:
    """Mean over the block taps without exact credit, by seed; seeds that lack a value are left out."""
    found = {}
    for seed, record in method.runs.items():
        values = _series(record.last, name, method.facts) if record.provenance.status != "diverged" else []
        known = [v for v in values if v is not None]
        if known and len(known) == len(values):
            found[seed] = sum(known) / len(known)
    return found


def _series(snapshot: Snapshot, name: str, facts: Facts) -> list[float | None]:
    values = getattr(snapshot.taps, name)
    return [values[tap] for tap in asked_taps(facts)] if values else []


def _resolved(gap: Interval | None) -> bool:
    return gap is not None and gap.low is not None and gap.high is not None and (gap.low > 0 or gap.high < 0)
