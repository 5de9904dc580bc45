"""What a worker does: a group of runs as JSON in, events and records out, wherever it is."""

import json
import os
import platform
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

import creditscope
from creditscope.errors import CreditscopeError
from creditscope.record.files import digest
from creditscope.record.spec import RunSpec
from creditscope.record.store import FILES, WEIGHTS, run_folder
from creditscope.registry import NETS, RULES
from creditscope.tasks import load_task
from creditscope.train.device import cpu_capability
from creditscope.train.events import Ended, EngineEvent, Note, Started, to_line
from creditscope.train.groups import RunGroup
from creditscope.train.local import define
from creditscope.train.training import StoppedError, train_group
from creditscope.train.work import Work

asked: list[int] = []
"""Signals that asked this process to stop, and no event, whose lock a second one would find taken by the first."""
LOOK = 0.5  # seconds between two looks at the driver's orders
TOLD = 0.1  # seconds for which events may be held back, so that short epochs cost little
Train = Callable[[Path, Callable[[], bool]], Iterator[EngineEvent]]


def own_versions() -> dict[str, str]:
    """What must be the same in a worker, and the CPU capability, on which last bits depend."""
    return {
        "creditscope": creditscope.__version__,
        "torch": torch.__version__,
        "cpu": f"{platform.machine()} {cpu_capability()}",
    }


@dataclass(frozen=True)
class Job:
    """Groups of runs for one worker, and all it must know of its driver."""

    groups: tuple[RunGroup, ...]
    work: Work
    number: int
    device: str
    data_root: str = ""
    defined: str = ""
    """What the caller's own code has registered, pickled by value."""
    tries: int = 3
    """How many workers a run may cost, where a job has workers of its own."""
    versions: dict[str, str] = field(default_factory=own_versions)

    @property
    def specs(self) -> list[RunSpec]:
        return [spec for group in self.groups for spec in group.specs]

    def to_text(self) -> str:
        return json.dumps(asdict(self))


def train_job(text: str) -> dict[str, Any]:
    """Train a job's groups, one after the other."""
    job = read_job(text)

    def train(root: Path, should_stop: Callable[[], bool]) -> Iterator[EngineEvent]:
        torch.set_num_threads(1)
        device = torch.device(job.device)
        for group in job.groups:
            runs = tuple(spec.digest() for spec in group.specs)
            yield Started(socket.gethostname(), os.getpid(), runs, job.device)
            yield from train_group(group, root, device=device, should_stop=should_stop, place=job.work.place)

    return do_job(job, train)


def read_job(text: str) -> Job:
    """A job out of its JSON."""
    return TypeAdapter(Job).validate_json(text)


def do_job(job: Job, train: Train) -> dict[str, Any]:
    """Train what is to be trained, where the driver's folder is seen or in one of our own.

    Gives `refused` (why this host cannot), `stopped`, `lines` (events that the driver may not have read) and `files` of
    finished runs with their `digests`, if it cannot have them otherwise.
    """
    if why := refuse(job):
        return {"refused": f"{why} (on host {socket.gethostname()})"}
    host, shared, over = socket.gethostname(), job.work.is_shared(), threading.Event()
    orders: list[bool] = []
    ended: set[str] = set()
    result: dict[str, Any] = {"stopped": True, "lines": [], "files": {}, "digests": {}}
    with ExitStack() as held:
        root = Path(job.work.root) if shared else Path(held.enter_context(tempfile.TemporaryDirectory()))
        path = job.work.events(job.number) if shared else root / "events"
        out = held.enter_context(open(path, "a", encoding="utf-8"))
        if shared:
            held.callback(over.set)
            threading.Thread(target=_heed, args=(job.work, orders, over), daemon=True).start()
        told_at = 0.0

        def tell(event: EngineEvent) -> None:
            nonlocal told_at
            out.write(to_line(event))
            if isinstance(event, Ended):
                ended.add(event.run if event.status in ("complete", "diverged") else "")
            if isinstance(event, Ended) or not shared:
                result["lines"].append(to_line(event))
            if isinstance(event, Started | Ended) or time.monotonic() - told_at >= TOLD:
                out.flush()
                told_at = time.monotonic()

        out.write("\n")  # one who was killed here may have left half a line
        if (cpu := own_versions()["cpu"]) != job.versions["cpu"]:
            tell(Note(f"Host {host} computes with {cpu}, the driver with {job.versions['cpu']}: last bits may differ."))
        with suppress(StoppedError):
            for event in train(root, lambda: bool(asked or orders)):
                tell(event)
            result["stopped"] = False
        for spec in job.specs:
            if not shared and spec.digest() in ended:
                files = {name: (run_folder(root, spec) / name).read_bytes() for name in (*FILES, WEIGHTS)}
                result["files"][spec.digest()] = files
                result["digests"][spec.digest()] = {name: digest(content) for name, content in files.items()}
    return result


def _heed(work: Work, orders: list[bool], over: threading.Event) -> None:
    """Read the driver's orders until one is to stop."""
    while not over.wait(LOOK):
        if work.is_stopped():
            orders.append(True)
            return


def refuse(job: Job) -> str:
    """Why this process cannot train a job as its driver would; empty if it can."""
    own = own_versions()
    for name in ("creditscope", "torch"):
        if own[name] != job.versions[name]:
            return f"Expected {name} {job.versions[name]}, as the driver has, but got {own[name]}. Install the same."
    if job.data_root and not os.environ.get("CREDITSCOPE_DATA"):
        os.environ["CREDITSCOPE_DATA"] = job.data_root
    try:
        if job.defined:
            define(job.defined)
        for spec in {(s.task, str(s.task_options), s.rule, s.net): s for s in job.specs}.values():
            for registry, name, source in ((RULES, spec.rule, spec.rule_source), (NETS, spec.net, spec.net_source)):
                if ":" in name and registry.source(name) != source:
                    return f"Expected {name} as the driver has it, but got another text. Copy the file."
            load_task(spec.task, **spec.task_options)
    except (CreditscopeError, OSError, ImportError, AttributeError) as error:
        return str(error)
    return ""
