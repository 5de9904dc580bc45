"""What a driver and its workers tell each other: files in ROOT/.work/TOKEN, one folder a driver; no torch is needed.

`driver.json` says who drives, `orders` what workers shall do (its first line is the token, by which a worker knows
that the folder is the driver's own; a line `stop` ends all), and `N.jsonl` holds the events of job N.
"""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from creditscope.record.finished import bundled_names
from creditscope.record.locks import try_lock
from creditscope.record.store import is_unfinished, write_atomically
from creditscope.train.events import EngineEvent, from_line

WORK, DRIVER, ORDERS, STOP, JOBS = ".work", "driver.json", "orders", "stop", "slurm.ids"


@dataclass(frozen=True)
class Work:
    """One driver's folder; `runs` are the names of those it trains."""

    root: str
    token: str
    place: str
    host: str
    process: int
    runs: tuple[str, ...]
    outlives: bool = False
    """Whether its jobs go on without it."""

    @property
    def folder(self) -> Path:
        return Path(self.root, WORK, self.token)

    def events(self, job: int) -> Path:
        return self.folder / f"{job}.jsonl"

    def is_driven(self) -> bool:
        """Whether its driver lives: it holds a lock as long."""
        try:
            with open(self.folder / ORDERS, "r+") as file:
                return not try_lock(file)
        except OSError:
            return False

    def is_shared(self) -> bool:
        """Whether this process sees the driver's own folder."""
        return self._orders()[:1] == [self.token]

    def is_stopped(self) -> bool:
        """Whether all shall stop, or the driver has gone; read, because a network is slow to tell of new files."""
        return STOP in (self._orders() or [STOP])

    def stop(self) -> None:
        """Ask all who work here to stop."""
        with suppress(FileNotFoundError), open(self.folder / ORDERS, "r+") as file:
            file.seek(0, os.SEEK_END)
            file.write(f"{STOP}\n")

    def cancel(self) -> None:
        """Ask all to stop, and end what waits in Slurm's queue, or does not hear."""
        self.stop()
        with suppress(OSError):
            ids = re.findall(r"^\d+(?:_\d+)?$", (self.folder / JOBS).read_text(), re.MULTILINE)
            done = subprocess.run(["scancel", *ids], capture_output=True)
            if done.returncode == 0 and not self.is_driven():
                self.remove()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()

    def _orders(self) -> list[str]:
        try:
            return (self.folder / ORDERS).read_text().splitlines()
        except OSError:
            return []


@contextmanager
def working(root: Path, place: str, runs: Sequence[str], *, outlives: bool = False) -> Iterator[Work]:
    """A folder for this process; those of drivers that died are removed, unless their jobs go on."""
    token, host = secrets.token_hex(8), socket.gethostname()
    for other in find_work(root):
        left = other.outlives and _any_left(root, other.runs)
        # on other hosts, and on file systems without locks, a lock may not tell
        if not left and other.host == host and not _is_alive(other.process) and not other.is_driven():
            other.remove()
    work = Work(str(root.resolve()), token, place, host, os.getpid(), tuple(runs), outlives)
    work.folder.mkdir(parents=True)
    with open(work.folder / ORDERS, "w+") as orders:
        try_lock(orders)
        orders.write(f"{token}\n")
        orders.flush()
        write_atomically(work.folder / DRIVER, json.dumps(asdict(work)))
        try:
            yield work
        finally:
            if not (outlives and _any_left(root, runs)):
                work.remove()


def _any_left(root: Path, runs: Sequence[str]) -> bool:
    """Whether one of these runs is not finished."""
    return any(is_unfinished(root / name) for name in {*runs} - bundled_names(root))


def _is_alive(process: int) -> bool:
    """Whether there is another process of this number on this host."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return process != os.getpid()


def find_work(root: Path) -> list[Work]:
    """All drivers' folders under a record root."""
    found = []
    for path in sorted(root.glob(f"{WORK}/*/{DRIVER}")):
        with suppress(OSError, ValueError, TypeError):
            told = json.loads(path.read_text())
            found.append(Work(**{**told, "root": str(root.resolve()), "runs": tuple(told["runs"])}))
    return found


class Tail:
    """The events of a file that is being written, as they come."""

    def __init__(self, path: Path):
        self.path, self.at = path, 0

    def read(self) -> Iterator[EngineEvent]:
        """Those since the last time; a line that is not whole is left for the next."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.at)
                new = file.read()
        except OSError:
            return
        whole = new[: new.rfind(b"\n") + 1]
        self.at += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError, KeyError, TypeError):  # torn by a kill, and written on by who came after
                yield from_line(line.decode())
