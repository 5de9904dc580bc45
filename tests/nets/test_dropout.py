"""Dropout by hash: its rate, its repeatability, and that nothing is drawn."""

import numpy as np
import pytest
import torch

from creditscope.nets._layers import HashDropout, seed_dropout, set_dropout_step


def mask(p=0.3, layer=0, seed=1, step=0, shape=(400, 250)) -> torch.Tensor:
    drop = HashDropout(p, layer)
    seed_dropout(drop, seed)
    set_dropout_step(drop, step)
    return drop(torch.ones(shape)) != 0


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_rate_and_scale(p):
    drop = HashDropout(p, 0)
    out = drop(torch.ones(1000, 300))
    assert float((out == 0).float().mean()) == pytest.approx(p, abs=4 * (p * (1 - p) / 3e5) ** 0.5)
    assert float(out.max()) == pytest.approx(1 / (1 - p))


def test_masks_repeat_and_differ_by_seed_step_and_layer():
    base = mask()
    assert torch.equal(base, mask())
    for other in (mask(seed=2), mask(step=1), mask(layer=1)):
        both = (base & other).float().mean()
        assert float(both) == pytest.approx(0.7**2, abs=0.01)  # independent of each other


def test_neighbouring_entries_are_independent():
    kept = mask(shape=(1000, 1000)).numpy().astype(float)
    for shifted in (np.roll(kept, 1, axis=0), np.roll(kept, 1, axis=1), np.roll(kept, 7)):
        assert abs(np.corrcoef(kept.ravel(), shifted.ravel())[0, 1]) < 0.005


def test_eval_mode_and_zero_share_change_nothing_and_no_stream_is_touched():
    h = torch.randn(5, 5)
    assert HashDropout(0.5, 0).eval()(h) is h
    assert HashDropout(0.0, 0)(h) is h
    stream = torch.get_rng_state()
    HashDropout(0.5, 0)(h)
    assert torch.equal(stream, torch.get_rng_state())


def test_a_seed_in_a_stack_has_the_masks_it_has_alone():
    drop, h, keys = HashDropout(0.4, 3), torch.randn(3, 6, 7), torch.tensor([11, 22, 33])

    def one(key, x):
        return torch.func.functional_call(drop, {"key": key}, (x,))

    stacked = torch.vmap(one)(keys, h)
    assert all(torch.equal(stacked[i], one(keys[i], h[i])) for i in range(3))


def test_gradient_goes_through_the_same_mask():
    drop, h = HashDropout(0.5, 0), torch.randn(20, 20, requires_grad=True)
    (g,) = torch.autograd.grad(drop(h).sum(), h)
    assert torch.equal(g != 0, drop(torch.ones(20, 20)) != 0)
