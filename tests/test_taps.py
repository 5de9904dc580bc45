"""Watch and cut on any module: exact gradients, nothing touched, clear errors."""

import pytest
import torch
from torch import nn

from creditscope.anatomy import examine
from creditscope.errors import CreditscopeError
from creditscope.taps import cut_forward, resolve_taps, watch_forward

pytestmark = pytest.mark.usefixtures("own_stream")


class Skip(nn.Module):
    """A skip that jumps over a tap, so that gradients must add up over paths."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        h = self.a(x)
        return self.c(torch.tanh(self.b(torch.tanh(h))) + h)


def test_watched_gradients_match_finite_differences():
    net, x = Skip().double(), torch.randn(5, 4).double()
    forward = watch_forward(net, ["a", "b"], x)
    weights = torch.randn(5, 3).double()
    g_a, g_b = torch.autograd.grad(forward.output, forward.states, weights)

    def loss(tap, change):
        hook = tap.register_forward_hook(lambda m, i, o: o + change)
        value = float((net(x) * weights).sum().detach())
        hook.remove()
        return value

    for i, j in ((0, 0), (2, 3), (4, 5)):
        step = torch.zeros(5, 6).double()
        step[i, j] = eps = 1e-6
        for tap, g in ((net.a, g_a), (net.b, g_b)):
            assert abs((loss(tap, step) - loss(tap, -step)) / (2 * eps) - float(g[i, j])) < 1e-7


def test_in_place_modules_do_not_change_what_was_read():
    net, x = InPlace(), torch.randn(8, 4)
    plain = net.a(x)
    forward = watch_forward(net, ["a", "b"], x)
    torch.testing.assert_close(forward.states[0], plain, rtol=0, atol=0)
    assert (forward.states[0] < 0).any()
    torch.testing.assert_close(forward.output, net(x), rtol=0, atol=0)
    torch.autograd.grad(forward.output.sum(), forward.states)


def test_cut_gives_each_stage_its_own_credit():
    net, x = Skip(), torch.randn(5, 4)
    forward = cut_forward(net, ["a", "b"], x, top_gradient=True)
    credit = [torch.randn(5, 6), torch.randn(5, 6)]
    torch.autograd.backward(forward.states, credit)
    torch.testing.assert_close(net.a.weight.grad, credit[0].T @ x)
    torch.testing.assert_close(net.b.weight.grad, credit[1].T @ torch.tanh(net.a(x)))
    assert net.c.weight.grad is None


def test_hooks_are_removed_after_an_error():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with pytest.raises(RuntimeError):
        watch_forward(net, ["0"], torch.zeros(2, 5))
    assert not any(m._forward_hooks for m in net.modules())


def test_globs_stay_within_one_level_and_keep_forward_order():
    net = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Sequential(nn.Linear(2, 2)))
    assert resolve_taps(net, "*") == ("0", "1")
    assert resolve_taps(net, "*.0") == ("0.0", "1.0")
    assert resolve_taps(net, ["1", "0.0"]) == ("0.0", "1")


class InPlace(Skip):
    """Taps whose state a later module changes in place."""

    def forward(self, x):
        return self.c(self.b(self.a(x).relu_()).relu_())


class Backwards(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.first(self.second(x))


def test_taps_come_in_the_order_they_fire():
    assert examine(Backwards(), ["first", "second"], torch.zeros(3, 2)).taps == ("second", "first")


class Twice(Backwards):
    def forward(self, x):
        return self.first(self.first(x))


class Named(nn.Module):
    def forward(self, x):
        return {"h": x}


@pytest.mark.parametrize(
    ("net", "taps", "text"),
    [
        (Backwards(), "blocks.*", r"'blocks\.\*'\. Choices: first, second\."),
        (Twice(), "first", r"'first' .*twice.*first, second"),
        (Twice(), "second", r"second did not\. .*: first"),
        (nn.Sequential(Named()), "0", r"'0' .*dict"),
    ],
)
def test_wrong_taps_are_refused_with_the_names_there_are(net, taps, text):
    with pytest.raises(CreditscopeError, match=text):
        examine(net, resolve_taps(net, taps), torch.zeros(3, 2))


def test_inference_mode_is_refused_and_no_grad_works():
    net, x = Backwards(), torch.randn(3, 2)
    with torch.inference_mode(), pytest.raises(CreditscopeError, match="inference_mode"):
        examine(net, ["first"], x)
    with torch.no_grad():
        stages = examine(net, ["first"], x).stages
    assert set(stages[0]) == {"first.weight", "first.bias", "second.weight", "second.bias"}


def test_anatomy_knows_stages_and_residual_blocks():
    from creditscope.nets.resmlp import ResMLP

    net = ResMLP((4,), 3, depth=2, width=5)
    anatomy = examine(net, ["stem", "blocks.0", "blocks.1"], torch.randn(4, 4))
    assert set(anatomy.stages[0]) == {"stem.weight", "stem.bias"}
    assert [name[:8] for name in anatomy.stages[2]] == ["blocks.1"] * 6
    assert set(anatomy.stages[3]) == {"norm.weight", "norm.bias", "head.weight", "head.bias"}
    assert (anatomy.residual, anatomy.shapes) == ((False, True, True), ((5,), (5,), (5,)))
    assert not anatomy.rows_interact
    plain = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3))
    assert examine(plain, ["0", "1"], torch.randn(4, 4)).residual == (False, False)


def test_frozen_parameters_still_show_gradients_at_taps():
    net, x, found = Skip(), torch.randn(5, 4), []
    for free in (True, False):
        net.requires_grad_(free)
        forward = watch_forward(net, ["a", "b"], x)
        found.append(torch.autograd.grad(forward.output.sum(), forward.states))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
