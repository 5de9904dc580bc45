"""What happens beside training: workers get ready while runs are checked, and who asked hears of each finished run."""

import time

import pytest
import torch

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import RunSpec, run_folder
from creditscope.train import runner
from creditscope.train.checkpoint import NAME
from creditscope.train.plan import plan_run
from creditscope.train.runner import run_all

TINY = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 32, "tier": "quick"}
LONG = 200_000


class EnoughError(Exception):
    """Raised by who hears of a finished run."""


def specs_of(*epochs: int, **others) -> list[RunSpec]:
    return [plan_run(epochs=count, snapshot_every=0, **{**TINY, **others}) for count in epochs]


def test_in_this_process_each_group_is_told_of_when_it_is_done(tmp_path):
    specs, told = specs_of(1, 2, 3), []
    records = run_all(specs, tmp_path, jobs=1, device="cpu", on_records=told.append)
    assert told == [[record] for record in records]


def test_a_finished_run_is_told_of_while_others_are_trained(tmp_path, launched):
    """And if who hears of it raises, the others end their epoch, leave checkpoints, and no process stays behind."""
    short, long = specs_of(1, LONG)

    def stop(records):
        assert [record.spec for record in records] == [short]
        raise EnoughError

    with pytest.raises(EnoughError):
        run_all([short, long], tmp_path, jobs=2, device="cpu", on_records=stop)
    assert (run_folder(tmp_path, long) / NAME).exists()
    assert [process.poll() is None for process in launched] == [False, False]


def test_those_that_end_while_all_are_stopping_are_told_of_too(tmp_path):
    short, long = specs_of(1, LONG)
    told = []
    with pytest.raises(UnfinishedError, match="1 of 2 runs are finished"):
        run_all([short, long], tmp_path, jobs=1, device="cpu", time_limit=1e-9, on_records=told.append)
    assert [[record.spec for record in records] for records in told] == [[short]]


def test_the_limit_holds_while_someone_is_told_of_a_run(tmp_path):
    """Who hears of it goes on until the run that is stopped meanwhile has left its checkpoint."""
    short, long = specs_of(1, LONG)
    checkpoint, waited = run_folder(tmp_path, long) / NAME, []

    def dawdle(records):
        for _ in range(600):
            waited.append(checkpoint.exists())
            if waited[-1]:
                break
            time.sleep(0.1)

    with pytest.raises(UnfinishedError, match="1 of 2 runs are finished"):
        run_all([short, long], tmp_path, jobs=2, device="cpu", time_limit=10, on_records=dawdle)
    assert waited[-1]


def test_workers_are_given_the_longest_first(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(runner, "run_in_workers", lambda groups, *others, **how: given.extend(groups))
    with pytest.raises(UnfinishedError):
        run_all(specs_of(1, 3, 2), tmp_path, jobs=2, device="cpu")
    assert [group.specs[0].epochs for group in given] == [3, 2, 1]


def test_what_is_refused_ends_the_workers_that_were_getting_ready(tmp_path, launched):
    with pytest.raises(CreditscopeError, match="batch"):
        run_all(specs_of(1, 2, batch=10**6), tmp_path / "records", jobs=2, device="cpu")
    assert [process.poll() is None for process in launched] == [False, False]
    assert list(tmp_path.iterdir()) == []


def test_without_time_no_worker_is_launched(tmp_path, launched):
    with pytest.raises(UnfinishedError, match="time limit of 0 s: 0 of 2 runs"):
        run_all(specs_of(1, 2), tmp_path, jobs=2, device="cpu", time_limit=0)
    assert launched == []


def test_one_that_cannot_wake_its_device_says_so_of_its_runs(tmp_path, monkeypatch):
    """It does not die before it could be asked anything."""
    monkeypatch.setattr(runner, "choose_device", lambda name: torch.device("cuda:99"))
    monkeypatch.setattr(runner, "choose_jobs", lambda device: 2)
    with pytest.raises(CreditscopeError, match=r"(?s)Run digits.* failed: .*CUDA"):
        run_all(specs_of(1, 2), tmp_path)
