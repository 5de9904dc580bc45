"""The published reading: credit at a tap against the gradient at the tap before."""

import numpy as np
import pytest
import torch

from creditscope.measure.alignment import measure_reading
from creditscope.measure.numerics import UnitRows


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_against_numpy(scale):
    rng = np.random.default_rng(0)
    a, g = rng.normal(size=(2, 4, 30, 6))
    a[2, [3, 17]], g[1, 21] = 0, 0  # without credit, without gradient
    found = measure_reading(*([UnitRows.of(torch.tensor(x * scale).float()) for x in taps] for taps in (a, g)))[
        "cos_input"
    ]
    assert found[0].isnan()
    for tap in (1, 2, 3):
        rows = [i for i in range(30) if a[tap, i].any() and g[tap - 1, i].any()]
        assert len(rows) == (27 if tap == 2 else 30)
        one, other = a[tap, rows], g[tap - 1, rows]
        cos = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
        np.testing.assert_allclose(float(found[tap]), cos.mean(), rtol=1e-4)


def test_states_of_different_sizes_have_none():
    sizes = (4, 6, 6)
    rows = [UnitRows.of(torch.randn(10, d, generator=torch.Generator().manual_seed(d))) for d in sizes]
    found = measure_reading(rows, rows)["cos_input"]
    assert found.isnan().tolist() == [True, True, False]
    assert float(found[2]) == pytest.approx(1)
