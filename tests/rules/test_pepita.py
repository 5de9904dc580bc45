"""PEPITA against products of matrices, and both of its passes in NumPy."""

import numpy as np
import pytest
import torch
from credited import DEPTH, ROWS, SHAPES, at_work, close, graph, learn, shifted, stream
from torch import nn

from creditscope.anatomy import Shapes
from creditscope.losses import errors_function
from creditscope.measure.observation import observation_of_seed, observe
from creditscope.rng import generator
from creditscope.rules import rule_class
from creditscope.stack import PerSeed, StackedNet


def test_credit_in_a_linear_net_is_a_product_of_matrices():
    """a_l = −W_l … W_0 F e; the stages have skips, so W_l is I + W."""
    net, x, y = stream(linear=True)
    applied = at_work("pepita", net, x, scale=3.0)
    seen = observe(net, applied, x, y)
    p, F = {name: w.detach().numpy() for name, w in net.named_parameters()}, applied.feedback[0].numpy()
    pushed = seen.errors.error.numpy() @ F.T @ p["stem.weight"].T
    for i, a in enumerate(seen.credits):
        close(a, -pushed, atol=1e-12)
        if i < DEPTH:
            pushed = pushed @ (np.eye(5) + p[f"blocks.{i}.w.weight"]).T


@pytest.mark.parametrize("shape", SHAPES)
def test_credit_is_the_difference_of_two_plain_passes(shape):
    net, x, y, taps = SHAPES[shape]()
    applied = at_work("pepita", net, x, taps, scale=2.0)
    seen = observe(net, applied, x, y)
    zeros = [torch.zeros_like(h) for h in seen.states]
    e = net(x).detach().softmax(1) - nn.functional.one_hot(y, 3)
    moved = x + (e @ applied.feedback[0].T).reshape(x.shape)
    (first, _, _), (second, _, _) = (shifted(net, taps, inputs, y, zeros) for inputs in (x, moved))
    for a, handed, h, m in zip(seen.credits, seen.handed_on, first, second, strict=True):
        close(a, h - m)
        close(handed, m)
        assert a.abs().max() > 1e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_without_feedback_there_is_no_credit(shape):
    net, x, y, taps = SHAPES[shape]()
    applied = at_work("pepita", net, x, taps)
    applied.feedback[0].zero_()
    for a in observe(net, applied, x, y).credits:
        close(a, torch.zeros_like(a), atol=4e-15)  # attention is computed by other kernels in the second pass


@pytest.mark.parametrize("linear", [True, False], ids=["linear", "tanh"])
def test_weight_updates_by_hand(linear):
    """(h_l − h̃_l) h̃_{l−1}ᵀ of linear stages, h̃ of the second pass: x + F e for the first; the head's error there.

    Of others the credit passes the slope of tanh, at the second pass. The loss that is recorded is that of the first.
    """
    net, x, y = stream(linear=linear, skip=False)
    applied = at_work("pepita", net, x, scale=3.0)
    recorded = learn(applied, x, y)
    close(recorded.loss, nn.functional.cross_entropy(net(x), y, reduction="none").detach())
    p, F = {name: w.detach().numpy() for name, w in net.named_parameters()}, applied.feedback[0].numpy()

    def run(x: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        h = [x @ p["stem.weight"].T + p.get("stem.bias", 0)]
        for i in range(DEPTH):
            z = h[-1] @ p[f"blocks.{i}.w.weight"].T + p.get(f"blocks.{i}.w.bias", 0)
            h.append(z if linear else np.tanh(z))
        logits = h[-1] @ p["head.weight"].T + p.get("head.bias", 0)
        exp = np.exp(logits - logits.max(1, keepdims=True))
        return h, exp / exp.sum(1, keepdims=True) - np.eye(3)[y.numpy()]

    h, e = run(x.numpy())
    moved = x.numpy() + e @ F.T
    m, there = run(moved)
    below = [moved, *m]
    expected = {"head.weight": there.T @ m[-1]}
    for i, name in enumerate(["stem", *(f"blocks.{block}.w" for block in range(DEPTH))]):
        slope = 1 if linear or i == 0 else 1 - m[i] ** 2
        expected[f"{name}.weight"] = ((h[i] - m[i]) * slope).T @ below[i]
    seen = observe(net, applied, x, y)
    told = {**seen.exact_weights, **seen.rule_weights}
    for name, gradient in expected.items():
        close(net.get_parameter(name).grad, gradient / ROWS, atol=1e-12)
        close(told[name], gradient, atol=1e-12)


def stacked(applieds, nets):
    return applieds[0].stacked(StackedNet.of(nets), applieds)


@pytest.mark.parametrize("per_seed", [False, True], ids=["shared rows", "own rows"])
def test_a_stack_learns_at_every_seeds_own_inputs(per_seed):
    nets, rows = [stream()[0] for _ in range(3)], [stream()[1] + i * per_seed for i in range(3)]
    _, _, y = stream()
    for i, net in enumerate(nets):
        nn.init.normal_(net.stem.weight, std=0.3 + 0.1 * i)
    applieds = [at_work("pepita", net, x, scale=3.0) for net, x in zip(nets, rows, strict=True)]
    together = stacked(applieds, nets)
    inputs = PerSeed(torch.stack(rows)) if per_seed else rows[0]
    together.backward(inputs, errors_function(together.net, y))
    seen = observe(together.net, together, inputs, y, noise=False)
    for seed, (net, applied, x) in enumerate(zip(nets, applieds, rows, strict=True)):
        learn(applied, x, y)
        alone, own = observe(net, applied, x, y, noise=False), observation_of_seed(seen, seed)
        for name, p in together.net.named_parameters():
            close(p.grad[seed], net.get_parameter(name).grad)
            close(own.rule_weights[name], alone.rule_weights[name])


def test_a_graph_keeps_its_edges_in_the_second_pass():
    net, inputs, y, mask, taps = graph()
    others = [graph()[0] for _ in range(2)]
    applieds = [at_work("pepita", one, inputs, taps, scale=3.0) for one in others]
    together = stacked(applieds, others)
    together.backward(inputs, errors_function(together.net, y, mask=mask))
    applied = at_work("pepita", net, inputs, taps, scale=3.0)
    learn(applied, inputs, y, mask=mask)
    seen = observe(net, applied, inputs, y, mask=mask)
    x, adjacency = inputs
    moved = x + seen.errors.error @ applied.feedback[0].T
    S = adjacency.matrix.to_dense()
    first = net.layers[0].conv.linear.weight
    gate = (S @ moved @ first.T > 0).double()
    expected = ((seen.credits[0] * gate).T @ S @ moved / mask.sum()).detach()
    close(first.grad, expected, atol=1e-12)
    for name, p in together.net.named_parameters():
        for own in p.grad:
            close(own, net.get_parameter(name).grad)


def test_feedback_has_the_published_scale():
    drawn = rule_class("pepita")(scale=0.05)
    _, x, _ = stream()
    applied = at_work("pepita", stream()[0], x)
    assert applied.feedback[0].shape == (4, 3)
    shapes = Shapes.of([], torch.zeros(2, 3, 32, 32))
    F = drawn.draw_feedback(shapes, 10, generator(0, "feedback"))[0]
    bound = 0.05 * (6 / 3072) ** 0.5
    assert F.shape == (3072, 10)
    assert float(F.abs().max()) <= bound
    assert float(F.std()) == pytest.approx(bound / 3**0.5, rel=0.02)
