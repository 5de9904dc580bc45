"""The rotation null: its closed forms against sampled Haar rotations, of flat states, tokens and images."""

from functools import cache

import numpy as np
import pytest
import torch
from scipy.stats import ortho_group
from turning import haar_frame

from creditscope.measure.alignment import measure_alignment
from creditscope.measure.nulls import (
    NORMAL_POINT,
    frames_by_products,
    haar_frames,
    places_and_features,
    rotation_quantile,
    turned_rows,
)
from creditscope.measure.numerics import unit_rows

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def correlated_rows(n: int, d: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Credit and gradient that share a common direction, as they do in training: the hard case for a null."""
    stream = torch.Generator().manual_seed(seed)
    common = torch.randn(2, d, generator=stream, dtype=torch.float64)
    g = torch.randn(n, d, generator=stream, dtype=torch.float64) + 2 * common[0]
    a = torch.randn(n, d, generator=stream, dtype=torch.float64) + 2 * common[1] + 0.3 * g
    return a, g


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(60, 24), (12, 40)])
def test_z_is_standard_normal_over_random_orientations(n, d):
    a, g = correlated_rows(n, d, seed=0)
    stream = torch.Generator().manual_seed(1)
    z = torch.stack([measure_alignment(a @ haar_frame(d, d, stream), g)["z"] for _ in range(2000)])
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
        unit_a, unit_g = unit_rows(a @ haar_frame(24, 24, stream))[0], unit_rows(g)[0]
        cosines = (unit_a * unit_g).sum(1)
        alarms += float(cosines.mean().abs() / (cosines.std() / 60**0.5)) > 1.96
    assert alarms / 200 > 0.3


def test_both_ways_to_the_null_agree_with_numpy():
    a, g = (unit_rows(x)[0] for x in correlated_rows(30, 20, seed=3))
    M = sum(np.outer(g[i], a[i]) for i in range(30)) / 30
    wide = (torch.cat([x, torch.zeros(30, 15, dtype=x.dtype)], 1) for x in (a, g))  # n×n matrices are the smaller ones
    narrow, broad = measure_alignment(a, g), measure_alignment(*wide)
    for key in ("cos", "rank_a", "rank_g"):
        torch.testing.assert_close(narrow[key], broad[key])
    for found, d in ((narrow, 20), (broad, 35)):
        np.testing.assert_allclose(found["null_sd"], np.linalg.norm(M) / d**0.5, rtol=1e-12)


def test_haar_frames_are_orthogonal_and_centred():
    stream = torch.Generator().manual_seed(0)
    many = torch.stack([haar_frame(4, 4, stream) for _ in range(4000)])
    torch.testing.assert_close(many[0] @ many[0].T, torch.eye(4, dtype=torch.float64))
    np.testing.assert_allclose(many.mean(0), 0, atol=0.04)
    # without the sign fix the diagonal of Q is biased
    np.testing.assert_allclose(many.diagonal(dim1=1, dim2=2).mean(0), 0, atol=0.04)


@pytest.mark.parametrize("d", [3, 8])
def test_the_quantile_of_few_features_is_that_of_other_rotations(d):
    moment = torch.from_numpy(np.random.default_rng(7).normal(size=(d, d)))
    turned = np.einsum("rij,ij->r", ortho_group(d, seed=1).rvs(20_000), moment)
    sd = moment.norm() / d**0.5
    assert float(rotation_quantile(moment, sd)) == pytest.approx(np.quantile(turned, 0.99), rel=0.04)
    assert np.std(turned) == pytest.approx(float(sd), rel=0.02)


SHAPES = [(24,), (3, 17), (16, 2, 2), (2, 2, 16)]
"""Flat, tokens, and images whose channels are many, or few beside their last axis."""


def feature_axis(shape: tuple[int, ...]) -> int:
    """Which axis of a row's state its features are."""
    return 0 if len(shape) == 3 else len(shape) - 1


def structured_rows(shape: tuple[int, ...], n: int = 12, *, alike: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Credit and gradient of uneven sizes that share directions over rows; `alike`: over places, too."""
    stream = torch.Generator().manual_seed(len(shape))

    def rows() -> torch.Tensor:
        common = torch.randn(shape, generator=stream, dtype=torch.float64)
        for axis in range(len(shape)) if alike else ():  # a part that only one axis tells apart
            others = [1] * len(shape)
            others[axis] = shape[axis]
            common = common + torch.randn(others, generator=stream, dtype=torch.float64)
        own = torch.randn(n, *shape, generator=stream, dtype=torch.float64) + common
        return own * torch.rand(n, *[1] * len(shape), generator=stream, dtype=torch.float64).exp() ** 2

    return rows(), rows()


@cache
def rotations(count: int, d: int) -> torch.Tensor:
    """Haar rotations by NumPy, (count, d, d)."""
    rng = np.random.default_rng(d)
    q, r = np.linalg.qr(rng.normal(size=(count, d, d)))
    return torch.from_numpy(q * np.sign(np.diagonal(r, axis1=1, axis2=2))[:, None])


def turned_along(x: torch.Tensor, axis: int | None, count: int) -> torch.Tensor:
    """x (n, *shape) turned as a whole, or along one axis of its shape, `count` times: (count, n, features)."""
    if axis is None:
        flat = x.flatten(1)
        return torch.einsum("rij,nj->rni", rotations(count, flat.shape[1]), flat)
    moved = x.movedim(axis + 1, -1)
    found = torch.einsum("rij,n...j->rn...i", rotations(count, moved.shape[-1]), moved)
    return found.movedim(-1, axis + 2).flatten(2)


def simulated(a: torch.Tensor, g: torch.Tensor, axis: int | None, count: int = 2000) -> tuple[torch.Tensor, ...]:
    """`cos` and `cos_F` of credit turned at random, by their definitions."""
    credit, gradient = turned_along(a, axis, count), g.flatten(1)
    products = (credit * gradient).sum(-1)
    cos = (products / (credit.norm(dim=-1) * gradient.norm(dim=-1))).mean(-1)
    return cos, products.sum(-1) / (credit.flatten(1).norm(dim=1) * gradient.norm())


@pytest.mark.slow
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_null_is_the_wider_of_simulated_rotations(shape, alike):
    a, g = structured_rows(shape, alike=alike)
    found = measure_alignment(a.flatten(1), g.flatten(1), shape)
    forms = [simulated(a, g, axis) for axis in (None, feature_axis(shape))]
    for key, series in (("null_sd", 0), ("null_sd_F", 1)):
        assert float(found[key]) == pytest.approx(max(float(form[series].std()) for form in forms), rel=0.06)
    shares = [float((cos > found["null_q99"]).double().mean()) for cos, _ in forms]
    assert 0.004 <= max(shares) <= 0.018
    assert float(found["z"]) == float(found["cos"] / found["null_sd"])


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(16, 4, 8), (8, 4, 16)], ids=str)
def test_feedback_that_places_share_stays_within_the_null(shape):
    """Channels of an image turned alike at every place, on gradients that places share."""
    stream = torch.Generator().manual_seed(0)
    g = torch.randn(20, *shape, generator=stream, dtype=torch.float64) * 0.2 + 1
    a = turned_along(g, feature_axis(shape), 300)
    found = measure_alignment(a, g.flatten(1).expand_as(a), shape)
    assert 0.9 < float(found["cos"].std() / found["null_sd"].square().mean().sqrt()) < 1.1
    assert float((found["cos"] > found["null_q99"]).double().mean()) <= 0.02
    narrow = measure_alignment(a, g.flatten(1).expand_as(a))
    assert float(found["cos"].std() / narrow["null_sd"].square().mean().sqrt()) > 3


@pytest.mark.slow
def test_the_last_axis_of_an_image_is_not_its_features():
    """Columns that differ in width, and not in channels: the null is that of few numbers alike at every place."""
    shape = (12, 3, 3)
    a, g = structured_rows(shape)
    wanted = max(float(simulated(a, g, axis)[0].std()) for axis in (None, 0))
    other = float(simulated(a, g, 2)[0].std())
    assert float(measure_alignment(a.flatten(1), g.flatten(1), shape)["null_sd"]) == pytest.approx(wanted, rel=0.06)
    assert abs(other / wanted - 1) > 0.2


def test_places_and_features():
    assert [places_and_features(shape) for shape in ((), (7,), (1, 7), (7, 1, 1))] == [(1, 1), (1, 7), (1, 7), (1, 7)]
    assert places_and_features((7, 1)) == (7, 1)  # one feature at every token: out of reach, and said so
    assert places_and_features((1, 4, 4)) == (16, 1)


@pytest.mark.slow
@pytest.mark.parametrize("d", [*range(2, 16), 16, 24])
def test_the_99_percent_point_against_rotations(d):
    """Rank one, the hard case: |z| is at most √d, and a normal law is far off in few dimensions."""
    a, g = correlated_rows(20, d, seed=d)
    share = float((simulated(a, g, None, count=10000)[0] > measure_alignment(a, g)["null_q99"]).double().mean())
    assert 0.005 <= share <= 0.016
    places = torch.ones(20, 3, 1, dtype=torch.float64)
    tokens = [(places * x.unsqueeze(1)).flatten(1) for x in (a, g)]  # three tokens that are told the same
    shared, alone = measure_alignment(*tokens, (3, d)), measure_alignment(a, g)
    torch.testing.assert_close(shared["null_q99"], alone["null_q99"])
    torch.testing.assert_close(shared["null_sd"], alone["null_sd"])


def test_one_feature_is_out_of_reach():
    x = torch.randn(30, 1, dtype=torch.float64)
    for rows, shape in ((x, (1,)), (x.expand(30, 4), (4, 1)), (x.expand(30, 4), (1, 2, 2))):
        found = measure_alignment(rows.clone(), rows.clone(), shape)
        assert float(found["cos"]) == pytest.approx(1)
        assert float(found["null_q99"]) >= 1 - 1e-9
    found = measure_alignment(torch.eye(2)[[0, 1, 0]], torch.eye(2)[[0, 1, 0]])  # two are within reach
    assert float(found["null_q99"]) < 1


def test_a_normal_law_where_many_features_turn():
    a, g = structured_rows((3, 17))
    found = measure_alignment(a.flatten(1), g.flatten(1), (3, 17))
    assert float(found["null_q99"]) == pytest.approx(NORMAL_POINT * float(found["null_sd"]))


@pytest.mark.parametrize("shape", [*SHAPES, (6,), (3, 6), (6, 2, 5)], ids=str)
def test_many_at_once_are_as_one_by_one(shape):
    pairs = [structured_rows(shape, n=12) for _ in range(2)] + [structured_rows(shape, n=12, alike=False)]
    a, g = (torch.stack([pair[i].flatten(1) for pair in pairs]) for i in (0, 1))
    each = [measure_alignment(x.clone(), y.clone(), shape) for x, y in zip(a, g, strict=True)]
    mapped = torch.vmap(lambda x, y: measure_alignment(x, y, shape))(a, g)
    for key, values in measure_alignment(a, g, shape).items():
        expected = torch.stack([one[key] for one in each])
        torch.testing.assert_close(values, expected)
        torch.testing.assert_close(mapped[key], expected)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("shape", [*SHAPES, (6, 2, 5)], ids=str)
def test_the_null_is_free_of_scale(shape, scale):
    a, g = (x.flatten(1).float() for x in structured_rows(shape))
    plain, scaled = measure_alignment(a, g, shape), measure_alignment(a * scale, g / scale, shape)
    for key in ("cos", "cos_F", "null_sd", "null_sd_F", "null_q99", "z"):
        torch.testing.assert_close(scaled[key], plain[key], rtol=2e-5, atol=0)


def check_frames(found: torch.Tensor, drawn: torch.Tensor) -> None:
    """They are the Q of NumPy's QR with R's diagonal above 0, and orthogonal."""
    q, r = np.linalg.qr(drawn.numpy())
    signs = np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :]
    np.testing.assert_allclose(found, q * signs, atol=1e-12)
    unit = np.eye(drawn.shape[-1]) + np.zeros((*drawn.shape[:-2], 1, 1))
    np.testing.assert_allclose(found.mT @ found, unit, atol=1e-14)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])
@pytest.mark.parametrize(("d", "n"), [(5, 5), (13, 7), (14, 7), (90, 7), (300, 1), (64, 64)])
def test_frames_are_the_q_of_a_qr_with_a_positive_diagonal(d, n, device, monkeypatch):
    """Those of a GPU without a QR, which would be done one after the other there."""
    drawn = torch.randn(3, d, n, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    check_frames(frames_by_products(drawn), drawn)
    if device == "cuda":
        monkeypatch.delattr(torch.linalg, "qr")
    check_frames(haar_frames(drawn.to(device)).cpu(), drawn)


@pytest.mark.parametrize("condition", [1e4, 1e9, 1e12])
def test_frames_by_products_are_right_however_near_what_was_drawn_is_to_singular(condition):
    """From a condition of 1e7 on, as one Gaussian in 100,000 of this size has it, squares have no Cholesky factor."""
    u, sizes, v = np.linalg.svd(np.random.default_rng(5).normal(size=(8, 64, 64)))
    sizes[:, -1] = sizes[:, 0] / condition
    drawn = torch.from_numpy((u * sizes[:, None]) @ v)
    check_frames(frames_by_products(drawn), drawn)


@pytest.mark.parametrize(("n", "d"), [(4, 9), (9, 4), (3, 5)])
def test_turned_rows_keep_their_geometry_and_have_no_orientation(n, d):
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=stream, dtype=torch.float64)
    y = torch.randn(n, d, generator=stream, dtype=torch.float64)
    assert turned_rows(x, stream, 0) == []
    assert [t.shape for t in turned_rows(x[:, :0], stream, 2)] == [(n, 0)] * 2
    turned = turned_rows(x, stream, 3000)
    for t in turned[:3]:
        torch.testing.assert_close(t @ t.mT, x @ x.mT)
    inner = torch.stack([(t * y).sum() for t in turned])
    assert abs(float(inner.mean())) < 4 * float(inner.std()) / 3000**0.5
    np.testing.assert_allclose(float(inner.std()), float((y.mT @ x).norm()) / d**0.5, rtol=0.06)
