"""Synthetic gradients: targets against autograd, and where linear nets of the state and the label are exact."""

import numpy as np
import pytest
import torch
from small import Residual, apply_to, learn, numerical_gradient, rows, see, sequence, slopes, small_net
from torch import Tensor, nn

from creditscope.rules import rule_class

DNI = rule_class("dni")
TAPS = ("0", "1", "2")


def squared(output: Tensor, target: Tensor) -> Tensor:
    """½‖z − y*‖² of every row: its gradient is linear in the state and the label."""
    return (output - nn.functional.one_hot(target, output.shape[-1])).square().sum(-1) / 2


def linear_net() -> nn.Sequential:
    return sequence(nn.Linear(5, 4), nn.Linear(4, 6), nn.Linear(6, 4), nn.Linear(4, 3))


def exact_nets(net: nn.Sequential) -> list[list[Tensor]]:
    """g_l = P ᵀ(P h + c − y*) with P and c of all that lies above tap l, as M's weight and bias."""
    found = []
    for tap in range(2):
        P, c = torch.eye(net[tap].out_features, dtype=torch.float64), torch.zeros(net[tap].out_features).double()
        for stage in list(net)[tap + 1 :]:
            P, c = stage.weight.detach() @ P, stage.weight.detach() @ c + stage.bias.detach()
        found.append([torch.cat([P.T @ P, -P.T], dim=1), P.T @ c])
    return found


def test_the_exact_net_gives_the_gradient_and_stays():
    net = linear_net()
    x, y = rows(12, 5)
    applied = apply_to(DNI(hidden=0), net, TAPS, x)
    for own, exact in zip(applied.feedback["M"], exact_nets(net), strict=True):
        for w, value in zip(own, exact, strict=True):
            w.copy_(value)
    seen = see(applied, x, y, loss=squared)
    for a, g in zip(seen.credits, seen.exact, strict=True):
        torch.testing.assert_close(a, g, rtol=1e-11, atol=1e-13)
    for pull in slopes(applied, x, y, loss=squared):
        assert max(float(s.abs().max()) for s in pull) < 1e-12


@pytest.mark.slow
def test_a_linear_net_with_labels_ends_at_the_gradient_under_squared_loss():
    net = linear_net()
    x, y = rows(60, 5)
    applied = apply_to(DNI(hidden=0), net, TAPS, x)
    assert not any(a.any() for a in see(applied, x, y, loss=squared).credits[:-1])  # it starts at 0
    for rate in (0.03, 0.01, 0.003, 0.001):
        applied.rule.rate = rate
        for _ in range(400):
            learn(applied, x, y, loss=squared)
    seen = see(applied, x, y, loss=squared)
    for tap in (0, 1):
        a, g = seen.credits[tap], seen.exact[tap]
        assert float((a - g).norm() / g.norm()) < 0.02
    blind = apply_to(DNI(hidden=0, labels=False), net, TAPS, x)
    for _ in range(250):
        learn(blind, x, y, loss=squared)
    seen = see(blind, x, y, loss=squared)
    assert float((seen.credits[1] - seen.exact[1]).norm() / seen.exact[1].norm()) > 0.3  # the label is needed


@pytest.mark.parametrize("hidden", [0, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_the_slope_is_that_of_the_regression_to_the_stage_above(hidden, masked):
    """Mean over rows of ‖M_l(h_l, y*) − J_{l+1}ᵀ a_{l+1}‖², a_{l+1} what the net above told, J by autograd."""
    net = sequence(nn.Linear(5, 3), Residual(3), nn.Linear(3, 4), nn.Linear(4, 3))
    x, y = rows(6, 5)
    mask = torch.arange(6) % 3 != 1 if masked else None
    applied = apply_to(DNI(hidden=hidden), net, TAPS, x)
    with torch.no_grad():
        draw = torch.Generator().manual_seed(5)
        for w in [w for M in applied.feedback["M"] for w in M]:
            w.add_(0.3 * torch.randn(w.shape, generator=draw))
    seen, found = see(applied, x, y, mask=mask), slopes(applied, x, y, mask=mask)
    label = np.eye(3)[y.numpy()] * (1 if mask is None else mask.numpy()[:, None])
    for tap, stage in enumerate((net[1], net[2])):
        h = seen.states[tap]
        J = torch.stack([torch.autograd.functional.jacobian(stage, row) for row in h])
        wanted = torch.einsum("noi,no->ni", J, seen.credits[tap + 1]).numpy()
        inputs = np.concatenate([h.numpy(), label], axis=1)
        weights = [w.numpy() for w in applied.feedback["M"][tap]]
        np.testing.assert_allclose(seen.credits[tap], small_net(weights, inputs), rtol=1e-11)

        def loss(weights, wanted=wanted, inputs=inputs):
            return np.square(small_net(weights, inputs) - wanted).sum() / len(wanted)

        for own, slope in zip(found[tap], numerical_gradient(loss, applied.feedback["M"][tap]), strict=True):
            np.testing.assert_allclose(own, slope, rtol=1e-6, atol=1e-8)


def test_images_are_seen_by_channel_and_the_label_at_every_place():
    net = sequence(nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 3, 3), nn.Flatten(), nn.Linear(3 * 2 * 4, 3))
    x, y = rows(5, 1, 4, 6)
    applied = apply_to(DNI(hidden=4), net, ("0", "1"), x)
    with torch.no_grad():
        for w in applied.feedback["M"][0]:
            w.add_(0.2)
    seen = see(applied, x, y)
    weights = [w.numpy() for w in applied.feedback["M"][0]]
    for row, i, j in np.ndindex(5, 4, 6):
        told = np.concatenate([seen.states[0][row, :, i, j].numpy(), np.eye(3)[int(y[row])]])
        np.testing.assert_allclose(seen.credits[0][row, :, i, j], small_net(weights, told[None])[0], rtol=1e-10)
