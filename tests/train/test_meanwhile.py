"""What happens beside training: workers get ready while runs are checked, and who asked hears of each finished run."""

import itertools
import time
from collections.abc import Callable
from contextlib import closing

import pytest
import torch

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RunSpec, run_folder
from creditscope.train import execute
from creditscope.train.checkpoint import NAME
from creditscope.train.events import Done, Ended, Epoch, Event, Planned, Recorded, from_line, to_line
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow

TINY = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 32, "tier": "quick"}
LONG = 200_000


class EnoughError(Exception):
    """Raised by who hears of a finished run."""


def specs_of(*epochs: int, **others) -> list[RunSpec]:
    return [plan_run(epochs=count, snapshot_every=0, **{**TINY, **others}) for count in epochs]


def hearing(hear: Callable[[Record], None]) -> list[Callable[[Event], None]]:
    """A reader that hears of finished runs."""
    return [lambda event: hear(event.record) if isinstance(event, Recorded) else None]


def test_in_this_process_each_group_is_told_of_when_it_is_done(tmp_path):
    specs, told = specs_of(1, 2, 3), []
    records = run_all(specs, tmp_path, jobs=1, device="cpu", readers=hearing(told.append))
    assert told == records


def test_events_come_in_the_order_of_what_happens(tmp_path):
    first, second = specs_of(1, 2)
    (record,) = run_all([first], tmp_path, jobs=1, device="cpu")
    told = list(execute.execute([first, second, second], tmp_path, jobs=1, device="cpu"))
    planned, one, two, ended, recorded = told
    assert planned == Planned((second,), (record,), tmp_path)
    assert [(event.run, event.done) for event in (one, two)] == [(second.digest(), 1), (second.digest(), 2)]
    assert ended == Ended(second.digest(), "complete")
    assert recorded.record.spec == second
    assert list(execute.execute([first], tmp_path, jobs=1, device="cpu")) == [Planned((), (record,), tmp_path)]


@pytest.mark.parametrize("event", [Epoch("ab", 2, 0.5), Ended("ab", "failed", 'said "no"\ntwice'), Done()])
def test_what_an_engine_tells_is_a_line(event):
    assert to_line(event).count("\n") == 1
    assert from_line(to_line(event)) == event


def test_who_reads_no_further_stops_the_run_it_stands_in(tmp_path):
    (spec,), threads = specs_of(LONG), torch.get_num_threads()
    with closing(execute.execute([spec], tmp_path, jobs=1, device="cpu")) as events:
        assert [type(event) for event in itertools.islice(events, 3)] == [Planned, Epoch, Epoch]
    assert not (run_folder(tmp_path, spec) / "lock").exists()
    assert torch.get_num_threads() == threads


def test_a_finished_run_is_told_of_while_others_are_trained(tmp_path, launched):
    """And if who hears of it raises, the others end their epoch, leave checkpoints, and no process stays behind."""
    short, long = specs_of(1, LONG)

    def stop(record):
        assert record.spec == short
        raise EnoughError

    with pytest.raises(EnoughError):
        run_all([short, long], tmp_path, jobs=2, device="cpu", readers=hearing(stop))
    assert (run_folder(tmp_path, long) / NAME).exists()
    assert [process.poll() is None for process in launched] == [False, False]


def test_those_that_end_while_all_are_stopping_are_told_of_too(tmp_path):
    short, long = specs_of(1, LONG)
    told = []
    with pytest.raises(UnfinishedError, match="1 of 2 runs are finished"):
        run_all([short, long], tmp_path, jobs=1, device="cpu", time_limit=1e-9, readers=hearing(told.append))
    assert [record.spec for record in told] == [short]


def test_the_limit_holds_while_someone_is_told_of_a_run(tmp_path):
    """Who hears of it goes on until the run that is stopped meanwhile has left its checkpoint."""
    short, long = specs_of(1, LONG)
    checkpoint, waited = run_folder(tmp_path, long) / NAME, []

    def dawdle(record):
        for _ in range(600):
            waited.append(checkpoint.exists())
            if waited[-1]:
                break
            time.sleep(0.1)

    with pytest.raises(UnfinishedError, match="1 of 2 runs are finished"):
        run_all([short, long], tmp_path, jobs=2, device="cpu", time_limit=10, readers=hearing(dawdle))
    assert waited[-1]


def test_workers_are_given_the_longest_first(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        execute, "train_in_workers", lambda groups, *_, **__: given.extend(groups) or (event for event in ())
    )
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
    monkeypatch.setattr(execute, "choose_device", lambda name: torch.device("cuda:99"))
    monkeypatch.setattr(execute, "choose_jobs", lambda device: 2)
    with pytest.raises(CreditscopeError, match=r"(?s)Run digits.* failed: .*CUDA"):
        run_all(specs_of(1, 2), tmp_path)
