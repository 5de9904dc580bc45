"""Difference target propagation: what perfect inverses give, the loss of the learned ones, and rows without a loss."""

import functools

import numpy as np
import pytest
import torch
from small import (
    Residual,
    apply_to,
    cosine,
    learn,
    numerical_gradient,
    rows,
    see,
    sequence,
    slopes,
    small_net,
)
from torch import Tensor, nn

import creditscope as cs
from creditscope.rules import dtp, rule_class
from creditscope.rules._pass import gaussian_probe

DTP = rule_class("dtp")
D, TAPS, FAR = 6, ("0", "1", "2"), 40.0


def invertible_net(spread: float = 1.0) -> nn.Sequential:
    """Linear throughout; singular values of both stages from 10^-spread to 10^spread."""
    net = sequence(nn.Linear(5, D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 3))
    with torch.no_grad():
        for stage in (net[1], net[2]):
            u, _, v = torch.linalg.svd(stage.weight)
            stage.weight.copy_(u @ torch.diag(torch.logspace(-spread, spread, D, dtype=torch.float64)) @ v)
    return net


def put_inverse(G: list[Tensor], stage: nn.Linear, skip: bool) -> None:
    """x ↦ W⁻¹(x − b): far from 0, GELU is the identity to the last digit."""
    W, b = stage.weight.detach(), stage.bias.detach()
    inner = torch.linalg.inv(W) - skip * torch.eye(D)
    for own, value in zip(
        G, (torch.eye(D), torch.full((D,), FAR), inner, -inner.sum(1) * FAR - torch.linalg.inv(W) @ b), strict=True
    ):
        own.copy_(value)


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("step", [0.1, 1e-4])
def test_perfect_inverses_give_the_inverse_jacobian_not_the_transposed(skip, step):
    """a_l = (J_L … J_{l+1})⁻¹ g_L for a step of any size; at right angles to the gradient where stages are stiff."""
    net = invertible_net()
    x, y = rows(8, 5)
    applied = apply_to(DTP(step=step, skip=skip), net, TAPS, x)
    for tap in (0, 1):
        put_inverse(applied.feedback["G"][tap], net[tap + 1], skip)
    seen = see(applied, x, y)
    torch.testing.assert_close(seen.credits[2], seen.exact[2], rtol=0, atol=0)
    wanted = seen.exact[2]
    for tap in (1, 0):
        wanted = wanted @ torch.linalg.inv(net[tap + 1].weight.detach()).T
        assert float((seen.credits[tap] - wanted).norm() / wanted.norm()) < 1e-9
    assert abs(cosine(seen.credits[0], seen.exact[0])) < 0.1


def test_the_cosine_with_the_gradient_is_one_for_rotations_and_small_for_stiff_stages():
    found = []
    for spread in (0.0, 1.0, 2.0):
        net = invertible_net(spread)
        x, y = rows(8, 5)
        applied = apply_to(DTP(), net, TAPS, x)
        for tap in (0, 1):
            put_inverse(applied.feedback["G"][tap], net[tap + 1], skip=True)
        seen = see(applied, x, y)
        found.append(abs(cosine(seen.credits[0], seen.exact[0])))
    assert abs(found[0] - 1) < 1e-9  # rotations: the inverse is the transpose
    assert max(found[1:]) < 0.05


def test_targets_by_hand():
    """With inverses as drawn, curved, on a curved net: t_l = h_l + G(t_{l+1}) − G(h_{l+1}), β the row's own."""
    net = sequence(nn.Linear(5, 4), Residual(4), nn.Linear(4, 7), nn.Linear(7, 3))
    x, y = rows(6, 5)
    applied = apply_to(DTP(step=0.3), net, TAPS, x)
    seen = see(applied, x, y)
    h, g = [h.numpy() for h in seen.states], seen.exact[2].numpy()
    beta = 0.3 * np.linalg.norm(h[2], axis=1, keepdims=True) / np.linalg.norm(g, axis=1, keepdims=True)
    target = h[2] - beta * g
    for tap in (1, 0):
        weights = [w.numpy() for w in applied.feedback["G"][tap]]
        same = h[tap].shape == h[tap + 1].shape
        G = lambda z, weights=weights, same=same: small_net(weights, z) + (z if same else 0)  # noqa: E731
        target = h[tap] + G(target) - G(h[tap + 1])
        np.testing.assert_allclose(seen.credits[tap], (h[tap] - target) / beta, rtol=1e-9, atol=1e-12)


def test_the_slope_of_the_inverses_is_that_of_the_loss():
    """‖G(F(h + ξ)) − (h + ξ)‖², mean over rows, ξ of `noise` times the root mean square of h."""
    net = sequence(nn.Linear(5, 3), Residual(3), nn.Linear(3, 4), nn.Linear(4, 3))
    x, y = rows(5, 5)
    applied = apply_to(DTP(noise=0.4), net, TAPS, x)
    states, counter = see(applied, x, y).states, applied.feedback["counter"]
    found = slopes(applied, x, y)
    for tap, stage in enumerate((net[1], net[2])):
        h = states[tap].numpy()
        xi = gaussian_probe(counter, h.shape, torch.float64, tap).numpy()
        moved = h + 0.4 * np.sqrt(np.mean(h**2)) * xi
        above = stage(torch.tensor(moved)).detach().numpy()
        same = above.shape == moved.shape

        def loss(weights, moved=moved, above=above, same=same):
            guess = small_net(weights, above) + (above if same else 0)
            return np.square(guess - moved).sum() / len(moved)

        for own, wanted in zip(found[tap], numerical_gradient(loss, applied.feedback["G"][tap]), strict=True):
            np.testing.assert_allclose(own, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("linear", [False, True])
def test_learning_lowers_the_error_of_reconstruction(monkeypatch, linear):
    """On the states themselves; with G and the stage linear, down to that of the inverse, and credit to J⁻¹ g."""
    net, most = sequence(nn.Linear(5, 4), Residual(4), nn.Linear(4, 3)), 0.3
    if linear:
        monkeypatch.setattr(dtp, "mlp", functools.partial(dtp.mlp, act=lambda x: x))
        net, most = invertible_net(0.3), 0.02
    x, y = rows(200, 5)
    applied = apply_to(DTP(noise=1.0), net, ("0", "1"), x)  # noise reaches where no state lies

    def off() -> float:
        below, above = see(applied, x, y).states
        return float((applied.rule.inverse(applied.feedback["G"][0], above) - below).norm() / below.norm())

    began = off()
    for rate in (0.02, 0.004, 0.001):
        applied.rule.rate = rate
        for _ in range(200):
            learn(applied, x, y)
    assert off() < most * began
    if linear:
        seen = see(applied, x, y)
        wanted = seen.exact[1] @ torch.linalg.inv(net[1].weight.detach()).T
        assert cosine(seen.credits[0], wanted) > 0.99


def test_rows_without_a_loss_get_no_credit_and_change_nothing():
    net = sequence(nn.Linear(5, 4), Residual(4), Residual(4), nn.Linear(4, 3))
    x, y = rows(8, 5)
    applied = apply_to(DTP(), net, TAPS, x)
    mask = torch.arange(8) % 3 != 0
    masked, whole = see(applied, x, y, mask=mask), see(applied, x, y)
    for a, b in zip(masked.credits, whole.credits, strict=True):
        assert not a[~mask].any()
        torch.testing.assert_close(a[mask], b[mask], rtol=1e-12, atol=1e-15)


def test_a_row_whose_last_state_is_zero_has_finite_credit():
    """A dead row behind a ReLU: its step β would be 0, and its credit 0/0."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    net.append(torch.nn.Linear(4, 3))
    torch.nn.init.constant_(net[1][0].bias, -100.0)
    cs.attach(net, "dtp", taps=["0", "1"]).backward(torch.randn(5, 3), torch.arange(5) % 3)
    assert all(torch.isfinite(p.grad).all() for p in net.parameters())
