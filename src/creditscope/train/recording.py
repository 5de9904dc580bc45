"""Train a run into its record: begun, resumed where it was stopped, and finished."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from creditscope.errors import CreditscopeError
from creditscope.record import Provenance, RecordWriter, RunSpec
from creditscope.tasks import AnyTask
from creditscope.train.checkpoint import NAME, Position, load_checkpoint, model_tensors, save_checkpoint, save_tensors
from creditscope.train.loop import OnEpoch, Run, build_run, train_run
from creditscope.train.provenance import begin_provenance, now

CHECKPOINT_SECONDS = 30.0


class StoppedError(Exception):
    """A run was asked to stop, and has: its checkpoint is written."""


def record_run(
    spec: RunSpec,
    root: Path,
    *,
    task: AnyTask | None = None,
    on_epoch: OnEpoch | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> str:
    """Train and measure a run, and leave its whole record under `root`; says how it ended.

    A run that was stopped or killed goes on from its last checkpoint and ends with the same bytes.
    """
    run = build_run(spec, task)
    with RecordWriter(root, spec).open() as writer:
        finished = writer.finished_meanwhile()
        if finished:
            return finished
        position = _resume(run, writer)
        clock = _Clock(position.seconds)
        provenance = _begin(run, writer, resumed=position.epoch > 0)
        lines, saved_at = position.lines, time.monotonic()

        def append(snapshot) -> None:
            nonlocal lines
            writer.append(snapshot)
            lines += 1

        def after_epoch(epoch: int, loss: float) -> None:
            nonlocal saved_at
            stop = should_stop() and epoch < spec.epochs
            if stop or time.monotonic() - saved_at >= checkpoint_seconds:
                save_checkpoint(writer.folder / NAME, run, Position(epoch, lines, clock.spent()))
                saved_at = time.monotonic()
            if on_epoch:
                on_epoch(epoch, loss)
            if stop:
                raise StoppedError

        diverged = train_run(run, start=position.epoch, on_epoch=after_epoch, on_snapshot=append)
        save_tensors(writer.weights_path, model_tensors(run))
        status = "complete" if diverged is None else "diverged"
        seconds = round(clock.spent(), 3)
        writer.write_provenance(
            replace(provenance, status=status, diverged_epoch=diverged, finished=now(), seconds=seconds)
        )
        (writer.folder / NAME).unlink(missing_ok=True)
        return status


class _Clock:
    """Seconds spent on a run, those before a resume included."""

    def __init__(self, before: float):
        self.before, self.started = before, time.perf_counter()

    def spent(self) -> float:
        return self.before + time.perf_counter() - self.started


def _resume(run: Run, writer: RecordWriter) -> Position:
    """The position to go on from: that of a usable checkpoint, or the start; lines after it are cut."""
    path = writer.folder / NAME
    if path.exists():
        try:
            position = load_checkpoint(path, run)
            writer.cut(position.lines)
            return position
        except CreditscopeError:
            path.replace(path.with_name(f"damaged-{NAME}"))
            raise CreditscopeError(
                f"Expected a whole checkpoint in {writer.folder}, but it is damaged; it was set aside as "
                f"damaged-{NAME}. The same command now trains this run from the start."
            ) from None
    writer.begin()
    return Position(0, 0, 0.0)


def _begin(run: Run, writer: RecordWriter, *, resumed: bool) -> Provenance:
    provenance = begin_provenance(
        run.facts,
        device=next(run.net.parameters()).device,
        engine="loop",
        data_checksum=run.task.checksum(),
        parameters=sum(p.numel() for p in run.net.parameters()),
    )
    before = writer.read_provenance() if resumed else None
    if before is not None:
        provenance = replace(provenance, started=before.started, resumes=before.resumes + 1)
    writer.write_provenance(provenance)
    return provenance
