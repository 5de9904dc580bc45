"""The rotation null: its closed form against sampled Haar rotations."""

import numpy as np
import pytest
import torch

from creditscope.measure.alignment import measure_alignment
from creditscope.measure.nulls import (
    cross_moment_square,
    cross_moment_square_from_grams,
    haar_rotation,
    rotation_null_sd,
)
from creditscope.measure.numerics import unit_rows


def correlated_rows(n: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Credit and gradient that share a common direction, as they do in training: the hard case for a null."""
    stream = torch.Generator().manual_seed(seed)
    common = torch.randn(2, d, generator=stream, dtype=torch.float64)
    g = torch.randn(n, d, generator=stream, dtype=torch.float64) + 2 * common[0]
    a = torch.randn(n, d, generator=stream, dtype=torch.float64) + 2 * common[1] + 0.3 * g
    return a, g


@pytest.mark.parametrize(("n", "d"), [(60, 24), (12, 40)])
def test_z_is_standard_normal_over_random_orientations(n, d):
    a, g = correlated_rows(n, d, seed=0)
    stream = torch.Generator().manual_seed(1)
    z = torch.stack([measure_alignment(a @ haar_rotation(d, stream), g)["z"] for _ in range(2000)])
    assert abs(float(z.std()) - 1) < 0.05
    assert abs(float(z.mean())) < 0.08
    share = float((z.abs() > 1.96).double().mean())
    assert 0.03 <= share <= 0.07


def test_a_per_row_t_test_would_raise_false_alarms():
    """Why the null shares one rotation: rows are not independent witnesses."""
    a, g = correlated_rows(60, 24, seed=0)
    stream = torch.Generator().manual_seed(2)
    alarms = 0
    for _ in range(200):
        unit_a, unit_g = unit_rows(a @ haar_rotation(24, stream))[0], unit_rows(g)[0]
        cosines = (unit_a * unit_g).sum(1)
        alarms += float(cosines.mean().abs() / (cosines.std() / 60**0.5)) > 1.96
    assert alarms / 200 > 0.3


def test_both_ways_to_the_null_agree_with_numpy():
    a, g = (unit_rows(x)[0] for x in correlated_rows(30, 20, seed=3))
    M = sum(np.outer(g[i], a[i]) for i in range(30)) / 30
    expected = np.linalg.norm(M) / 20**0.5
    by_matrix, by_gram = cross_moment_square(a, g), cross_moment_square_from_grams(a @ a.T, g @ g.T)
    for square in (by_matrix, by_gram):
        np.testing.assert_allclose(rotation_null_sd(square, torch.tensor(30), 20), expected, rtol=1e-12)
    wide = torch.cat([a, torch.zeros(30, 15)], 1).double(), torch.cat([g, torch.zeros(30, 15)], 1).double()
    narrow, broad = measure_alignment(a, g), measure_alignment(*wide)
    for key in ("cos", "rank_a", "rank_g"):
        torch.testing.assert_close(narrow[key], broad[key])
    torch.testing.assert_close(narrow["null_sd"] * 20**0.5, broad["null_sd"] * 35**0.5)


def test_haar_rotations_are_orthogonal_and_centred():
    stream = torch.Generator().manual_seed(0)
    many = torch.stack([haar_rotation(4, stream) for _ in range(4000)])
    torch.testing.assert_close(many[0] @ many[0].T, torch.eye(4, dtype=torch.float64))
    np.testing.assert_allclose(many.mean(0), 0, atol=0.04)
    # without the sign fix the diagonal of Q is biased
    np.testing.assert_allclose(many.diagonal(dim1=1, dim2=2).mean(0), 0, atol=0.04)
