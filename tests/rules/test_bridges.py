"""State and credit bridge: the true remainder of the net gives the gradient; losses against NumPy and differences."""

import numpy as np
import pytest
import torch
from small import (
    MeanToken,
    Residual,
    apply_to,
    learn,
    numerical_gradient,
    rows,
    see,
    sequence,
    slopes,
    small_net,
    small_net_jacobian,
)
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.rules import credit_bridge, rule_class, state_bridge

StateBridge, CreditBridge = rule_class("state_bridge"), rule_class("credit_bridge")
D, CLASSES, TAPS, FAR = 4, 3, ("0", "1", "2"), 40.0


def residual_net(*, tokens: bool = False) -> nn.Sequential:
    head = [MeanToken()] if tokens else []
    return sequence(nn.Linear(5, D), Residual(D), Residual(D), *head, nn.Linear(D, CLASSES))


def inputs_of_a_bridge(h: Tensor, tap: int, error: Tensor) -> np.ndarray:
    """State, depth from 0 to 1, error."""
    depth = np.full((len(h), 1), tap / (len(TAPS) - 1))
    return np.concatenate([h.numpy(), depth, error.numpy()], axis=1)


def assert_close_to_gradient(seen) -> None:
    for a, g in zip(seen.credits, seen.exact, strict=True):
        torch.testing.assert_close(a, g, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tokens", [False, True], ids=["2-D", "tokens"])
def test_with_the_rest_of_the_net_for_a_bridge_credit_is_the_gradient(monkeypatch, tokens):
    net = residual_net(tokens=tokens)
    x, y = rows(6, *([3] if tokens else []), 5)
    stages = list(net)[1:3]

    def remainder(tap: int, h: Tensor) -> Tensor:
        for stage in stages[tap:]:
            h = stage(h)
        return h

    def to_go(tap: int, h: Tensor, ctx) -> Tensor:
        return ctx.loss(net[3:](remainder(tap, h)))

    monkeypatch.setattr(state_bridge, "bridged", lambda _, __, tap, h: remainder(tap, h))
    monkeypatch.setattr(credit_bridge, "value", lambda _, ctx, tap, h: to_go(tap, h, ctx))
    mask = torch.arange(6) % 3 != 1
    for rule in (StateBridge(), CreditBridge()):
        applied = apply_to(rule, net, TAPS, x)
        assert_close_to_gradient(see(applied, x, y))
        masked = see(applied, x, y, mask=mask)
        assert_close_to_gradient(masked)
        assert not any(a[~mask].any() for a in masked.credits)


def test_a_state_bridge_whose_weights_are_the_rest_of_a_linear_net():
    """h + G(h, l/L, e) = P_l h + c_l, put in by hand: units far above 0 pass on what they get, far below nothing, and
    the depth decides which of them are up. Credit is then the gradient, and there is nothing left to learn.
    """
    net = sequence(nn.Linear(5, D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, CLASSES))
    x, y = rows(6, 5)
    applied = apply_to(StateBridge(hidden=2 * D + 2), net, TAPS, x)
    (A, a), (B, b) = ((net[i].weight.detach(), net[i].bias.detach()) for i in (1, 2))
    maps = [(B @ A - torch.eye(D), B @ a + b), (B - torch.eye(D), b)]  # what is to be added at taps 0 and 1
    W1, b1, W2, b2, W3, b3 = (torch.zeros_like(w) for w in applied.feedback["G"])
    for tap, (P, c) in enumerate(maps):
        units, sign = slice(tap * (D + 1), (tap + 1) * (D + 1)), 1 - 2 * tap
        W1[units, :D][:D] = torch.eye(D)
        W1[units, D], b1[units] = -4 * FAR * sign, FAR * sign  # up at depth 0, or at depth ½
        W3[:, units] = torch.cat([P, (c / FAR - P.sum(1))[:, None]], dim=1)
    W2.fill_diagonal_(1.0)
    b2.fill_(FAR)
    b3 = -W3.sum(1) * FAR
    for own, new in zip(applied.feedback["G"], (W1, b1, W2, b2, W3, b3), strict=True):
        own.copy_(new)
    assert_close_to_gradient(see(applied, x, y))
    assert max(float(s.abs().max()) for s in slopes(applied, x, y)) < 1e-9
    applied.feedback["G"][4].mul_(1.1)
    seen = see(applied, x, y)
    assert float((seen.credits[0] - seen.exact[0]).norm() / seen.exact[0].norm()) > 0.01


@pytest.mark.parametrize("masked", [False, True])
def test_the_credit_and_the_slope_of_the_state_bridge(masked):
    """Credit: softmax − y* at the bridged state, back through the head and G; loss: squares over squares of h_L."""
    net = residual_net()
    x, y = rows(5, 5)
    mask = torch.arange(5) % 3 != 1 if masked else None
    applied = apply_to(StateBridge(hidden=3), net, TAPS, x)
    seen, found = see(applied, x, y, mask=mask), slopes(applied, x, y, mask=mask)
    goal, error, weights = seen.states[2].numpy(), seen.errors.error, [w.numpy() for w in applied.feedback["G"]]
    assert masked is (not bool(error[1].any()))
    W, b = net[3].weight.detach().numpy(), net[3].bias.detach().numpy()
    counts = np.ones((5, 1)) if mask is None else mask.numpy()[:, None]
    told = [inputs_of_a_bridge(seen.states[tap], tap, error) for tap in (0, 1)]
    for tap in (0, 1):
        bridged = seen.states[tap].numpy() + small_net(weights, told[tap])
        z = np.exp(bridged @ W.T + b)
        e = (z / z.sum(1, keepdims=True) - np.eye(CLASSES)[y.numpy()]) * counts
        J = np.eye(D) + small_net_jacobian(weights, told[tap])[:, :, :D]
        np.testing.assert_allclose(seen.credits[tap], np.einsum("no,noi->ni", e @ W, J), rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(seen.credits[2], seen.exact[2])

    def loss(weights):
        off = [np.square(seen.states[tap].numpy() + small_net(weights, told[tap]) - goal).sum() for tap in (0, 1)]
        return np.mean(off) / np.square(goal).sum()

    for own, wanted in zip(found, numerical_gradient(loss, applied.feedback["G"]), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-6, atol=1e-9)


def test_the_credit_and_the_slope_of_the_credit_bridge():
    """‖∂V/∂h_L − g_L‖²/‖g_L‖² + c · mean (V(h_l) − V̄(h_{l+1}))², with V̄ away from V."""
    net = residual_net()
    x, y = rows(5, 5)
    applied = apply_to(CreditBridge(hidden=3, consistency=0.7), net, TAPS, x)
    with torch.no_grad():
        for i, w in enumerate(applied.feedback["mean"]):
            w.add_(0.1 * (i + 1))
    mean = [w.numpy().copy() for w in applied.feedback["mean"]]
    seen, found = see(applied, x, y), slopes(applied, x, y)
    g, weights = seen.exact[2].numpy(), [w.numpy() for w in applied.feedback["V"]]
    told = [inputs_of_a_bridge(h, tap, seen.errors.error) for tap, h in enumerate(seen.states)]
    for tap in (0, 1):
        slope = small_net_jacobian(weights, told[tap])[:, 0, :D]
        np.testing.assert_allclose(seen.credits[tap], slope, rtol=1e-9, atol=1e-14)
    np.testing.assert_array_equal(seen.credits[2], g)

    def loss(weights):
        ends = np.square(small_net_jacobian(weights, told[2])[:, 0, :D] - g).sum() / np.square(g).sum()
        along = [small_net(weights, told[tap]) - small_net(mean, told[tap + 1]) for tap in (0, 1)]
        return ends + 0.7 * np.mean(np.square(along))

    for own, wanted in zip(found, numerical_gradient(loss, applied.feedback["V"]), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-8)


def test_the_slow_copy_follows_the_bridge():
    net = residual_net()
    x, y = rows(5, 5)
    applied = apply_to(CreditBridge(hidden=3, mean_rate=0.2), net, TAPS, x)
    wanted = [w.clone() for w in applied.feedback["mean"]]
    for _ in range(4):
        learn(applied, x, y)
        wanted = [0.8 * m + 0.2 * w for m, w in zip(wanted, applied.feedback["V"], strict=True)]
    for m, w in zip(applied.feedback["mean"], wanted, strict=True):
        torch.testing.assert_close(m, w, rtol=1e-12, atol=1e-15)


def test_a_state_bridge_learns_the_last_state_and_its_credit_the_gradient():
    net = residual_net()
    x, y = rows(300, 5)
    applied = apply_to(StateBridge(hidden=48, rate=0.01), net, TAPS, x)

    def off() -> tuple[float, float]:
        seen = see(applied, x, y)
        ctx_inputs = inputs_of_a_bridge(seen.states[0], 0, seen.errors.error)
        guess = seen.states[0].numpy() + small_net([w.numpy() for w in applied.feedback["G"]], ctx_inputs)
        last = seen.states[2].numpy()
        away = (seen.credits[0] - seen.exact[0]).norm() / seen.exact[0].norm()
        return float(np.linalg.norm(guess - last) / np.linalg.norm(last)), float(away)

    began = off()
    for rate in (0.01, 0.002):
        applied.rule.rate = rate
        for _ in range(150):
            learn(applied, x, y)
    ended = off()
    assert ended[0] < 0.1 * began[0]
    assert ended[1] < 0.3 * began[1]


def test_a_credit_bridge_learns_the_gradient_at_the_last_tap():
    net = residual_net()
    x, y = rows(200, 5)
    applied = apply_to(CreditBridge(hidden=32, rate=0.01), net, TAPS, x)

    def off() -> float:
        """‖∂V(h_L, 1, e)/∂h_L − g_L‖/‖g_L‖."""
        seen = see(applied, x, y)
        weights = [w.numpy() for w in applied.feedback["V"]]
        slope = small_net_jacobian(weights, inputs_of_a_bridge(seen.states[2], 2, seen.errors.error))[:, 0, :D]
        return float(np.linalg.norm(slope - seen.exact[2].numpy()) / seen.exact[2].norm())

    began = off()
    for _ in range(200):
        learn(applied, x, y)
    assert off() < 0.2 * began


def test_taps_of_other_sizes_and_lone_taps_are_refused():
    net = sequence(nn.Linear(5, D), nn.Linear(D, D + 1), nn.Linear(D + 1, CLASSES))
    x, _ = rows(5, 5)
    for rule in (StateBridge(), CreditBridge()):
        for taps in (("0", "1"), ("0",)):
            with pytest.raises(CreditscopeError, match="at least two taps, all of one size"):
                apply_to(rule, net, taps, x)
