"""Train runs into their records: begun, resumed where they were stopped, and finished; one by one or as a stack."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.record import Provenance, RecordWriter, RunSpec, Snapshot
from creditscope.tasks import AnyTask, load_task
from creditscope.train.checkpoint import NAME, Position, load_checkpoint, save_checkpoint, save_tensors
from creditscope.train.data import Data, place_data
from creditscope.train.provenance import begin_provenance, now
from creditscope.train.room import forget_peak, peak_bytes, release_memory, wait_for_room
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import CannotStackError, stack_runs
from creditscope.train.training import train_run

CHECKPOINT_SECONDS = 30.0
"""A checkpoint is not taken again before."""
CHECKPOINT_SHARE = 20
"""Nor before this many times the time it took."""
LONG_SNAPSHOT = 5.0
"""Seconds after which a snapshot is given up if all shall stop; the run then goes on from the checkpoint before it."""
TRIES = 3
"""How often a stack is tried beside others who hold memory of the device."""
Outcome = str | Exception
"""How a run ended ("complete", "diverged"), or why it failed."""
OnRunEpoch = Callable[[RunSpec, int, float], None]
"""Called for every run after every epoch with the epochs done and the mean training loss."""


class StoppedError(Exception):
    """Runs were asked to stop, and have; they go on from their last checkpoints."""


def record_runs(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    engine: str = "loop",
    device: torch.device | None = None,
    on_epoch: OnRunEpoch | None = None,
    on_end: Callable[[RunSpec, Outcome], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Outcome]:
    """Train and measure runs that differ only in seed, and leave their whole records under `root`.

    Runs that were stopped or killed go on from their last checkpoints and end with the same bytes. Says how each ended,
    by the hash of its spec: one that fails (a damaged checkpoint, a full disk) does not stop the others. The stacked
    engine trains all at once, or in halves where the device's memory is too small, and those it cannot map one by one.
    """
    device = device or torch.device("cpu")
    task = load_task(specs[0].task, **specs[0].task_options)
    outcomes: dict[str, Outcome] = {}

    def end(spec: RunSpec, outcome: Outcome) -> None:
        outcomes[spec.digest()] = outcome
        if on_end:
            on_end(spec, outcome)

    forget_peak(device)
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with ExitStack() as held, on_device, matrix_products(specs[0].precision, device):
        data = place_data(task, specs[0], device)
        writers: dict[str, RecordWriter] = {}
        for spec in specs:
            try:
                writer = held.enter_context(RecordWriter(root, spec).open())
                finished = writer.finished_meanwhile()
                if finished:
                    end(spec, finished)
                else:
                    writers[spec.digest()] = writer
            except (CreditscopeError, OSError) as error:
                end(spec, error)
        session = _Session(task, data, device, writers, on_epoch, end, should_stop)
        session.train([spec for spec in specs if spec.digest() in writers], stacked=engine != "loop")
    return outcomes


@contextmanager
def matrix_products(precision: str, device: torch.device) -> Iterator[None]:
    """Inside, products of float32 matrices are what the precision says: full float32, or TF32 on CUDA."""
    if precision == "tf32" and device.type != "cuda":
        raise CreditscopeError(f"Expected a CUDA device for precision 'tf32', but got {device.type!r}. Use 'float32'.")
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class _Session:
    """Runs on their way into open records."""

    def __init__(
        self,
        task: AnyTask,
        data: Data,
        device: torch.device,
        writers: Mapping[str, RecordWriter],
        on_epoch: OnRunEpoch | None,
        end: Callable[[RunSpec, Outcome], None],
        should_stop: Callable[[], bool],
    ):
        self.task, self.data, self.device, self.writers = task, data, device, writers
        self.on_epoch, self.on_end, self.should_stop = on_epoch, end, should_stop
        self.ended: set[str] = set()
        self.checksum = task.checksum()

    def train(self, specs: Sequence[RunSpec], *, stacked: bool, tries: int = TRIES) -> None:
        """Bring all of them to their end; those that stand at the same epoch go together if stacked.

        If the device's memory is too small: again, when others have given some back (`tries` in all), else in halves.
        """
        if not stacked:
            for spec in specs:
                self._train_ready(self._prepare([spec]), stacked=False)
            return
        try:
            self._train_stacks(self._prepare(specs))
            return
        except torch.OutOfMemoryError as error:
            short = error.with_traceback(None)  # which would hold on to the stack
        peak = peak_bytes(self.device)
        release_memory(self.device)
        if tries > 1 and wait_for_room(self.device, peak, self.should_stop):
            parts, tries = [specs], tries - 1
        elif self.should_stop():
            raise StoppedError
        elif len(specs) == 1:
            raise short
        else:
            half = len(specs) // 2
            parts, tries = [specs[:half], specs[half:]], 1
        for part in parts:
            self.train([spec for spec in part if spec.digest() not in self.ended], stacked=True, tries=tries)

    def _train_stacks(self, ready: "Sequence[_Recording]") -> None:
        by_epoch: dict[int, list[_Recording]] = {}
        for recording in ready:
            by_epoch.setdefault(recording.position.epoch, []).append(recording)
        for together in by_epoch.values():
            self._train_ready(together, stacked=True)

    def end(self, spec: RunSpec, outcome: Outcome) -> None:
        """A run has come to its end, well or not."""
        self.ended.add(spec.digest())
        self.on_end(spec, outcome)

    def _prepare(self, specs: Sequence[RunSpec]) -> "list[_Recording]":
        """Runs built and put where they were stopped; one that cannot be ends here."""
        ready = []
        for spec in specs:
            try:
                run = build_run(spec, self.task, self.device, self.data)
                ready.append(_Recording(run, self.writers[spec.digest()]))
            except Exception as error:
                raise_out_of_memory(error)
                self.end(spec, error)
        return ready

    def _train_ready(self, ready: "list[_Recording]", *, stacked: bool) -> None:
        run, note = None, ""
        if stacked:
            try:
                compare = not all(recording.was_stacked for recording in ready)
                run = stack_runs([recording.run for recording in ready], compare=compare)
            except CannotStackError as error:
                note = f"not stacked: {error}"[:300]
        if run is not None:
            self._train_run(run, ready, note)
            return
        for recording in ready:
            self._train_run(recording.run, [recording], note)

    def _train_run(self, run: Run, recordings: "list[_Recording]", note: str) -> None:
        left = dict(enumerate(recordings))
        began_at = saved_at = time.monotonic()
        took = 0.0

        def write(seed: int, work: Callable[[_Recording], object]) -> None:
            """What cannot be written (a full disk) is the end of its own run; the others go on."""
            try:
                work(left[seed])
            except (OSError, CreditscopeError) as error:
                self.end(left.pop(seed).spec, error)
            if not left:
                raise _NoneLeftError

        def append(snapshots: Sequence[Snapshot | None]) -> None:
            for seed, snapshot in enumerate(snapshots):
                if snapshot is not None and seed in left:
                    write(seed, partial(_Recording.append, snapshot=snapshot))

        def after_epoch(epoch: int, losses: Sequence[float]) -> None:
            nonlocal saved_at, took
            stop = self.should_stop() and epoch < run.spec.epochs
            began = time.monotonic()
            if stop or began - saved_at >= max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * took):
                for seed in list(left):
                    write(seed, partial(_Recording.save, run=run, seed=seed, epoch=epoch))
                saved_at = time.monotonic()
                took = saved_at - began
            if self.on_epoch:
                for seed, recording in left.items():
                    self.on_epoch(recording.spec, epoch, losses[seed])
            if stop:
                raise StoppedError

        def measuring(seconds: float) -> None:
            kept = saved_at > began_at  # else nothing would have been gained since it was begun
            if kept and seconds >= LONG_SNAPSHOT and self.should_stop():
                raise StoppedError

        def finish(seed: int, diverged: int | None) -> None:
            if seed in left:
                write(seed, partial(_Recording.finish, run=run, seed=seed, diverged=diverged))
            if seed in left:
                self.end(left.pop(seed).spec, "complete" if diverged is None else "diverged")

        try:
            for seed in list(left):
                write(seed, partial(_Recording.begin, run=run, note=note, data_checksum=self.checksum))
            train_run(
                run,
                start=recordings[0].position.epoch,
                on_epoch=after_epoch,
                on_snapshots=append,
                on_end=finish,
                on_measuring=measuring,
            )
        except StoppedError:
            raise
        except _NoneLeftError:
            return
        except Exception as error:
            raise_out_of_memory(error)
            for recording in left.values():
                self.end(recording.spec, error)


class _NoneLeftError(Exception):
    """Every run of a stack has ended before its time."""


class _Recording:
    """One run and its record, from where its checkpoint left off."""

    def __init__(self, run: Run, writer: RecordWriter):
        self.run, self.spec, self.writer = run, run.spec, writer
        self.position = _resume(run, writer)
        self.lines, self.started = self.position.lines, time.perf_counter()
        self.before = writer.read_provenance() if self.position.epoch else None
        self.provenance: Provenance | None = None

    @property
    def was_stacked(self) -> bool:
        """Whether it goes on from a checkpoint of a stack."""
        return self.before is not None and self.before.engine != "loop"

    def begin(self, run: Run, **others: str) -> None:
        """Say in the record that it is being made, and by what: alone, or as one seed of the stack `run`."""
        provenance = begin_provenance(
            run.facts,
            device=run.device,
            engine=run.engine,
            stack=tuple(spec.seed for spec in run.specs) if run.engine != "loop" else (),
            parameters=sum(p.numel() for p in self.run.net.parameters()),
            **others,
        )
        if self.before is not None:
            provenance = replace(provenance, started=self.before.started, resumes=self.before.resumes + 1)
        self.provenance = provenance
        self.writer.write_provenance(provenance)

    def append(self, snapshot: Snapshot) -> None:
        """One more line."""
        self.writer.append(snapshot)
        self.lines += 1

    def save(self, run: Run, seed: int, epoch: int) -> None:
        """A checkpoint of this run, seed number `seed` of the stack."""
        save_checkpoint(self.writer.folder / NAME, run, Position(epoch, self.lines, self._spent()), seed)

    def finish(self, run: Run, seed: int, diverged: int | None) -> None:
        """Write the weights and close the record; one that it takes the place of is no longer kept."""
        assert self.provenance is not None
        save_tensors(self.writer.weights_path, run.tensors(seed))
        status = "complete" if diverged is None else "diverged"
        self.writer.write_provenance(
            replace(
                self.provenance,
                status=status,
                engine=run.engine,
                diverged_epoch=diverged,
                finished=now(),
                seconds=round(self._spent(), 3),
            )
        )
        self.writer.forget_before()
        (self.writer.folder / NAME).unlink(missing_ok=True)

    def _spent(self) -> float:
        return self.position.seconds + time.perf_counter() - self.started


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
