"""What must hold if the work is to be called reproduced; each answered from the records, whatever the answer is."""

from collections.abc import Callable
from dataclasses import dataclass

from creditscope.auditing.stats import t_interval
from creditscope.auditing.thresholds import PUBLISHED_GROWTH, PUBLISHED_ROWS, TRAJECTORY_ROWS
from creditscope.paper.reproduction._cells import say_published
from creditscope.paper.reproduction._conditions import BARE, DFA, STRONG_DFA, VIT_END, WHOLE
from creditscope.paper.reproduction._readers import Fires, accuracy, deep, grows, under_floor
from creditscope.paper.reproduction._readings import difference, read
from creditscope.paper.reproduction._shelf import Shelf
from creditscope.paper.reproduction._words import mean_of, sizes_of
from creditscope.paper.reproduction.compare import compare
from creditscope.paper.reproduction.published import PUBLISHED
from creditscope.record import Record

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
    seeds: tuple[int, int] | None = None
    """Those that bear it out, of all, if it is asked of each."""

    @property
    def answer(self) -> str:
        """In words; the number of seeds where it is neither all nor none."""
        if self.seeds and 0 < self.seeds[0] < self.seeds[1]:
            return f"in {self.seeds[0]} of {self.seeds[1]} seeds"
        return {True: "yes", False: "**no**", None: "–"}[self.holds]


def _by_seed(text: str, borne: list[bool], numbers: str) -> Claim:
    """A claim asked of every seed."""
    return Claim(text, all(borne), numbers, (sum(borne), len(borne)))


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
        text = f"{text} ({say_published(published)}; {published.part.split(':')[0]})"
        numbers = mean_of(result.values.numbers) if result.n else NOT_ON_RECORD
        found.append(Claim(text, result.close, numbers))
    return found


def norm_decides(shelf: Shelf) -> list[Claim]:
    """DFA's floor and stream, with and without a terminal norm; in a ResMLP also with normalised credit."""
    bare, sample = {**BARE, "rule": "dfa"}, {"credit_norm": "sample"}
    with_norm, without = "with a terminal norm", "without a terminal norm"
    found = []
    for name, net in (
        (f"ResMLP {with_norm}", DFA),
        (f"ResMLP {with_norm}, credit norm sample", {**DFA, **sample}),
        (f"ViT-Mini {with_norm}", {**VIT_END, "rule": "dfa"}),
    ):
        runs = list(shelf.find({**net, **WHOLE}).runs.values())
        found.append(_floor(runs, f"{name}: DFA crosses the published floor", crossed=True))
        found.append(_stream(runs, f"{name}: DFA's stream explodes", explodes=True))
    for name, net in ((f"ResMLP {without}", bare), (f"ResMLP {without}, credit norm sample", {**bare, **sample})):
        runs = list(shelf.find({**net, **WHOLE}).runs.values())
        found.append(_floor(runs, f"{name}: DFA does not cross the published floor", crossed=False))
        found.append(_stream(runs, f"{name}: DFA's stream grows all the same", explodes=False))
    return found


def _floor(runs: list[Record], text: str, *, crossed: bool) -> Claim:
    """Under the floor at some snapshot, at N of the audit and at N of the trajectories; a seed must say both."""
    if not runs:
        return Claim(text, None)
    hits = {rows: [_ever(under_floor(rows), r) for r in runs] for rows in (PUBLISHED_ROWS, TRAJECTORY_ROWS)}
    tops = [top for r in runs if (top := r.last.head_taps.g_norm[-1]) is not None]
    said = ", ".join(f"{sum(hit)} of {len(runs)} seeds at N = {rows:,}" for rows, hit in hits.items())
    size = f"; ‖g_L‖ per sample at the end {sizes_of(tops)}" if tops else ""
    borne = [set(answers) == {crossed} for answers in zip(*hits.values(), strict=True)]
    return _by_seed(text, borne, f"crossed by {said}{size}")


def _stream(runs: list[Record], text: str, *, explodes: bool) -> Claim:
    """A block passes the published growth limit; or else ‖h_L‖ is only larger at the end than before training."""
    if not runs:
        return Claim(text, None)
    hits = [_ever(grows, r) for r in runs]
    ends = [(r.snapshots[0].head_taps.h_norm[-1], r.last.head_taps.h_norm[-1]) for r in runs]
    factors = [last / first for first, last in ends if first and last]
    grown = f"; ‖h_L‖ at the end over ‖h_L‖ before training {sizes_of(factors)}" if factors else ""
    numbers = f"a block's growth passes {PUBLISHED_GROWTH:g} in {sum(hits)} of {len(runs)} seeds{grown}"
    larger = [first is not None and last is not None and last > first for first, last in ends]
    return _by_seed(text, hits if explodes else larger, numbers)


def _ever(fires: Fires, record: Record) -> bool:
    """Whether it fires at some snapshot after training began."""
    return any(fires(record, s) for s in record.snapshots if s.epoch > 0)


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
    numbers = f"{mean_of(found)}, smallest {min(found):.4f}"
    return [_by_seed(text, [rho >= CONTROL for rho in found], numbers)]


def penalty_lifts(shelf: Shelf) -> list[Claim]:
    """Accuracy of DFA with the penalty minus that without, paired by seed."""
    text = "The penalty λ = 1e-2 lifts DFA's accuracy (30 epochs, paired by seed)"
    plain = {**STRONG_DFA, "penalty": 0.0}
    gains = difference(STRONG_DFA, plain, accuracy)(shelf).numbers
    if not gains:
        return [Claim(text, None)]
    low = t_interval(gains).low
    holds = None if low is None else low > 0
    return [Claim(text, holds, f"in pp {mean_of([100 * g for g in gains], '+.2f')}")]


CLAIMS: tuple[Callable[[Shelf], list[Claim]], ...] = (
    bp_is_reproduced,
    norm_decides,
    null_is_null,
    control_is_positive,
    penalty_lifts,
)
