"""What must hold if the work is to be called reproduced; each answered from the records, whatever the answer is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

from creditscope.auditing.stats import t_interval
from creditscope.auditing.thresholds import PUBLISHED_GROWTH, PUBLISHED_ROWS, TRAJECTORY_ROWS
from creditscope.paper.reproduction._cells import say_published
from creditscope.paper.reproduction._conditions import find_conditions
from creditscope.paper.reproduction._file import DATA, check_keys, choose, naming
from creditscope.paper.reproduction._readers import Fires, deep, grows, under_floor
from creditscope.paper.reproduction._readings import difference, read
from creditscope.paper.reproduction._shelf import Shelf, Wanted
from creditscope.paper.reproduction._words import mean_of, sizes_of
from creditscope.paper.reproduction.compare import compare
from creditscope.paper.reproduction.published import PUBLISHED
from creditscope.record import Record

NOT_ON_RECORD = "not on record"
SPREAD = 2.0
"""Standard deviations over draws within which a null is around 0."""


@dataclass(frozen=True)
class Claim:
    """One claim; `holds` is None where nothing is on record."""

    text: str
    holds: bool | None
    numbers: str
    seeds: tuple[int, int] | None = None
    """Those that bear it out, of all, if it is asked of each."""

    @property
    def answer(self) -> str:
        """In words; the number of seeds where it is neither all nor none."""
        if self.seeds and 0 < self.seeds[0] < self.seeds[1]:
            return f"in {self.seeds[0]} of {self.seeds[1]} seeds"
        return {True: "yes", False: "**no**", None: "–"}[self.holds]


Answer = tuple[list[bool] | bool | None, str] | None
"""Whether it holds, or does for each seed, and the numbers; None where nothing is on record."""


def list_claims(shelf: Shelf) -> list[Claim]:
    """All of them."""
    asked = DATA["must_hold"]
    return [*(is_close(id, shelf) for id in asked["close"]), *(ask(entry, shelf) for entry in asked["claims"])]


def ask(entry: Mapping[str, Any], shelf: Shelf) -> Claim:
    """A claim of the file."""
    with naming(f"Claim {entry.get('text')!r}"):
        check_keys(entry, ("text", "condition", "check"))
        name, *arguments = entry["check"].split()
        check = choose("check", name, CHECKS)
        asked = (shelf, *find_conditions(entry["condition"]), *map(float, arguments))
        signature(check).bind(*asked)
    holds, numbers = check(*asked) or (None, NOT_ON_RECORD)
    if isinstance(holds, list):
        return Claim(entry["text"], all(holds), numbers, (sum(holds), len(holds)))
    return Claim(entry["text"], holds, numbers)


def is_close(id: str, shelf: Shelf) -> Claim:
    """A published accuracy that ours is within 1.5 pp of."""
    with naming(f"Claim that {id!r} is close"):
        published = choose("published number", id, {p.id: p for p in PUBLISHED})
    result, text = compare(published, published.reading(shelf)), f"{published.quantity} within 1.5 pp of published"
    text = f"{text} ({say_published(published)}; {published.part.split(':')[0]})"
    return Claim(text, result.close, mean_of(result.values.numbers) if result.n else NOT_ON_RECORD)


def floor(shelf: Shelf, wanted: Wanted, *, crossed: bool) -> Answer:
    """Under the floor at some snapshot, at N of the audit and at N of the trajectories; a seed must say both."""
    runs = list(shelf.find(wanted).runs.values())
    if not runs:
        return None
    hits = {rows: [_ever(under_floor(rows), r) for r in runs] for rows in (PUBLISHED_ROWS, TRAJECTORY_ROWS)}
    tops = [top for r in runs if (top := r.last.head_taps.g_norm[-1]) is not None]
    said = ", ".join(f"{sum(hit)} of {len(runs)} seeds at N = {rows:,}" for rows, hit in hits.items())
    size = f"; ‖g_L‖ per sample at the end {sizes_of(tops)}" if tops else ""
    borne = [set(answers) == {crossed} for answers in zip(*hits.values(), strict=True)]
    return borne, f"crossed by {said}{size}"


def stream(shelf: Shelf, wanted: Wanted, *, explodes: bool) -> Answer:
    """A block passes the published growth limit; or else ‖h_L‖ is only larger at the end than before training."""
    runs = list(shelf.find(wanted).runs.values())
    if not runs:
        return None
    hits = [_ever(grows, r) for r in runs]
    ends = [(r.snapshots[0].head_taps.h_norm[-1], r.last.head_taps.h_norm[-1]) for r in runs]
    factors = [last / first for first, last in ends if first and last]
    grown = f"; ‖h_L‖ at the end over ‖h_L‖ before training {sizes_of(factors)}" if factors else ""
    numbers = f"a block's growth passes {PUBLISHED_GROWTH:g} in {sum(hits)} of {len(runs)} seeds{grown}"
    larger = [first is not None and last is not None and last > first for first, last in ends]
    return hits if explodes else larger, numbers


def _ever(fires: Fires, record: Record) -> bool:
    """Whether it fires at some snapshot after training began."""
    return any(fires(record, s) for s in record.snapshots if s.epoch > 0)


def is_null(shelf: Shelf, wanted: Wanted) -> Answer:
    """Of fresh feedback: 0 lies within two sd over draws and seeds."""
    means, draws = (read(wanted, deep(name))(shelf).numbers for name in ("fresh_cos", "fresh_sd"))
    if not means or not draws:
        return None
    mean, sd = sum(means) / len(means), (sum(d * d for d in draws) / len(draws)) ** 0.5
    return abs(mean) <= SPREAD * sd, f"{mean_of(means, '+.4f')}; sd over draws {sd:.4f} at a tap"


def is_control(shelf: Shelf, wanted: Wanted, least: float) -> Answer:
    """ρ of the gradient itself."""
    found = read(wanted, deep("rho_exact"))(shelf).numbers
    if not found:
        return None
    return [rho >= least for rho in found], f"{mean_of(found)}, smallest {min(found):.4f}"


def lifts(shelf: Shelf, wanted: Wanted, baseline: Wanted) -> Answer:
    """Accuracy minus that of the baseline, paired by seed, is above 0."""
    gains = difference(wanted, baseline)(shelf).numbers
    if not gains:
        return None
    low = t_interval(gains).low
    return None if low is None else low > 0, f"in pp {mean_of([100 * g for g in gains], '+.2f')}"


CHECKS: dict[str, Callable[..., Answer]] = {
    "crosses_floor": partial(floor, crossed=True),
    "stays_above_floor": partial(floor, crossed=False),
    "explodes": partial(stream, explodes=True),
    "grows": partial(stream, explodes=False),
    "null": is_null,
    "control": is_control,
    "lifts": lifts,
}
"""By the names that `published.toml` has for them."""
