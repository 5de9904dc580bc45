"""The linear map with feedback in every way it may be called, against derivations by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import profile

from creditscope.rules import FeedbackLinear, rule_class
from creditscope.rules._layers import LinearWithFeedback, Transport


def layer_of(inputs: int, outputs: int, *, bias: bool = True, dtype: torch.dtype = torch.float64) -> FeedbackLinear:
    torch.manual_seed(0)
    linear = nn.Linear(inputs, outputs, bias=bias, dtype=dtype)
    return FeedbackLinear(linear, torch.randn(outputs, inputs), Transport(rule_class("fa")()))


def weights_of(layer: FeedbackLinear) -> tuple[Tensor, Tensor, Tensor]:
    return layer.weight.detach(), layer.bias.detach(), layer.feedback


@pytest.mark.parametrize("leading", [(), (5,), (5, 3), (2, 5, 3)])
@pytest.mark.parametrize("bias", [True, False])
def test_any_leading_dimensions_with_and_without_a_bias(leading, bias):
    layer = layer_of(4, 6, bias=bias)
    x = torch.randn(*leading, 4, dtype=torch.float64, requires_grad=True)
    y = layer(x)
    torch.testing.assert_close(y, x @ layer.weight.T + (layer.bias if bias else 0))
    delta = torch.randn_like(y)
    down, *found = torch.autograd.grad(y, (x, *layer.parameters()), delta, retain_graph=True)
    torch.testing.assert_close(down, delta @ layer.feedback)
    torch.testing.assert_close(found[0], delta.reshape(-1, 6).T @ x.detach().reshape(-1, 4))
    torch.testing.assert_close(found[1:], [delta.reshape(-1, 6).sum(0)] * bias)
    with layer.transport.exactly():
        torch.testing.assert_close(torch.autograd.grad(y, x, delta)[0], delta @ layer.weight.detach())


def test_under_vmap_equals_a_loop():
    torch.manual_seed(0)
    x, w, b = torch.randn(3, 5, 4, requires_grad=True), torch.randn(3, 6, 4, requires_grad=True), torch.randn(3, 6)
    feedback, transport = torch.randn(3, 6, 4), Transport(rule_class("fa")())
    stacked = torch.vmap(lambda *t: LinearWithFeedback.apply(*t, transport))(x, w, b, feedback)
    delta = torch.randn_like(stacked)
    got = torch.autograd.grad(stacked, (x, w), delta)
    torch.testing.assert_close(got, (delta @ feedback, delta.transpose(1, 2) @ x.detach()))


@pytest.mark.parametrize("dim", [0, 1])
def test_under_vmap_a_layer_that_all_share_is_one_product(dim):
    """Its weight is told by all of them; batched products of a weight that is repeated would be slower."""
    x, w, b = torch.randn(3, 5, 4, requires_grad=True), torch.randn(6, 4, requires_grad=True), torch.randn(6)
    feedback, transport = torch.randn(6, 4), Transport(rule_class("fa")())
    delta = torch.randn(*x.movedim(dim, 0).shape[:2], 6)
    with profile() as seen:
        mapped = torch.vmap(lambda x: LinearWithFeedback.apply(x, w, b, feedback, transport), in_dims=dim)(x)
        got = torch.autograd.grad(mapped, (x, w), delta)
    assert {"aten::bmm", "aten::baddbmm"}.isdisjoint(event.key for event in seen.key_averages())
    each = x.movedim(dim, 0)
    torch.testing.assert_close(mapped, each @ w.T + b)
    down = (delta @ feedback).movedim(0, dim)
    torch.testing.assert_close(got, (down, delta.flatten(0, 1).T @ each.detach().flatten(0, 1)))


def test_under_vmap_weights_of_seeds_are_not_taken_for_those_of_slices():
    x, w, feedback = torch.randn(2, 2, 5, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 4)  # as many slices as seeds
    transport = Transport(rule_class("fa")())
    mapped = torch.vmap(lambda x: LinearWithFeedback.apply(x, w, None, feedback, transport))(x)
    torch.testing.assert_close(mapped, x @ w.mT)


def test_nothing_is_computed_for_what_needs_no_gradient():
    layer, x = layer_of(4, 6), torch.randn(5, 4, dtype=torch.float64)
    layer.weight.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((6,), 5.0, dtype=torch.float64))


@pytest.mark.parametrize("leading", [(5,), (5, 3)])
def test_under_autocast_gradients_have_the_weights_number_format(leading):
    lower, upper = layer_of(4, 6, dtype=torch.float32), layer_of(6, 3, dtype=torch.float32)
    x = torch.randn(*leading, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = lower(x)
        y = upper(h)
    assert h.dtype == y.dtype == torch.bfloat16
    delta = torch.randn(y.shape).bfloat16()
    y.backward(delta)
    down = (delta.float() @ upper.feedback).bfloat16().float()
    for layer, above, below in ((upper, delta.float(), h.detach().float()), (lower, down, x)):
        assert layer.weight.grad is not None
        assert layer.weight.grad.dtype == torch.float32
        torch.testing.assert_close(layer.weight.grad, torch.einsum("...o,...i->oi", above, below))
        torch.testing.assert_close(layer.bias.grad, above.flatten(0, -2).sum(0))


def test_a_layer_used_twice_adds_up_and_obeys_the_switch():
    layer, x = layer_of(4, 4), torch.randn(5, 4, dtype=torch.float64)
    W, _, B = weights_of(layer)
    h = layer(x)
    y, delta = layer(h), torch.randn(5, 4, dtype=torch.float64)
    found = torch.autograd.grad(y, layer.weight, delta, retain_graph=True)[0]
    torch.testing.assert_close(found, delta.T @ h.detach() + (delta @ B).T @ x)
    with layer.transport.exactly():
        exact = torch.autograd.grad(y, layer.weight, delta)[0]
    torch.testing.assert_close(exact, delta.T @ h.detach() + (delta @ W).T @ x)


def test_a_backward_can_be_differentiated_and_goes_through_the_feedback_again():
    layer, x = layer_of(4, 6), torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    W, b, B = weights_of(layer)
    (g,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)  # 2 y B
    found = torch.autograd.grad(g.square().sum(), (x, layer.weight))
    y = x.detach() @ W.T + b
    torch.testing.assert_close(g, 2 * y @ B)
    above = 4 * (2 * y @ B) @ B.T
    torch.testing.assert_close(found, (above @ B, above.T @ x.detach()))


def test_under_function_transforms():
    layer, x = layer_of(4, 6), torch.randn(5, 4, dtype=torch.float64)
    W, b, B = weights_of(layer)
    y = x @ W.T + b
    shared = {"weight": W, "bias": b, "feedback": B}

    def loss(x: Tensor, weight: Tensor) -> Tensor:
        return torch.func.functional_call(layer, shared | {"weight": weight}, (x,)).square().sum()

    down, grad_weight = torch.func.grad(loss, argnums=(0, 1))(x, W)
    torch.testing.assert_close((down, grad_weight), (2 * y @ B, 2 * y.T @ x))
    each = torch.vmap(torch.func.grad(loss, argnums=1), in_dims=(0, None))(x, W)
    torch.testing.assert_close(each, torch.einsum("no,ni->noi", 2 * y, x))
    torch.testing.assert_close(torch.func.jacrev(layer)(x[0]), B)
