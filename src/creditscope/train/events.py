"""What is told while runs are trained; a run is named by the hash of its spec."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from creditscope.record import Record, RunSpec

NO_MEMORY = "no memory"  # how a run ended that did not fit on the device beside what others have there


@dataclass(frozen=True)
class Planned:
    """Which runs will be trained, what is whole on record, and where records are; told once, before the first run."""

    runs: tuple[RunSpec, ...]
    found: tuple[Record, ...]
    root: Path


@dataclass(frozen=True)
class Epoch:
    """A run has done so many epochs, the last with this mean training loss."""

    run: str
    done: int
    loss: float


@dataclass(frozen=True)
class Ended:
    """A run has come to its end: complete, diverged, failed (and why), or for want of memory."""

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


@dataclass(frozen=True)
class Done:
    """A group is done, or stopped, and its engine ready for another."""


Event = Planned | Epoch | Ended | Recorded | Note
"""What `execute` tells."""
EngineEvent = Epoch | Ended | Note | Done
"""What an engine tells of the groups it is given; their records are on disk."""
KINDS = {kind.__name__: kind for kind in (Epoch, Ended, Note, Done)}


def to_line(event: EngineEvent) -> str:
    """An engine's event as a line of JSON.

    >>> to_line(Epoch("9ba1d2c5e3f0", 3, 0.25))
    '{"event": "Epoch", "run": "9ba1d2c5e3f0", "done": 3, "loss": 0.25}\\n'
    >>> from_line(to_line(Done()))
    Done()
    """
    return json.dumps({"event": type(event).__name__, **asdict(event)}) + "\n"


def from_line(line: str) -> EngineEvent:
    """The event that a line tells."""
    fields = json.loads(line)
    return KINDS[fields.pop("event")](**fields)
