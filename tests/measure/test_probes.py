"""Linear probes against scikit-learn, and skipped blocks against a net built without them."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from subjects import make_net, make_subject
from torch import nn

from creditscope.measure.probe import fit_logistic, measure_probe, probe_accuracy, spread_rows
from creditscope.measure.skip import measure_skips
from creditscope.record import Facts, RuleFacts
from creditscope.stack import Batch


def clusters(rows: int, features: int, classes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    y = np.arange(rows) % classes
    x = rng.normal(size=(classes, features))[y] + 1.5 * rng.normal(size=(rows, features))
    return torch.tensor(x * 7 - 3), torch.tensor(y)


def facts_of(subject, classes: int) -> Facts:
    shapes = subject.applied.anatomy.shapes
    return Facts(
        rule=RuleFacts(name="r", label="r"), taps=subject.taps, tap_shapes=shapes, stem_tap=True, classes=classes
    )


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


def test_scale_and_idle_features_do_not_matter():
    x, y = clusters(400, 8, 4)
    plain = float(probe_accuracy(x[:200], y[:200], x[200:], y[200:], 4))
    idle = torch.cat([x * 1e8, torch.full((400, 3), 5.0)], dim=1)
    assert float(probe_accuracy(idle[:200], y[:200], idle[200:], y[200:], 4)) == pytest.approx(plain, abs=0.006)
    assert probe_accuracy(x[:200] / 0, y[:200], x[200:], y[200:], 4).isnan()


def test_every_tap_has_a_probe_and_the_rows_are_counted():
    net, x, y = make_net(depth=2)
    subject = make_subject(net, x, y)
    found = measure_probe(subject, facts_of(subject, 4))
    assert found["probe"].shape == (3,)
    assert int(found["probe_rows"]) == 512
    with torch.no_grad():
        h = net.blocks[0](net.stem(x))
    by_hand = probe_accuracy(h[::2], y[::2], h[1::2], y[1::2], 4)
    torch.testing.assert_close(found["probe"][1], by_hand)
    assert float(found["probe"][0]) < float(found["probe"][2])  # what is learnt can be read off


def test_probes_of_labelled_rows_of_one_forward():
    net, x, y = make_net(depth=2)
    rows = torch.arange(0, 1024, 2)
    subject = make_subject(net, x, y)
    whole = replace(subject, probe=lambda: (Batch(x, y, scored=rows), Batch(x, y, scored=rows + 1)))
    expected = measure_probe(subject, facts_of(subject, 4))["probe"]
    torch.testing.assert_close(measure_probe(whole, facts_of(subject, 4))["probe"], expected, atol=0.003, rtol=0)


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
    found = measure_probe(subject, facts_of(subject, 4))["probe"]
    h = net.mix(net.stem(x.float())).mean(1).detach()
    torch.testing.assert_close(found[0], probe_accuracy(h[::2], y[::2], h[1::2], y[1::2], 4))


def test_rows_are_spread():
    assert spread_rows(5).tolist() == [0, 1, 2, 3, 4]
    index = spread_rows(50_000)
    assert len(index) == len(index.unique()) == 2048
    assert int(index.max()) < 50_000
    assert abs(float(index.double().mean()) - 25_000) < 50


def test_skipping_a_block_is_the_net_without_it():
    net, x, y = make_net(depth=3)
    subject = make_subject(net, x, y)
    found = measure_skips(subject)
    assert found.isnan().tolist() == [True, False, False, False]
    for tap in (1, 2, 3):
        without = copy.deepcopy(net)
        del without.blocks[tap - 1]
        expected = (without(x).argmax(1) == y).double().mean()
        torch.testing.assert_close(found[tap], expected)
    assert not net.blocks[0]._forward_hooks


def test_there_is_nothing_to_skip_without_a_residual_block():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    subject = make_subject(net, torch.randn(20, 8), torch.arange(20) % 4, taps=("0", "1"))
    assert measure_skips(subject).isnan().all()


def test_labels_are_needed():
    from creditscope.errors import CreditscopeError

    net, x, y = make_net(depth=1, steps=1)
    subject = replace(make_subject(net, x, y), probe=None, test=None)
    with pytest.raises(CreditscopeError, match="class labels"):
        measure_probe(subject, facts_of(subject, 4))
    with pytest.raises(CreditscopeError, match="class labels"):
        measure_skips(subject)
