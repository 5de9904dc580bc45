"""Layers of many seeds at once: outputs and gradients are those of the layers one by one, however a net calls them."""

from collections.abc import Callable

import pytest
import torch
from stacks import NETS, SEEDS, assert_stack_alike, close, draw, leaf, nets_of
from torch import Tensor, nn
from torch.nn import functional

from creditscope import stacked_functions
from creditscope.stack import StackedNet
from creditscope.stacked_functions import (
    OneForAll,
    StackedFunctions,
    stacked_attention,
    stacked_layer_norm,
    stacked_linear,
)
from creditscope.stacked_functions.layers import product_over_rows, sum_over_rows

pytestmark = pytest.mark.usefixtures("own_stream")


def assert_alike(stacked: Callable[..., Tensor], plain: Callable[..., Tensor], *tensors: Tensor | None) -> None:
    """One call on all seeds gives the outputs and the gradients of one call for each."""
    output = stacked(*tensors)
    delta = torch.randn_like(output)
    found = torch.autograd.grad(output, [t for t in tensors if t is not None], delta)
    for seed in range(SEEDS):
        own = [t if t is None else t[seed].detach().requires_grad_() for t in tensors]
        alone = plain(*own)
        close(output[seed], alone)
        wanted = torch.autograd.grad(alone, [t for t in own if t is not None], delta[seed])
        for g, w in zip(found, wanted, strict=True):
            close(g[seed], w)


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rows", [(10,), (8,), (7, 5)], ids=["rows", "whole parts", "tokens"])
def test_linear_is_that_of_every_seed(rows, bias):
    tensors = leaf(SEEDS, *rows, 6), leaf(SEEDS, 4, 6), leaf(SEEDS, 4) if bias else None
    assert_alike(stacked_linear, functional.linear, *tensors)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
def test_linear_gives_the_gradients_that_are_asked_for(needed):
    tensors = [t.requires_grad_(n) for t, n in zip((leaf(2, 5, 3), leaf(2, 4, 3), leaf(2, 4)), needed, strict=True)]
    stacked_linear(*tensors).sum().backward()
    assert tuple(t.grad is not None for t in tensors) == needed


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize(("weight", "bias"), [(True, True), (False, False), (True, False), (False, True)])
@pytest.mark.parametrize(
    ("rows", "shape"),
    [((10,), (6,)), ((8,), (6,)), ((7, 5), (6,)), ((7,), (5, 6))],
    ids=["rows", "whole parts", "tokens", "over tokens and features"],
)
def test_layer_norm_is_that_of_every_seed(rows, shape, weight, bias):
    tensors = leaf(SEEDS, *rows, *shape), leaf(SEEDS, *shape) if weight else None, leaf(SEEDS, *shape) if bias else None
    assert_alike(
        lambda x, w, b: stacked_layer_norm(x, shape, w, b, 1e-3),
        lambda x, w, b: functional.layer_norm(x, shape, w, b, 1e-3),
        *tensors,
    )


def test_attention_is_that_of_every_seed():
    tensors = leaf(SEEDS, 4, 2, 5, 3), leaf(SEEDS, 4, 2, 7, 3), leaf(SEEDS, 4, 2, 7, 3)
    assert_alike(stacked_attention, functional.scaled_dot_product_attention, *tensors)


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("rows", [4, 8, 9, 11])
def test_products_and_sums_over_rows(rows):
    delta, x = leaf(SEEDS, rows, 3).detach(), leaf(SEEDS, rows, 5).detach()
    products, sums = product_over_rows(delta, x), sum_over_rows(delta)
    for seed in range(SEEDS):
        close(products[seed], torch.einsum("no,ni->oi", delta[seed], x[seed]))
        close(sums[seed], delta[seed].sum(0))
        close(product_over_rows(delta[seed], x[seed]), products[seed])
        close(sum_over_rows(delta[seed]), sums[seed])


class TestOneForAll:
    def test_the_function_is_called_once_on_plain_tensors_with_the_seeds_first(self):
        seen = []

        def scaled(x: Tensor, y: Tensor, factor: float) -> Tensor:
            seen.append((x.shape, y.stride()))
            return x * y * factor

        x, y = leaf(SEEDS, 5).detach(), leaf(5).detach()
        found = torch.vmap(lambda own: OneForAll.apply(scaled, own, y, 2.0))(x)
        close(found, x * y * 2)
        assert seen == [((SEEDS, 5), (0, 1))]

    def test_a_seed_axis_elsewhere_is_moved_to_the_front(self):
        x = leaf(5, SEEDS).detach()
        found = torch.vmap(lambda own: OneForAll.apply(lambda t: t[:, :2] + 1, own), in_dims=1)(x)
        close(found, x.T[:, :2] + 1)

    def test_gradients_flow_through_what_it_does(self):
        x = leaf(SEEDS, 5)
        (g,) = torch.autograd.grad(torch.vmap(lambda own: OneForAll.apply(torch.square, own))(x).sum(), x)
        close(g, 2 * x)


class Attends(nn.Module):
    """Attention over five tokens, with what else a net may ask for; only the plain one is fused."""

    def __init__(self, options: dict):
        super().__init__()
        self.options, self.qkv = options, nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(-3, -2) for t in self.qkv(x).chunk(3, -1))
        return functional.scaled_dot_product_attention(q, k, v, **self.options)


class Asks(nn.Module):
    """A linear map and a layer norm called as functions, with what the caller names by keyword."""

    def __init__(self, call: Callable[["Asks", Tensor], Tensor]):
        super().__init__()
        self.call = call
        self.weight, self.bias = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self, x)


CALLS: dict[str, Callable[[Asks, Tensor], Tensor]] = {
    "all by place": lambda m, x: functional.linear(x, m.weight, m.bias),
    "bias named": lambda m, x: functional.linear(x, m.weight, bias=m.bias),
    "named in another order": lambda m, x: functional.linear(x, bias=m.bias, weight=m.weight),
    "one output": lambda m, x: functional.linear(x, m.weight[0]),
    "no rows": lambda m, x: functional.linear(x[0], m.weight, m.bias),
    "norm named": lambda m, x: functional.layer_norm(x, [6], bias=m.bias, weight=m.weight[0], eps=0.1),
    "norm without": lambda m, x: functional.layer_norm(x + m.bias, (6,)),
}


class TestStackedFunctions:
    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_functions_mean_what_they_mean_alone_however_they_are_called(self, call):
        assert_stack_alike(nets_of(lambda: Asks(call)), draw(True, 7, 6))

    @pytest.mark.filterwarnings("ignore:There is a performance drop")
    @pytest.mark.parametrize("how", [{}, {"is_causal": True}, {"attn_mask": torch.eye(5, dtype=torch.bool)}], ids=str)
    def test_attention_of_any_kind(self, how):
        assert_stack_alike(nets_of(lambda: Attends(how)), draw(True, 4, 5, 6))

    def test_a_net_calls_them_once_for_all_seeds(self, monkeypatch):
        called = []
        for name in ("stacked_linear", "stacked_layer_norm", "stacked_attention"):
            original = getattr(stacked_functions, name)

            def counted(*args, name: str = name, original: Callable = original) -> Tensor:
                called.append((name, len(args[0])))
                return original(*args)

            monkeypatch.setattr(stacked_functions, name, counted)
        StackedNet.of(nets_of(NETS["tokens"]))(draw(False, 2, 3, 8, 8))
        wanted = ["stacked_linear"] * 8 + ["stacked_layer_norm"] * 3 + ["stacked_attention"]
        assert sorted(called) == sorted((name, SEEDS) for name in wanted)

    def test_outside_a_map_and_after_it_functions_are_torch_s_own(self):
        x, weight = leaf(5, 6).detach(), leaf(4, 6).detach()
        with pytest.raises(RuntimeError, match="seeds share it"), StackedFunctions():
            functional.linear(x, weight)
        close(functional.linear(x, weight), x @ weight.T)
