"""What became of predictions: the quantity that decides each, from records, beside its bounds: hit, miss or open.

`league.toml` says what the quantities are. A quantity is known only if every run that it is about is on record.
"""

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.resources import files
from itertools import combinations
from statistics import fmean
from typing import Any, Literal

import numpy as np

from creditscope.auditing import Audit
from creditscope.auditing.methods import accuracies
from creditscope.paper.standings import Standing, count_missing, deep_cosine, growth, judge_block, mean_over_taps, rank
from creditscope.paper.studies._league import Block
from creditscope.paper.studies.league import SCALES
from creditscope.paper.studies.league_more import SCALES as MORE
from creditscope.record import Facts, Record, Snapshot
from creditscope.record.spec import COMPARED_NORMS

State = Literal["hit", "miss", "open"]
BLOCKS: dict[str, Block] = SCALES["league"] | MORE["league"]
OF_GAINS = ("share", "gain", "order", "rank", "rank_gap", "rank_pair")
"""Quantities that need frozen twins."""
FEWEST_RANKED = 0.9
"""Share of the rows that must have a measure."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """As it was written down."""

    id: str
    figure: str
    block: str
    statement: str
    quantity: str
    basis: str
    rows: tuple[str, ...] = ()
    low: float = -np.inf
    high: float = np.inf
    less: str = ""
    measure: str = ""
    epoch: int = -1
    allowed_misses: int = 0
    blocks: tuple[str, ...] = ()
    over_block: str = ""
    terminal_norm: bool = True

    @property
    def bounds(self) -> str:
        """In words."""
        low, high = (f"{bound:g}".replace("-", "−") for bound in (self.low, self.high))
        if self.low == -np.inf:
            return f"≤ {high}"
        return f"≥ {low}" if self.high == np.inf else f"{low} to {high}"

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Outcome:
    """What the records say of a prediction."""

    prediction: Prediction
    values: Mapping[str, float | None]
    """The quantity by row ("" where it is about none); None: not on record."""
    detail: str = ""
    refuted: bool = False
    """Whether it misses by more than its bounds say."""

    @property
    def missed(self) -> tuple[str, ...]:
        """Rows outside the bounds."""
        known = ((row, value) for row, value in self.values.items() if value is not None)
        return tuple(row for row, value in known if self.refuted or not self.prediction.holds(value))

    @property
    def state(self) -> State:
        """What is known may miss before all is known; it never hits before."""
        if len(self.missed) > self.prediction.allowed_misses:
            return "miss"
        return "open" if None in self.values.values() or not self.values else "hit"


def read_predictions(study: str = "league") -> list[Prediction]:
    """Those of a study."""
    text = files("creditscope.paper.predictions").joinpath(f"{study}.toml").read_text("utf-8")
    return [Prediction(**_with_tuples(one)) for one in tomllib.loads(text)["prediction"]]


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}


MEASURES: dict[str, tuple[Callable[[Facts, Snapshot], float | None], int]] = {
    "cos": (deep_cosine, 1),
    "stage_cos": (partial(mean_over_taps, "stage_cos"), 1),
    "rho": (partial(mean_over_taps, "rho"), 1),
    "descent": (partial(mean_over_taps, "descent"), 1),
    "growth": (growth, -1),
}
"""What may tell early who wins, and whether more of it is better or less."""


def over_seeds(standing: Standing, measure: str, epoch: int = -1) -> float | None:
    """Mean over seeds at an epoch (−1: the end); None unless all of them have it."""
    find, found = MEASURES[measure][0], []
    for record in standing.method.whole:
        moments = [record.last] if epoch == -1 else [s for s in record.snapshots if s.epoch == epoch]
        found += [find(record.facts, snapshot) for snapshot in moments]
    known = [value for value in found if value is not None]
    return fmean(known) if known and len(known) == len(standing.method.whole) else None


def _lost(standing: Standing) -> list[float] | None:
    """Accuracy lost by block, when it alone is put back."""
    found = standing.found.trained_depth
    return [block.mean for block in found.blocks] if found else None


def _front(standing: Standing) -> float | None:
    lost = _lost(standing)
    if not lost or len(lost) < 2:
        return None
    half = len(lost) // 2
    return fmean(lost[:half]) - fmean(lost[-half:])


QUANTITIES: dict[str, Callable[[Standing], float | None]] = {
    "share": lambda s: s.share.mean if s.share else None,
    "gain": lambda s: s.found.gain.mean if s.found.gain else None,
    "accuracy": lambda s: s.found.accuracy.mean if s.found.accuracy else None,
    "cos": lambda s: over_seeds(s, "cos"),
    "depth": lambda s: s.found.trained_depth.low if s.found.trained_depth else None,
    "rewind": lambda s: fmean(lost) if (lost := _lost(s)) else None,
    "front": _front,
}
"""Of one row."""


class Held:
    """Predictions held against records."""

    def __init__(self, records: Iterable[Record]):
        self.records = list(records)
        self._judged: dict[str, Audit | None] = {}
        self._ranked: dict[str, dict[str, Standing]] = {}

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """One a prediction, in their order."""
        return [self.outcome(one) for one in read_predictions()]

    def outcome(self, asked: Prediction) -> Outcome:
        """Of one prediction."""
        if asked.quantity == "explains":
            return self._explains(asked)
        if asked.rows:
            values = {row: self._of_row(asked, row) for row in asked.rows}
            return Outcome(asked, values, self._say_depth(asked) if asked.quantity == "depth" else "")
        if asked.quantity == "order":
            return self._order(asked)
        return self._best_pair(asked) if asked.quantity == "rank_pair" else self._rank(asked)

    def standings(self, block: str) -> dict[str, Standing]:
        """The rows of a block that are on record, by name."""
        if block not in self._ranked:
            judged = self.judged(block)
            self._ranked[block] = {s.name: s for s in rank(judged)} if judged else {}
        return self._ranked[block]

    def judged(self, block: str) -> Audit | None:
        """The verdicts of a block; None if nothing of it is on record."""
        if block not in self._judged:
            self._judged[block] = judge_block(BLOCKS[block], self.records)
        return self._judged[block]

    def _of_row(self, asked: Prediction, row: str) -> float | None:
        value = self._value(self._place(asked), asked.quantity, row)
        if value is None:
            return None
        if asked.less:
            other = self._value(self._place(asked), asked.quantity, asked.less)
            return None if other is None else value - other
        if asked.over_block:
            other = self._value(asked.over_block, asked.quantity, row)
            return value / other if other else None
        return value

    def whole(self, block: str, row: str, quantity: str) -> Standing | None:
        """A row of a block, if all is on record that the quantity is about."""
        standing = self.standings(block).get(row)
        return standing if standing and is_whole(standing, BLOCKS[block], quantity) else None

    def _value(self, block: str, quantity: str, row: str) -> float | None:
        standing = self.whole(block, row, quantity)
        return QUANTITIES[quantity](standing) if standing else None

    def _explains(self, asked: Prediction) -> Outcome:
        """Share of the published numbers inside the intervals of a cell; it misses, too, if another norm has more."""
        from creditscope.paper.published.explained import count_inside, explain

        (row,), block = asked.rows, self._place(asked)
        own = self.standings(block).get(row)
        spec = own.method.spec if own else None
        if spec is None:
            return Outcome(asked, {row: None})
        alike = [s for s in self.standings(block).values() if (s.rule, s.penalty) == (spec.rule, spec.penalty)]
        cells = {s.credit_norm: s.method.whole for s in alike if is_whole(s, BLOCKS[block], "explains")}
        if not cells.keys() >= set(COMPARED_NORMS):
            return Outcome(asked, {row: None})
        found = explain(cells, spec.penalty, terminal_norm=asked.terminal_norm)
        counts = {norm: count_inside(numbers) for norm, numbers in found.items()}
        (inside, of), most = counts[spec.credit_norm], max(inside for inside, _ in counts.values())
        detail = ", ".join(f"{norm} {inside} of {of}" for norm, (inside, of) in counts.items())
        return Outcome(asked, {row: inside / of if of else None}, detail, refuted=inside < most)

    def _say_depth(self, asked: Prediction) -> str:
        """From its lower to its upper count: the lower alone makes it easy to stay under a bound."""
        found = (self.standings(self._place(asked)).get(row) for row in asked.rows)
        return ", ".join(str(s.found.trained_depth) for s in found if s and s.found.trained_depth)

    def _place(self, asked: Prediction) -> str:
        """The block that it is about."""
        return asked.block if asked.terminal_norm else f"{asked.block}, no norm"

    def _others(self, block: str) -> list[Standing] | None:
        """All rows but BP's, if all are on record."""
        if count_missing(BLOCKS[block], self.records)[0]:
            return None
        found = [s for s in self.standings(block).values() if not s.is_bp]
        return found if found and all(s.share for s in found) else None

    def _rank(self, asked: Prediction) -> Outcome:
        """Over the rows that have a value: credit that is 0 has no cosine, and so no rank; which they are is said."""
        rows, names = self._others(asked.block) or [], [name for name in (asked.measure, asked.less) if name]
        ranked = [row for row in rows if all(over_seeds(row, name, asked.epoch) is not None for name in names)]
        if len(ranked) < FEWEST_RANKED * len(rows) or not ranked:
            return Outcome(asked, {"": None})
        first, *others = (judge(ranked, name, asked.epoch) for name in names)
        without = ", ".join(row.name for row in rows if row not in ranked)
        detail = f"{len(ranked)} rows" + (f", without {without}" if without else "")
        return Outcome(asked, {"": first - sum(others)}, detail)

    def _best_pair(self, asked: Prediction) -> Outcome:
        """It misses, too, if the best pair is one without the measure."""
        pairs = best_pairs(self._others(asked.block) or [], asked.epoch)
        if not pairs:
            return Outcome(asked, {"": None})
        pair, value = pairs[0]
        return Outcome(asked, {"": value}, " and ".join(pair), refuted=asked.measure not in pair)

    def _order(self, asked: Prediction) -> Outcome:
        one, other = (self._others(block) for block in asked.blocks)
        if not one or not other:
            return Outcome(asked, {"": None})
        shares = [{s.name: s.share.mean for s in rows if s.share} for rows in (one, other)]
        common = sorted(shares[0].keys() & shares[1].keys())
        value = spearman(*([share[name] for name in common] for share in shares))
        return Outcome(asked, {"": value}, f"{len(common)} rows")


def is_whole(standing: Standing, block: Block, quantity: str) -> bool:
    """Whether all runs are on record that a quantity of a row is about, none of them diverged."""
    method = standing.method
    needed = [method.runs, *([method.bp, method.frozen_own, method.frozen_bp] if quantity in OF_GAINS else [])]
    return all(set(block.seeds) <= accuracies(runs).keys() for runs in needed)


def judge(rows: Sequence[Standing], measure: str, epoch: int) -> float:
    """How a measure that every row has, turned so that more is better, ranks them by their final shares."""
    values = (over_seeds(row, measure, epoch) for row in rows)
    return spearman([MEASURES[measure][1] * value for value in values if value is not None], _shares(rows))


def best_pairs(rows: Sequence[Standing], epoch: int) -> list[tuple[tuple[str, str], float]]:
    """Pairs of the measures that every row has at an epoch, by how their mean ranks agree with the shares."""
    ranks = {}
    for name, (_, sign) in MEASURES.items():
        values = [over_seeds(row, name, epoch) for row in rows]
        if values and None not in values:
            ranks[name] = rank_values([sign * value for value in values if value is not None])
    found = [(pair, spearman(ranks[pair[0]] + ranks[pair[1]], _shares(rows))) for pair in combinations(ranks, 2)]
    return sorted(found, key=lambda one: -one[1])


def _shares(rows: Sequence[Standing]) -> list[float]:
    return [row.share.mean for row in rows if row.share]


def rank_values(values: Sequence[float]) -> np.ndarray:
    """Ranks from 1 on, ties by their mean."""
    array = np.asarray(values, dtype=float)
    return np.array([((array < v).sum() + (array <= v).sum() + 1) / 2 for v in array])


def spearman(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> float:
    """Correlation of ranks; without SciPy, which takes a second to import."""
    return float(np.corrcoef(rank_values(list(one)), rank_values(list(other)))[0, 1])
