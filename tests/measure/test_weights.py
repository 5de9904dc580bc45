"""Gradients of weights: cosines of stages and their nulls against NumPy, and gradients turned on their output side."""

import numpy as np
import pytest
import torch
from torch import nn
from turning import haar_frame

import creditscope as cs
from creditscope.measure import nulls
from creditscope.measure.weights import (
    Products,
    find_rounding,
    may_be_rounding,
    stage_alignment,
    turned_weights,
    weight_angle,
)
from creditscope.nets.vit import ViT

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
        (found,) = turned_weights({"w": x}, torch.Generator().manual_seed(0), 1)
        turned = found["w"]
        assert turned.shape == x.shape
        before, after = (outputs_first(name, t.numpy()) for t in (x, turned))
        np.testing.assert_allclose(after.T @ after, before.T @ before, atol=1e-12)
        assert not np.allclose(after, before)

    @pytest.mark.parametrize("name", SHAPES)
    def test_no_orientation_is_left(self, name):
        """Mean 0, and the second moment of a Haar rotation: E x xᵀ = ‖column‖²/out on every column."""
        x = torch.from_numpy(gradients(7)[name])
        stream = torch.Generator().manual_seed(1)
        many = np.stack([outputs_first(name, one["w"].numpy()) for one in turned_weights({"w": x}, stream, 3000)])
        columns = np.linalg.norm(outputs_first(name, x.numpy()), axis=0)
        scaled = many / columns
        np.testing.assert_allclose(scaled.mean(0), 0, atol=4.5 / (many.shape[1] * 3000) ** 0.5)
        moment = np.einsum("tij,tkj->ik", scaled, scaled) / scaled.shape[0] / scaled.shape[2]
        np.testing.assert_allclose(moment, np.eye(len(moment)) / len(moment), atol=0.03)

    def test_nothing_is_made_for_no_turn(self, monkeypatch):
        monkeypatch.delattr(torch.linalg, "qr")
        assert turned_weights({"w": torch.ones(5, 1)}, torch.Generator(), 0) == []

    def test_many_in_one_go_are_as_one_after_the_other(self, monkeypatch):
        """The same draws, whatever goes together; weights of all shapes turn apart."""
        weights = {name: torch.from_numpy(x) for name, x in gradients(8).items()}
        stream = torch.Generator().manual_seed(2)
        each = [turned_weights(weights, stream, 1)[0] for _ in range(5)]
        for entries in (1, 2 * sum(x.numel() for x in weights.values()), 2**24):
            monkeypatch.setattr(nulls, "ENTRIES", entries)
            many = turned_weights(weights, torch.Generator().manual_seed(2), 5)
            for one, expected in zip(many, each, strict=True):
                assert one.keys() == expected.keys()
                for name in one:
                    torch.testing.assert_close(one[name], expected[name], rtol=1e-12, atol=1e-13)


class TestOneWeight:
    @pytest.mark.parametrize("shape", [(12, 5), (5, 12), (8, 3, 2, 2), (30,)])
    def test_z_is_the_cosine_in_sd_of_simulated_rotations(self, shape):
        stream = torch.Generator().manual_seed(0)
        a = torch.randn(shape, generator=stream, dtype=torch.float64) + 0.5
        g = torch.randn(shape, generator=stream, dtype=torch.float64) + 0.3 * a
        A, G = (x.reshape(shape[0], -1).numpy() for x in (a, g))
        size = np.linalg.norm(A) * np.linalg.norm(G)
        turned = [float((haar_frame(shape[0], shape[0], stream).numpy() @ A * G).sum()) / size for _ in range(4000)]
        assert abs(np.mean(turned)) < 4 * np.std(turned) / 4000**0.5
        np.testing.assert_allclose(float(Products.of(a, g).z), (A * G).sum() / size / np.std(turned), rtol=0.06)

    def test_z_of_a_bias_is_its_cosine_times_the_root_of_its_length(self):
        a, g = torch.randn(2, 50, generator=torch.Generator().manual_seed(0))
        expected = float(a @ g / a.norm() / g.norm() * 50**0.5)
        for scale in (1e-30, 1.0, 1e30):
            np.testing.assert_allclose(float(Products.of(a * scale, g / scale).z), expected, rtol=1e-5)

    def test_what_is_added_to_tokens_is_turned_over_features(self):
        a, g = torch.randn(2, 1, 7, 5, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(Products.of(a, g).z, Products.of(a[0].mT, g[0].mT).z)

    def test_angle_of_weight_and_feedback(self):
        w = torch.randn(64, 32, generator=torch.Generator().manual_seed(0))
        other = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
        assert float(weight_angle(w, 3 * w)) == pytest.approx(0, abs=0.05)
        assert float(weight_angle(w, -w)) == pytest.approx(180, abs=0.05)
        assert float(weight_angle(w, other)) == pytest.approx(90, abs=4)
        expected = np.degrees(np.arccos(float((w * (w + other)).sum() / w.norm() / (w + other).norm())))
        assert float(weight_angle(w * 1e-30, (w + other) * 1e30)) == pytest.approx(expected, rel=1e-4)
        assert weight_angle(w, torch.zeros_like(w)).isnan()


class TestRounding:
    """The bias of a ViT's keys has no gradient: softmax does not see what all keys share."""

    def snapshot(self, rule: str, **options):
        torch.manual_seed(0)
        net, x, y = ViT((3, 8, 8), 4, depth=2, width=16, heads=2), torch.randn(64, 3, 8, 8), torch.arange(64) % 4
        scope = cs.watch(net, taps="blocks.*", stem="embed", rule=rule)
        found = scope.snapshot(x, y, **options)
        return {w.name: i for i, w in enumerate(scope.records[0].facts.weights)}, found.weights

    @pytest.mark.parametrize("rule", ["dfa", "bp"])
    def test_it_has_neither_cosine_nor_z_and_others_keep_theirs(self, rule):
        places, found = self.snapshot(rule)
        _, plain = self.snapshot(rule, noise=False)
        keys = {i for name, i in places.items() if name.endswith("k.bias")}
        assert len(keys) == 2
        assert {i for i, cos in enumerate(found.cos) if cos is None} == keys
        assert all(found.exact_norm[i] > 0 and not found.exact_all_zero[i] for i in keys)
        assert not any(found.z[i] for i in keys)
        others = set(places.values()) - keys
        assert [(found.cos[i], found.z[i], found.norm[i]) for i in others] == [
            (plain.cos[i], plain.z[i], plain.norm[i]) for i in others
        ]

    def test_by_float64(self):
        g64 = {"small": torch.tensor([1e-9, 2e-9], dtype=torch.float64), "zero": torch.zeros(2, dtype=torch.float64)}
        exact = {"large": torch.ones(2), "small": g64["small"].float(), "zero": torch.tensor([3e-18, -1e-18])}
        assert find_rounding(exact, {}) is None
        assert find_rounding(exact, g64).tolist() == [False, False, True]

    def test_a_gradient_that_vanishes_and_is_resolved_keeps_its_cosine(self):
        """Small beside the others', and not rounding."""
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
        with torch.no_grad():
            net[1].weight *= 1e-6
        scope = cs.watch(net, taps=["0", "1"], rule="dfa")
        found = scope.snapshot(torch.randn(32, 8), torch.arange(32) % 4).weights
        assert found.exact_norm[0] < 1e-4 * max(found.exact_norm)
        assert all(cos is not None for cos in found.cos)

    def test_what_may_be_is_each_seeds_own(self):
        """Whichever seeds share a stack: one whose gradient is not small is never asked, however far it is off."""
        large, small = torch.ones(2, 3), torch.tensor([[1e-3] * 3, [1e-9] * 3])
        assert may_be_rounding([large, small], seeds=2).tolist() == [[False, False], [False, True]]
        off = {"small": torch.zeros(3, dtype=torch.float64)}
        found = [find_rounding({"large": large[i], "small": small[i]}, off).tolist() for i in (0, 1)]
        assert found == [[False, False], [False, True]]
