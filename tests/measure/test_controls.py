"""What rows of a batch have in common, and what a row's credit is worth to another, against NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from creditscope.measure.controls import batch_drift, common_share, permuted_cosine
from creditscope.measure.numerics import UnitRows


def numpy_common(x: np.ndarray) -> float:
    squares = (x**2).sum()
    return ((x.sum(0) ** 2).sum() - squares) / ((len(x) - 1) * squares)


class TestCommon:
    def test_identical_rows_have_one_and_orthogonal_rows_nothing_in_common(self):
        row = torch.randn(7, generator=torch.Generator().manual_seed(0))
        assert float(common_share(UnitRows.of(row.expand(20, 7)))) == pytest.approx(1, abs=1e-6)
        assert float(common_share(UnitRows.of(torch.eye(12)))) == pytest.approx(0, abs=1e-6)
        opposite = torch.stack([row, -row])
        assert float(common_share(UnitRows.of(opposite))) == pytest.approx(-1, abs=1e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
    def test_against_numpy_at_any_scale(self, scale):
        stream = torch.Generator().manual_seed(1)
        x = torch.randn(60, 9, generator=stream, dtype=torch.float64) + 0.7
        found = common_share(UnitRows.of((x * scale).float()))
        np.testing.assert_allclose(float(found), numpy_common(x.numpy()), rtol=1e-5)

    def test_it_does_not_depend_on_the_number_of_rows_and_drift_does(self):
        stream = torch.Generator().manual_seed(2)
        x = torch.randn(4096, 16, generator=stream) + 0.15
        shares = [float(common_share(UnitRows.of(x[:n]))) for n in (512, 4096)]
        drifts = [float(batch_drift(UnitRows.of(x), batch=n)) for n in (32, 128, 512)]
        assert abs(shares[0] - shares[1]) < 0.01
        assert drifts[0] < drifts[1] - 0.1 < drifts[2] - 0.2

    def test_unusable_rows_take_no_part(self):
        x = torch.randn(30, 5, generator=torch.Generator().manual_seed(3))
        some = torch.cat([x, torch.zeros(4, 5), torch.full((2, 5), torch.nan)])
        torch.testing.assert_close(common_share(UnitRows.of(some)), common_share(UnitRows.of(x)))
        only = torch.arange(30) < 10
        torch.testing.assert_close(common_share(UnitRows.of(x, only)), common_share(UnitRows.of(x[:10])))
        assert common_share(UnitRows.of(x[:1])).isnan()

    def test_drift_against_numpy(self):
        x = np.random.default_rng(0).normal(size=(400, 6)) + 0.1
        means = x[:384].reshape(3, 128, 6).mean(1)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        expected = np.mean([means[i] @ means[j] for i in range(3) for j in range(i)])
        np.testing.assert_allclose(float(batch_drift(UnitRows.of(torch.tensor(x)))), expected)
        assert batch_drift(UnitRows.of(torch.tensor(x[:255]))).isnan()


class TestPermuted:
    def test_against_numpy(self):
        rng = np.random.default_rng(0)
        a, g = rng.normal(size=(2, 40, 6))
        a[[3, 17]], g[21] = 0, 0  # without credit, without gradient
        keys = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        usable = [i for i in np.argsort(keys.numpy()) if i not in (3, 17, 21)]
        pairs = list(zip(usable, np.roll(usable, -1), strict=True))
        cos = [g[i] @ a[j] / np.linalg.norm(g[i]) / np.linalg.norm(a[j]) for i, j in pairs]
        found = permuted_cosine(UnitRows.of(torch.tensor(a)), UnitRows.of(torch.tensor(g)), keys)
        np.testing.assert_allclose(float(found), np.mean(cos))

    @settings(max_examples=30, deadline=None)
    @given(st.integers(2, 30), st.integers(0, 1000))
    def test_of_one_hot_rows_is_zero_because_none_is_its_own(self, rows, seed):
        x = UnitRows.of(torch.eye(rows))
        keys = torch.rand(rows, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert float(permuted_cosine(x, x, keys)) == 0

    def test_one_usable_row_is_not_enough(self):
        one = torch.zeros(5, 3)
        one[2] = 1
        assert permuted_cosine(UnitRows.of(one), UnitRows.of(one), torch.rand(5)).isnan()
