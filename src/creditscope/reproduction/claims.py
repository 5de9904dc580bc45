"""What must hold if the work is to be called reproduced; each answered from the records, whatever the answer is."""

from collections.abc import Callable
from dataclasses import dataclass

from creditscope.auditing.stats import t_interval
from creditscope.auditing.thresholds import PUBLISHED_GROWTH
from creditscope.record import Record
from creditscope.reproduction._conditions import BARE, DFA, STRONG_DFA, VIT_END, WHOLE
from creditscope.reproduction._readers import accuracy, deep, grows, sizes, under_floor
from creditscope.reproduction._readings import difference, read
from creditscope.reproduction._shelf import Shelf
from creditscope.reproduction._words import mean_of, sizes_of
from creditscope.reproduction.compare import compare
from creditscope.reproduction.published import AUDIT_ROWS, PUBLISHED, TRAJECTORY_ROWS

CONTROL = 0.99
"""ρ of the gradient itself, at least."""
NOT_ON_RECORD = "not on record"
SPREAD = 2.0
"""Standard deviations over draws within which a null is around 0."""


@dataclass(frozen=True)
class Claim:
    """One claim; `holds` is None where nothing is on record."""

    text: str
    holds: bool | None
    numbers: str = NOT_ON_RECORD


def list_claims(shelf: Shelf) -> list[Claim]:
    """All of them."""
    return [claim for ask in CLAIMS for claim in ask(shelf)]


def bp_is_reproduced(shelf: Shelf) -> list[Claim]:
    """By every published accuracy of BP on images."""
    wanted, found = ("acc-bp", "acc-wide-bp", "brief-acc-bp", "brief-acc-bp-strong"), []
    for published in PUBLISHED:
        if published.id not in wanted:
            continue
        result, text = compare(published, published.reading(shelf)), f"{published.quantity} within 1.5 pp of published"
        text = f"{text} ({'–'.join(published.said)}; {published.part.split(':')[0]})"
        numbers = mean_of(result.values.numbers, ".4f") if result.n else NOT_ON_RECORD
        found.append(Claim(text, result.close, numbers))
    return found


def norm_decides(shelf: Shelf) -> list[Claim]:
    """DFA's floor and stream, with and without a terminal norm."""
    found = []
    for name, net in (("ResMLP", DFA), ("ViT-Mini", {**VIT_END, "rule": "dfa"})):
        runs = list(shelf.find({**net, **WHOLE}).runs.values())
        found += [
            _floor(runs, f"{name} with a terminal norm: DFA crosses the published floor", crossed=True),
            _explodes(runs, f"{name} with a terminal norm: DFA's stream explodes"),
        ]
    bare = list(shelf.find({**BARE, **WHOLE, "rule": "dfa"}).runs.values())
    return [
        *found,
        _floor(bare, "ResMLP without a terminal norm: DFA does not cross the published floor", crossed=False),
    ]


def _floor(runs: list[Record], text: str, *, crossed: bool) -> Claim:
    """Under the floor at some snapshot, at N of the audit and of the trajectories; both must agree in every seed."""
    if not runs:
        return Claim(text, None)
    hits = {
        rows: sum(any(under_floor(rows)(r, s) for s in r.snapshots if s.epoch > 0) for r in runs)
        for rows in (AUDIT_ROWS, TRAJECTORY_ROWS)
    }
    tops = [top for r in runs if (top := sizes(r.last).g_norm[-1]) is not None]
    said = ", ".join(f"{hit} of {len(runs)} seeds at N = {rows:,}" for rows, hit in hits.items())
    wanted = len(runs) if crossed else 0
    size = f"; ‖g_L‖ per sample at the end {sizes_of(tops)}" if tops else ""
    return Claim(text, all(hit == wanted for hit in hits.values()), f"crossed by {said}{size}")


def _explodes(runs: list[Record], text: str) -> Claim:
    """A block passes the published growth limit in every seed."""
    if not runs:
        return Claim(text, None)
    hits = sum(any(grows(r, s) for s in r.snapshots if s.epoch > 0) for r in runs)
    ends = [(sizes(r.snapshots[0]).h_norm[-1], sizes(r.last).h_norm[-1]) for r in runs]
    factors = [last / first for first, last in ends if first and last]
    grown = f"; ‖h_L‖ at the end over ‖h_L‖ before training {sizes_of(factors)}" if factors else ""
    numbers = f"a block's growth passes {PUBLISHED_GROWTH:g} in {hits} of {len(runs)} seeds{grown}"
    return Claim(text, hits == len(runs), numbers)


def null_is_null(shelf: Shelf) -> list[Claim]:
    """Fresh feedback on the penalised net: 0 lies within two sd over draws and seeds."""
    text = "Fresh feedback is a null around 0 (deep cosine, DFA, λ = 1e-2)"
    means = read(STRONG_DFA, deep("fresh_cos"))(shelf).numbers
    draws = read(STRONG_DFA, deep("fresh_sd"))(shelf).numbers
    if not means or not draws:
        return [Claim(text, None)]
    mean, sd = sum(means) / len(means), (sum(d * d for d in draws) / len(draws)) ** 0.5
    return [Claim(text, abs(mean) <= SPREAD * sd, f"{mean_of(means, '+.4f')}; sd over draws {sd:.4f} at a tap")]


def control_is_positive(shelf: Shelf) -> list[Claim]:
    """ρ of the gradient itself."""
    text = f"The gradient itself is a positive control: deep ρ ≥ {CONTROL} (DFA, λ = 1e-2)"
    found = read(STRONG_DFA, deep("rho_exact"))(shelf).numbers
    if not found:
        return [Claim(text, None)]
    return [Claim(text, min(found) >= CONTROL, f"{mean_of(found, '.4f')}, smallest {min(found):.4f}")]


def penalty_lifts(shelf: Shelf) -> list[Claim]:
    """Accuracy of DFA with the penalty minus that without, paired by seed."""
    text = "The penalty λ = 1e-2 lifts DFA's accuracy (30 epochs, paired by seed)"
    plain = {**STRONG_DFA, "penalty": 0.0}
    gains = difference(STRONG_DFA, plain, accuracy)(shelf).numbers
    if not gains:
        return [Claim(text, None)]
    low = t_interval(gains).low
    holds = None if low is None else low > 0
    return [Claim(text, holds, f"{mean_of([100 * g for g in gains], '+.1f')} pp")]


CLAIMS: tuple[Callable[[Shelf], list[Claim]], ...] = (
    bp_is_reproduced,
    norm_decides,
    null_is_null,
    control_is_positive,
    penalty_lifts,
)
