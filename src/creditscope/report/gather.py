"""Load a folder and judge it; whatever is missing becomes words, not an error."""

from dataclasses import dataclass
from pathlib import Path

from creditscope.auditing import Audit, Thresholds, audit
from creditscope.errors import CreditscopeError
from creditscope.record import Record, load_records


@dataclass(frozen=True)
class Material:
    """What a folder holds."""

    folder: str
    records: tuple[Record, ...]
    limits: Thresholds
    """What it is judged by."""
    audit: Audit | None
    """None where nothing can be judged; `problems` then say why."""
    problems: tuple[str, ...]


def gather(folder: Path, limits: Thresholds) -> Material:
    """Records and verdicts of a folder, which must exist."""
    problems: list[str] = []
    records = load_records(folder, problems=problems)
    return judge_records(records, str(folder), limits, problems)


def judge_records(records: list[Record], folder: str, limits: Thresholds, problems: list[str]) -> Material:
    """The same of records in memory; `problems` are what loading them told."""
    try:
        found = audit(records, limits=limits)
    except CreditscopeError as error:
        return Material(folder, tuple(records), limits, None, (*problems, str(error)))
    return Material(folder, tuple(records), limits, found, (*problems, *found.problems))
