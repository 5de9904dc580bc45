"""Convolutions with feedback against loops in NumPy, finite differences and torch's own backward."""

import copy

import numpy as np
import pytest
import torch
from feedback_nets import built, draw, gradients
from stacks import assert_stack_alike
from torch import nn

from creditscope.losses import errors_function, row_errors
from creditscope.measure.observation import observe
from creditscope.rules import rule_class, transport_of
from creditscope.rules._layers import FeedbackConv2d, Transport
from creditscope.stack import StackedNet

CONVOLUTIONS = {
    "plain": {"kernel_size": 3},
    "no bias": {"kernel_size": 3, "bias": False},
    "stride, padding": {"kernel_size": 3, "stride": (2, 3), "padding": (1, 2)},
    "dilation": {"kernel_size": (2, 3), "dilation": (3, 2), "padding": 2},
    "groups": {"kernel_size": 3, "groups": 2, "stride": 2},
    "depthwise": {"kernel_size": 2, "groups": 4},
    "same": {"kernel_size": (3, 5), "padding": "same", "dilation": (2, 1)},
    "same, even kernel": {"kernel_size": (2, 4), "padding": "same", "dilation": (1, 2)},
    "valid": {"kernel_size": 3, "padding": "valid"},
    "reflect": {"kernel_size": 3, "padding": (2, 1), "padding_mode": "reflect", "stride": 2},
    "reflect, same": {"kernel_size": (4, 3), "padding": "same", "padding_mode": "reflect", "groups": 2},
    "replicate": {"kernel_size": 3, "padding": 2, "padding_mode": "replicate", "groups": 2},
    "circular": {"kernel_size": (3, 2), "padding": (1, 2), "padding_mode": "circular", "dilation": 2},
    "rows left over": {"kernel_size": 2, "stride": 3},
}
MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
SHAPE = (3, 4, 7, 8)
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def make(case: str) -> tuple[nn.Conv2d, FeedbackConv2d, torch.Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        plain = nn.Conv2d(4, 8, **CONVOLUTIONS[case]).double()
        feedback = torch.randn(plain.weight.shape)
        x = torch.randn(SHAPE).double().requires_grad_()
    return plain, FeedbackConv2d(copy.deepcopy(plain), feedback, Transport(rule_class("fa")())), x


def in_loops(conv: nn.Conv2d, x: np.ndarray, B: np.ndarray, delta: np.ndarray | None = None):
    """y, and with δ (δ sent down by B, ∂W, ∂b), each place of each output on its own."""
    W = conv.weight.detach().numpy()
    b = np.zeros(len(W)) if conv.bias is None else conv.bias.detach().numpy()
    (up, left), (step, over), (_, per_group, high, wide) = conv.dilation, conv.stride, W.shape
    if conv.padding == "same":
        total = [up * (high - 1), left * (wide - 1)]
        margins = [(t // 2, t - t // 2) for t in total]
    else:
        margins = [(0, 0)] * 2 if conv.padding == "valid" else [(p, p) for p in conv.padding]
    places = np.pad(np.arange(1, x[0, 0].size + 1).reshape(x.shape[2:]), margins, mode=MODES[conv.padding_mode])
    flat = np.concatenate([np.zeros((*x.shape[:2], 1)), x.reshape(*x.shape[:2], -1)], axis=2)  # place 0: outside
    rows = (places.shape[0] - up * (high - 1) - 1) // step + 1
    columns = (places.shape[1] - left * (wide - 1) - 1) // over + 1
    y, down = np.zeros((len(x), len(W), rows, columns)), np.zeros_like(flat)
    of_W, of_b = np.zeros_like(W), np.zeros_like(b)
    for n, o, i, j in np.ndindex(y.shape):
        y[n, o, i, j] = b[o]
        of_b[o] += 0 if delta is None else delta[n, o, i, j]
        for c, u, v in np.ndindex(per_group, high, wide):
            channel = o // (len(W) // conv.groups) * per_group + c
            place = places[i * step + u * up, j * over + v * left]
            y[n, o, i, j] += W[o, c, u, v] * flat[n, channel, place]
            if delta is not None:
                down[n, channel, place] += B[o, c, u, v] * delta[n, o, i, j]
                of_W[o, c, u, v] += flat[n, channel, place] * delta[n, o, i, j]
    return y, down[:, :, 1:].reshape(x.shape), of_W, of_b


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_matches_loops_over_every_place(case):
    plain, layer, x = make(case)
    shown = x.detach().numpy()[:1]
    y = layer(x[:1])
    delta = torch.randn_like(y)
    found = torch.autograd.grad(y, (x, *layer.parameters()), delta)
    wanted = in_loops(plain, shown, layer.feedback.numpy(), delta.numpy())
    close = {"rtol": 1e-11, "atol": 1e-12}
    np.testing.assert_allclose(y.detach(), wanted[0], **close)
    np.testing.assert_allclose(found[0][:1], wanted[1], **close)
    np.testing.assert_allclose(found[1], wanted[2], **close)
    if plain.bias is not None:
        np.testing.assert_allclose(found[2], wanted[3], **close)


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_the_exact_switch_gives_what_torch_gives(case):
    plain, layer, x = make(case)
    y, y_plain = layer(x), plain(x)
    delta = torch.randn_like(y)
    with layer.transport.exactly():
        found = (y, *torch.autograd.grad(y, (x, *layer.parameters()), delta))
    wanted = (y_plain, *torch.autograd.grad(y_plain, (x, *plain.parameters()), delta))
    for a, b in zip(found, wanted, strict=True):
        assert torch.equal(a, b) or (case == "same, even kernel" and torch.allclose(a, b, rtol=1e-13, atol=1e-14))


@pytest.mark.parametrize("case", ["stride, padding", "groups", "same, even kernel", "reflect", "circular"])
def test_exact_credit_matches_finite_differences(case):
    _, layer, x = make(case)
    parameters = dict(layer.named_parameters())

    def forward(x, *tensors):
        return torch.func.functional_call(layer, dict(zip(parameters, tensors, strict=True)), (x,))

    with layer.transport.exactly():
        assert torch.autograd.gradcheck(forward, (x[:1, :, :5, :5].detach().requires_grad_(), *parameters.values()))
        assert torch.autograd.gradgradcheck(layer, x[:1, :, :4, :5].detach().requires_grad_())


def test_feedback_sends_what_finite_differences_through_it_say():
    """⟨δ, conv_B(x)⟩ is linear in x: its slope along any direction is that of the credit sent down."""
    plain, layer, x = make("reflect")
    through_B = copy.deepcopy(plain)
    with torch.no_grad():
        through_B.weight.copy_(layer.feedback)
    y, direction = layer(x), torch.randn(SHAPE).double()
    delta = torch.randn_like(y)
    (down,) = torch.autograd.grad(y, x, delta)
    with torch.no_grad():
        slope = (delta * (through_B(x + direction) - through_B(x - direction))).sum() / 2
    torch.testing.assert_close((down * direction).sum(), slope, rtol=1e-11, atol=0)


def test_one_image_without_rows_and_narrow_numbers_under_autocast():
    plain, layer, x = make("groups")
    alone = x[0].detach().requires_grad_()
    y, delta = layer(alone), torch.randn_like(layer(x))
    assert torch.equal(y, plain(alone))
    (found,) = torch.autograd.grad(y, alone, delta[0])
    torch.testing.assert_close(found, torch.autograd.grad(layer(x), x, delta)[0][0])
    layer, narrow = layer.float(), x.detach().float().requires_grad_()
    wanted = torch.autograd.grad(layer(narrow), (narrow, *layer.parameters()), delta.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(narrow)
    assert y.dtype == torch.bfloat16
    found = torch.autograd.grad(y, (narrow, *layer.parameters()), delta.bfloat16())
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == torch.float32
        assert float((a - b).norm() / b.norm()) < 0.01


def test_nothing_is_computed_for_what_needs_no_gradient():
    _, layer, x = make("plain")
    layer.weight.requires_grad_(False)
    y = layer(x.detach())
    y.sum().backward()
    assert (layer.weight.grad, x.grad) == (None, None)
    torch.testing.assert_close(layer.bias.grad, torch.full((8,), float(y[:, 0].numel())).double())


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "feedback"])
@pytest.mark.parametrize("per_seed", [True, False], ids=["own inputs", "shared inputs"])
@pytest.mark.parametrize("rule", ["fa", "sign_fa"])
def test_a_stack_of_seeds_learns_as_each_alone(rule, per_seed, exact):
    nets = [built(rule, "conv", seed)[0].net for seed in range(3)]
    for net in nets:
        transport_of(net).exact = exact
    x = torch.randn(3, 5, 2, 6, 6).double()
    assert_stack_alike(nets, x if per_seed else x[0], per_seed=per_seed)


@pytest.mark.parametrize(
    ("rule", "options"), [("wm", {"rows": 8}), ("kp", {}), ("sign_fa", {"variant": "br"}), ("fa", {"scale": "init"})]
)
def test_steps_of_a_stack_are_those_of_its_seeds(rule, options):
    """Three steps of SGD; weights, feedback and counters."""
    _, x, y = draw("conv")
    alone = [built(rule, "conv", seed, **options)[0] for seed in range(3)]
    stack = StackedNet.of([copy.deepcopy(one.net) for one in alone])
    together = alone[0].stacked(stack, alone)

    def step(applied, errors_of) -> None:
        follow = applied.followers()
        members = [t for n, p in applied.net.named_parameters() for t in (p, *follow.get(n, []))]
        optimiser = torch.optim.SGD(members, lr=0.1, weight_decay=0.1)
        optimiser.zero_grad()
        applied.backward(x, errors_of)
        optimiser.step()

    for _ in range(3):
        step(together, errors_function(stack, y.expand(3, -1)))
        for one in alone:
            step(one, lambda output: row_errors(output, y))
    for seed, one in enumerate(alone):
        for name, tensor in stack.state_of(seed).items():
            torch.testing.assert_close(tensor, one.net.state_dict()[name], rtol=1e-10, atol=1e-12, msg=name)
    assert float((alone[0].net[0].weight - draw("conv")[0][0].weight).detach().norm()) > 0.01


def test_measured_as_trained():
    applied, _, x, y = built("fa", "conv")
    seen, found = observe(applied.net, applied, x, y), gradients(applied, x, y)
    for name, g in {**seen.exact_weights, **seen.rule_weights}.items():
        torch.testing.assert_close(g / len(x), found[name], rtol=1e-11, atol=1e-14)
