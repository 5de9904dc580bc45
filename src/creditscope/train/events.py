"""What is told while runs are trained; a run is named by the hash of its spec."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from creditscope.record import Record, RunSpec

NO_MEMORY = "no memory"  # how a run ended that did not fit on the device beside what others have there
BUSY = "busy"  # and one that somebody else is training


@dataclass(frozen=True)
class Planned:
    """Which runs will be trained, which are whole on record, and where; told once, before the first run."""

    runs: tuple[RunSpec, ...]
    found: tuple[RunSpec, ...]
    root: Path


@dataclass(frozen=True)
class Started:
    """A worker, by its host and process, has taken these runs, for this device."""

    host: str
    process: int
    runs: tuple[str, ...]
    device: str = "cpu"


@dataclass(frozen=True)
class Epoch:
    """A run has done so many epochs, the last with this mean training loss."""

    run: str
    done: int
    loss: float


@dataclass(frozen=True)
class Ended:
    """A run has come to its end: complete, diverged, failed (and why); or it did not: no memory, busy."""

    run: str
    status: str
    reason: str = ""


@dataclass(frozen=True)
class Recorded:
    """The record of a run that was trained."""

    record: Record


@dataclass(frozen=True)
class Note:
    """Something to know: a record or a checkpoint that cannot be used, what is made again, or otherwise than asked."""

    text: str


Event = Planned | Started | Epoch | Ended | Recorded | Note
"""What `execute` tells."""
EngineEvent = Started | Epoch | Ended | Note
"""What a worker tells of the runs it is given; their records are on disk."""
KINDS = {kind.__name__: kind for kind in (Started, Epoch, Ended, Note)}


def to_line(event: EngineEvent) -> str:
    """A worker's event as a line of JSON.

    >>> to_line(Epoch("9ba1d2c5e3f0", 3, 0.25))
    '{"event": "Epoch", "run": "9ba1d2c5e3f0", "done": 3, "loss": 0.25}\\n'
    >>> from_line(to_line(Note("slow")))
    Note(text='slow')
    """
    return json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"


def from_line(line: str) -> EngineEvent:
    """The event that a line tells."""
    fields: dict[str, Any] = json.loads(line)
    if "runs" in fields:
        fields["runs"] = tuple(fields["runs"])
    return KINDS[fields.pop("event")](**fields)
