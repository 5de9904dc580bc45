"""L-DRL: feedback that learns every stage's Jacobian, against closed forms, autograd and finite differences."""

import functools
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from small import (
    MeanToken,
    Residual,
    apply_to,
    cosine,
    learn,
    numerical_gradient,
    rows,
    see,
    sequence,
    slopes,
    small_net_jacobian,
)
from torch import nn

from creditscope.rules import ldrl, rule_class
from creditscope.rules._pass import advanced, gaussian_probe

LDRL = rule_class("ldrl")
SIZES = (5, 6, 4, 7)


def linear_net() -> nn.Sequential:
    """Stem, three taps of different sizes, head: linear throughout."""
    stages = [nn.Linear(d, out) for d, out in pairwise(SIZES)]
    return sequence(*stages, nn.Linear(SIZES[-1], 3))


TAPS = ("0", "1", "2")


def test_the_chain_with_true_jacobians_is_the_gradient():
    """B_l = J_{l+1}ᵀ put in by hand: with B_l of the wrong orientation or order the shapes would not even fit."""
    net = linear_net()
    x, y = rows(9, SIZES[0])
    applied = apply_to(LDRL(), net, TAPS, x)
    applied.feedback["B"] = [net[i].weight.detach().T.clone() for i in (1, 2)]
    seen = see(applied, x, y)
    for a, g in zip(seen.credits, seen.exact, strict=True):
        torch.testing.assert_close(a, g, rtol=1e-12, atol=1e-14)


def test_one_step_is_the_running_mean_of_noise_times_pushed_noise():
    """By hand in NumPy on a curved net: ξ from the counter, J ξ by the slopes of tanh."""
    net = sequence(nn.Linear(5, 4), Residual(4), Residual(4), nn.Linear(4, 3))
    x, y = rows(11, 5)
    applied = apply_to(LDRL(mean_rate=0.3), net, TAPS, x)
    before = [b.numpy().copy() for b in applied.feedback["B"]]
    counter = applied.feedback["counter"].clone()
    states = [h.numpy() for h in see(applied, x, y).states]
    learn(applied, x, y)
    assert torch.equal(applied.feedback["counter"], advanced(counter))
    for tap in range(2):
        xi = gaussian_probe(counter, (11, 4), torch.float64, tap).numpy()
        W, b = (p.detach().numpy() for p in (net[tap + 1].w.weight, net[tap + 1].w.bias))
        pushed = xi + (1 - np.tanh(states[tap] @ W.T + b) ** 2) * (xi @ W.T)
        wanted = 0.7 * before[tap] + 0.3 * xi.T @ pushed / 11
        np.testing.assert_allclose(applied.feedback["B"][tap], wanted, rtol=1e-10)


@pytest.mark.slow
def test_in_a_linear_net_feedback_ends_at_the_transposed_jacobian_with_the_spread_of_its_running_mean():
    """E‖B − Jᵀ‖²/‖J‖² = ρ/(2 − ρ) · (d + 1)/n, as for the mean of Wishart matrices; and credit is as far from g."""
    net, rate, n = linear_net(), 0.3, 64
    x, y = rows(n, SIZES[0])
    applied = apply_to(LDRL(mean_rate=rate), net, TAPS, x)
    found: list[list[float]] = [[], []]
    for step in range(900):
        learn(applied, x, y)
        if step >= 50 and not step % 10:
            for tap, B in enumerate(applied.feedback["B"]):
                J = net[tap + 1].weight.detach()
                found[tap].append(float((B - J.T).square().sum() / J.square().sum()))
    for tap, d in enumerate(SIZES[1:3]):
        wanted = rate / (2 - rate) * (d + 1) / n
        assert abs(np.mean(found[tap]) / wanted - 1) < 0.2  # one draw spreads by .47, and there are 85
    seen = see(applied, x, y)
    off = (seen.credits[1] - seen.exact[1]).norm() / seen.exact[1].norm()
    assert off < 3 * math.sqrt(rate / (2 - rate) * (SIZES[2] + 1) / n) < 0.4


@pytest.mark.slow
def test_with_many_rows_the_credit_of_a_linear_net_is_the_gradient():
    net = linear_net()
    x, y = rows(4000, SIZES[0])
    applied = apply_to(LDRL(mean_rate=0.02), net, TAPS, x)
    assert (
        max(cosine(*pair) for pair in zip(see(applied, x, y).credits[:-1], see(applied, x, y).exact, strict=False))
        < 0.9
    )
    for _ in range(400):
        learn(applied, x, y)
    seen = see(applied, x, y)
    for a, g in zip(seen.credits, seen.exact, strict=True):
        assert (a - g).norm() / g.norm() < 0.02  # the spread is √(.01 · 7/4000) = .004 a link


def test_tokens_learn_the_mean_of_the_jacobians_of_a_place_by_itself():
    """A stage that mixes tokens, Y = M H Wᵀ: place by place B → mean of M_tt · Wᵀ; the other places are only noise."""

    class Mixes(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Linear(4, 4)
            self.register_buffer("mix", torch.tensor([[0.5, 0.1, 0.4], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]).double())

        def forward(self, h):
            return self.mix @ self.w(h)

    net = sequence(nn.Linear(5, 4), Mixes(), MeanToken(), nn.Linear(4, 3))
    x, y = rows(2000, 3, 5)
    applied = apply_to(LDRL(mean_rate=0.05), net, ("0", "1"), x)
    for _ in range(120):
        learn(applied, x, y)
    wanted = (0.5 + 0.2 + 0.4) / 3 * net[1].w.weight.detach().T
    assert (applied.feedback["B"][0] - wanted).norm() / wanted.norm() < 0.05


def test_the_slope_of_the_learned_net_is_that_of_the_loss():
    """Mean over rows of −2 ξᵀ J_G J_F ξ + ‖J_G ζ‖², written out in NumPy, by central differences."""
    net = sequence(nn.Linear(5, 3), Residual(3), nn.Linear(3, 4), nn.Linear(4, 3))
    x, y = rows(4, 5)
    for skip in (True, False):
        applied = apply_to(LDRL(feedback="learned", skip=skip), net, TAPS, x)
        counter, states = applied.feedback["counter"], see(applied, x, y).states
        noise = [gaussian_probe(counter, h.shape, h.dtype, i).numpy() for i, h in enumerate(states)]
        found = slopes(applied, x, y)
        for tap, stage in enumerate((net[1], net[2])):
            h, above = states[tap], states[tap + 1].numpy()
            J = np.stack([torch.autograd.functional.jacobian(stage, row).numpy() for row in h])

            def loss(weights, J=J, above=above, tap=tap, skip=skip, noise=noise):
                G = small_net_jacobian(weights, above)
                if skip and G.shape[1] == G.shape[2]:
                    G = G + np.eye(G.shape[1])
                match = np.einsum("ni,nij,njk,nk->", noise[tap], G, J, noise[tap])
                size = np.square(np.einsum("nij,nj->ni", G, noise[tap + 1])).sum()
                return (size - 2 * match) / len(J)

            for own, wanted in zip(found[tap], numerical_gradient(loss, applied.feedback["G"][tap]), strict=True):
                np.testing.assert_allclose(own, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.slow
def test_a_learned_net_ends_at_the_transposed_jacobian_of_linear_stages(monkeypatch, skip):
    """G made linear, so that it can: J_G = W_2 W_1 (+ I) → J_Fᵀ, and credit → g."""
    monkeypatch.setattr(ldrl, "mlp", functools.partial(ldrl.mlp, act=lambda x: x))
    net = sequence(nn.Linear(5, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    x, y = rows(256, 5)
    applied = apply_to(LDRL(feedback="learned", skip=skip, rate=0.02), net, ("0", "1"), x)

    def off() -> float:
        first, _, last, _ = applied.feedback["G"][0]
        J = net[1].weight.detach()
        return float((last @ first + skip * torch.eye(4) - J.T).norm() / J.norm())

    began = off()
    for rate in (0.02, 0.005, 0.001):
        applied.rule.rate = rate
        for _ in range(150):
            learn(applied, x, y)
    assert off() < 0.05 < 0.5 < began
    seen = see(applied, x, y)
    assert (seen.credits[0] - seen.exact[0]).norm() / seen.exact[0].norm() < 0.06


def test_credit_of_a_learned_net_is_its_jacobian_times_the_credit_above():
    net = sequence(nn.Linear(5, 4), Residual(4), Residual(4), nn.Linear(4, 3))
    x, y = rows(6, 5)
    applied = apply_to(LDRL(feedback="learned"), net, TAPS, x)
    with torch.no_grad():
        for w in [w for G in applied.feedback["G"] for w in G]:
            w.add_(0.3)
    seen = see(applied, x, y)
    a = seen.exact[2].numpy()
    np.testing.assert_array_equal(seen.credits[2], a)
    for tap in (1, 0):
        G = small_net_jacobian([w.numpy() for w in applied.feedback["G"][tap]], seen.states[tap + 1].numpy())
        a = a + np.einsum("nij,nj->ni", G, a)
        np.testing.assert_allclose(seen.credits[tap], a, rtol=1e-10)
