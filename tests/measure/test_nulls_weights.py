"""Nulls of weights and of descent: stages against NumPy, turned gradients, and 64 rotations at once or one by one."""

import numpy as np
import pytest
import torch
from subjects import make_net, make_subject

from creditscope.measure import functional_net as twin_module
from creditscope.measure.descent import Slope, measure_descent, measure_stage_descent
from creditscope.measure.functional_net import make_twin
from creditscope.measure.nulls import turned_rows
from creditscope.measure.numerics import flat_rows
from creditscope.measure.weights import Products, stage_alignment, turned_weight
from creditscope.record.schema import DESCENT_TURNS
from creditscope.rng import generator

SHAPES = {"linear": (6, 4), "wide": (3, 9), "conv": (5, 2, 3, 3), "conv 1-d": (5, 2, 3), "bias": (7,),
          "added": (1, 5, 6)}  # fmt: skip
"""Of weights; the last is added to states, like positions, and has its features last."""


def gradients(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """One for every shape, of sizes far apart."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) * scale * 10.0 ** rng.uniform(-1, 0) for name, shape in SHAPES.items()}


def outputs_first(name: str, x: np.ndarray) -> np.ndarray:
    if name == "added":
        return x.reshape(-1, x.shape[-1]).T
    return x.reshape(len(x), -1)


def products(a: dict[str, np.ndarray], g: dict[str, np.ndarray]) -> list[Products]:
    return [Products.of(torch.from_numpy(a[name]), torch.from_numpy(g[name])) for name in g]


def haar(d: int, rng: np.random.Generator) -> np.ndarray:
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    return q * np.sign(np.diag(r))


def joined(tensors: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([outputs_first(name, x).ravel() for name, x in tensors.items()])


class TestStages:
    @pytest.mark.parametrize("scale", [1.0, 1e-100, 1e100])
    def test_the_cosine_is_that_of_all_gradients_as_one_vector(self, scale):
        a, g = gradients(0, scale), gradients(1)
        a = {name: x + 0.5 * scale * g[name] for name, x in a.items()}
        one, other = joined(a) / scale, joined(g)
        expected = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        np.testing.assert_allclose(float(stage_alignment(products(a, g))[0]), expected, rtol=1e-12)

    @pytest.mark.slow
    def test_the_null_is_that_of_rotations_of_each_weight(self):
        a, g = gradients(2), gradients(3)
        rng, other = np.random.default_rng(4), joined(g)
        found = []
        for _ in range(4000):
            turned = {n: haar(len(m), rng) @ m for n, m in ((n, outputs_first(n, x)) for n, x in a.items())}
            one = np.concatenate([m.ravel() for m in turned.values()])
            found.append(one @ other / np.linalg.norm(one) / np.linalg.norm(other))
        assert abs(np.mean(found)) < 4 * np.std(found) / 4000**0.5
        assert float(stage_alignment(products(a, g))[1]) == pytest.approx(np.std(found), rel=0.04)

    def test_exact_weights_do_not_turn(self):
        g = {name: torch.from_numpy(x) for name, x in gradients(5).items()}
        cos, sd = stage_alignment([Products.exact(x) for x in g.values()])
        assert (float(cos), float(sd)) == (pytest.approx(1), 0.0)

    def test_nothing_has_no_cosine(self):
        zero = torch.zeros(4, 3)
        assert all(torch.isnan(value) for value in stage_alignment([Products.of(zero, torch.ones(4, 3))]))


class TestTurnedWeights:
    @pytest.mark.parametrize("name", SHAPES)
    def test_only_the_output_side_turns(self, name):
        x = torch.from_numpy(gradients(6)[name])
        turned = turned_weight(x, torch.Generator().manual_seed(0))
        assert turned.shape == x.shape
        before, after = (outputs_first(name, t.numpy()) for t in (x, turned))
        np.testing.assert_allclose(after.T @ after, before.T @ before, atol=1e-12)
        assert not np.allclose(after, before)

    @pytest.mark.parametrize("name", SHAPES)
    def test_no_orientation_is_left(self, name):
        """Mean 0, and the second moment of a Haar rotation: E x xᵀ = ‖column‖²/out on every column."""
        x = torch.from_numpy(gradients(7)[name])
        stream = torch.Generator().manual_seed(1)
        many = np.stack([outputs_first(name, turned_weight(x, stream).numpy()) for _ in range(3000)])
        columns = np.linalg.norm(outputs_first(name, x.numpy()), axis=0)
        scaled = many / columns
        np.testing.assert_allclose(scaled.mean(0), 0, atol=4.5 / (many.shape[1] * 3000) ** 0.5)
        moment = np.einsum("tij,tkj->ik", scaled, scaled) / scaled.shape[0] / scaled.shape[2]
        np.testing.assert_allclose(moment, np.eye(len(moment)) / len(moment), atol=0.03)

    @pytest.mark.slow
    def test_their_spread_is_the_null_of_a_weight(self):
        a, g = gradients(8), gradients(9)
        stream = torch.Generator().manual_seed(2)
        for name in SHAPES:
            one, other = torch.from_numpy(a[name]), torch.from_numpy(g[name])
            inner = torch.stack([(turned_weight(one, stream) * other).sum() for _ in range(3000)])
            found = Products.of(one, other)
            sd = found.variance.sqrt() * found.a.largest * found.g.largest
            assert float(sd) == pytest.approx(float(inner.std()), rel=0.06)


@pytest.fixture(scope="module")
def twin():
    net, x, y = make_net(depth=2, width=12, steps=20)
    return make_twin(make_subject(net, x[:24], y[:24], "dfa"))


class TestDescent:
    def test_all_rotations_at_once_are_as_one_by_one(self, twin):
        found = measure_descent(twin)
        base, stream = twin.mean_of(twin.losses()).detach(), generator(twin.subject.seed, "rotations")
        for tap, (h, a, g) in enumerate(zip(twin.seen.states, twin.seen.credits, twin.seen.exact, strict=True)):
            slope = Slope(twin, base, h, twin.from_tap(tap), h.numel())
            turned = [turned_rows(flat_rows(a), stream).view_as(a) for _ in range(DESCENT_TURNS)]
            shares = torch.cat([slope.best([t]) for t in turned]) / slope.best([g])
            assert len(shares) == 64
            torch.testing.assert_close(found["descent_null"][tap], shares.mean(), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(found["descent_null_sd"][tap], shares.std(), rtol=1e-7, atol=1e-12)

    @pytest.mark.slow
    def test_how_many_go_together_does_not_matter(self, twin, monkeypatch):
        together = measure_descent(twin) | measure_stage_descent(twin)
        monkeypatch.setattr(twin_module, "TOGETHER", {"cpu": 1})
        for key, value in (measure_descent(twin) | measure_stage_descent(twin)).items():
            torch.testing.assert_close(value, together[key], rtol=1e-9, atol=1e-12)

    def test_exact_credit_is_not_turned(self):
        net, x, y = make_net(depth=1, width=8, steps=5)
        found = measure_descent(make_twin(make_subject(net, x[:24], y[:24], "bp")))
        assert found["descent"].tolist() == [1.0, 1.0]
        assert found["descent_null"].isnan().all()
