"""Memory of a GPU that others use, too: waiting for it, as far as that helps."""

from collections.abc import Iterator

import pytest
import torch

from creditscope.train import device
from creditscope.train.device import wait_for_room

GIB = 2**30
CUDA = torch.device("cuda")


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    """Seconds that were slept; the clock shows their sum."""
    slept: list[float] = []
    monkeypatch.setattr(device.time, "sleep", slept.append)
    monkeypatch.setattr(device.time, "monotonic", lambda: sum(slept))
    return slept


def show(monkeypatch, free: Iterator[int], *, own: int = 0, total: int = 100) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (next(free) * GIB, total * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: own * GIB)


def test_there_is_room_as_soon_as_others_give_it_back(monkeypatch, waited):
    show(monkeypatch, iter([5, 9, 16, 17]), own=3)
    assert wait_for_room(CUDA, 10 * GIB, lambda: False)
    assert len(waited) == 3


@pytest.mark.parametrize(("free", "own"), [(95, 0), (50, 45)], ids=["with nothing", "with its own"])
def test_who_is_alone_does_not_wait(monkeypatch, waited, free, own):
    show(monkeypatch, iter([free]), own=own)
    assert not wait_for_room(CUDA, 20 * GIB, lambda: False)
    assert not waited


def test_what_no_device_of_its_size_could_hold_is_not_waited_for(monkeypatch, waited):
    show(monkeypatch, iter([5]))
    assert not wait_for_room(CUDA, 51 * GIB, lambda: False)
    assert not waited


def test_nobody_waits_forever(monkeypatch, waited):
    show(monkeypatch, iter([5] * 1000))
    assert not wait_for_room(CUDA, 10 * GIB, lambda: False)
    assert device.PATIENCE <= sum(waited) < device.PATIENCE + 2


def test_who_is_asked_to_stop_does_not_wait(monkeypatch, waited):
    show(monkeypatch, iter([5] * 1000))
    assert not wait_for_room(CUDA, 10 * GIB, lambda: len(waited) == 3)
    assert len(waited) == 3


def test_nothing_is_asked_of_a_cpu():
    cpu = torch.device("cpu")
    device.forget_peak(cpu)
    assert device.peak_bytes(cpu) == 0
    assert not wait_for_room(cpu, 0, lambda: False)
    device.release_memory(cpu)
