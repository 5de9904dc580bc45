"""Controls: common directions, permuted and fresh credit, the weights' null and the angle of their feedback."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from subjects import make_net, make_subject, seen_of

from creditscope.measure import functional_net
from creditscope.measure.controls import batch_drift, common_share, permuted_cosine
from creditscope.measure.fresh_feedback import _redrawn_weights, fresh_cosines, measure_fresh
from creditscope.measure.instruments import Needs
from creditscope.measure.nulls import haar_frame, turned_rows
from creditscope.measure.numerics import UnitRows
from creditscope.measure.observation import gather_facts
from creditscope.measure.snapshot import take_snapshots
from creditscope.measure.weights import Products, weight_angle
from creditscope.rng import generator
from creditscope.rules import apply_rule


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


@pytest.fixture(scope="module")
def learnt():
    return make_net(depth=2)


def gradients_of(subject, seen):
    needs = Needs(seen, gather(subject), keys=torch.rand(len(subject.target)), feedback={}, subject=subject)
    return needs.gradient_rows


def gather(subject):
    """Facts of a subject whose net is converted already."""
    application = apply_rule(
        subject.applied.rule, subject.net, subject.taps, subject.inputs[:8], generator(0, "feedback")
    )
    return gather_facts(subject.applied.rule, application, stem_tap=True)


RULES = [("dfa", {}), ("block_fa", {}), ("fa", {}), ("fa", {"head": "exact"}), ("fa", {"scale": "match-init"})]


class TestFresh:
    @pytest.mark.parametrize(("rule", "options"), RULES)
    def test_the_same_draw_gives_the_same_cosines(self, learnt, rule, options):
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x, y, rule, **options)
        seen = seen_of(subject)
        own = take_snapshots(seen, gather(subject), epoch=0)[0].taps.cos
        again = fresh_cosines(subject, seen, gradients_of(subject, seen), [generator(0, "feedback")])
        np.testing.assert_allclose(again[0], own, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("rule", ["dfa", "fa"])
    def test_fresh_feedback_knows_nothing(self, learnt, rule):
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x, y, rule)
        seen = seen_of(subject)
        found = measure_fresh(subject, seen, gradients_of(subject, seen))
        assert int(found["fresh_draws"]) == 20
        assert (found["fresh_sd"] > 0).all()
        assert (found["fresh_cos"].abs() < 4 * found["fresh_sd"] / 20**0.5).all()

    def test_mean_and_sd_are_over_the_draws(self, learnt):
        """DFA's credit e Bᵀ with B drawn here from the named streams; ddof 1."""
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x, y, "dfa")
        seen = seen_of(subject)
        cosines = []
        for draw in range(20):
            stream, drawn = generator(subject.seed, "fresh feedback", draw), []
            for h, g in zip(seen.states, seen.exact, strict=True):
                a = (seen.errors.error @ (torch.randn(h.shape[-1], 4, generator=stream) / 2).T).double().numpy()
                g = g.double().numpy()
                drawn.append(np.mean((a * g).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(g, axis=1)))
            cosines.append(drawn)
        found = measure_fresh(subject, seen, gradients_of(subject, seen))
        np.testing.assert_allclose(found["fresh_cos"], np.mean(cosines, axis=0), atol=1e-5)
        np.testing.assert_allclose(found["fresh_sd"], np.std(cosines, axis=0, ddof=1), rtol=1e-3)

    @pytest.mark.parametrize(("rule", "options"), RULES)
    def test_draws_at_once_and_one_by_one_agree(self, learnt, rule, options, monkeypatch):
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x[:64], y[:64], rule, **options)
        seen = seen_of(subject)
        gradients = gradients_of(subject, seen)
        found = []
        for entries in (1, 2**24):
            monkeypatch.setitem(functional_net.TOGETHER, "cpu", entries)
            streams = [generator(0, "fresh feedback", draw) for draw in range(5)]
            found.append(fresh_cosines(subject, seen, gradients, streams))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)

    def test_exact_credit_stays_exact_and_a_rule_without_feedback_has_none(self, learnt):
        net, x, y = learnt
        subject = make_subject(net, x, y, "block_fa")
        seen = seen_of(subject)
        found = measure_fresh(subject, seen, gradients_of(subject, seen))
        assert float(found["fresh_cos"][-1]) == pytest.approx(1, abs=1e-6)
        plain = make_subject(net, x, y, "bp")
        assert measure_fresh(plain, seen, gradients_of(subject, seen)) == {}

    def test_matrices_keep_their_size_when_weights_have_grown(self, learnt):
        """`match-init` feedback is scaled by the weights at the start, not by those of now."""
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x[:64], y[:64], "fa", scale="match-init")
        grown = copy.deepcopy(subject.tensors)
        grown["blocks.0.w1.weight"] *= 50
        (drawn,) = _redrawn_weights(replace(subject, tensors=grown), [generator(1, "fresh")])
        for name, fresh in drawn.items():
            torch.testing.assert_close(fresh.norm(), subject.tensors[name].norm(), rtol=1e-5, atol=0)
            assert not torch.allclose(fresh, subject.tensors[name])

    def test_the_net_keeps_its_layers_and_its_feedback(self, learnt):
        net, x, y = learnt
        converted = copy.deepcopy(net)
        subject = make_subject(converted, x[:64], y[:64], "fa")
        before = {name: t.clone() for name, t in converted.state_dict().items()}
        layers = [id(module) for module in converted.modules()]
        seen = seen_of(subject)
        measure_fresh(subject, seen, gradients_of(subject, seen))
        assert layers == [id(module) for module in converted.modules()]
        assert all(torch.equal(t, before[name]) for name, t in converted.state_dict().items())


class TestWeights:
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


@pytest.mark.parametrize(("n", "d"), [(4, 9), (9, 4)])
def test_turned_rows_keep_their_geometry_and_have_no_orientation(n, d):
    stream = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=stream, dtype=torch.float64)
    y = torch.randn(n, d, generator=stream, dtype=torch.float64)
    turned = [turned_rows(x, stream) for _ in range(3000)]
    for t in turned[:3]:
        torch.testing.assert_close(t @ t.mT, x @ x.mT)
    inner = torch.stack([(t * y).sum() for t in turned])
    assert abs(float(inner.mean())) < 4 * float(inner.std()) / 3000**0.5
    np.testing.assert_allclose(float(inner.std()), float((y.mT @ x).norm()) / d**0.5, rtol=0.06)
