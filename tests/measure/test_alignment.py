"""Credit at a tap against the gradient before it, and what rows of a batch have in common, against NumPy."""

import numpy as np
import pytest
import torch
from builders import QUICK, make_facts, make_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import make_net, make_subject, seen_of

from creditscope.measure.alignment import batch_drift, common_share, measure_reading, permuted_cosine
from creditscope.measure.instruments import complete_snapshots
from creditscope.measure.numerics import UnitRows


class TestReading:
    @pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
    def test_against_numpy(self, scale):
        rng = np.random.default_rng(0)
        a, g = rng.normal(size=(2, 4, 30, 6))
        a[2, [3, 17]], g[1, 21] = 0, 0  # without credit, without gradient
        rows = ([UnitRows.of(torch.tensor(x * scale).float()) for x in taps] for taps in (a, g))
        found = measure_reading(*rows)["cos_input"]
        assert found[0].isnan()
        for tap in (1, 2, 3):
            rows = [i for i in range(30) if a[tap, i].any() and g[tap - 1, i].any()]
            assert len(rows) == (27 if tap == 2 else 30)
            one, other = a[tap, rows], g[tap - 1, rows]
            cos = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
            np.testing.assert_allclose(float(found[tap]), cos.mean(), rtol=1e-4)

    def test_states_of_different_sizes_have_none(self):
        rows = [UnitRows.of(torch.randn(10, d, generator=torch.Generator().manual_seed(d))) for d in (4, 6, 6)]
        found = measure_reading(rows, rows)["cos_input"]
        assert found.isnan().tolist() == [True, True, False]
        assert float(found[2]) == pytest.approx(1)


class TestCommon:
    def test_identical_rows_have_one_and_orthogonal_rows_nothing_in_common(self):
        row = torch.randn(7, generator=torch.Generator().manual_seed(0))
        assert float(common_share(UnitRows.of(row.expand(20, 7)))) == pytest.approx(1, abs=1e-6)
        assert float(common_share(UnitRows.of(torch.eye(12)))) == pytest.approx(0, abs=1e-6)
        assert float(common_share(UnitRows.of(torch.stack([row, -row])))) == pytest.approx(-1, abs=1e-6)

    @pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
    def test_against_numpy_at_any_scale(self, scale):
        x = np.random.default_rng(1).normal(size=(60, 9)) + 0.7
        squares = (x**2).sum()
        expected = ((x.sum(0) ** 2).sum() - squares) / (59 * squares)
        found = common_share(UnitRows.of(torch.tensor(x * scale).float()))
        np.testing.assert_allclose(float(found), expected, rtol=1e-5)

    def test_it_does_not_depend_on_the_number_of_rows_and_drift_does(self):
        x = torch.randn(4096, 16, generator=torch.Generator().manual_seed(2)) + 0.15
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

    def test_every_seed_has_an_order_of_its_own(self):
        net, x, y = make_net(depth=1, steps=5)
        subject = make_subject(net, x[:64], y[:64])
        seen, facts = seen_of(subject), make_facts(depth=1, class_token=None)
        taken = [make_snapshot(facts, taps=QUICK)]

        def permuted(seed: int) -> tuple:
            how = {"subjects": list, "tier": "standard", "ends": False, "last": False}
            return complete_snapshots(taken, seen, facts, net, seeds=[seed], **how)[0].taps.permuted_cos

        assert permuted(1) == permuted(1) != permuted(2)

    def test_one_usable_row_is_not_enough(self):
        one = torch.zeros(5, 3)
        one[2] = 1
        assert permuted_cosine(UnitRows.of(one), UnitRows.of(one), torch.rand(5)).isnan()
