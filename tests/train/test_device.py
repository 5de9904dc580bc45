"""Which device, how it multiplies, and memory of a GPU that others use, too: waiting for it, as far as that helps."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from creditscope.errors import CreditscopeError
from creditscope.train import device, training
from creditscope.train.device import choose_device, float32_precision, wait_for_room
from creditscope.train.groups import RunGroup
from creditscope.train.plan import plan_run

GIB = 2**30
CUDA = torch.device("cuda")


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    """Seconds that were slept; the clock shows their sum."""
    slept: list[float] = []
    monkeypatch.setattr(device.time, "sleep", slept.append)
    monkeypatch.setattr(device.time, "monotonic", lambda: sum(slept))
    return slept


@pytest.mark.parametrize(
    ("free", "own", "peak", "stop", "room", "waits"),
    [
        pytest.param([5, 9, 16, 17], 3, 10, None, True, 3, id="as soon as others give it back"),
        pytest.param([95], 0, 20, None, False, 0, id="alone with nothing"),
        pytest.param([50], 45, 20, None, False, 0, id="alone with its own"),
        pytest.param([5], 0, 51, None, False, 0, id="more than the device could hold"),
        pytest.param([5] * 1000, 0, 10, 3, False, 3, id="asked to stop"),
        pytest.param([5] * 1000, 0, 10, None, False, None, id="not forever"),
    ],
)
def test_room_is_waited_for_as_long_as_that_helps(monkeypatch, waited, free, own, peak, stop, room, waits):
    shown = iter(free)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (next(shown) * GIB, 100 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: own * GIB)
    assert wait_for_room(CUDA, peak * GIB, lambda: len(waited) == stop) == room
    if waits is None:
        assert device.PATIENCE <= sum(waited) < device.PATIENCE + 2
    else:
        assert len(waited) == waits


@pytest.mark.parametrize(("held", "given_back"), [(1, 0), (8, 0), (9, 1)])
def test_what_a_snapshot_took_beyond_a_share_is_given_back(monkeypatch, held, given_back):
    calls = []
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: held * GIB)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append(held))
    device.release_surplus(CUDA)
    device.release_surplus(torch.device("cpu"))
    assert len(calls) == given_back


def test_memory_is_given_back_after_every_snapshot_not_after_training(tmp_path, monkeypatch):
    seen, snapshot = [], training.snapshot_run
    monkeypatch.setattr(training, "release_surplus", lambda device: seen.append(device.type))
    monkeypatch.setattr(training, "snapshot_run", lambda *given, **how: seen.append("taken") or snapshot(*given, **how))
    spec = plan_run(task="digits", net="resmlp", rule="bp", epochs=3, eval_rows=64, seed=1, tier="quick")
    list(training.train_group(RunGroup((spec,), "loop"), tmp_path, device=torch.device("cpu")))
    assert seen == ["taken", "cpu"] * 4


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
@pytest.mark.parametrize("of", [torch.backends.cuda.matmul, torch.backends.cudnn], ids=["products", "convolutions"])
def test_the_precision_is_put_back(of, before):
    found, of.allow_tf32 = of.allow_tf32, before
    try:
        for precision in ("float32", "float64", "tf32"):
            with float32_precision(precision, CUDA):
                assert of.allow_tf32 == (precision == "tf32")
            assert of.allow_tf32 == before
    finally:
        of.allow_tf32 = found


STATES = (
    "pass",
    "b.fp32_precision = 'ieee'",
    "b.fp32_precision = 'tf32'",
    "b.cudnn.conv.fp32_precision = 'ieee'",
    "b.cudnn.fp32_precision = 'tf32'; b.cuda.matmul.fp32_precision = 'ieee'",
    "b.cuda.matmul.fp32_precision = 'tf32'",
)
"""Which a user may have left torch in."""
UNDER = """
import torch
from creditscope.train.device import float32_precision
b = torch.backends
{state}
read = lambda: [part.fp32_precision.replace("none", "ieee") for part in (b.cuda.matmul, b.cudnn.conv, b.cudnn.rnn)]
def flags():
    try:
        with b.cudnn.flags(enabled=False):
            return True
    except RuntimeError:  # torch refuses some mixtures by itself
        return False
before, inside, fine = read(), [], flags()
for precision in ("float32", "tf32"):
    with float32_precision(precision, torch.device("cuda")):
        inside.append([precision, *read()])
        assert flags() or not fine
with float32_precision("float32", torch.device("cpu")):
    assert read() == before
assert (read(), flags()) == (before, fine), (before, read())
for precision, *found in inside:
    wanted = "tf32" if precision == "tf32" else "ieee"
    assert found[1:] == [wanted] * 2, inside
    assert (found[0] == "tf32") == (precision == "tf32"), inside
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.backends.cudnn, "conv"), reason="needs torch's newer names of precisions")
@pytest.mark.parametrize("state", STATES)
def test_whatever_was_set_before_by_torch_s_newer_names(state):
    subprocess.run([sys.executable, "-c", UNDER.format(state=state)], check=True)


@pytest.mark.parametrize(
    ("cores", "gibibytes", "expected"), [(16, 139, 16), (64, 139, 16), (8, 139, 8), (16, 24, 3), (16, 4, 1)]
)
def test_workers_by_cores_and_memory(monkeypatch, cores, gibibytes, expected):
    monkeypatch.setattr(device, "available_cores", lambda: cores)
    properties = SimpleNamespace(total_memory=gibibytes * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert device.choose_slots(torch.device("cuda")) == expected
    assert device.choose_slots(torch.device("cpu")) == cores
