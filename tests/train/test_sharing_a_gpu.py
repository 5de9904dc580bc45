"""How many workers share a GPU, and which group each takes next."""

from collections import deque
from types import SimpleNamespace

import pytest
import torch

from creditscope.train import runner
from creditscope.train.engines import Group
from creditscope.train.plan import plan_run


def make_groups(count: int) -> list[Group]:
    return [Group((plan_run(task="digits", seed=seed),), "stacked") for seed in range(count)]


def test_most_workers_take_the_first_group_left_and_some_the_last():
    groups = make_groups(10)
    todo = deque(groups)
    takes = runner.both_ends(todo, 9)
    assert [groups.index(take()) for take in takes] == [0, 1, 2, 9, 3, 4, 5, 8, 6]
    assert list(todo) == [groups[7]]


def test_each_group_is_taken_once_and_then_there_is_none():
    groups = make_groups(5)
    todo = deque(groups)
    takes = runner.both_ends(todo, 4)
    taken = [takes[number % 4]() for number in range(5)]
    assert sorted(map(groups.index, taken)) == [0, 1, 2, 3, 4]
    for take in takes:
        with pytest.raises(IndexError):
            take()


@pytest.mark.parametrize(
    ("cores", "gibibytes", "expected"), [(16, 139, 16), (64, 139, 16), (8, 139, 8), (16, 24, 3), (16, 4, 1)]
)
def test_workers_by_cores_and_memory(monkeypatch, cores, gibibytes, expected):
    monkeypatch.setattr(runner, "available_cores", lambda: cores)
    properties = SimpleNamespace(total_memory=gibibytes * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert runner.choose_jobs(torch.device("cuda")) == expected
    assert runner.choose_jobs(torch.device("cpu")) == cores
