"""A reading: from all records to one value per seed, and what of it is lacking."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from creditscope.paper.reproduction._readers import NEVER, Reader, accuracy
from creditscope.paper.reproduction._shelf import Shelf, Wanted


@dataclass(frozen=True)
class Values:
    """One number per seed; `lacking` says of the seeds without one, why."""

    by_seed: Mapping[int, float]
    lacking: Mapping[int, str] = field(default_factory=dict)

    @property
    def numbers(self) -> list[float]:
        """In the order of seeds."""
        return list(self.by_seed.values())

    @property
    def seeds(self) -> set[int]:
        """All that were run."""
        return {*self.by_seed, *self.lacking}

    @property
    def answered(self) -> set[int]:
        """Those with a number, and those that never fire, which is an answer, too; not those diverged or unmeasured."""
        return {*self.by_seed, *(seed for seed, why in self.lacking.items() if why == NEVER)}

    def on(self, seeds: Collection[int], run: Collection[int] = ()) -> "Values":
        """The answers of these seeds alone, and what else is lacking of those that were run."""
        own = {seed: value for seed, value in self.by_seed.items() if seed in seeds}
        named = {*seeds, *(set(run) - self.answered)}
        return Values(own, {seed: why for seed, why in self.lacking.items() if seed in named})

    def words(self) -> str:
        """What is lacking: "1 diverged, 2 not measured"."""
        return ", ".join(f"{count} {why}" for why, count in Counter(self.lacking.values()).items())


def shared_seeds(found: Iterable[Values]) -> frozenset[int]:
    """Those on which all have an answer; what has none on any seed is not asked."""
    known = [values.answered for values in found if values.answered]
    return frozenset(set.intersection(*known) if known else ())


Reading = Callable[[Shelf], Values]


def read(wanted: Wanted, reader: Reader) -> Reading:
    """A reader on every seed of a condition."""

    def find(shelf: Shelf) -> Values:
        found = shelf.find(wanted)
        answers = {seed: reader(record) for seed, record in found.runs.items()}
        numbers = {seed: answer for seed, answer in answers.items() if not isinstance(answer, str)}
        reasons = {seed: answer for seed, answer in answers.items() if isinstance(answer, str)}
        return Values(numbers, reasons | dict.fromkeys(found.diverged, "diverged"))

    return find


def difference(wanted: Wanted, baseline: Wanted, reader: Reader = accuracy) -> Reading:
    """The same of a condition minus that of another, paired by seed."""

    def find(shelf: Shelf) -> Values:
        own, other = (read(w, reader)(shelf).by_seed for w in (wanted, baseline))
        return Values({seed: own[seed] - other[seed] for seed in own if seed in other})

    return find


def first_is_best(conditions: Sequence[Wanted]) -> Reading:
    """1 for a seed whose accuracy is highest under the first of the conditions, on the seeds that have all."""

    def find(shelf: Shelf) -> Values:
        first, *others = (read(wanted, accuracy)(shelf).by_seed for wanted in conditions)
        shared = [seed for seed in first if all(seed in other for other in others)]
        return Values({seed: float(all(first[seed] > other[seed] for other in others)) for seed in shared})

    return find
