"""The `Conv1D` of transformers, y = x W + b with W (in, out): rules are told (out, in), as of any other layer."""

import copy
import math
from typing import Any

import pytest
import torch
from feedback_nets import apply, backprop, cosine, gradients, relative_error
from stacks import assert_stack_alike
from torch import nn

import creditscope as cs
from creditscope.rng import generator
from creditscope.rules import Layer, WeightRule, apply_rule, layers_with_feedback, weights_and_feedback

IN, OUT = 6, 5


class Conv1D(nn.Module):
    """What that class computes, under its name."""

    def __init__(self, nf: int, nx: int):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf) * 0.3), nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


Conv1D.__module__ = "transformers.pytorch_utils"


def theirs() -> Any:
    return pytest.importorskip("transformers.pytorch_utils").Conv1D


@pytest.fixture(params=["ours", "theirs"])
def kind(request, own_stream):
    return Conv1D if request.param == "ours" else theirs()


def net_of(kind: Any) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """On tokens, as there; the head reads all of them."""
    layers = (kind(OUT, IN), nn.Tanh(), kind(IN, OUT), nn.Tanh(), nn.Flatten(), nn.Linear(3 * IN, 4))
    return nn.Sequential(*layers).double(), torch.randn(7, 3, IN).double(), torch.randint(4, (7,))


def test_credit_goes_down_through_the_feedback_and_forward_is_as_it_was(kind):
    net, x, _ = net_of(kind)
    before = net(x)
    apply("fa", net, x, ["1", "3"])
    torch.testing.assert_close(net(x), before, rtol=1e-13, atol=1e-14)
    layer = net[0]
    assert layer.feedback.shape == layer.weight.shape == (IN, OUT)
    x.requires_grad_()
    y = layer(x)
    delta = torch.randn_like(y)
    down, of_weight, of_bias = torch.autograd.grad(y, (x, layer.weight, layer.bias), delta)
    torch.testing.assert_close(down, delta @ layer.feedback.T)
    torch.testing.assert_close(of_weight, torch.einsum("nti,nto->io", x.detach(), delta))
    torch.testing.assert_close(of_bias, delta.sum((0, 1)))


@pytest.mark.parametrize("rule", ["fa", "kp"])
def test_feedback_equal_to_the_weights_is_backprop(kind, rule):
    net, x, y = net_of(kind)
    plain = copy.deepcopy(net)
    applied = apply(rule, net, x, ["1", "3"])
    for layer in layers_with_feedback(net).values():
        layer.feedback.copy_(layer.weight.detach())
    assert relative_error(gradients(applied, x, y), backprop(plain, x, y)) < 1e-12


@pytest.mark.parametrize("rule", ["fa", "sign_fa"])
def test_a_stack_of_seeds_learns_as_each_alone(kind, rule):
    nets = [apply(rule, net_of(kind)[0], torch.randn(7, 3, IN).double(), ["1", "3"], seed).net for seed in range(3)]
    assert_stack_alike(nets, torch.randn(3, 7, 3, IN).double(), per_seed=True)


@pytest.mark.usefixtures("own_stream")
def test_noise_of_the_mirror_goes_in_where_the_input_does():
    """So the angle is that of a layer with as many inputs; backwards through W it would be that of its outputs."""
    rate, rows, inputs = 0.2, 16, 200
    net = nn.Sequential(Conv1D(8, inputs), nn.Tanh(), nn.Linear(8, 3)).double()
    applied = apply("wm", net, torch.randn(5, inputs).double(), ["1"], rate=rate, rows=rows)
    buffers, found = dict(net.named_buffers()), []
    for _ in range(300):
        for name, new in applied.next_memories().items():
            buffers[name].copy_(new)
        found.append(cosine(net[0].weight, net[0].feedback))
    expected, backwards = (1 / math.sqrt(1 + rate / (2 - rate) * (d + 1) / rows) for d in (inputs, 8))
    assert sum(found) / 300 == pytest.approx(expected, rel=0.01)
    assert abs(expected - backwards) > 0.1


@pytest.mark.usefixtures("own_stream")
def test_a_rule_is_told_out_first_wherever_it_is_asked():
    class ByRow(WeightRule):
        """Not symmetric in inputs and outputs: every output has a size of its own."""

        label, needs_feedback, learns_feedback = "by row", True, True

        def draw_memory(self, layer: Layer, generator):
            assert layer.weight.shape == (layer.outputs, layer.inputs)
            return torch.arange(1.0, 1 + layer.outputs)[:, None].expand(layer.weight.shape)

        def transport(self, weight, memory):
            return memory * weight.norm(dim=1, keepdim=True)

        def learn(self, weight, memory, noise):
            return memory + weight[:, :1]

    net, x, y = net_of(Conv1D)
    applied = apply_rule(ByRow(), net, ("1", "3"), x, generator(0, "feedback")).applied
    layer = net[0]
    W = layer.weight.detach().T.clone()
    gradients(applied, x, y)
    memory = torch.arange(1.0, 1 + OUT).double()[:, None] + W[:, :1]
    torch.testing.assert_close(layer.feedback, memory.expand(OUT, IN).T)
    B = memory * W.norm(dim=1, keepdim=True).expand(OUT, IN)
    delta = torch.randn(7, 3, OUT).double()
    torch.testing.assert_close(torch.autograd.grad(layer(x.requires_grad_()), x, delta)[0], delta @ B)
    torch.testing.assert_close(weights_and_feedback(net)["0.weight"], (W, B))


def test_restored_it_is_the_layer_it_was(kind):
    net, x, _ = net_of(kind)
    layers, names, before = [net[0], net[2]], list(net.state_dict()), net(x)
    cs.convert(net, "fa", taps=["1", "3"], inputs=x)
    assert type(net[0]) is not kind
    cs.restore(net)
    assert [net[0], net[2]] == layers
    assert list(net.state_dict()) == names
    assert torch.equal(net(x), before)
