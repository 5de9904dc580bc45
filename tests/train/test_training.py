"""Groups trained into records: a stack's as the loop's but for rounding, and in halves where memory is short."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from stacking import assert_records_agree, read, recorded, same_bytes, stop, train_on
from trained import record_runs

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, run_folder
from creditscope.stack import StackedNet
from creditscope.train import stacked, training
from creditscope.train.events import NO_MEMORY, Ended
from creditscope.train.execute import run_all
from creditscope.train.groups import RunGroup
from creditscope.train.run import Run
from creditscope.train.stacked import StackedRun, stack_runs
from creditscope.train.training import CHECKPOINT, StoppedError, train_group


def ends_of(specs: Sequence[RunSpec], root: Path) -> list[Ended]:
    events = train_group(RunGroup(tuple(specs), "stacked"), root, device=torch.device("cpu"))
    return [event for event in events if isinstance(event, Ended)]


@pytest.fixture
def train_epochs(monkeypatch) -> Callable[[Callable[[StackedRun, int], None]], None]:
    """Something happens to a stack before each epoch."""
    original = StackedRun.train_epoch

    def happens(what: Callable[[StackedRun, int], None]) -> None:
        monkeypatch.setattr(StackedRun, "train_epoch", lambda *at, **how: what(*at) or original(*at, **how))

    return happens


def poison(after: int, value: float) -> Callable[[StackedRun, int], None]:
    """The second seed's weights, before an epoch."""

    def spoil(run: StackedRun, epoch: int) -> None:
        if epoch == after:
            next(run.net.parameters()).data[1] = value

    return spoil


def run_out(*, epoch: int = 0, seeds: int = 1, error: Exception | None = None) -> Callable[[StackedRun, int], None]:
    """Of memory, before an epoch, if there are more seeds than so many."""

    def fail(run: StackedRun, at: int) -> None:
        if at == epoch and len(run.specs) > seeds:
            raise error or torch.OutOfMemoryError("CUDA out of memory.")

    return fail


class TestRecords:
    def test_they_are_complete_and_name_the_stack(self, tmp_path):
        specs = recorded((1, 2, 3))
        told = []
        assert (
            train_on(specs, tmp_path, on_epoch=lambda event: told.append((event.run, event.done))) == ["complete"] * 3
        )
        assert told == [(spec.digest(), epoch) for epoch in range(1, 5) for spec in specs]
        for spec in specs:
            record = read(tmp_path, spec)
            provenance = record.provenance
            assert (provenance.status, provenance.engine, provenance.stack) == ("complete", "stacked", (1, 2, 3))
            assert (provenance.note, provenance.resumes, provenance.diverged_epoch) == ("", 0, None)
            assert [s.epoch for s in record.snapshots] == [0, 2, 4]
            assert record.last.correct is not None
            assert not (record.path / CHECKPOINT).exists()

    def test_they_lie_where_the_loop_s_do_and_hold_the_same_but_for_rounding(self, tmp_path, whole):
        specs = recorded((1, 2, 3))
        stacked_root = whole(specs)
        assert train_on(specs, tmp_path, engine="loop") == ["complete"] * 3
        for spec in specs:
            a, b = read(stacked_root, spec), read(tmp_path, spec)
            assert a.path.name == b.path.name
            assert (a.path / "spec.json").read_bytes() == (b.path / "spec.json").read_bytes()
            assert (b.provenance.engine, b.provenance.stack) == ("loop", ())
            for name in ("facts", "parameters", "data_checksum", "device"):
                assert getattr(a.provenance, name) == getattr(b.provenance, name), name
            assert_records_agree(stacked_root, tmp_path, spec, 2e-3, 1e-4, 1e-5)

    @pytest.mark.parametrize(("after", "value"), [(0, math.nan), (2, math.inf)])
    def test_one_that_diverges_says_so_and_the_others_complete(
        self, tmp_path, monkeypatch, train_epochs, whole, after, value
    ):
        specs = recorded((1, 2, 3))
        root = whole(specs)
        train_epochs(poison(after, value))
        assert train_on(specs, tmp_path) == ["complete", "diverged", "complete"]
        record = read(tmp_path, specs[1])
        assert (record.provenance.status, record.provenance.diverged_epoch) == ("diverged", after + 1)
        assert [s.epoch for s in record.snapshots] == [e for e in (0, 2) if e <= after]
        assert (record.path / "weights.safetensors").exists()
        assert same_bytes([specs[0], specs[2]], tmp_path, root)
        monkeypatch.undo()
        assert train_on(specs, tmp_path) == ["complete", "diverged", "complete"]

    def test_mates_of_one_that_diverged_can_be_stopped_and_go_on(self, tmp_path, monkeypatch, train_epochs, whole):
        specs = recorded((1, 2, 3))
        root = whole(specs)
        train_epochs(poison(0, math.nan))
        stop(specs, tmp_path, epochs=3)
        monkeypatch.undo()
        assert train_on(specs, tmp_path) == ["complete", "diverged", "complete"]
        assert read(tmp_path, specs[0]).provenance.stack == (1, 3)
        assert same_bytes([specs[0], specs[2]], tmp_path, root)

    def test_all_can_diverge(self, tmp_path):
        specs = recorded((1, 2), "bp", optimiser="sgd", lr=1e12)
        assert train_on(specs, tmp_path) == ["diverged", "diverged"]
        assert [read(tmp_path, s).provenance.diverged_epoch for s in specs] == [1, 1]

    @pytest.mark.parametrize("engine", ["loop", "stacked"])
    @pytest.mark.parametrize("optimiser", ["adamw", "adam", "sgd"])
    def test_a_step_longer_than_the_number_format_is_divergence(self, tmp_path, engine, optimiser):
        specs = recorded((1, 2), "bp", optimiser=optimiser, lr=1e38 if optimiser != "sgd" else 1e39)
        assert train_on(specs, tmp_path, engine=engine) == ["diverged", "diverged"]
        assert [read(tmp_path, s).provenance.diverged_epoch for s in specs] == [1, 1]


class TestDisk:
    def test_what_cannot_be_written_is_said_in_a_line_that_is_the_same_for_all(self, tmp_path, monkeypatch):
        """As safetensors says it, with files half written."""

        def full(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None) -> None:
            path.write_bytes(b"half")
            raise SafetensorError("I/O error: No space left on device (os error 28)")

        monkeypatch.setattr(training, "save_file", full)
        specs = recorded((1, 2), epochs=1)
        first, second = train_on(specs, tmp_path, engine="loop")
        assert first == second
        assert (first.count("\n"), "No space left" in first) == (0, True)
        assert list(tmp_path.rglob("*.part")) == []


class TestMemory:
    """A stack that does not fit is halved until it does."""

    @pytest.fixture
    def room(self, monkeypatch) -> Callable[..., list[int]]:
        """So many seeds fit into a stack, or all of them from the n-th try on; gives the sizes that were tried."""

        def only(seeds: int, *, tries: float = math.inf) -> list[int]:
            tried: list[int] = []

            def small(runs: Sequence[Run], **how: bool) -> StackedRun:
                tried.append(len(runs))
                if len(runs) > seeds and len(tried) <= tries:
                    raise torch.OutOfMemoryError("CUDA out of memory.")
                return stack_runs(runs, **how)

            monkeypatch.setattr(training, "stack_runs", small)
            return tried

        return only

    def stacks(self, specs: Sequence[RunSpec], root: Path) -> set[tuple[int, ...]]:
        return {read(root, spec).provenance.stack for spec in specs}

    @pytest.mark.slow
    def test_too_little_to_make_the_stack(self, tmp_path, room, whole):
        specs = recorded((1, 2, 3, 4, 5), epochs=1)
        root = whole(specs)
        room(2)
        assert ends_of(specs, tmp_path) == [Ended(spec.digest(), "complete") for spec in specs]
        assert self.stacks(specs, tmp_path) == {(1, 2), (3,), (4, 5)}
        assert same_bytes(specs, tmp_path, root)

    def test_too_little_to_try_it_out(self, tmp_path, monkeypatch):
        specs = recorded((1, 2, 3), epochs=1)
        original = stacked.observe

        def small(net: StackedNet, *args: Any, **options: Any) -> Any:
            if net.seeds > 2:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return original(net, *args, **options)

        monkeypatch.setattr(stacked, "observe", small)
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert self.stacks(specs, tmp_path) == {(1,), (2, 3)}

    @pytest.mark.slow
    def test_too_little_in_the_middle_of_training(self, tmp_path, monkeypatch, train_epochs, whole):
        specs = recorded((1, 2, 3, 4))
        root = whole(specs)

        train_epochs(run_out(epoch=2, seeds=2))
        monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
        assert train_on(specs, tmp_path) == ["complete"] * 4
        assert self.stacks(specs, tmp_path) == {(1, 2), (3, 4)}
        assert same_bytes(specs, tmp_path, root)

    def test_each_run_ends_once_even_if_its_checkpoint_was_damaged(self, tmp_path, room):
        specs = recorded((1, 2, 3), epochs=2)
        stop(specs, tmp_path, epochs=1)
        (run_folder(tmp_path, specs[1]) / CHECKPOINT).write_bytes(b"damaged")
        room(1)
        assert sorted(end.run for end in ends_of(specs, tmp_path)) == sorted(spec.digest() for spec in specs)

    @pytest.mark.slow
    @pytest.mark.parametrize("times", [1, 2, 3], ids=["enough", "later", "still too little"])
    def test_a_stack_is_tried_again_when_others_have_made_room(self, tmp_path, monkeypatch, room, whole, times):
        specs = recorded((1, 2, 3), epochs=1)
        root, asked = whole(specs), []
        tried = room(2, tries=times)
        monkeypatch.setattr(training, "peak_bytes", lambda device: 7)
        monkeypatch.setattr(training, "wait_for_room", lambda device, peak, stop: asked.append(peak) or True)
        assert train_on(specs, tmp_path) == ["complete"] * 3
        assert tried == {1: [3, 3], 2: [3, 3, 3], 3: [3, 3, 3, 1, 2]}[times]
        assert asked == [7] * min(times, 2)
        assert same_bytes(specs, tmp_path, root)

    def test_a_stack_that_waits_for_room_can_be_stopped(self, tmp_path, monkeypatch, room):
        specs, asked_to_stop = recorded((1, 2, 3), epochs=1), []

        def wait(device: torch.device, peak: int, should_stop: Callable[[], bool]) -> bool:
            assert not should_stop()
            asked_to_stop.append(True)
            assert should_stop()
            return False

        room(0)
        monkeypatch.setattr(training, "wait_for_room", wait)
        with pytest.raises(StoppedError):
            record_runs(specs, tmp_path, engine="stacked", should_stop=lambda: bool(asked_to_stop))

    @pytest.mark.slow
    @pytest.mark.parametrize("said", ["Triton Error [CUDA]: out of memory", "CUBLAS_STATUS_ALLOC_FAILED when calling"])
    def test_whoever_says_that_memory_ran_out_is_heard(self, tmp_path, train_epochs, said):
        specs = recorded((1, 2), epochs=1)
        train_epochs(run_out(error=RuntimeError(said)))
        assert train_on(specs, tmp_path) == ["complete"] * 2
        assert self.stacks(specs, tmp_path) == {(1,), (2,)}

    def test_too_little_for_one_is_an_error_of_that_run(self, tmp_path, room):
        specs = recorded((1, 2), epochs=1)
        room(0)
        assert [(end.run, end.status) for end in ends_of(specs, tmp_path)] == [(s.digest(), NO_MEMORY) for s in specs]
        with pytest.raises(CreditscopeError, match="out of memory"):
            run_all(specs, tmp_path, slots=1, engine="stacked")
