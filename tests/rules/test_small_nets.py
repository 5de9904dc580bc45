"""The small nets that rules own: Adam step by step against torch's, the MLP against NumPy, what is drawn."""

import numpy as np
import pytest
import torch
from small import small_net, small_net_jacobian
from torch.func import jacrev, vmap

from creditscope.rng import generator
from creditscope.rules._small_nets import adam, draw_mlp, draw_moments, mlp


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-13), (torch.float32, 2e-6)], ids=str)
def test_adam_moves_as_torchs_does_step_by_step(decay, dtype, rtol):
    """Every step's move, not the sum of them: a wrong bias correction fades after a few steps."""
    draw = torch.Generator().manual_seed(0)
    weights = {"a": [torch.randn(3, 4, generator=draw).to(dtype)], "b": torch.randn(5, generator=draw).to(dtype)}
    theirs = [torch.nn.Parameter(w.clone()) for w in (weights["a"][0], weights["b"])]
    optimiser = torch.optim.AdamW(theirs, lr=0.02, weight_decay=decay, foreach=False)
    moments = draw_moments(weights)
    moments["steps"] = moments["steps"].to(dtype)
    for step in range(60):
        size = 10.0 ** (3 * np.sin(step))  # gradients from 1e-3 to 1e3
        gradients = {"a": [size * torch.randn(3, 4, generator=draw).to(dtype)], "b": torch.zeros(5, dtype=dtype)}
        if step % 3:
            gradients["b"] = 1e-9 * torch.randn(5, generator=draw).to(dtype)  # where ε counts
        for parameter, gradient in zip(theirs, (gradients["a"][0], gradients["b"]), strict=True):
            parameter.grad = gradient.clone()
        before = [p.detach().clone() for p in theirs]
        moved, moments = adam(weights, gradients, moments, 0.02, decay)
        optimiser.step()
        for own, old, p in zip((moved["a"][0], moved["b"]), before, theirs, strict=True):
            torch.testing.assert_close(own - old, p.detach() - old, rtol=100 * rtol, atol=rtol)
        weights = {"a": [theirs[0].detach().clone()], "b": theirs[1].detach().clone()}


def test_adam_without_decay_is_torchs_adam_and_writes_nothing():
    weights = [torch.arange(4.0, dtype=torch.float64)]
    moments = draw_moments(weights)
    parameter = torch.nn.Parameter(weights[0].clone())
    optimiser = torch.optim.Adam([parameter], lr=1e-3)
    own = weights
    for step in range(20):
        gradient = torch.cos(torch.arange(4.0, dtype=torch.float64) * (1 + step))
        parameter.grad = gradient.clone()
        optimiser.step()
        own, moments = adam(own, [gradient], moments, 1e-3)
    torch.testing.assert_close(own[0], parameter.detach(), rtol=1e-14, atol=1e-14)
    assert torch.equal(weights[0], torch.arange(4.0, dtype=torch.float64))


def test_the_first_move_of_adam_in_float32_is_the_rate_to_seven_digits():
    """1 − .999 taken in float32 is off by 3e-5, and so were the first moves."""
    weights = [torch.zeros(1)]
    moved, _ = adam(weights, [torch.ones(1)], draw_moments(weights), 1.0)
    assert abs(float(moved[0]) + 1) < 2e-7


@pytest.mark.parametrize("sizes", [[4, 3], [4, 7, 3], [4, 6, 5, 2]], ids=str)
def test_the_mlp_is_that_of_numpy(sizes):
    weights = [w.double() + 0.1 for w in draw_mlp(sizes, generator(0, "feedback"))]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    arrays = [w.numpy() for w in weights]
    np.testing.assert_allclose(mlp(weights, x), small_net(arrays, x.numpy()), rtol=1e-12)
    np.testing.assert_allclose(mlp(weights, x.view(5, 1, 4))[:, 0], small_net(arrays, x.numpy()), rtol=1e-12)
    jacobian = vmap(jacrev(lambda row: mlp(weights, row)))(x)
    np.testing.assert_allclose(jacobian, small_net_jacobian(arrays, x.numpy()), rtol=1e-10)


def test_what_is_drawn():
    first, b1, last, b2 = draw_mlp([400, 300, 50], generator(0, "feedback"), last=0.1)
    assert (first.shape, b1.shape, last.shape, b2.shape) == ((300, 400), (300,), (50, 300), (50,))
    assert abs(float(first.var()) * 400 - 1) < 0.02
    assert abs(float(last.var()) * 300 / 0.01 - 1) < 0.05
    assert not b1.any()
    assert not b2.any()
    assert not draw_mlp([4, 3], generator(0, "feedback"), last=0.0)[0].any()
