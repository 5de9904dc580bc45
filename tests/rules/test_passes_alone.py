"""What one seed alone does by cheaper means is what a stack of seeds does by `torch.func`."""

import pytest
import torch
from torch import nn
from torch.func import grad, vjp

from creditscope.rng import gaussians_of_many, hashed_gaussians, salt_of
from creditscope.rules._pass import Forward, draw_counter, gaussian_probe, gaussian_probes, gradient, pull_back
from creditscope.rules._small_nets import adam, draw_moments

A, B = torch.randn(3, 4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)


class Pair(nn.Module):
    """A block that gives more than its state."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x), "rest"


class PairNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(4, 4), Pair(), nn.Linear(4, 2)

    def forward(self, x):
        h, rest = self.block(self.stem(x))
        assert rest == "rest"
        return self.head(h)


def plain_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh()), nn.Linear(4, 2))


def test_a_gradient_is_that_of_torch_func():
    at = {"a": [A], "b": B, "unused": torch.ones(2)}

    def function(tree):
        return (tree["a"][0] @ tree["b"]).tanh().sum()

    ours, theirs = gradient(function, at), grad(function)(at)
    assert ours.keys() == theirs.keys()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-15)
    assert not ours["unused"].any()


def test_a_gradient_of_what_depends_on_nothing_is_zero():
    assert not gradient(lambda x: A.sum(), B).any()


def test_a_gradient_can_be_differentiated_again():
    def slopes(inner, **again):
        def outer(w):
            return inner(lambda x: (w * x.square()).sum(), B, **again).square().sum()

        return outer

    ours = gradient(slopes(gradient, again=True), A[0])
    torch.testing.assert_close(ours, 2 * A[0] * (2 * B).square())  # d/dw (2wx)²


def test_what_is_pulled_back_is_a_vjp():
    def function(x, y):
        return x * y, x.sin()

    told = (B, A[0])
    ours, theirs = pull_back(function, (A[1], A[2]), told), vjp(function, A[1], A[2])[1](told)
    torch.testing.assert_close(tuple(ours), theirs)


@torch.no_grad()
def test_another_pass_keeps_no_graph_and_leaves_the_net_as_it_was():
    net, x = plain_net(), torch.randn(5, 4)
    with torch.enable_grad():
        found = Forward(net, ["0", "1"], x)(shift=[torch.ones(5, 4), torch.zeros(5, 4)])
    assert not found.output.requires_grad
    torch.testing.assert_close(found.output, net[2](net[1](net[0](x) + 1)))
    assert not any(module._forward_hooks or "forward" in vars(module) for module in net.modules())


@pytest.mark.parametrize(
    ("net", "taps", "bare", "runs"),
    [(plain_net, ["0", "1"], True, 0), (plain_net, ["0", "1"], False, 1), (PairNet, ["stem", "block"], False, 1)],
)
def test_the_head_alone(net, taps, bare, runs):
    """Blocks are run only where what they give cannot be put together without it."""
    net, x, h, ran = net(), torch.randn(5, 4), torch.randn(5, 4), []
    forward = Forward(net, taps, x, bare=bare)
    whole = forward(at=[None, h]).output
    inner = net.get_submodule(taps[1]).inner if taps[1] == "block" else net[1][0]
    inner.register_forward_pre_hook(lambda *_: ran.append(1))
    assert torch.equal(forward.head([torch.zeros(5, 4), h]), whole)
    assert len(ran) == runs


def test_a_forward_of_the_users_own_is_put_back():
    net, x = plain_net(), torch.randn(5, 4)

    def doubled(x):
        return 2 * x

    net[1].forward = doubled
    Forward(net, ["0", "1"], x, bare=True).head([x, x])
    assert net[1].forward is doubled
    assert "forward" not in vars(net[0])


@pytest.mark.parametrize(("dtype", "off"), [(torch.float32, 4e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("shape", [(128, 40), (7, 3), (1,)])
def test_gaussians_of_many_are_those_of_each(dtype, off, shape):
    counters = [draw_counter(torch.Generator().manual_seed(i)) + torch.tensor([0, i]) for i in range(3)]
    found = gaussians_of_many(counters, [2, 0, 5], shape, dtype)
    for counter, place, numbers in zip(counters, [2, 0, 5], found, strict=True):
        assert numbers.dtype == dtype
        each = hashed_gaussians(salt_of(counter[0], counter[1], place), shape, dtype)
        torch.testing.assert_close(numbers, each, rtol=0, atol=off)


def test_probes_of_all_taps_are_those_of_each():
    counter, like = (
        draw_counter(torch.Generator().manual_seed(0)),
        [torch.zeros(5, 4), torch.zeros(2), torch.zeros(5, 4)],
    )
    for place, (h, probe) in enumerate(zip(like, gaussian_probes(counter, like), strict=True)):
        torch.testing.assert_close(probe, gaussian_probe(counter, h.shape, h.dtype, place), rtol=0, atol=4e-6)


def test_adam_of_one_seed_is_that_of_a_stack():
    weights = {"A": [torch.randn(2, 3, 4, dtype=torch.float64)], "b": torch.randn(2, 3, dtype=torch.float64)}
    slopes = {"A": [torch.randn(2, 3, 4, dtype=torch.float64)], "b": torch.randn(2, 3, dtype=torch.float64)}
    moments = draw_moments(weights) | {"steps": torch.tensor([0.0, 4.0])}
    mapped = torch.vmap(lambda w, g, m: adam(w, g, m, 0.1, 0.3))(weights, slopes, moments)
    for seed in range(2):
        mine = [{"A": [t["A"][0][seed]], "b": t["b"][seed]} for t in (weights, slopes)]
        own = draw_moments(mine[0]) | {"steps": moments["steps"][seed]}
        moved, after = adam(*mine, own, 0.1, 0.3)
        torch.testing.assert_close(moved["A"][0], mapped[0]["A"][0][seed], rtol=1e-14, atol=1e-15)
        torch.testing.assert_close(after["second"]["b"], mapped[1]["second"]["b"][seed], rtol=1e-14, atol=1e-15)
