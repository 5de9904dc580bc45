"""Show how far a set of runs is: a live bar on a terminal, plain lines in a log, or nothing."""

import sys
import threading
import time
from typing import Protocol

from creditscope.record.schema import RunSpec


class Progress(Protocol):
    """What the runner tells as it goes; called from several threads."""

    def begin(self, runs: list[RunSpec], reused: int) -> None:
        """So many runs to train, so many found on record."""
        ...

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        """A run has finished an epoch."""
        ...

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        """A run has come to its end."""
        ...

    def close(self) -> None:
        """All is over."""
        ...


def choose_progress(*, quiet: bool = False) -> "Progress":
    """Nothing if quiet, a live bar on a terminal, lines otherwise."""
    if quiet:
        return Silent()
    return LiveBar() if sys.stderr.isatty() else Lines()


class Silent:
    """Says nothing."""

    def begin(self, runs: list[RunSpec], reused: int) -> None:
        """Nothing."""

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        """Nothing."""

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines(Silent):
    """One line per finished run, on standard error."""

    def begin(self, runs: list[RunSpec], reused: int) -> None:
        """How much there is to do."""
        self.total, self.done, self.started = len(runs), 0, time.monotonic()
        self.lock = threading.Lock()
        print(f"{len(runs)} runs to train, {reused} on record", file=sys.stderr, flush=True)

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        """Which run ended how, and the time left at this pace."""
        with self.lock:
            self.done += 1
            spent = time.monotonic() - self.started
            left = spent / self.done * (self.total - self.done)
            print(
                f"[{self.done}/{self.total}] {spec.name()} {outcome} · {spent:.0f} s, about {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )


class LiveBar(Silent):
    """A rich bar over all epochs of all runs."""

    def begin(self, runs: list[RunSpec], reused: int) -> None:
        """Start the bar."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self.bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("epochs, about"),
            TimeRemainingColumn(),
            TextColumn("left · {task.fields[latest]}"),
            console=Console(stderr=True),
        )
        self.task = self.bar.add_task(
            f"{len(runs)} runs ({reused} on record)", total=sum(s.epochs for s in runs), latest=""
        )
        self.bar.start()

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        """One epoch further."""
        frozen = " frozen" if spec.frozen else ""
        self.bar.update(self.task, advance=1, latest=f"{spec.rule}{frozen} seed {spec.seed}: loss {loss:.3f}")

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        """Only what went wrong is worth a line."""
        if outcome != "complete":
            self.bar.console.print(f"{spec.name()}: {outcome}")

    def close(self) -> None:
        """Stop the bar."""
        if hasattr(self, "bar"):
            self.bar.stop()
