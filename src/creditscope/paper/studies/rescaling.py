"""One trained BP net in other units: its stream multiplied by c = 1 … 10⁸, which changes nothing it computes.

What is measured at each c is kept beside the records: ROOT/rescaling/RUN.jsonl. The first line says what was measured
and by what, each further one holds a c and its snapshot. There is no `spec.json`, so that an audit of the records does
not take them for runs.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError
from creditscope.paper.studies import Study, choose_scale, over_seeds, register_study
from creditscope.paper.studies._recipes import DEMO, FROZEN, PAPER, SEEDS
from creditscope.record import Provenance, Record, Snapshot
from creditscope.record.bundle import DIGITS, rounded
from creditscope.record.files import check, first_words, parse, read_lines
from creditscope.record.finished import read_weights
from creditscope.record.schema import READABLE
from creditscope.record.store import write_atomically

FACTORS = tuple(10.0**k for k in range(9))
"""c, by which the stream is multiplied after training."""
SMALL = {"net_options": {"depth": 2, "width": 16, "terminal_norm": True}, "epochs": 2, "eval_rows": 128}
SCALES = {"demo": DEMO, "paper": PAPER, "test": {**DEMO, **SMALL, "tier": "quick"}}


@register_study("rescaling")
def rescaling(scale: str = "demo", *, seeds: Sequence[int] = SEEDS) -> Study:
    """BP over seeds and its frozen baseline (both are runs of other studies); the rescaled nets are derived from it."""
    recipe = {**choose_scale(SCALES, scale), "rule": "bp"}
    return Study("rescaling", over_seeds([recipe, {**recipe, **FROZEN}], seeds), measure_rescaled, ship_rescaled)


@dataclass(frozen=True)
class DerivedRecord(Record):
    """A run at its end at a c: its own spec and facts, the untrained net as it was, and one snapshot."""

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
class Measured:
    """What was measured at a c."""

    condition: float
    snapshot: Snapshot


def rescaled_path(root: Path, record: Record) -> Path:
    """Where the measurements of a run lie."""
    return root / "rescaling" / f"{record.name}.jsonl"


def write_rescaled(path: Path, lines: Sequence[Source | Measured], *, digits: int | None = None) -> None:
    """All lines at once, so that a file is whole or not there; rounded, if so many digits are asked for."""
    plain: list[Any] = [asdict(line) for line in lines]
    plain = plain if digits is None else [rounded(line, digits) for line in plain]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, "".join(json.dumps(line, allow_nan=False) + "\n" for line in plain))


def _read_file(path: Path) -> tuple[Source, list[Measured]]:
    first, *others = map(parse, read_lines(path))
    return check(Source, first), [check(Measured, line) for line in others]


def _digest_weights(record: Record) -> str:
    """A digest of the run's final weights; empty if they are not kept."""
    weights = read_weights(record, unsealed=True)
    return hashlib.sha256(weights).hexdigest()[:16] if weights else ""


def _read_rescaled(root: Path, record: Record) -> tuple[list[DerivedRecord], str]:
    """The run at every c, or nothing and why."""
    path = rescaled_path(root, record)
    if not path.exists():
        return [], "not measured yet"
    try:
        source, lines = _read_file(path)
    except (OSError, ValueError) as error:
        return [], f"{path} cannot be read: {first_words(error)}"
    if source.provenance.schema_version not in READABLE:
        return [], f"measured under schema version {source.provenance.schema_version}, which cannot be read"
    if source.weights != (_digest_weights(record) or source.weights):
        return [], "measured on other weights"
    found = {line.condition: line.snapshot for line in lines}
    if not set(FACTORS) <= found.keys():
        return [], "measured under other conditions"
    untrained = [s for s in record.snapshots if s.epoch == 0]
    return [DerivedRecord(record.spec, record.provenance, (*untrained, found[c]), path, c) for c in FACTORS], ""


def ship_rescaled(record: Record, root: Path, out: Path) -> Path | None:
    """Copy what was measured on a run to another root, rounded; None if nothing was, or on other weights.

    Who reads the copy has no weights to compare it with, so that is done here.
    """
    path, target = rescaled_path(root, record), rescaled_path(out, record)
    if not path.exists():
        return None
    try:
        source, lines = _read_file(path)
    except ValueError as error:
        raise CreditscopeError(f"Expected measurements in {path}, but got: {first_words(error)}.") from None
    if source.weights != (_digest_weights(record) or source.weights):
        return None
    write_rescaled(target, [source, *lines], digits=DIGITS)
    return target


def measure_rescaled(
    records: Sequence[Record], root: Path, *, measure: bool, problems: list[str], device: str = "auto"
) -> list[Record]:
    """Every trained run at every c: from disk, else measured now, else (not `measure`) named in `problems`."""
    found: list[Record] = []
    for record in records:
        if record.spec is None or record.spec.frozen or record.provenance.status != "complete":
            continue
        ready, why = _read_rescaled(root, record)
        weights = _digest_weights(record) if measure and not ready else ""
        if weights:
            from creditscope.paper.studies._rescale import measure_at

            provenance, snapshots = measure_at(record, FACTORS, device=device)
            source = Source(study="rescaling", run=record.name, weights=weights, provenance=provenance)
            lines = [Measured(condition=c, snapshot=s) for c, s in zip(FACTORS, snapshots, strict=True)]
            write_rescaled(rescaled_path(root, record), [source, *lines])
            ready, why = _read_rescaled(root, record)
        elif measure and not ready:
            why = f"{why}, and its weights are not in {record.path}"
        if why:
            problems.append(f"Run {record.name} is left out of study 'rescaling': {why}.")
        found += ready
    if not found:
        raise CreditscopeError(
            f"Expected measurements of study 'rescaling' under {root / 'rescaling'}, but got none. creditscope figure "
            f"rescaling measures them. {' '.join(problems)}".rstrip()
        )
    return found
