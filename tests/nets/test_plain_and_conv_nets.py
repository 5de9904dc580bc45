"""The nets for published tables: what they compute against plain torch calls, where they add, what they refuse."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from creditscope.anatomy import examine
from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.nets.lenet import LeNet
from creditscope.nets.mlp import MLP
from creditscope.nets.resnet import ResNet
from creditscope.rng import generator
from creditscope.rules import apply_rule, make_rule
from creditscope.stack import StackedNet
from creditscope.taps import resolve_taps

IMAGES = (3, 16, 16)


def taps_of(net):
    return resolve_taps(net, [name for name in (net.stem_tap, net.block_taps) if name])


@pytest.mark.parametrize(
    ("activation", "act"), [("relu", torch.relu), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid)]
)
def test_an_mlp_is_linear_maps_and_activations(activation, act):
    net, x = MLP((2, 3), 4, depth=2, width=5, activation=activation).double(), torch.randn(7, 2, 3).double()
    h = x.flatten(1)
    for layer in net.layers:
        h = act(h @ layer[0].weight.T + layer[0].bias)
    torch.testing.assert_close(net(x), h @ net.head.weight.T + net.head.bias)
    assert taps_of(net) == ("layers.0", "layers.1")
    assert examine(net, taps_of(net), x).residual == (False, False)


def test_a_lenet_has_the_sizes_of_the_published_one():
    """32, 64, 128 channels and 84 units on images of 32×32: 5×5 kernels and pools leave 28, 14, 10, 5, 1 places."""
    net = LeNet((3, 32, 32), 10)
    shapes = examine(net, taps_of(net), torch.randn(4, 3, 32, 32)).shapes
    assert shapes == ((32, 14, 14), (64, 5, 5), (128, 1, 1), (84,))
    assert [p.shape for n, p in net.named_parameters() if n == "blocks.2.1.weight"] == [(84, 128)]
    norms = [type(m).__name__ for m in LeNet((3, 32, 32), 10, norm=True).modules() if "Norm" in type(m).__name__]
    assert norms == ["BatchNorm2d"] * 3 + ["BatchNorm1d"]
    padded = LeNet(IMAGES, 10, width=4, padded=True)
    assert examine(padded, taps_of(padded), torch.randn(4, *IMAGES)).shapes[:3] == ((4, 8, 8), (8, 4, 4), (16, 2, 2))


def test_images_too_small_for_a_lenet_are_refused():
    for side, options in ((31, {}), (7, {"padded": True})):
        with pytest.raises(CreditscopeError, match=r"32×32.*8×8"):
            LeNet((3, side, side), 10, **options)
        assert LeNet((3, side + 1, side + 1), 10, **options)(torch.randn(2, 3, side + 1, side + 1)).shape == (2, 10)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_a_resnet_block_adds_before_its_relu(norm):
    torch.manual_seed(0)
    net, x = ResNet(IMAGES, 5, depth=6, width=4, norm=norm).double().eval(), torch.randn(3, *IMAGES).double()
    h = net.stem(x)
    for block in net.blocks:
        inner = functional.relu(block.norm1(functional.conv2d(h, block.conv1.weight, stride=block.stride, padding=1)))
        f = block.norm2(functional.conv2d(inner, block.conv2.weight, padding=1))
        if block.stride == 2:
            h = torch.cat([h[:, :, ::2, ::2], torch.zeros(len(h), f.shape[1] - h.shape[1], *f.shape[2:])], 1).double()
        h = functional.relu(h + f)
    torch.testing.assert_close(net(x), h.mean((2, 3)) @ net.head.weight.T + net.head.bias)


def test_blocks_that_keep_their_size_are_residual_and_the_others_not():
    net = ResNet(IMAGES, 5, depth=6, width=4)
    anatomy = examine(net, taps_of(net), torch.randn(4, *IMAGES))
    assert anatomy.residual == (False, True, True, False, True, False, True)
    for width in (1, 5, 9, 18, 20):  # groups of a norm divide any number of channels
        assert ResNet(IMAGES, 5, width=width)(torch.randn(2, *IMAGES)).shape == (2, 5)
    with pytest.raises(CreditscopeError, match="multiple of 3"):
        ResNet(IMAGES, 5, depth=4)


class Lone(nn.Module):
    """What has a ReLU, and what only looks like an addition with one after it."""

    def __init__(self, how):
        super().__init__()
        self.how, self.w = how, nn.Linear(6, 6)

    def forward(self, h):
        return {
            "relu of the state": lambda: torch.relu(h),
            "relu, then add": lambda: torch.relu(h) + self.w(h),
            "add, then relu": lambda: torch.relu(h + self.w(h)),
        }[self.how]()


@pytest.mark.parametrize(
    ("how", "adds"), [("relu of the state", False), ("relu, then add", False), ("add, then relu", True)]
)
def test_only_a_relu_after_an_addition_is_looked_through(how, adds):
    net = nn.Sequential(nn.Linear(4, 6), Lone(how), nn.Linear(6, 3))
    assert examine(net, ("0", "1"), torch.randn(5, 4)).residual == (False, adds)


def test_the_penalty_of_a_resnet_under_backprop_is_a_term_of_the_loss():
    torch.manual_seed(0)
    net, x, y = ResNet(IMAGES, 5, depth=3, width=4).double(), torch.randn(6, *IMAGES).double(), torch.arange(6) % 5
    applied = apply_rule(make_rule("bp"), net, taps_of(net), x, generator(0, "f"), penalty=0.1).applied
    applied.backward(x, lambda output: row_errors(output, y))
    found = {name: p.grad.clone() for name, p in net.named_parameters()}
    net.zero_grad()
    stem = net.stem(x)
    first = net.blocks[0](stem)
    loss = functional.cross_entropy(net(x), y) + 0.1 * (first - stem).square().flatten(1).sum(1).mean()
    loss.backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(found[name], p.grad)


@pytest.mark.parametrize("make", [lambda: LeNet(IMAGES, 5, width=4, dense=8, padded=True), lambda: ResNet(IMAGES, 5)])
def test_a_stack_of_convolutional_nets_computes_what_each_does(make):
    torch.manual_seed(0)
    nets, x = [make().double() for _ in range(3)], torch.randn(4, *IMAGES).double()
    found = StackedNet.of(nets)(x)
    for own, net in zip(found, nets, strict=True):
        np.testing.assert_allclose(own.detach(), net(x).detach(), atol=1e-12)
