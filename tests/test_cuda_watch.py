"""A model watched on a CUDA device: one transfer a snapshot, autocast and loss scale, labels that are none."""

import numpy as np
import pytest
import torch
from any_models import PATIENTS, labels
from test_any_model import assert_untouched, surroundings
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_map

import creditscope as cs
from creditscope.measure import snapshot as snapshot_module

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("own_stream"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),  # of torch_geometric
]


def net() -> nn.Sequential:
    blocks = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)) for _ in range(3)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *blocks, head).cuda()


def images() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(32, 3, 8, 8).cuda(), labels(32, classes=4).cuda()


def test_a_quick_snapshot_is_one_transfer(monkeypatch):
    model, (x, y) = net(), images()
    scope, seen, original = cs.watch(model), [], snapshot_module.to_host
    for _ in range(5):  # at the fifth the model is looked at again, which waits
        scope.snapshot(x, y, tier="quick")

    def allowed(groups: list, seeds: int | None = None) -> list:
        torch.cuda.set_sync_debug_mode("default")
        seen.append(seeds)
        found = original(groups, seeds)
        torch.cuda.set_sync_debug_mode("error")
        return found

    monkeypatch.setattr(snapshot_module, "to_host", allowed)
    torch.cuda.set_sync_debug_mode("error")
    try:
        scope.snapshot(x, y, tier="quick")
        scope.snapshot(x, y, tier="quick")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(seen) == 2


@pytest.mark.parametrize("name", PATIENTS)
def test_it_measures_what_the_cpu_does_and_touches_nothing(name):
    patient = PATIENTS[name]()
    patient.model.eval()
    taken = cs.watch(patient.model).snapshot(patient.inputs, patient.target, tier="quick")
    model = patient.model.cuda()
    inputs, target = tree_map(lambda t: t.cuda(), (patient.inputs, patient.target))
    before = surroundings(model)
    there = cs.watch(model).snapshot(inputs, target, tier="quick")
    assert_untouched(model, before)
    assert there.loss == pytest.approx(taken.loss, rel=1e-3)
    np.testing.assert_allclose(there.taps.g_norm, taken.taps.g_norm, rtol=0.02)


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float16, 1.0), (torch.float16, 1024.0), (torch.bfloat16, None)])
def test_gradients_under_autocast_are_those_of_a_training_step(dtype, scale):
    model, (x, y) = net(), images()
    scaler = None if scale is None else torch.amp.GradScaler("cuda", init_scale=scale)
    scope = cs.watch(model, loss_scale=scaler)
    with torch.autocast("cuda", dtype=dtype):
        taken = scope.snapshot(x, y)
        loss = functional.cross_entropy(model(x), y)
    found = torch.autograd.grad(loss * (scale or 1.0), list(model.parameters()))
    expected = [float(g.norm()) / (scale or 1.0) for g in found]
    sizes = [(own, known) for own, known in zip(taken.weights.exact_norm, expected, strict=True) if known > 1e-3]
    assert len(sizes) == len(expected) - 3  # the biases before a batch norm have rounding alone
    np.testing.assert_allclose(*zip(*sizes, strict=True), rtol=0.02)
    assert max(taken.taps.g_noise) > 10 * max(taken.taps.g_noise_float32)
    assert len(taken.weights.lost) == len(expected)


def test_a_label_too_large_is_refused_and_the_device_goes_on():
    model, (x, y) = net(), images()
    y[3] = 4
    with pytest.raises(cs.CreditscopeError, match="0 to 3"):
        cs.watch(model).snapshot(x, y, tier="quick")
    with torch.no_grad():
        assert float(model(x).sum()) == pytest.approx(float(model(x).sum()), rel=1e-3)
