"""Which device, how it multiplies, and memory of a GPU that others use, too: waiting for it, as far as that helps."""

from collections.abc import Iterator

import pytest
import torch

from creditscope.errors import CreditscopeError
from creditscope.train import device
from creditscope.train.device import choose_device, matrix_products, wait_for_room

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


def test_devices(monkeypatch):
    for available, name in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
        assert choose_device("auto") == torch.device(name)
        assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda", 1)
    for name in ("tpu", "meta", ""):
        with pytest.raises(CreditscopeError, match=f"auto, cpu or cuda.*'{name}'"):
            choose_device(name)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CreditscopeError, match="torch finds none"):
        choose_device("cuda")


@pytest.mark.parametrize("before", [True, False])
def test_the_product_s_precision_is_put_back(before):
    products = torch.backends.cuda.matmul
    found, products.allow_tf32 = products.allow_tf32, before
    try:
        for precision in ("float32", "float64", "tf32"):
            with matrix_products(precision, CUDA):
                assert products.allow_tf32 == (precision == "tf32")
            assert products.allow_tf32 == before
    finally:
        products.allow_tf32 = found
