"""The measurements behind figure `rescaling`, as arrays over seeds and factors c, and the verdicts at every c."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from creditscope.auditing import Finding, audit
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GROWTH
from creditscope.errors import CreditscopeError
from creditscope.paper.figures._selection import require_one_setting
from creditscope.paper.studies.rescaling import DerivedRecord
from creditscope.record import Record, Snapshot
from creditscope.text import name_all

BLOCKS = ("CS011",)
"""Not asked: no block of a rescaled net was put back."""


@dataclass(frozen=True)
class Judgement:
    """What is concluded at one c: alarms of the published thresholds over seeds, and our verdict."""

    floor: int
    """Seeds whose ‖g_L‖ is under the published floor."""
    growth: int
    """Seeds with a growth above the published limit."""
    unresolved: int
    """Seeds whose reference CS002 calls unresolved."""
    word: str
    codes: tuple[str, ...]


@dataclass(frozen=True)
class Rescaled:
    """The same seeds at every c; `table[i][j]` is seed i at factor j."""

    factors: np.ndarray
    seeds: tuple[int, ...]
    table: tuple[tuple[DerivedRecord, ...], ...]
    frozen: tuple[Record, ...]
    notes: tuple[str, ...] = ()

    @property
    def first(self) -> DerivedRecord:
        """Any of them: facts and setting are shared."""
        return self.table[0][0]

    def at_top(self, name: str) -> np.ndarray:
        """A measure at the last tap, (seeds, factors)."""
        return self._each(lambda s: getattr(s.taps, name)[-1])

    def worst(self, name: str) -> np.ndarray:
        """The largest over taps, (seeds, factors)."""
        return self._each(lambda s: max((v for v in getattr(s.taps, name) if v is not None), default=None))

    def scalar(self, name: str) -> np.ndarray:
        """A measure of the whole net, (seeds, factors)."""
        return self._each(lambda s: getattr(s, name))

    def _each(self, read) -> np.ndarray:
        return np.array([[read(record.last) for record in row] for row in self.table], dtype=float)

    @cached_property
    def flipped(self) -> np.ndarray:
        """Test rows answered right or wrong otherwise than at the smallest c, (seeds, factors); NaN if not kept."""
        rows = self.first.facts.test_rows
        found = np.full((len(self.seeds), len(self.factors)), np.nan)
        for i, row in enumerate(self.table):
            bits = [answers(record.last, rows) for record in row]
            for j, own in enumerate(bits):
                if own is not None and bits[0] is not None:
                    found[i, j] = (own != bits[0]).sum()
        return found

    @cached_property
    def judgements(self) -> list[Judgement]:
        """One per factor."""
        return [self._judge([row[j] for row in self.table]) for j in range(len(self.factors))]

    def _judge(self, records: list[DerivedRecord]) -> Judgement:
        alone = [audit([record]).methods[0] for record in records]
        found: list[dict[str, Finding]] = [{f.code: f for f in method.findings} for method in alone]
        method = audit([*records, *self.frozen], mute=BLOCKS).methods[0]
        return Judgement(
            floor=sum(top is not None and top < PUBLISHED_FLOOR for top in (r.last.taps.g_norm[-1] for r in records)),
            growth=sum((f["CS001"].value or 0) > PUBLISHED_GROWTH for f in found),
            unresolved=sum(f["CS002"].outcome == "issue" for f in found),
            word=method.verdict.word,
            codes=method.verdict.codes,
        )


def answers(snapshot: Snapshot, rows: int) -> np.ndarray | None:
    """Which test rows were answered right."""
    if snapshot.correct is None:
        return None
    return np.unpackbits(np.frombuffer(base64.b64decode(snapshot.correct), dtype=np.uint8))[:rows]


def select_rescaled(records: Sequence[Record]) -> Rescaled:
    """The rescaled runs of one setting on the seeds that have every factor, and their frozen baselines."""
    derived = [r for r in records if isinstance(r, DerivedRecord) and r.spec]
    if not derived:
        raise CreditscopeError(
            f"Expected runs measured under rescaling, but got none among {len(records)} records. "
            "creditscope figure rescaling measures them."
        )
    require_one_setting([r.spec for r in derived if r.spec])
    factors = sorted({r.condition for r in derived})
    by_seed: dict[int, dict[float, DerivedRecord]] = {}
    for record in derived:
        if record.spec:
            by_seed.setdefault(record.spec.seed, {})[record.condition] = record
    whole = {seed: row for seed, row in sorted(by_seed.items()) if len(row) == len(factors)}
    if not whole:
        raise CreditscopeError("Expected at least one seed measured at every factor, but got none.")
    left_out = [seed for seed in by_seed if seed not in whole]
    notes = [f"Left out, as not measured at every c: {name_all('seed', left_out)}."] if left_out else []
    setting = derived[0].spec.setting() if derived[0].spec else {}
    frozen = [r for r in records if r.spec and r.spec.frozen and r.spec.setting() == setting]
    table = tuple(tuple(row[c] for c in factors) for row in whole.values())
    return Rescaled(np.array(factors), tuple(whole), table, tuple(frozen), tuple(notes))
