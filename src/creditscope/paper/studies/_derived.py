"""Finished runs measured again under other conditions, kept beside their records: ROOT/STUDY/RUN.jsonl.

The first line says what was measured and by what, each further one holds a condition and its snapshot. There is no
`spec.json`, so that an audit of the records does not take them for runs.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.record import Provenance, Record, Snapshot
from creditscope.record.bundle import rounded
from creditscope.record.schema import READABLE
from creditscope.record.store import WEIGHTS, adapter, first_words, write_atomically

Measure = Callable[[Record, Sequence[float]], tuple[Provenance, list[Snapshot]]]
"""Snapshots of a run's final weights under each of the conditions, and what measured them."""


@dataclass(frozen=True)
class DerivedRecord(Record):
    """A run at its end under a condition: its own spec and facts, the untrained net as it was, and one snapshot."""

    condition: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Source:
    """The first line: which run, which weights, and what measured them."""

    study: str
    run: str
    weights: str
    """Digest of the weights file."""
    provenance: Provenance


@dataclass(frozen=True, kw_only=True)
class Line:
    """One condition and what was measured under it."""

    condition: float
    snapshot: Snapshot


def derived_path(root: Path, study: str, record: Record) -> Path:
    """Where the measurements of a run lie."""
    assert record.spec is not None
    return root / study / f"{record.spec.name()}.jsonl"


def digest_weights(record: Record) -> str:
    """A digest of the run's final weights; empty if they are not kept."""
    weights = record.path / WEIGHTS if record.path else None
    return hashlib.sha256(weights.read_bytes()).hexdigest()[:16] if weights and weights.exists() else ""


def write_derived(path: Path, source: Source, lines: Sequence[Line]) -> None:
    """All lines at once, so that a file is whole or not there."""
    _write(path, [asdict(line) for line in (source, *lines)])


def _write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))


def read_derived(
    root: Path, study: str, record: Record, conditions: Sequence[float]
) -> tuple[list[DerivedRecord], str]:
    """The run under every one of the conditions, or nothing and why."""
    path = derived_path(root, study, record)
    if not path.exists():
        return [], "not measured yet"
    try:
        source, lines = _read_file(path)
    except (OSError, ValueError) as error:
        return [], f"{path} cannot be read: {first_words(error)}"
    if source.provenance.schema_version not in READABLE:
        return [], f"measured under schema version {source.provenance.schema_version}, which cannot be read"
    if source.weights != (digest_weights(record) or source.weights):
        return [], "measured on other weights"
    found = {line.condition: line.snapshot for line in lines}
    if not set(conditions) <= found.keys():
        return [], "measured under other conditions"
    untrained = [s for s in record.snapshots if s.epoch == 0]
    return [DerivedRecord(record.spec, record.provenance, (*untrained, found[c]), path, c) for c in conditions], ""


def _read_file(path: Path) -> tuple[Source, list[Line]]:
    first, *others = path.read_text(encoding="utf-8").splitlines()
    return adapter(Source).validate_json(first), [adapter(Line).validate_json(line) for line in others]


def ship_derived(study: str, record: Record, root: Path, out: Path, *, digits: int) -> Path | None:
    """Copy what was measured on a run to another root, rounded; None if nothing was, or on other weights.

    Who reads the copy has no weights to compare it with, so that is done here.
    """
    path, target = derived_path(root, study, record), derived_path(out, study, record)
    if not path.exists():
        return None
    try:
        source, lines = _read_file(path)
    except ValueError as error:
        raise CreditscopeError(f"Expected measurements in {path}, but got: {first_words(error)}.") from None
    if source.weights != (digest_weights(record) or source.weights):
        return None
    _write(target, [rounded(asdict(line), digits) for line in (source, *lines)])
    return target


def derive_records(
    study: str,
    records: Sequence[Record],
    root: Path,
    conditions: Sequence[float],
    *,
    measure: Measure | None,
    problems: list[str],
) -> list[Record]:
    """Every run under all conditions: from disk, else measured now, else (no `measure`) named in `problems`."""
    found: list[Record] = []
    for record in records:
        assert record.spec is not None
        ready, why = read_derived(root, study, record, conditions)
        if not ready and measure and digest_weights(record):
            provenance, snapshots = measure(record, conditions)
            lines = [Line(condition=c, snapshot=s) for c, s in zip(conditions, snapshots, strict=True)]
            source = Source(study=study, run=record.spec.name(), weights=digest_weights(record), provenance=provenance)
            write_derived(derived_path(root, study, record), source, lines)
            ready, why = read_derived(root, study, record, conditions)
        elif not ready and measure:
            why = f"{why}, and its weights are not in {record.path}"
        if why:
            problems.append(f"Run {record.spec.name()} is left out of study {study!r}: {why}.")
        found += ready
    if not found:
        raise CreditscopeError(
            f"Expected measurements of study {study!r} under {root / study}, but got none. creditscope figure "
            f"{study} measures them. {' '.join(problems)}".rstrip()
        )
    return found
