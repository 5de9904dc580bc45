"""Records in order: the runs of one condition, by seed, so that no run is taken for another."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.paper.studies._study import fits
from creditscope.record import Record
from creditscope.record.table import richness

Wanted = Mapping[str, Any]
"""Fields of a run's spec but the seed; what is left out is the default."""


@dataclass(frozen=True)
class Found:
    """The complete runs of a condition by seed, and the seeds of those that diverged."""

    runs: dict[int, Record]
    diverged: tuple[int, ...] = ()


class Shelf:
    """Finds runs of a condition; the richest record where one was measured twice. Remembers what was read."""

    def __init__(self, records: Sequence[Record]):
        self.records = [r for r in records if r.spec is not None and r.snapshots]
        self.read: dict[int, Record] = {}
        self._found: dict[str, Found] = {}
        self._drawers: dict[tuple[str, str, str], list[Record]] = {}
        for record in self.records:
            assert record.spec is not None
            self._drawers.setdefault((record.spec.task, record.spec.net, record.spec.rule), []).append(record)

    def find(self, wanted: Wanted) -> Found:
        """Every seed on record."""
        key = json.dumps(wanted, sort_keys=True)
        if key not in self._found:
            self._found[key] = self._search(wanted)
        found = self._found[key]
        self.read |= {id(record): record for record in found.runs.values()}
        return found

    def _search(self, wanted: Wanted) -> Found:
        runs: dict[int, Record] = {}
        diverged: set[int] = set()
        for record in self._drawers.get((wanted["task"], wanted["net"], wanted["rule"]), ()):
            assert record.spec is not None
            seed = record.spec.seed
            if not fits(record, {**wanted, "seed": seed}):
                continue
            if record.provenance.status == "diverged":
                diverged.add(seed)
            elif record.finished and (seed not in runs or richness(record) > richness(runs[seed])):
                runs[seed] = record
        return Found(dict(sorted(runs.items())), tuple(sorted(diverged - runs.keys())))


def seeds_of(records: Iterable[Record]) -> list[int]:
    """Every seed once, in order."""
    return sorted({r.spec.seed for r in records if r.spec})
