"""How many workers share a GPU, which group each takes next, and what becomes of runs that find no memory on it."""

from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest
import torch
from stacking import ODD_RULES, SMALL

from creditscope.errors import CreditscopeError
from creditscope.train import pool
from creditscope.train.events import Ended
from creditscope.train.execute import run_all
from creditscope.train.groups import RunGroup
from creditscope.train.plan import plan_run
from creditscope.train.pool import Stopping

pytestmark = pytest.mark.slow

TINY = SMALL | {"epochs": 1, "noise": False}


def make_groups(count: int) -> list[RunGroup]:
    return [RunGroup((plan_run(task="digits", seed=seed),), "stacked") for seed in range(count)]


class TestTodo:
    def test_groups_are_taken_once_from_either_end_and_a_worker_without_goes(self):
        groups = make_groups(4)
        todo = pool.Todo(groups, 2)
        taken = [todo.take(last=last) for last in (False, True, False, True)]
        assert [groups.index(group) for group in taken if group] == [0, 3, 1, 2]
        assert not todo.alone
        assert todo.take(last=False) is None
        assert todo.alone

    def test_a_group_given_back_is_the_next_and_its_worker_gone_unless_it_is_the_last(self):
        todo = pool.Todo(make_groups(2), 2)
        first = todo.take(last=False)
        assert todo.give_back(first)
        assert todo.alone
        assert todo.take(last=False) is first
        assert not todo.give_back(first)
        assert todo.take(last=True) is not first
        assert todo.take(last=True) is None


@pytest.mark.parametrize(
    ("cores", "gibibytes", "expected"), [(16, 139, 16), (64, 139, 16), (8, 139, 8), (16, 24, 3), (16, 4, 1)]
)
def test_workers_by_cores_and_memory(monkeypatch, cores, gibibytes, expected):
    monkeypatch.setattr(pool, "available_cores", lambda: cores)
    properties = SimpleNamespace(total_memory=gibibytes * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert pool.choose_jobs(torch.device("cuda")) == expected
    assert pool.choose_jobs(torch.device("cpu")) == cores


class TestWorker:
    """The thread that feeds a process, with the process left out."""

    def worker(self):
        stopping, events, todo = Stopping(), SimpleQueue(), pool.Todo(make_groups(1), 1)
        return pool._Worker(Path(), torch.device("cpu"), todo, False, events, stopping), stopping, events

    def test_what_found_no_memory_is_not_tried_again_once_it_shall_stop(self, monkeypatch):
        worker, stopping, events = self.worker()
        tried = []

        def train(group):
            tried.append(group)
            stopping.given_up = True
            return group

        monkeypatch.setattr(worker, "_train", train)
        worker.run()
        assert (len(tried), events.get(), events.empty()) == (1, None, True)

    def test_a_process_that_was_being_launched_when_all_shall_stop_is_asked_to(self, monkeypatch):
        worker, stopping, events = self.worker()
        launch = pool._launch

        def launch_late(root, device):
            process = launch(root, device)
            stopping.given_up = True
            worker.interrupt()  # comes before the thread knows its process
            return process

        monkeypatch.setattr(pool, "_launch", launch_late)
        worker.run()
        assert worker.process is None
        assert [event for event in iter(events.get, None) if isinstance(event, Ended)] == []


def train_crowded(folder, *, times: int):
    rule = {"rule": f"{ODD_RULES}:Crowded", "rule_options": {"folder": str(folder), "times": times}}
    specs = [plan_run(**TINY, **rule, seed=seed) for seed in range(2)]
    return run_all(specs, folder / "records", jobs=2, device="cpu")


def test_a_run_that_finds_no_memory_is_left_to_the_other_workers(tmp_path):
    records = train_crowded(tmp_path, times=1)
    assert [record.provenance.status for record in records] == ["complete", "complete"]
    assert (tmp_path / "tried").read_text() == "x"


def test_a_run_that_finds_no_memory_even_alone_fails_and_says_so(tmp_path):
    with pytest.raises(CreditscopeError, match=r"1 more.*memory on cpu"):
        train_crowded(tmp_path, times=99)
