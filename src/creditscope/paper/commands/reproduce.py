"""`creditscope reproduce`."""

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

import creditscope
from creditscope.commands import register_command
from creditscope.commands._options import DataRoot, Folder, HowToTrain, Name, say
from creditscope.errors import UnfinishedError
from creditscope.text import count

if TYPE_CHECKING:
    from creditscope.paper.studies import Study
    from creditscope.record import Record, RunSpec
    from creditscope.train.events import Event

SUMMARY = "reproduce.json"


@register_command("reproduce")
@dataclass(frozen=True)
class Reproduce:
    """Train the runs of all studies that are not on record, each once, draw all figures, say what it took.

    Example: creditscope reproduce --scale paper --records out/records --out out/figures
    """

    scale: Name = "demo"
    """Scale of the studies: demo (embedded data), paper (CIFAR-10 and citation graphs; made for a GPU)."""
    only: Annotated[
        tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]", help_behavior_hint="(default: all but demo)")
    ] = ()
    """These studies (creditscope list studies)."""
    records: Folder = Path("out/records")
    """Folder of records; runs that are there are reused, others are added, and reproduce.json says what it took."""
    out: Folder = Path("out/figures")
    """NAME.png and NAME.pdf of every figure go here."""
    train: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: it is trained)")] = True
    """Only draw what is on record; what is missing is left out."""
    data_root: DataRoot = None
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        from creditscope.paper.studies import find_wanted, plan_union, resolve_study, studies_at, train_runs
        from creditscope.record import load_records
        from creditscope.record.stored import lacks

        asked = {"scale": self.scale, "only": sorted(set(self.only))}
        clock, problems = _Clock(self.records / SUMMARY, asked), []
        studies = [resolve_study(name, self.scale) for name in self.only] if self.only else studies_at(self.scale)
        there = self.records.is_dir() or not self.train
        records = load_records(self.records, problems=problems) if there else []
        specs = plan_union(studies, records) if self.train else []
        how = self.training.options()
        kept = [record for record in records if not (specs and lacks(record))]
        reused = len({id(record) for study in studies for record in find_wanted(study, kept)})
        todo = f"{count(reused, 'run')} on record, {count(len(specs), 'run')} to train, records in {self.records}"
        named = f"{count(len(studies), 'study', 'studies')} at scale {self.scale!r}"
        say([named if specs and not how["quiet"] else f"{named}: {todo}"])
        gallery = Gallery(
            studies, records, specs, self.records, self.out, measure=self.train, device=self.training.device
        )
        with clock.timed(bool(specs)):
            records += train_runs(specs, self.records, problems=problems, reused=reused, readers=[gallery.read], **how)
            gallery.finish(records)
            clock.summary = sum_up({study.name: find_wanted(study, records) for study in studies})
        say([f"note: {problem}" for problem in problems])
        _show(clock.summary["studies"], clock)


class Gallery:
    """The figures of several studies, which are drawn from `records` and those that `specs` will give.

    Each is drawn once all that its study may choose from is there, and what is left at the end. `how` is handed on to
    `draw_figures`.
    """

    def __init__(
        self,
        studies: Sequence["Study"],
        records: Sequence["Record"],
        specs: Sequence["RunSpec"],
        root: Path,
        out: Path,
        **how: Any,
    ):
        from creditscope.paper.commands.figure import drawable
        from creditscope.paper.studies import find_serving

        self.studies = {study.name: study for study in studies}
        self.records, self.root, self.out, self.how = list(records), root, out, how
        self._left = drawable(list(self.studies))
        self._awaited = {
            name: {spec.digest() for spec in find_serving(self.studies[name], specs)}
            for name in self._left
            if self.studies[name].derive is None  # what must be measured first would take the device from training
        }

    def read(self, event: "Event") -> None:
        """What is told while runs are trained: of their records, see `add`."""
        from creditscope.train.events import Recorded

        if isinstance(event, Recorded):
            self.add([event.record])

    def add(self, records: Sequence["Record"]) -> None:
        """Further records, while others are made: draw what is whole now; what fails is tried again at the end."""
        self.records += records
        came = {record.spec.digest() for record in records if record.spec}
        for awaited in self._awaited.values():
            awaited -= came
        for name in [name for name, awaited in self._awaited.items() if not awaited]:
            del self._awaited[name]
            with suppress(Exception):
                self._draw(name)

    def finish(self, records: Sequence["Record"]) -> None:
        """Draw what was not, from all records there are."""
        self.records = list(records)
        for name in list(self._left):
            self._draw(name)

    def _draw(self, name: str) -> None:
        from creditscope.paper.commands.figure import draw_figures

        draw_figures([name], self.records, self.root, self.out, self.studies.__getitem__, **self.how)
        self._left.remove(name)


def worker_seconds(records: Sequence["Record"]) -> float:
    """Seconds of all workers together; runs that were trained as one stack share theirs, which counts once."""
    stacks: dict[tuple, float] = {}
    for record in records:
        spec, provenance = record.spec, record.provenance
        if spec is not None:
            key = (spec.stack_key(), provenance.stack) if provenance.stack else (spec.digest(),)
            stacks[key] = max(stacks.get(key, 0.0), provenance.seconds)
    return round(sum(stacks.values()), 3)


def sum_up(by_study: Mapping[str, Sequence["Record"]]) -> dict[str, dict[str, Any]]:
    """Runs and worker seconds by study, then together, where a run that several share counts once; and the machine.

    That is this one and its libraries, and where and by which commits the records say they were made.
    """
    used = list({id(record): record for records in by_study.values() for record in records}.values())
    rows = {**by_study, "together": used}
    studies = {name: {"runs": len(rs), "worker_seconds": worker_seconds(rs)} for name, rs in rows.items()}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = {"platform": platform.platform(), "python": platform.python_version(), "cores": cores}
    machine |= {"creditscope": creditscope.__version__, "torch": "unknown", "numpy": "unknown"}
    for name in ("torch", "numpy"):
        with suppress(PackageNotFoundError):
            machine[name] = version(name)
    made = {f"{name}s": sorted({getattr(r.provenance, name) for r in used} - {""}) for name in ("device", "commit")}
    return {"studies": studies, "machine": {**machine, **made}}


def _show(rows: dict[str, dict[str, float]], clock: "_Clock") -> None:
    width = max(map(len, rows))
    say([f"{'study':<{width}}  {'runs':>5}  worker seconds"])
    say([f"{name:<{width}}  {row['runs']:>5}  {row['worker_seconds']:>14.1f}" for name, row in rows.items()])
    if earlier := _alike(clock.read()["commands"], clock.asked):
        say([f"wall seconds: {sum(c['seconds'] for c in earlier):.1f}, see {clock.path}"])


def _alike(commands: Sequence[dict[str, Any]], asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Those that asked for the same."""
    return [c for c in commands if all(c.get(name) == value for name, value in asked.items())]


class _Clock:
    """The wall time of a command, added in the summary file to that of the commands that asked for the same."""

    def __init__(self, path: Path, asked: dict[str, Any]):
        self.asked = asked
        self.path, self.began = path, time.monotonic()
        self.started = datetime.now(UTC).isoformat(timespec="seconds")
        self.summary: dict[str, Any] = {}

    @contextmanager
    def timed(self, write: bool) -> Iterator[None]:
        """Inside, the work is done; afterwards, however it ended, the file says so, if there was something to train."""
        try:
            yield
        except UnfinishedError as error:
            left = f"Left: {count(error.left, 'run')}; what is not drawn yet is drawn when all are on record."
            raise UnfinishedError(f"{error} {left}", left=error.left) from None
        finally:
            if write:
                self._write()

    def read(self) -> dict[str, Any]:
        """The file; one that is none of ours counts for nothing."""
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            commands = [command for command in found["commands"] if isinstance(command["seconds"], float)]
            return {**found, "commands": commands}
        except (OSError, ValueError, KeyError, TypeError):
            return {"commands": []}

    def _write(self) -> None:
        from creditscope.record.store import write_atomically

        seconds = round(time.monotonic() - self.began, 3)
        this = {**self.asked, "started": self.started, "seconds": seconds, "finished": bool(self.summary)}
        before = self.read()
        earlier = {name: before[name] for name in ("scale", "only", "studies", "machine") if name in before}
        kept = earlier if "studies" in earlier and not self.summary else {**self.asked, **self.summary}
        commands = [*before["commands"], this]
        alike = _alike(commands, {name: kept.get(name) for name in self.asked})
        wall = round(sum(command["seconds"] for command in alike), 3)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, json.dumps({**kept, "wall_seconds": wall, "commands": commands}, indent=1) + "\n")
