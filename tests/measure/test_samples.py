"""Samples of states: right where squares overflow or vanish, and what is not finite is seen anywhere."""

import numpy as np
import pytest
import torch

from creditscope.measure.samples import FEATURES, ROWS, Sample, few_entries, measure_samples


def measured(*states: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    return measure_samples([Sample.of(state, by_rows=True) for state in states])


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
def test_sizes_are_right_at_any_scale(size):
    x = torch.randn(40, 50, generator=torch.Generator().manual_seed(0))
    found, plain = measured(x * size, x)
    assert float(found["rms"]) == pytest.approx(size * float(x.square().mean().sqrt()), rel=1e-4)
    for name in ("dispersion", "rank", "finite"):
        assert float(found[name]) == pytest.approx(float(plain[name]), rel=1e-4)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_one_entry_outside_the_sample_that_is_not_finite_is_seen(bad):
    x = torch.ones(4 * ROWS, 4 * FEATURES)
    x[1, 1] = bad
    assert few_entries(x).isfinite().all()
    assert float(measured(x)[0]["finite"]) < 1


def test_a_step_through_tokens_meets_every_feature():
    """64 tokens of 64 features: an even step would stay in a few columns."""
    place = torch.arange(64).expand(ROWS, 64, 64).float()
    assert len(few_entries(place).unique()) == 64


def test_rows_alike_differ_by_nothing():
    row = torch.randn(30, generator=torch.Generator().manual_seed(0))
    (found,) = measured(row.expand(20, 30).clone())
    assert float(found["dispersion"]) == 0


def test_many_at_once_are_each_alone():
    drawn = torch.Generator().manual_seed(0)
    states = [
        torch.randn(10, 4, generator=drawn),
        torch.randn(10, 5, 3, generator=drawn),
        torch.randn(10, 4, generator=drawn),
    ]
    for state, found in zip(states, measured(*states), strict=True):
        (alone,) = measured(state)
        assert found.keys() == alone.keys()
        for name, value in alone.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)
    tokens = states[1].double().numpy()
    expected = np.sqrt(tokens.var(1).mean() / (tokens**2).mean())
    assert float(measured(states[1])[0]["token_dispersion"]) == pytest.approx(expected, rel=1e-5)
