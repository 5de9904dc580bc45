"""Norms, cosines and angles from 1e-30 to 1e30, against float64 NumPy."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from creditscope.measure.alignment import RANK_ROWS, measure_alignment
from creditscope.measure.numerics import angles, median_where, quartiles_where, row_norms, unit_rows
from creditscope.measure.weights import Direction, gradient_sizes


def rows(seed: int, n: int = 7, d: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, d))


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e20, 1e30])
def test_norms_and_cosines_are_right_at_every_scale(scale):
    a, g = rows(0), rows(1)
    a32, g32 = (torch.tensor(x * scale).float() for x in (a, g))
    np.testing.assert_allclose(row_norms(a32).double(), np.linalg.norm(a, axis=1) * scale, rtol=1e-6)
    cosines = (a * g).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(g, axis=1)
    found = measure_alignment(a32, g32)
    np.testing.assert_allclose(float(found["cos"]), cosines.mean(), atol=1e-6)
    frobenius = (a * g).sum() / np.linalg.norm(a) / np.linalg.norm(g)
    np.testing.assert_allclose(float(found["cos_F"]), frobenius, atol=1e-6)


@given(st.integers(-37, 37), st.integers(-37, 37), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_cosine_does_not_depend_on_either_scale(first, second, seed):
    a, g = rows(seed), rows(seed + 1)
    plain, scaled = (
        measure_alignment(torch.tensor(a * 10.0**i).float(), torch.tensor(g * 10.0**j).float())
        for i, j in ((0, 0), (first, second))
    )
    for key in ("cos", "cos_F", "z", "angle", "rank_a", "rank_g"):
        torch.testing.assert_close(plain[key], scaled[key], rtol=1e-4, atol=1e-4)


def test_float64_rows_at_1e_200():
    _, norms = unit_rows(torch.full((1, 4), 1e-200, dtype=torch.float64))
    np.testing.assert_allclose(norms[0], 2e-200, rtol=1e-12)


def test_rows_of_each_kind_against_numpy():
    """Rows without credit, without gradient, and one whose size overflows: who is counted where, and what is left."""
    a, g = rows(0), rows(1) * 5
    a[0], g[1:3] = 0, 0
    both = [3, 4, 5, 6]
    ratios = np.linalg.norm(a[both], axis=1) / np.linalg.norm(g[both], axis=1)
    found = measure_alignment(torch.tensor(a), torch.tensor(g))
    assert [int(found[key]) for key in ("rows_used", "rows_no_credit", "rows_no_gradient")] == [4, 1, 2]
    np.testing.assert_allclose(float(found["ratio"]), np.median(ratios))
    np.testing.assert_allclose(float(found["cos_F"]), (a * g).sum() / np.linalg.norm(a) / np.linalg.norm(g))

    g32 = torch.tensor(g[both], dtype=torch.float32)
    plain = measure_alignment(torch.tensor(a[both], dtype=torch.float32), g32)
    g32 = torch.cat([g32, torch.full((1, 9), 3e38)])  # finite entries, but a norm of 9e38
    overflowed = measure_alignment(torch.tensor(a[[*both, 1]], dtype=torch.float32), g32)
    assert int(overflowed["rows_no_gradient"]) == 1
    over_all = {"cos_F": 0, "null_sd_F": 0, "rank_a": 0, "rows_no_gradient": 0}  # of these the row's credit is a part
    torch.testing.assert_close({**overflowed, **over_all}, {**plain, **over_all})
    torch.testing.assert_close(overflowed["cos_F"] / overflowed["null_sd_F"], plain["cos_F"] / plain["null_sd_F"])


def test_no_usable_row_gives_nan_not_a_score():
    found = measure_alignment(torch.ones(3, 4), torch.zeros(3, 4))
    assert torch.isnan(found["cos"])
    assert torch.isnan(found["z"])
    assert int(found["rows_used"]) == 0


def test_angles_near_zero_and_180_keep_their_digits():
    tiny = 1e-5
    u = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    v = torch.tensor([[np.cos(tiny), np.sin(tiny)], [-1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    np.testing.assert_allclose(angles(u, v, (u * v).sum(1)), [np.degrees(tiny), 180.0, 90.0], rtol=1e-9)
    w = torch.tensor([[-np.cos(tiny), np.sin(tiny)]], dtype=torch.float64)
    np.testing.assert_allclose(180 - angles(u[:1], w, (u[:1] * w).sum(1)), np.degrees(tiny), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_angle_does_not_depend_on_its_place_to_the_last_bit(dtype):
    """A CPU takes several rows at a time, and the rows that are left over one by one."""
    u, v = (unit_rows(torch.tensor(rows(seed, 36 * 5)).to(dtype).view(5, 36, -1))[0] for seed in (0, 1))
    together = angles(u, v, (u * v).sum(-1))
    for seed in range(5):
        assert torch.equal(together[seed], angles(u[seed], v[seed], (u[seed] * v[seed]).sum(-1)))


def test_underflow_and_zero_are_told_apart():
    gradients = [torch.full((3,), 1e-26), torch.zeros(3), torch.ones(3), torch.tensor([1e-23, 1e-21])]
    sizes = gradient_sizes([Direction.of(g) for g in gradients], rows=1)
    naive = [bool(g.square().sum().sqrt() == 0) for g in gradients]
    assert naive == [True, True, False, False]
    assert sizes["underflow"].tolist() == [True, False, False, False]
    assert sizes["all_zero"].tolist() == [False, True, False, False]
    np.testing.assert_allclose(sizes["norm"][0], 3**0.5 * 1e-26, rtol=1e-6)


@pytest.mark.parametrize("n", [40, 4])
def test_ranks_match_eigenvalues(n):
    a, g = rows(5, n=n, d=6) * np.array([5, 1, 1, 0.1, 0.1, 0.1]), rows(6, n=n, d=6)
    found = measure_alignment(torch.tensor(a), torch.tensor(g))
    for x, rank in ((a, found["rank_a"]), (g, found["rank_g"])):
        eigenvalues = np.linalg.eigvalsh(x.T @ x)
        np.testing.assert_allclose(float(rank), eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), rtol=1e-9)


@pytest.mark.parametrize("d", [6, 400])
def test_ranks_are_over_the_first_rows(d):
    """At most 256 of them, by whichever matrix is the smaller; what comes after has a rank of its own."""
    a = np.concatenate([rows(5, n=RANK_ROWS, d=d), 100 * np.outer(np.ones(50), rows(6, n=1, d=d)[0])])
    found, of_first = (measure_alignment(torch.tensor(x), torch.tensor(x))["rank_a"] for x in (a, a[:RANK_ROWS]))
    eigenvalues = np.linalg.eigvalsh(a[:RANK_ROWS].T @ a[:RANK_ROWS])
    np.testing.assert_allclose(float(of_first), eigenvalues.sum() ** 2 / (eigenvalues**2).sum(), rtol=1e-9)
    np.testing.assert_allclose(float(found), float(of_first), rtol=1e-9)


@pytest.mark.usefixtures("own_stream")
class TestQuartiles:
    def values(self) -> tuple[Tensor, Tensor]:
        values = torch.randn(4, 6, 11, dtype=torch.float64)
        values[1, 2] = math.nan
        values[torch.rand(values.shape) < 0.2] = math.nan
        keep = torch.rand(values.shape) < 0.7
        keep[0, 1] = False
        keep[2, 3] = torch.arange(11) == 5
        values[2, 3, 5] = 1.5
        return values, keep

    @pytest.mark.filterwarnings("ignore:All-NaN slice")
    def test_they_are_numpy_s(self):
        values, keep = self.values()
        found = quartiles_where(values, keep)
        expected = np.nanpercentile(torch.where(keep, values, math.nan).numpy(), [25, 50, 75], axis=-1)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert bool(found[:, 0, 1].isnan().all() and found[:, 1, 2].isnan().all())
        assert found[:, 2, 3].tolist() == [1.5] * 3
        np.testing.assert_array_equal(median_where(values, keep), found[1])

    def test_mapped_over_seeds_they_are_the_same(self):
        values, keep = self.values()
        found = torch.vmap(quartiles_where, out_dims=1)(values, keep)
        np.testing.assert_array_equal(found, quartiles_where(values, keep))
        shared = torch.vmap(quartiles_where, in_dims=(0, None), out_dims=1)(values, keep[0])
        np.testing.assert_array_equal(shared, quartiles_where(values, keep[0].expand_as(values)))

    @pytest.mark.parametrize("rows", range(1, 10))
    def test_any_number_of_rows(self, rows):
        values = torch.randn(5, rows)
        everything = torch.ones_like(values, dtype=torch.bool)
        np.testing.assert_allclose(
            quartiles_where(values, everything), np.percentile(values.numpy(), [25, 50, 75], axis=-1), rtol=1e-5
        )
