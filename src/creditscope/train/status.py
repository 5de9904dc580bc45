"""How far runs under a record root are, as far as files tell; needs no torch."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.record.finished import bundled_names
from creditscope.record.store import ASIDE, FAILURE, PROVENANCE, SPEC, is_unfinished
from creditscope.train.events import Ended, Epoch, Started
from creditscope.train.work import Tail, find_work


@dataclass(frozen=True)
class Training:
    """A run that is being trained; `age` is how many seconds ago its worker last said something."""

    run: str
    place: str
    host: str
    epoch: int
    epochs: int
    age: float


@dataclass(frozen=True)
class Status:
    """Runs by what became of them; those that wait were asked of a driver that has not come to them."""

    done: int
    training: list[Training]
    waiting: int
    failed: dict[str, str]


def read_status(root: Path) -> Status:
    """Look once."""
    if not root.is_dir():
        raise CreditscopeError(f"Expected a folder of records, but {root} does not exist. Name another folder.")
    folders = {path.parent for name in (SPEC, PROVENANCE) for path in root.glob(f"*/{name}")}
    folders = {folder for folder in folders if not folder.name.startswith((".", ASIDE))}
    done = {folder.name for folder in folders if not is_unfinished(folder)} | bundled_names(root)
    training: dict[str, Training] = {}
    asked: set[str] = set()
    for work in find_work(root):
        asked |= set(work.runs)
        names = {name.rpartition("-")[2]: name for name in work.runs}
        for path in sorted(work.folder.glob("*.jsonl")):
            host, epochs, left = work.host, dict[str, int](), set[str]()
            for event in Tail(path).read():
                match event:
                    case Started(host, _, runs):
                        left |= set(runs)
                    case Epoch(run, epoch):
                        epochs[run] = epoch
                    case Ended(run):
                        left.discard(run)
                    case _:
                        pass
            age = max(0.0, time.time() - path.stat().st_mtime)
            for run in left & names.keys():
                name = names[run]
                training[name] = Training(name, work.place, host, epochs.get(run, 0), _epochs(root / name), age)
    failed = {
        folder.name: (folder / FAILURE).read_text(encoding="utf-8").strip()
        for folder in sorted(folders)
        if (folder / FAILURE).exists() and folder.name not in done | training.keys()
    }
    waiting = asked - done - training.keys() - failed.keys()
    return Status(len(done), sorted(training.values(), key=lambda run: run.run), len(waiting), failed)


def _epochs(folder: Path) -> int:
    with suppress(OSError, ValueError, KeyError):
        return int(json.loads((folder / SPEC).read_text(encoding="utf-8"))["epochs"])
    return 0
