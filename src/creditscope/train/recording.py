"""Train runs into their records: begun, resumed where they were stopped, and finished; one by one or as a stack."""

import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.record import Provenance, RecordWriter, RunSpec, Snapshot
from creditscope.tasks import AnyTask, load_task
from creditscope.train.checkpoint import NAME, Position, load_checkpoint, save_checkpoint, save_tensors
from creditscope.train.data import Data, place_data
from creditscope.train.device_memory import forget_peak, peak_bytes, release_memory, wait_for_room
from creditscope.train.engines import Group
from creditscope.train.events import NO_MEMORY, Ended, Epoch
from creditscope.train.provenance import begin_provenance, now
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import CannotStackError, stack_runs
from creditscope.train.training import Diverged, Measured, Trained, train_epochs

CHECKPOINT_SECONDS = 30.0
"""A checkpoint is not taken again before."""
CHECKPOINT_SHARE = 20
"""Nor before this many times the time it took."""
LONG_SNAPSHOT = 5.0
"""Seconds after which a snapshot is given up if all shall stop; the run then goes on from the checkpoint before it."""
TRIES = 3
"""How often a stack is tried beside others who hold memory of the device."""
Events = Iterator[Epoch | Ended]


class StoppedError(Exception):
    """Runs were asked to stop, and have; they go on from their last checkpoints."""


def record_group(
    group: Group, root: Path, *, device: torch.device, should_stop: Callable[[], bool] = lambda: False
) -> Events:
    """Train and measure runs that differ only in seed, and leave their whole records under `root`.

    Runs that were stopped or killed go on from their last checkpoints and end with the same bytes. One that fails (a
    damaged checkpoint, a full disk) does not stop the others; what fails for all (no memory, no data) is the end of
    each. The stacked engine trains all at once, or in halves where the device's memory is too small, and those it
    cannot map one by one. Device memory that was used is given back, for others or the next group. Once `should_stop`
    says so, `StoppedError` is raised at the end of the epoch.
    """
    left = {spec.digest() for spec in group.specs}
    try:
        yield from _record(group, root, device, left, should_stop)
    except StoppedError:
        raise
    except Exception as error:
        yield from [failed(spec.digest(), error) for spec in group.specs if spec.digest() in left]
    finally:
        release_memory(device)


def record_runs(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    engine: str = "loop",
    device: torch.device | None = None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, str]:
    """`record_group` to its end; how each run ended, by the hash of its spec, or why it failed."""
    outcomes: dict[str, str] = {}
    group = Group(tuple(specs), engine)
    for event in record_group(group, root, device=device or torch.device("cpu"), should_stop=should_stop):
        if isinstance(event, Epoch):
            on_epoch(event)
        else:
            outcomes[event.run] = event.reason or event.status
    return outcomes


def failed(run: str, error: Exception) -> Ended:
    """The end of a run by an error: its text if it is ours, otherwise where it came from, too."""
    ours = isinstance(error, CreditscopeError)
    status = NO_MEMORY if isinstance(error, torch.OutOfMemoryError) else "failed"
    return Ended(run, status, str(error) if ours else "".join(traceback.format_exception(error)))


def _record(group: Group, root: Path, device: torch.device, left: set[str], should_stop: Callable[[], bool]) -> Events:
    """`record_group`, which keeps in `left` those that have not ended."""
    specs, first = group.specs, group.specs[0]
    task = load_task(first.task, **first.task_options)
    forget_peak(device)
    on_device = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with ExitStack() as held, on_device, matrix_products(first.precision, device):
        session = _Session(task, place_data(task, first, device), device, left, should_stop)
        for spec in specs:
            try:
                writer = held.enter_context(RecordWriter(root, spec).open())
                finished = writer.finished_meanwhile()
                if finished:
                    yield session.end(spec, finished)
                else:
                    session.writers[spec.digest()] = writer
            except (CreditscopeError, OSError) as error:
                yield session.fail(spec, error)
        yield from session.train([s for s in specs if s.digest() in left], stacked=group.engine != "loop")


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
        left: set[str],
        should_stop: Callable[[], bool],
    ):
        self.task, self.data, self.device, self.left, self.should_stop = task, data, device, left, should_stop
        self.writers, self.checksum = dict[str, RecordWriter](), task.checksum()

    def end(self, spec: RunSpec, status: str) -> Ended:
        """A run has come to its end."""
        self.left.discard(spec.digest())
        return Ended(spec.digest(), status)

    def fail(self, spec: RunSpec, error: Exception) -> Ended:
        """A run has come to its end by an error."""
        self.left.discard(spec.digest())
        return failed(spec.digest(), error)

    def train(self, specs: Sequence[RunSpec], *, stacked: bool, tries: int = TRIES) -> Events:
        """Bring all of them to their end; those that stand at the same epoch go together if stacked.

        If the device's memory is too small: again, when others have given some back (`tries` in all), else in halves.
        """
        if not stacked:
            for spec in specs:
                yield from self._train_ready((yield from self._prepare([spec])), stacked=False)
            return
        try:
            yield from self._train_stacks((yield from self._prepare(specs)))
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
            yield from self.train([spec for spec in part if spec.digest() in self.left], stacked=True, tries=tries)

    def _train_stacks(self, ready: "Sequence[_Recording]") -> Events:
        by_epoch: dict[int, list[_Recording]] = {}
        for recording in ready:
            by_epoch.setdefault(recording.position.epoch, []).append(recording)
        for together in by_epoch.values():
            yield from self._train_ready(together, stacked=True)

    def _prepare(self, specs: Sequence[RunSpec]) -> "Generator[Ended, None, list[_Recording]]":
        """Runs built and put where they were stopped; one that cannot be ends here."""
        ready = []
        for spec in specs:
            try:
                run = build_run(spec, self.task, self.device, self.data)
                ready.append(_Recording(run, self.writers[spec.digest()]))
            except Exception as error:
                raise_out_of_memory(error)
                yield self.fail(spec, error)
        return ready

    def _train_ready(self, ready: "list[_Recording]", *, stacked: bool) -> Events:
        run, note = None, ""
        if stacked:
            try:
                compare = not all(recording.was_stacked for recording in ready)
                run = stack_runs([recording.run for recording in ready], compare=compare)
            except CannotStackError as error:
                note = f"not stacked: {error}"[:300]
        if run is not None:
            yield from self._train_run(run, ready, note)
            return
        for recording in ready:
            yield from self._train_run(recording.run, [recording], note)

    def _train_run(self, run: Run, recordings: "list[_Recording]", note: str) -> Events:
        left = dict(enumerate(recordings))
        began_at = saved_at = time.monotonic()
        took = 0.0

        def write(seeds: Iterable[int], work: "Callable[[int, _Recording], None]") -> Iterator[Ended]:
            """What cannot be written (a full disk) is the end of its own run; the others go on."""
            for seed in [seed for seed in seeds if seed in left]:
                try:
                    work(seed, left[seed])
                except (OSError, CreditscopeError) as error:
                    yield self.fail(left.pop(seed).spec, error)

        def finish(seed: int, diverged: int | None) -> Iterator[Ended]:
            yield from write([seed], lambda seed, recording: recording.finish(run, seed, diverged))
            if seed in left:
                yield self.end(left.pop(seed).spec, "complete" if diverged is None else "diverged")

        def measuring(seconds: float) -> None:
            kept = saved_at > began_at  # else nothing would have been gained since it was begun
            if kept and seconds >= LONG_SNAPSHOT and self.should_stop():
                raise StoppedError

        try:
            yield from write(left, lambda seed, r: r.begin(run, note=note, data_checksum=self.checksum))
            stages = train_epochs(run, start=recordings[0].position.epoch, on_measuring=measuring)
            for stage in stages if left else ():
                match stage:
                    case Diverged(seed, epoch):
                        yield from finish(seed, epoch)
                    case Measured(snapshots):
                        taken = {seed: snapshot for seed, snapshot in enumerate(snapshots) if snapshot is not None}
                        yield from write(taken, lambda seed, r, taken=taken: r.append(taken[seed]))
                    case Trained(epoch, losses):
                        stop = self.should_stop() and epoch < run.spec.epochs
                        began = time.monotonic()
                        if stop or began - saved_at >= max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * took):
                            yield from write(left, lambda seed, r, epoch=epoch: r.save(run, seed, epoch))
                            saved_at = time.monotonic()
                            took = saved_at - began
                        for seed, recording in left.items():
                            yield Epoch(recording.digest, epoch, losses[seed])
                        if stop and left:
                            raise StoppedError
                if not left:
                    return
            for seed in list(left):
                yield from finish(seed, None)
        except StoppedError:
            raise
        except Exception as error:
            raise_out_of_memory(error)
            for recording in left.values():
                yield self.fail(recording.spec, error)


class _Recording:
    """One run and its record, from where its checkpoint left off."""

    def __init__(self, run: Run, writer: RecordWriter):
        self.run, self.spec, self.writer, self.digest = run, run.spec, writer, run.spec.digest()
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
