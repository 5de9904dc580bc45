"""Linear probes, one by one and many at once, against scikit-learn."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from subjects import make_net, make_subject
from torch import nn

from creditscope.errors import CreditscopeError
from creditscope.measure import probe
from creditscope.measure.probe import (
    fit_logistic,
    fit_logistics,
    probe_accuracies,
    probe_accuracy,
    probe_taps,
    spread_rows,
)
from creditscope.stack import Batch


def clusters(rows: int, features: int, classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    x = rng.normal(size=(classes, features))[y] + 1.5 * rng.normal(size=(rows, features))
    return torch.tensor(x * 7 - 3), torch.tensor(y)


def measure_probe(subject):
    return probe.measure_probe(subject, SimpleNamespace(classes=4))


def test_weights_are_those_of_scikit_learn():
    x, y = clusters(200, 6, 3)
    x = (x - x.mean(0)) / x.std(0, correction=0)
    weight, bias = fit_logistic(x, y, 3)
    theirs = LogisticRegression(C=1.0, tol=1e-8, max_iter=5000).fit(x, y)
    centred = weight - weight.mean(1, keepdim=True)  # a shift of all classes changes nothing
    np.testing.assert_allclose(centred.T, theirs.coef_ - theirs.coef_.mean(0), atol=5e-3)
    np.testing.assert_allclose(bias - bias.mean(), theirs.intercept_ - theirs.intercept_.mean(), atol=5e-3)


@pytest.mark.parametrize(("rows", "features"), [(300, 10), (60, 200)])
def test_accuracy_is_that_of_scikit_learn(rows, features):
    x, y = clusters(2 * rows, features, 4)
    found = float(probe_accuracy(x[:rows], y[:rows], x[rows:], y[rows:], 4))
    mean, sd = x[:rows].mean(0), x[:rows].std(0, correction=0)
    theirs = LogisticRegression(max_iter=2000).fit((x[:rows] - mean) / sd, y[:rows])
    assert found == pytest.approx(theirs.score((x[rows:] - mean) / sd, y[rows:]), abs=0.011)
    assert found > 0.5


def test_features_are_standardised_by_training_rows_alone():
    """A test row is judged as it is alone, whatever stands beside it: one of 1e9 would make all others alike."""
    x, y = clusters(400, 8, 4)
    far = torch.cat([x[200:], torch.full((1, 8), 1e9).to(x)])
    labels = torch.cat([y[200:], torch.tensor([-1])])  # which is never right
    plain = probe_accuracy(x[:200], y[:200], x[200:], y[200:], 4)
    beside = probe_accuracy(x[:200], y[:200], far, labels, 4)
    torch.testing.assert_close(beside * 201, plain * 200)
    many = (x[None, :200], y[:200])
    plain = probe_accuracies(*many, x[None, 200:], y[200:], 4)
    beside = probe_accuracies(*many, far[None], labels, 4)
    torch.testing.assert_close(beside * 201, plain * 200)
    assert float(plain) > 0.5


def test_scale_and_idle_features_do_not_matter():
    x, y = clusters(400, 8, 4)
    plain = float(probe_accuracy(x[:200], y[:200], x[200:], y[200:], 4))
    idle = torch.cat([x * 1e8, torch.full((400, 3), 5.0)], dim=1)
    assert float(probe_accuracy(idle[:200], y[:200], idle[200:], y[200:], 4)) == pytest.approx(plain, abs=0.006)
    assert probe_accuracy(x[:200] / 0, y[:200], x[200:], y[200:], 4).isnan()


def test_every_tap_has_a_probe_and_the_rows_are_counted():
    net, x, y = make_net(depth=2)
    subject = make_subject(net, x, y)
    found = measure_probe(subject)
    assert found["probe"].shape == (3,)
    assert int(found["probe_rows"]) == 512
    with torch.no_grad():
        h = net.blocks[0](net.stem(x))
    by_hand = probe_accuracy(h[::2], y[::2], h[1::2], y[1::2], 4)
    torch.testing.assert_close(found["probe"][1], by_hand)
    assert float(found["probe"][0]) < float(found["probe"][2])  # what is learnt can be read off
    rows = torch.arange(0, 1024, 2)
    whole = replace(subject, probe=lambda: (Batch(x, y, scored=rows), Batch(x, y, scored=rows + 1)))  # of one forward
    torch.testing.assert_close(measure_probe(whole)["probe"], found["probe"], atol=0.003, rtol=0)
    with pytest.raises(CreditscopeError, match="class labels"):
        measure_probe(replace(subject, probe=None))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_they_are_those_of_the_cpu():
    net, x, y = make_net(depth=2)
    own, theirs = (measure_probe(make_subject(net.to(d), x.to(d), y.to(d)))["probe"].cpu() for d in ("cpu", "cuda"))
    torch.testing.assert_close(theirs, own, atol=0.02, rtol=0)


class Tokens(nn.Module):
    def __init__(self, tokens: int):
        super().__init__()
        self.tokens = tokens
        self.stem, self.head = nn.Linear(8, 8 * tokens), nn.Linear(8, 4)
        self.mix = nn.Unflatten(1, (tokens, 8))

    def forward(self, x):
        return self.head(self.mix(self.stem(x)).mean(1))


def test_wide_states_are_averaged_over_tokens():
    torch.manual_seed(0)
    net, (x, y) = Tokens(600), clusters(200, 8, 4)
    subject = make_subject(net, x.float(), y, taps=("mix",))
    found = measure_probe(subject)["probe"]
    h = net.mix(net.stem(x.float())).mean(1).detach()
    torch.testing.assert_close(found[0], probe_accuracy(h[::2], y[::2], h[1::2], y[1::2], 4))


def test_rows_are_spread():
    assert spread_rows(5).tolist() == [0, 1, 2, 3, 4]
    index = spread_rows(50_000)
    assert len(index) == len(index.unique()) == 2048
    assert int(index.max()) < 50_000
    assert abs(float(index.double().mean()) - 25_000) < 50


@pytest.mark.parametrize(("wide", "entries"), [(1024, 2**24), (5, 1)])
def test_taps_fitted_together_are_as_one_by_one(wide, entries, monkeypatch):
    """As on a GPU: of several widths, of a tap that is constant, of wide ones, and of too many for one go."""
    monkeypatch.setattr(probe, "WIDE", wide)
    monkeypatch.setattr(probe, "ENTRIES", entries)
    x, y = clusters(400, 8, 4)
    states = [x, x[:, :5], x * 1e-6 + 1, torch.full_like(x, 0.3), x[:, :3]]
    pairs = [(h[:200], h[200:]) for h in states]
    together = probe_taps(pairs, y[:200], y[200:], 4, in_step=True)
    alone = [probe_accuracy(h, y[:200], h_test, y[200:], 4) for h, h_test in pairs]
    assert [t.shape for t in together] == [()] * 5
    torch.testing.assert_close(torch.stack(together), torch.stack(alone), atol=0.011, rtol=0)
    assert len({round(float(t), 3) for t in together}) >= 4


class TestManyProbes:
    def problems(self, features: int, count: int = 6):
        rng = np.random.default_rng(features)
        y = np.arange(140) % 7
        mix = rng.normal(size=(count, features, features)) * np.logspace(0, -4, features)
        x = rng.normal(size=(count, 140, features)) @ mix
        x += 0.5 * rng.normal(size=(count, 7, features))[:, y] * x.std(1, keepdims=True)
        return torch.tensor((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)), torch.tensor(y)

    @pytest.mark.parametrize("features", [2, 7, 40, 200])
    def test_weights_are_those_of_scikit_learn_and_of_the_single_probe(self, features):
        x, y = self.problems(features)
        weight, bias = fit_logistics(x, y, 7)
        for i, one in enumerate(x):
            theirs = LogisticRegression(tol=1e-9, max_iter=9999).fit(one, y)
            np.testing.assert_allclose(weight[i], theirs.coef_.T, atol=2e-3 * np.abs(theirs.coef_).max())
            np.testing.assert_allclose(bias[i] - bias[i].mean(), theirs.intercept_, atol=5e-3)
            single, _ = fit_logistic(one, y, 7)
            np.testing.assert_allclose(weight[i], single, atol=0.03 * float(single.abs().max()))

    def test_a_problem_does_not_depend_on_the_others(self):
        x, y = self.problems(12)
        together, _ = fit_logistics(x, y, 7)
        alone, _ = fit_logistics(x[2:3], y, 7)
        torch.testing.assert_close(together[2:3], alone, rtol=1e-9, atol=1e-12)

    def test_accuracy_and_what_cannot_be_probed(self):
        x, y = self.problems(12, count=4)
        x = x * torch.tensor([1.0, 1e-38, 1.0, 1.0])[:, None, None]
        x[2], x[3, 5, 0] = 0.3, torch.nan
        found = probe_accuracies(x[:, ::2], y[::2], x[:, 1::2], y[1::2], 7)
        for i in (0, 1):
            single = float(probe_accuracy(x[i, ::2], y[::2], x[i, 1::2], y[1::2], 7))
            assert float(found[i]) == pytest.approx(single, abs=0.03)
        assert float(found[2]) == pytest.approx(1 / 7)  # of a state that is the same for every row: one class
        assert found[3].isnan()

    def test_a_feature_that_does_not_vary_in_training_says_nothing(self):
        x, y = self.problems(12, count=1)
        idle = torch.cat([x, torch.full_like(x[..., :1], 0.1)], dim=-1)
        idle[:, 1::2, -1] = torch.linspace(-1e6, 1e6, 70)
        wanted = probe_accuracies(x[:, ::2], y[::2], x[:, 1::2], y[1::2], 7)
        assert torch.equal(probe_accuracies(idle[:, ::2], y[::2], idle[:, 1::2], y[1::2], 7), wanted)
