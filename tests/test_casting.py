"""Inside autocast gradients are measured as training sees them, and float32 beside them."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import CreditscopeError

pytestmark = pytest.mark.usefixtures("own_stream")


def small_gradients() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """A net whose gradients lie below what float16 resolves."""
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    with torch.no_grad():
        net[-1].weight.mul_(1e-4)
    return net, torch.randn(64, 16), torch.arange(64) % 4


def half():
    return torch.autocast("cpu", dtype=torch.float16)


def gradients_in_training(net, x, y, scale: float) -> dict[str, torch.Tensor]:
    """By a plain loop: forward under autocast, scaled loss, gradients unscaled."""
    with half():
        loss = functional.cross_entropy(net(x), y)
    found = torch.autograd.grad(loss * scale, list(net.parameters()))
    return {name: g / scale for (name, _), g in zip(net.named_parameters(), found, strict=True)}


@pytest.mark.parametrize("scale", [None, 2.0**16])
def test_weight_gradients_are_those_of_a_training_step(scale):
    net, x, y = small_gradients()
    expected = gradients_in_training(net, x, y, scale or 1.0)
    scope = cs.watch(net, loss_scale=scale)
    with half():
        taken = scope.snapshot(x, y)
        assert torch.is_autocast_enabled("cpu")
    names = [w.name for w in scope.records[0].facts.weights]
    np.testing.assert_allclose(taken.weights.exact_norm, [float(expected[n].norm()) for n in names], rtol=1e-3)


def test_underflow_is_seen_and_a_scale_heals_it():
    net, x, y = small_gradients()
    plain = cs.watch(net).snapshot(x, y)
    with half():
        cast = cs.watch(net).snapshot(x, y)
        scaled = cs.watch(net, loss_scale=torch.amp.GradScaler("cpu", init_scale=2.0**16)).snapshot(x, y)
    assert min(cast.taps.g_noise) > 0.1 > 1e-2 > max(scaled.taps.g_noise) > 1e-4
    assert cast.taps.g_noise_float32 == scaled.taps.g_noise_float32 == plain.taps.g_noise
    assert (plain.taps.g_noise_float32, plain.weights.lost) == ((), ())
    assert cast.weights.lost[0] > 0.05
    assert max(scaled.weights.lost) == 0
    exact = torch.autograd.grad(functional.cross_entropy(net(x), y), list(net.parameters()))
    within = gradients_in_training(net, x, y, 1.0)
    for lost, whole, under in zip(cast.weights.lost, exact, within.values(), strict=True):
        assert lost == pytest.approx(float(((under == 0) & (whole != 0)).double().mean()), abs=0.02)


def test_a_scale_that_overflows_is_seen():
    net, x, y = small_gradients()
    with torch.no_grad():
        net[-1].weight.mul_(1e4)
    with half():
        taken = cs.watch(net, loss_scale=2.0**30).snapshot(x, y)
    assert None in taken.weights.exact_norm


def test_rules_are_measured_without_it_and_that_is_said():
    net, x, y = small_gradients()
    plain = cs.watch(net, taps=["1", "3"], rule="dfa").snapshot(x, y)
    with half():
        cast = cs.watch(net, taps=["1", "3"], rule="dfa").snapshot(x, y)
    assert cast.taps == plain.taps
    assert any("without autocast float16" in note for note in cast.notes)


@pytest.mark.parametrize("scale", [0, -1.0, "large"])
def test_what_is_no_scale_is_refused(scale):
    net, x, y = small_gradients()
    with pytest.raises(CreditscopeError, match="loss_scale"):
        cs.watch(net, loss_scale=scale).snapshot(x, y)


def test_it_is_saved_and_read(tmp_path):
    net, x, y = small_gradients()
    scope = cs.watch(net)
    with half():
        taken = scope.snapshot(x, y)
    assert cs.load_records(scope.save(tmp_path / "mine"))[0].snapshots == (taken,)
