"""Show how far a set of runs is: a live bar on a terminal, plain lines in a log, or nothing."""

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from creditscope.record.spec import RunSpec
from creditscope.text import clip, visible
from creditscope.train.events import Ended, Epoch, Event, Planned, Started

UNTIMED = 0.02
"""Share of the epochs that are trained before the clock of the speed starts: until then workers start, and measure
their nets for the first time. As many again are timed before a speed is said."""

BAR = 30
"""Cells of the bar, where there is room."""


def choose_progress(*, quiet: bool = False, reused: int = 0) -> "Silent":
    """Nothing if quiet, a live bar on a terminal, lines otherwise; `reused` runs more are on record."""
    return (Silent if quiet else LiveBar if sys.stderr.isatty() else Lines)(reused)


class Silent:
    """Reads events, counts what has been done, and says nothing; others do, now and then, not at every epoch."""

    interval = 0.1
    """Seconds between two refreshments of what is shown."""

    def __init__(self, reused: int = 0):
        self.reused, self.specs = reused, dict[str, RunSpec]()
        self.workers = dict[str, tuple[str, int, str]]()  # host, process and device, by the run they train

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, event: Event) -> None:
        """One event after the other."""
        match event:
            case Planned(runs, found, root):
                self.specs = {spec.digest(): spec for spec in runs}
                self.begin(runs, len(found) + self.reused, root)
            case Epoch(run, done, loss):
                self.epoch(self.specs[run], done, loss)
            case Started(host, process, runs, device):
                self.workers |= dict.fromkeys(runs, (host, process, device))
            case Ended(run, status):
                self.workers.pop(run, None)
                self.end_run(self.specs[run], status)
            case _:
                pass

    def begin(self, runs: Sequence[RunSpec], reused: int, root: Path) -> None:
        """So many runs to train, none perhaps, so many found on record, and where records are."""
        self.started = self.shown_at = time.monotonic()
        self.runs, self.ended = len(runs), 0
        self.epochs, self.trained = sum(spec.epochs for spec in runs), 0
        self.last: dict[str, int] = {}
        self.timed_from: tuple[float, int] | None = None
        self.latest, self.failed = "", 0
        seeds = len({spec.seed for spec in runs})
        sizes = f" (seeds {seeds}, epochs {self.epochs})" if runs else ""
        self.todo = f"runs on record: {reused}, to train: {len(runs)}{sizes}, records in {root}"

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        """A run that is resumed, or begun again for want of memory, has other epochs to train than was counted on."""
        run = spec.digest()
        self.epochs += self.last.get(run, 0) + 1 - done
        self.last[run] = done
        self.trained += 1
        if self.timed_from is None and self.trained >= UNTIMED * self.epochs:
            self.timed_from = time.monotonic(), self.trained
        frozen = " frozen" if spec.frozen else ""
        self.latest = visible(f"{spec.rule}{frozen} seed {spec.seed}: epoch {done}/{spec.epochs}, loss {loss:.3f}")
        if time.monotonic() - self.shown_at >= self.interval:
            self.shown_at = time.monotonic()
            self.show()

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        """A run less; one that ended early has no epochs left."""
        self.ended += 1
        self.failed += outcome == "failed"
        self.epochs -= spec.epochs - self.last.get(spec.digest(), 0)

    def show(self) -> None:
        """Refresh the display."""

    def close(self) -> None:
        """All is over."""

    @property
    def speed(self) -> float | None:
        """Epochs per second, once enough of them were timed."""
        since, before = self.timed_from or (math.inf, 0)
        seconds, timed = time.monotonic() - since, self.trained - before
        return None if seconds <= 0 or timed < UNTIMED * self.epochs else timed / seconds

    def pace(self) -> str:
        """Speed and time left, in words."""
        if self.speed is None:
            return "speed not known yet"
        return f"{self.speed:.3g} epochs/s{self.crew()}, about {self.left()}"

    def left(self) -> str:
        """Time left, once the speed is known."""
        return f"{duration((self.epochs - self.trained) / self.speed)} left" if self.speed else ""

    def crew(self) -> str:
        """How many workers train, on how many hosts if more than one, what share of a GPU each has; how many failed."""
        crew = {*self.workers.values()}
        workers, hosts = len(crew), len({host for host, _, _ in crew})
        gpus = len({(host, device) for host, _, device in crew if device.startswith("cuda")})
        said = f" by {workers} workers" * (workers > 1) + f" on {hosts} hosts" * (hosts > 1)
        said += f", each with {gpus}/{workers} of a GPU" * (0 < gpus < workers)
        return said + f", {self.failed} failed" * bool(self.failed)


def duration(seconds: float) -> str:
    """In words for people.

    >>> duration(42), duration(754), duration(7321)
    ('42 s', '12 min 34 s', '2 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


class Lines(Silent):
    """Plain text on standard error: one line per finished run, and one in between where runs take long."""

    interval = 30.0

    def begin(self, runs: Sequence[RunSpec], reused: int, root: Path) -> None:
        super().begin(runs, reused, root)
        self.say(self.todo)

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        super().end_run(spec, outcome)
        self.shown_at = time.monotonic()
        spent = duration(self.shown_at - self.started)
        self.say(f"[{self.ended}/{self.runs}] {spec.name()} {outcome} · {spent}, {self.pace()}")

    def show(self) -> None:
        self.say(f"[{self.ended}/{self.runs}] {self.latest} · {self.trained}/{self.epochs} epochs, {self.pace()}")

    def say(self, line: str) -> None:
        print(visible(line), file=sys.stderr, flush=True)


class LiveBar(Silent):
    """A rich bar over all epochs of all runs, if there is something to train; the line that follows tells the rest."""

    def begin(self, runs: Sequence[RunSpec], reused: int, root: Path) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        super().begin(runs, reused, root)
        console = Console(stderr=True, markup=False, emoji=False)
        console.print(visible(self.todo), highlight=False, soft_wrap=True)
        if not runs:
            return
        self.cells = min(BAR, console.width // 4)
        self.bar = RichProgress(
            TextColumn("{task.percentage:>3.0f} %", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=self.cells),
            TextColumn("{task.fields[said]}", table_column=Column(no_wrap=True), markup=False),
            console=console,
            redirect_stdout=sys.stdout.isatty(),  # what is printed meanwhile goes above the bar, or to its file
        )
        self.task = self.bar.add_task("", total=self.epochs, said="starting")
        self.bar.start()

    def show(self) -> None:
        self.bar.update(self.task, completed=self.trained, total=self.epochs, said=self.said())

    def said(self) -> str:
        """Beside the bar: what matters most comes first, because a narrow terminal cuts the rest."""
        speed = f"{self.speed:.3g} epochs/s{self.crew()}" if self.speed else self.crew().strip(" ,")
        done = f"{self.ended}/{self.runs} runs, {self.trained}/{self.epochs} epochs"
        said, room = " · ".join(filter(None, (self.left(), done, speed, self.latest))), self.bar.console.width
        return clip(said, room - self.cells - len("100 %") - 2)

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        """Only what went wrong is worth a line."""
        super().end_run(spec, outcome)
        if outcome != "complete":
            self.bar.console.print(visible(f"{spec.name()}: {outcome}"))

    def close(self) -> None:
        if hasattr(self, "bar"):
            self.show()
            self.bar.stop()
