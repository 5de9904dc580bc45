"""Ctrl-C: the epoch ends, what was done is on record, and the same call goes on and ends with the same bytes."""

import os
import signal
import threading
from pathlib import Path

import pytest

from creditscope.record import RunSpec, read_record, run_folder
from creditscope.train.checkpoint import NAME
from creditscope.train.plan import plan_run
from creditscope.train.progress import Silent
from creditscope.train.runner import STOPPING, run_all

LONG = 5_000


@pytest.fixture(autouse=True)
def listening():
    """A process that a shell started in the background ignores Ctrl-C; here it is taken as at a prompt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def specs_of(epochs: int) -> list[RunSpec]:
    given = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 32, "tier": "quick"}
    return [plan_run(rule="dfa", seed=seed, epochs=epochs, snapshot_every=0, **given) for seed in (1, 2)]


class Presses(Silent):
    """Presses Ctrl-C when the first run has trained so many epochs, and again one epoch later if asked to."""

    def __init__(self, epoch: int, *, times: int = 1):
        self.left = [epoch + i for i in range(times)]

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        if spec.seed == 1 and self.left and done >= self.left[0]:
            self.left.pop(0)
            os.kill(os.getpid(), signal.SIGINT)


def weights(root: Path, spec: RunSpec) -> bytes:
    return (run_folder(root, spec) / "weights.safetensors").read_bytes()


def test_in_this_process_the_epoch_ends_and_the_same_call_goes_on(tmp_path, capsys):
    specs, before = specs_of(6), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path / "parts", jobs=1, progress=Presses(2))
    assert STOPPING in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert (run_folder(tmp_path / "parts", specs[0]) / NAME).exists()
    assert not run_folder(tmp_path / "parts", specs[1]).exists()
    first, second = run_all(specs, tmp_path / "parts", jobs=1)
    assert (first.provenance.resumes, second.provenance.resumes) == (1, 0)
    run_all(specs, tmp_path / "whole", jobs=1)
    for spec in specs:
        assert weights(tmp_path / "parts", spec) == weights(tmp_path / "whole", spec)


def test_twice_stops_at_once(tmp_path, capsys):
    specs = specs_of(LONG)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path, jobs=1, progress=Presses(2, times=2))
    assert capsys.readouterr().err.count(STOPPING) == 1
    assert not run_folder(tmp_path, specs[1]).exists()


def test_in_its_last_epoch_a_run_is_finished_and_the_next_is_not_begun(tmp_path):
    specs = specs_of(3)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path, jobs=1, progress=Presses(3))
    assert read_record(run_folder(tmp_path, specs[0])).provenance.status == "complete"
    assert not run_folder(tmp_path, specs[1]).exists()


def test_where_signals_cannot_be_handled_runs_are_trained_all_the_same(tmp_path):
    specs, found = specs_of(1), []
    thread = threading.Thread(target=lambda: found.extend(run_all(specs, tmp_path, jobs=1)))
    thread.start()
    thread.join()
    assert [record.provenance.status for record in found] == ["complete"] * 2


def test_workers_end_their_epoch_and_leave_checkpoints(tmp_path, capsys):
    specs = specs_of(LONG)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path, jobs=2, progress=Presses(2))
    assert capsys.readouterr().err.count(STOPPING) == 1
    assert (run_folder(tmp_path, specs[0]) / NAME).exists()
