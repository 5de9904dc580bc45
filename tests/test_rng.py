"""Hashed Gaussian numbers: how they are distributed, and that they depend on key, step, place and index alone."""

import numpy as np
import pytest
import torch
from scipy import stats

from creditscope.rng import generator, hashed_gaussians, salt_of
from creditscope.rules._pass import advanced, draw_counter, gaussian_probe


def drawn(key: int = 1, step: int = 0, place: int = 0, shape=(401, 251), dtype=torch.float64) -> torch.Tensor:
    return hashed_gaussians(salt_of(torch.tensor(key), torch.tensor(step), place), shape, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_they_are_standard_normal(dtype):
    x = drawn(dtype=dtype)
    assert x.shape == (401, 251)
    assert x.dtype == dtype
    assert stats.kstest(x.flatten().numpy(), "norm").pvalue > 1e-3
    n, flat = x.numel(), x.double().flatten()
    assert abs(float(flat.mean())) < 4 / n**0.5
    assert abs(float(flat.var()) - 1) < 4 * (2 / n) ** 0.5
    for lag in (1, 2, 251, n // 2, (n + 1) // 2):  # the two numbers of one word lie half of all apart
        assert abs(float((flat[:-lag] * flat[lag:]).mean())) < 4.5 / (n - lag) ** 0.5, lag


def test_key_step_and_place_make_other_numbers():
    base = drawn()
    assert torch.equal(base, drawn())
    torch.testing.assert_close(base.float(), drawn(dtype=torch.float32), rtol=1e-3, atol=1e-5)
    for other in (drawn(key=2), drawn(step=1), drawn(place=1), drawn(key=-(2**62))):
        assert abs(float((base * other).mean())) < 4.5 / base.numel() ** 0.5


def test_a_seed_in_a_stack_has_the_probes_it_has_alone():
    counters = torch.stack([draw_counter(generator(seed, "feedback")) for seed in (1, 2, 3)])
    stacked = torch.vmap(lambda c: gaussian_probe(c, (7, 5), torch.float32, 2))(counters)
    for own, counter in zip(stacked, counters, strict=True):
        assert torch.equal(own, gaussian_probe(counter, (7, 5), torch.float32, 2))
    assert len(np.unique(stacked)) == stacked.numel()


def test_a_counter_counts_steps_and_keeps_its_key():
    counter = draw_counter(generator(1, "feedback"))
    assert (advanced(advanced(counter)) - counter).tolist() == [0, 2]
    alike = drawn(int(counter[0]), 1, shape=(3,), dtype=torch.float32)
    assert torch.equal(gaussian_probe(advanced(counter), (3,), torch.float32), alike)
