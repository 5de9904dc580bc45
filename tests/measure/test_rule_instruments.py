"""Instruments of rules that learn elsewhere, draw noise or carry feedback, against NumPy on what was seen."""

import numpy as np
import pytest
import torch

from creditscope.losses import errors_function
from creditscope.measure.alignment import measure_handed_on, measure_skip_credit
from creditscope.measure.fresh_feedback import fresh_streams, measure_draws, own_credits
from creditscope.measure.functional_net import subjects_of
from creditscope.measure.numerics import UnitRows, flat_rows
from creditscope.measure.observation import gather_facts, observe
from creditscope.measure.weights import measure_angles
from creditscope.nets.mlp import MLP
from creditscope.nets.resmlp import ResMLP
from creditscope.rng import generator
from creditscope.rules import apply_rule, make_rule, weights_and_feedback
from creditscope.taps import resolve_taps

ROWS, CLASSES = 24, 3


def seen_under(rule, net_class=ResMLP, **options):
    torch.manual_seed(0)
    net = net_class((5,), CLASSES, depth=3, width=6).double()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.4)
    taps = resolve_taps(net, [name for name in (net.stem_tap, net.block_taps) if name])
    x, y = torch.randn(ROWS, 5).double(), torch.randint(CLASSES, (ROWS,))
    application = apply_rule(make_rule(rule, options), net, taps, x, generator(0, "feedback"))
    application.applied.backward(x, errors_function(net, y))
    seen = observe(net, application.applied, x, y, noise=False)
    facts = gather_facts(application.applied.rule, application, stem_tap=bool(net.stem_tap))
    (subject,) = subjects_of(net, application.applied, [0], inputs=x, target=y)
    return net, seen, facts, subject


def cosine(a, b):
    a, b = (np.asarray(t.detach()).reshape(ROWS, -1) for t in (a, b))
    return np.mean((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1))


@pytest.mark.parametrize(("rule", "options"), [("pc", {"inputs": "settled"}), ("pepita", {"scale": 1.0})])
def test_the_distance_of_states_that_stages_learn_at(rule, options):
    _, seen, _, _ = seen_under(rule, **options)
    found = measure_handed_on(seen)["handed_on"]
    for value, s, h in zip(found, seen.handed_on, seen.states, strict=True):
        far = np.linalg.norm((s - h).detach(), axis=1) / np.linalg.norm(h, axis=1)
        assert float(value) == pytest.approx(np.median(far))
        assert value > 0.01
    assert measure_handed_on(seen_under("pc")[1]) == {}


def rows_of(tensors):
    return [UnitRows.of(flat_rows(t)) for t in tensors]


def test_what_skips_alone_would_carry():
    _, seen, facts, _ = seen_under("fa")
    found = measure_skip_credit(rows_of(seen.credits), rows_of(seen.exact), facts)
    top = seen.credits[-1]
    np.testing.assert_allclose(found["skip_cos"], [cosine(top, a) for a in seen.credits])
    np.testing.assert_allclose(found["skip_alone"], [cosine(top, g) for g in seen.exact])
    assert not np.allclose(found["skip_alone"], [cosine(a, g) for a, g in zip(seen.credits, seen.exact, strict=True)])


def test_skips_carry_nothing_where_there_are_none_or_credit_is_exact():
    _, seen, facts, _ = seen_under("fa", MLP)
    assert measure_skip_credit(rows_of(seen.credits), rows_of(seen.exact), facts) == {}
    _, seen, facts, _ = seen_under("bp")
    assert measure_skip_credit(rows_of(seen.credits), rows_of(seen.exact), facts) == {}


def test_the_cosine_of_the_mean_of_draws():
    _, seen, _, subject = seen_under("forward_gradient")
    drawn = [np.stack([np.asarray(a) for a in tap]) for tap in zip(*own_credits(subject, seen), strict=True)]
    found = measure_draws(subject, seen)["draw_cos"]
    for value, draws, g in zip(found, drawn, seen.exact, strict=True):
        assert float(value) == pytest.approx(cosine(torch.from_numpy(draws.mean(0)), g))
        assert value > cosine(torch.from_numpy(draws[0]), g)


def test_the_gap_of_weights_and_feedback():
    net, *_ = seen_under("sign_fa")
    pairs = weights_and_feedback(net)
    found = measure_angles([pairs["stem.weight"], None])
    W = net.stem.weight.detach().numpy()
    B = np.abs(W).mean() * np.sign(W)
    assert float(found["feedback_gap"][0]) == pytest.approx(np.linalg.norm(W - B) / np.linalg.norm(W))
    assert float(found["feedback_angle"][0]) == pytest.approx(
        np.degrees(np.arccos((W * B).sum() / np.linalg.norm(W) / np.linalg.norm(B)))
    )
    assert found["feedback_gap"][1].isnan()


@pytest.mark.parametrize(
    ("rule", "options", "draws"),
    [
        ("fa", {}, 2),
        ("kp", {}, 2),
        ("sign_fa", {"variant": "fr"}, 2),
        ("dfa", {}, 2),
        ("fa", {"scale": "init"}, 0),
        ("wm", {}, 0),
        ("sign_fa", {}, 0),
        ("pc", {}, 0),
        ("bp", {}, 0),
    ],
)
def test_feedback_is_drawn_anew_where_it_is_drawn_and_not_read_off_the_weights(rule, options, draws):
    """What a fresh mirror, or fresh initial weights, would say is today's weights: alignment that nobody acquired."""
    _, _, _, subject = seen_under(rule, **options)
    assert len(fresh_streams(subject, 2)) == draws
