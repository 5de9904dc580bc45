"""Train runs into their records: begun, resumed where they were stopped, and finished; one by one or as a stack.

A checkpoint is one file that is written whole or not at all: weights, feedback, optimiser state, position. Randomness
has names (seed, purpose, epoch), so nothing of it has to be saved.
"""

import hashlib
import json
import math
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.measure.snapshot import LastStep
from creditscope.record import Provenance, RecordWriter, RunSpec, Snapshot, run_folder
from creditscope.record.locks import BusyError
from creditscope.record.store import CHECKPOINT, WEIGHTS, first_words
from creditscope.record.stored import ended_meanwhile
from creditscope.tasks import load_task
from creditscope.train.data import place_data
from creditscope.train.device import (
    begin_provenance,
    float32_precision,
    forget_peak,
    now,
    peak_bytes,
    release_memory,
    release_surplus,
    wait_for_device,
    wait_for_room,
)
from creditscope.train.events import BUSY, NO_MEMORY, Ended, Epoch, Note
from creditscope.train.groups import RunGroup
from creditscope.train.run import PausedError, Run, build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.stacked import CannotStackError, stack_runs

DIGEST = "digest"  # names a checkpoint's own in its metadata
OPTIMISER = "optimiser/"  # begins the names of its tensors in a checkpoint
LOSS = "loss of the epoch"
CHECKPOINT_SECONDS = 30.0  # a checkpoint is not taken again before,
CHECKPOINT_SHARE = 20  # nor before this many times the time it took
LONG_SNAPSHOT = 5.0  # seconds after which one is given up if all shall stop; the run resumes at the checkpoint before
TRIES = 3  # how often a stack is tried beside others who hold memory of the device
Events = Iterator[Epoch | Ended | Note]


class DamagedCheckpointError(CreditscopeError):
    """A checkpoint from which its run cannot go on."""


class StoppedError(Exception):
    """Runs were asked to stop, and have; they go on from their last checkpoints."""


def train_group(
    group: RunGroup,
    root: Path,
    *,
    device: torch.device,
    should_stop: Callable[[], bool] = lambda: False,
    place: str = "here",
) -> Events:
    """Train and measure runs that differ only in seed, and leave their whole records under `root`.

    Runs that were stopped or killed go on from their last checkpoints and end with the same bytes; one whose checkpoint
    is damaged starts over. One that fails (a full disk) does not stop the others; what fails for all (no memory, no
    data) is the end of each. Device memory that was used is given back. Once `should_stop` says so, `StoppedError` is
    raised after the step, or in a long snapshot.
    """
    training = _Training(group, root, device, should_stop, place)
    try:
        yield from training.train_all()
    except StoppedError:
        raise
    except Exception as error:
        yield from [training.fail(spec, error) for spec in group.specs if spec.digest() in training.left]
    finally:
        release_memory(device)


class _Training:
    """Runs of a group on their way into open records."""

    def __init__(self, group: RunGroup, root: Path, device: torch.device, should_stop: Callable[[], bool], place: str):
        self.group, self.root, self.device, self.should_stop, self.place = group, root, device, should_stop, place
        self.left = {spec.digest() for spec in group.specs}  # those that have not ended
        self.writers: dict[str, RecordWriter] = {}

    def end(self, spec: RunSpec, status: str, reason: str = "") -> Ended:
        self.left.discard(spec.digest())
        return Ended(spec.digest(), status, reason)

    def fail(self, spec: RunSpec, error: Exception) -> Ended:
        """The end of a run by an error: its text if it is ours, otherwise where it came from, too."""
        status = NO_MEMORY if isinstance(error, torch.OutOfMemoryError) else "failed"
        if isinstance(error, OSError):  # a full disk, say, which is the same for all runs: their names are left out
            said = str(error).replace(str(run_folder(self.root, spec)), str(self.root / "*"))
            error = CreditscopeError(f"Expected files and folders that can be read and written, but {said}.")
        ours = isinstance(error, CreditscopeError)
        return self.end(spec, status, str(error) if ours else "".join(traceback.format_exception(error)))

    def train_all(self) -> Events:
        """Open the records, place the data on the device, and bring every run to its end."""
        first = self.group.specs[0]
        self.task = load_task(first.task, **first.task_options)
        forget_peak(self.device)
        on_device = torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
        with ExitStack() as held, on_device, float32_precision(first.precision, self.device):
            self.data, self.checksum = place_data(self.task, first, self.device), self.task.checksum()
            for spec in self.group.specs:
                try:
                    writer = held.enter_context(RecordWriter(self.root, spec).open())
                    if finished := ended_meanwhile(writer):
                        yield self.end(spec, finished)
                    else:
                        self.writers[spec.digest()] = writer
                except BusyError:
                    yield self.end(spec, BUSY)
                except (CreditscopeError, OSError) as error:
                    yield self.fail(spec, error)
            specs = [spec for spec in self.group.specs if spec.digest() in self.left]
            if self.group.engine != "loop":
                yield from self._train_stacked(specs)
                return
            for spec in specs:
                for recording in (yield from self._prepare([spec])):
                    yield from self._train_run(recording.run, [recording])

    def _prepare(self, specs: Sequence[RunSpec]) -> "Generator[Ended | Note, None, list[_Recording]]":
        """Runs built and put where they were stopped; one that cannot be ends here."""
        ready = []
        for spec in specs:
            writer = self.writers[spec.digest()]
            try:
                try:
                    recording = _Recording(self._build(spec), writer)
                except DamagedCheckpointError as error:
                    aside = set_aside(writer.folder / CHECKPOINT)
                    yield Note(f"{error} Set aside as {aside}; run {spec.name()} starts over.")
                    recording = _Recording(self._build(spec), writer)  # the first may hold some of what was damaged
                ready.append(recording)
            except Exception as error:
                raise_out_of_memory(error)
                yield self.fail(spec, error)
        return ready

    def _build(self, spec: RunSpec) -> Run:
        return build_run(spec, self.task, self.device, self.data)

    def _train_stacked(self, specs: Sequence[RunSpec], *, tries: int = TRIES) -> Events:
        """As stacks; if the device's memory is too small: again, when others have given some back, else in halves."""
        try:
            yield from self._train_stacks(specs)
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
            yield from self._train_stacked([spec for spec in part if spec.digest() in self.left], tries=tries)

    def _train_stacks(self, specs: Sequence[RunSpec]) -> Events:
        """Those that stand at the same step as one run; one by one, with a note why, if they cannot be stacked."""
        by_step: dict[tuple[int, int], list[_Recording]] = {}
        for recording in (yield from self._prepare(specs)):
            by_step.setdefault((recording.epoch, recording.run.step), []).append(recording)
        for together in by_step.values():
            stack, note = None, ""
            try:
                compare = not all(recording.was_stacked for recording in together)
                stack = stack_runs([recording.run for recording in together], compare=compare)
            except CannotStackError as error:
                note = f"not stacked: {error}"[:300]
            if stack is not None:
                yield from self._train_run(stack, together)
                continue
            for recording in together:
                yield from self._train_run(recording.run, [recording], note)

    def _train_run(self, run: Run, recordings: "list[_Recording]", note: str = "") -> Events:
        """From where its seeds stand to the last epoch, with snapshots; one whose loss is not finite ends there."""
        spec, left = run.spec, dict(enumerate(recordings))
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

        def save(done: int) -> Iterator[Ended]:
            nonlocal saved_at, took
            wait_for_device(self.device)  # whose time is not that of the checkpoint
            began = time.monotonic()
            yield from write(left, lambda seed, recording: recording.save(run, seed, done))
            saved_at = time.monotonic()
            took = saved_at - began

        def due() -> bool:
            return time.monotonic() - saved_at >= max(CHECKPOINT_SECONDS, CHECKPOINT_SHARE * took)

        def train_epoch(done: int) -> Generator[Ended, None, tuple[Tensor, LastStep | None]]:
            while True:
                try:
                    keep_last = spec.snapshot_due(done + 1)
                    return run.train_epoch(done, keep_last=keep_last, pause=lambda: self.should_stop() or due())
                except PausedError:
                    yield from save(done)
                if self.should_stop() or not left:
                    raise StoppedError

        def measure(epoch: int, train_loss: Tensor | None = None, last: LastStep | None = None) -> Iterator[Ended]:
            began = time.monotonic()

            def before_seed() -> None:
                kept = saved_at > began_at  # else nothing would have been gained since it was begun
                if kept and time.monotonic() - began >= LONG_SNAPSHOT and self.should_stop():
                    raise StoppedError

            if left and spec.snapshot_due(epoch):
                taken = snapshot_run(run, epoch, train_loss=train_loss, last_step=last, before_seed=before_seed)
                release_surplus(self.device)
                yield from write(left, lambda seed, recording: recording.append(taken[seed]))

        try:
            yield from write(
                left, lambda seed, r: r.begin(run, note=note, data_checksum=self.checksum, place=self.place)
            )
            start = recordings[0].epoch
            if start == run.step == 0:
                yield from measure(0)
            for done in range(start + 1, spec.epochs + 1):
                if not left:
                    return
                train_loss, last = yield from train_epoch(done - 1)
                losses: list[float] = train_loss.tolist()
                for seed in [seed for seed in left if not math.isfinite(losses[seed])]:
                    yield from finish(seed, done)
                yield from measure(done, train_loss, last)
                stop = self.should_stop() and done < spec.epochs
                if stop or due():
                    yield from save(done)
                for seed, recording in left.items():
                    yield Epoch(recording.digest, done, losses[seed])
                if stop and left:
                    raise StoppedError
            for seed in list(left):
                yield from finish(seed, None)
        except StoppedError:
            raise
        except Exception as error:
            raise_out_of_memory(error)
            for recording in left.values():
                yield self.fail(recording.spec, error)


class _Recording:
    """One run and its record, from where its checkpoint left off, or from the start; lines after that are cut."""

    def __init__(self, run: Run, writer: RecordWriter):
        self.run, self.spec, self.writer, self.digest = run, run.spec, writer, run.spec.digest()
        self.checkpoint = path = writer.folder / CHECKPOINT
        self.epoch, self.lines, self.seconds = 0, 0, 0.0
        if not path.exists():
            writer.begin()
        else:
            self.epoch, self.lines, self.seconds = load_checkpoint(path, run)
            try:
                writer.cut(self.lines)
            except (CreditscopeError, OSError, ValueError) as error:  # lines that are gone, or no text
                raise DamagedCheckpointError(f"Checkpoint {path} cannot be used: {first_words(error)}.") from error
        self.started = time.perf_counter()
        self.before = writer.read_provenance() if self.epoch or run.step else None
        self.provenance: Provenance | None = None

    @property
    def was_stacked(self) -> bool:
        """Whether it goes on from a checkpoint of a stack."""
        return self.before is not None and self.before.engine != "loop"

    def begin(self, run: Run, **others: str) -> None:
        """Say in the record that it is being made, and by what: alone, or as one seed of the stack `run`."""
        self.provenance = begin_provenance(
            run.facts,
            device=run.device,
            engine=run.engine,
            stack=tuple(spec.seed for spec in run.specs) if run.engine != "loop" else (),
            parameters=sum(p.numel() for p in self.run.net.parameters()),
            **others,
        )
        if self.before is not None:
            resumes = self.before.resumes + 1
            self.provenance = replace(self.provenance, started=self.before.started, resumes=resumes)
        self.writer.write_provenance(self.provenance)

    def append(self, snapshot: Snapshot) -> None:
        self.writer.append(snapshot)
        self.lines += 1

    def save(self, run: Run, seed: int, epoch: int) -> None:
        """A checkpoint of this run, seed number `seed` of the stack."""
        save_checkpoint(self.checkpoint, run, seed, epoch=epoch, lines=self.lines, seconds=self._spent())

    def finish(self, run: Run, seed: int, diverged: int | None) -> None:
        """Write the weights and close the record; one that it takes the place of is no longer kept."""
        assert self.provenance is not None
        save_tensors(self.writer.folder / WEIGHTS, run.tensors(seed))
        ended = replace(
            self.provenance,
            status="complete" if diverged is None else "diverged",
            engine=run.engine,
            diverged_epoch=diverged,
            finished=now(),
            seconds=round(self._spent(), 3),
        )
        self.writer.write_provenance(ended)
        self.writer.forget_before()
        self.checkpoint.unlink(missing_ok=True)

    def _spent(self) -> float:
        return self.seconds + time.perf_counter() - self.started


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file beside, then rename; tied tensors are stored apart."""
    part = path.with_name(path.name + ".part")
    try:
        save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, part, metadata)
    except SafetensorError as error:  # which the disk's own come as
        part.unlink(missing_ok=True)
        raise OSError(f"{part} cannot be written: {first_words(error)}") from error
    part.replace(path)


def save_checkpoint(path: Path, run: Run, seed: int, **position: float) -> None:
    """Everything that seed number `seed` of a run needs to go on from here, alone or in any stack."""
    tensors = run.tensors(seed) | {LOSS: run.loss[seed]}
    for index, state in run.optimiser_state(seed).items():
        tensors |= {f"{OPTIMISER}{index}/{key}": value for key, value in state.items()}
    told = {key: str(value) for key, value in {**position, "step": run.step}.items()}
    save_tensors(path, tensors, {**told, DIGEST: content_digest(tensors, told)})


def content_digest(tensors: dict[str, Tensor], position: dict[str, str]) -> str:
    """Of all bits of a checkpoint, and of what they are called."""
    told = hashlib.sha256(json.dumps(position, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        told.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        told.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return told.hexdigest()


def set_aside(path: Path) -> str:
    """Rename a damaged file, in place of one that was set aside before; gives its new name."""
    aside = path.with_name(f"damaged-{path.name}")
    path.replace(aside)
    return aside.name


@torch.no_grad()
def load_checkpoint(path: Path, run: Run) -> tuple[int, int, float]:
    """Put `run` where the checkpoint was taken; raises if the file is damaged or of another run.

    Gives epochs trained, snapshot lines written, and seconds spent until then.
    """
    assert isinstance(run.net, nn.Module)  # stacks are made from single runs that were restored
    state: dict[int, dict[str, Tensor]] = {}
    try:
        if not path.is_file():
            raise CreditscopeError("Expected a file, but got something else")
        with safe_open(path, framework="pt") as file:
            position = dict(file.metadata())
            saved = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        if position.pop(DIGEST) != content_digest(saved, position):
            raise CreditscopeError("Expected the content that its digest was made of, but got another")
        for name in [name for name in saved if name.startswith(OPTIMISER)]:
            index, key = name.removeprefix(OPTIMISER).split("/")
            state.setdefault(int(index), {})[key] = saved.pop(name)
        run.step = int(position["step"])
        run.loss[0] = saved.pop(LOSS)
        for name, tensor in run.application.applied.tensors().items():
            tensor.copy_(saved.pop(name))
        run.net.load_state_dict(saved)
        run.optimiser.load_state_dict({**run.optimiser.state_dict(), "state": state})
        return int(position["epoch"]), int(position["lines"]), float(position["seconds"])
    except Exception as error:  # whatever a reader makes of bytes that nobody has written
        raise_out_of_memory(error)
        raise DamagedCheckpointError(f"Checkpoint {path} cannot be used: {first_words(error)}.") from error
