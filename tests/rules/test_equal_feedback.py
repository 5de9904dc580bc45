"""Feedback that equals the weights is backprop, on an MLP, a ViT and a conv net; feedback that does not, is not."""

import pytest
import torch
from feedback_nets import NETS, apply, backprop, built, gradients, relative_error, set_memories

from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.rules import layers_with_feedback

CASES = {
    "sign_fa, |M| = |W|/mean": ("sign_fa", {"variant": "fr"}, lambda W: W.abs() / W.abs().mean()),
    "sign_fa unit, |M| = |W|": ("sign_fa", {"variant": "fr", "scale": "unit"}, torch.abs),
    "sign_fa init, |M| = |W|": ("sign_fa", {"variant": "fr", "scale": "init"}, torch.abs),
    "kp, B = W": ("kp", {}, lambda W: W),
    "fa, B = W": ("fa", {}, lambda W: W),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", NETS)
def test_feedback_equal_to_the_weights_is_backprop(name, case):
    rule, options, memory_of = CASES[case]
    applied, plain, x, y = built(rule, name, **options)
    exact = backprop(plain, x, y)
    assert relative_error(gradients(applied, x, y), exact) > 0.1  # as it was drawn
    set_memories(applied, memory_of)
    assert relative_error(gradients(applied, x, y), exact) < 1e-12
    seen = observe(applied.net, applied, x, y)
    for a, g in zip(seen.credits, seen.exact, strict=True):
        torch.testing.assert_close(a, g, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", NETS)
def test_fa_from_the_initial_weights_is_backprop_until_the_weights_move(name):
    applied, plain, x, y = built("fa", name, scale="init")
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) < 1e-12
    kept = {n: layer.feedback.clone() for n, layer in layers_with_feedback(applied.net).items()}
    optimiser = torch.optim.SGD(applied.net.parameters(), lr=0.5)
    optimiser.step()
    for n, layer in layers_with_feedback(applied.net).items():
        assert torch.equal(layer.feedback, kept[n])
        assert not torch.equal(layer.feedback, layer.weight)
    plain.load_state_dict({n: t for n, t in applied.net.state_dict().items() if not n.endswith("feedback")})
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) > 1e-3


@pytest.mark.parametrize("rule", ["fa", "sign_fa", "kp", "wm"])
@pytest.mark.parametrize("name", NETS)
def test_the_exact_reference_is_that_of_the_plain_net(rule, name):
    applied, plain, x, y = built(rule, name)
    seen = observe(applied.net, applied, x, y)
    wanted = {n: g * len(x) for n, g in backprop(plain, x, y).items()}
    assert relative_error(seen.exact_weights, wanted) < 1e-12
    before = {n: t.clone() for n, t in applied.net.state_dict().items()}
    told = {**seen.exact_weights, **seen.rule_weights}
    applied.backward(x, lambda output: row_errors(output, y))
    if not applied.rule.learns_feedback:
        assert all(torch.equal(t, before[n]) for n, t in applied.net.state_dict().items())
        for n, p in applied.net.named_parameters():
            torch.testing.assert_close(told[n] / len(x), p.grad, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("scale", ["unit", "match-init", "init"])
def test_fa_of_a_single_weight_has_feedback_that_is_a_number(scale):
    net = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Tanh(), torch.nn.Linear(1, 2)).double()
    apply("fa", net, torch.ones(4, 1).double(), ["1"], scale=scale)
    assert net[0].feedback.isfinite().all()
    assert net[0].feedback.any()
