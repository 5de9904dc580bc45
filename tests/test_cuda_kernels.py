"""Stacked layers on a CUDA device, by kernels of our own where there are some, against float64."""

import itertools
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from creditscope.stacked_functions.attention import FEW_TOKENS, stacked_attention
from creditscope.stacked_functions.devices import side_by_side
from creditscope.stacked_functions.layers import (
    FEATURES,
    MANY_ROWS,
    _fits_tensor_cores,
    linear_backward,
    stacked_layer_norm,
    stacked_linear,
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    # said if the first product of a process is one of a backward, whose thread has not met the device yet
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS, but there was no current CUDA context"),
]

SEEDS = 3


def draw(*shapes: Sequence[int], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    stream = torch.Generator("cuda").manual_seed(0)
    return [torch.randn(*s, dtype=dtype, device="cuda", generator=stream).requires_grad_() for s in shapes]


def results(function: Callable[..., Tensor], leaves: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """What a function of the leaves gives in a number format, and the gradients of all leaves for one fixed delta."""
    own = [leaf.detach().to(dtype).requires_grad_() for leaf in leaves]
    y = function(*own)
    delta = torch.randn(y.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))
    return [y, *torch.autograd.grad(y, own, delta.to(dtype))]


def relative(found: Tensor, wanted: Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


def compare(
    function: Callable[..., Tensor], plain: Callable[..., Tensor], leaves: Sequence[Tensor], within: float
) -> None:
    """The function is as near to float64 as plain torch in float32, up to a factor."""
    exact = results(plain, leaves, torch.float64)
    for own, usual, wanted in zip(
        results(function, leaves, torch.float32), results(plain, leaves, torch.float32), exact, strict=True
    ):
        assert relative(own, wanted) < within * max(relative(usual, wanted), 1e-7)


def plain_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    parts = zip(x, gain, shift, strict=True)
    return torch.stack([functional.layer_norm(h, h.shape[-1:], g, b) for h, g, b in parts])


def own_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return stacked_layer_norm(x, tuple(x.shape[-1:]), gain, shift)


@pytest.mark.parametrize("features", [1, 6, 100, 128, 300, FEATURES, FEATURES + 1])
@pytest.mark.parametrize("rows", [(1,), (37,), (300, 9)], ids=["a row", "rows", "tokens"])
def test_layer_norm_is_that_of_every_seed(rows, features):
    leaves = draw((SEEDS, *rows, features), (SEEDS, features), (SEEDS, features))
    if features == 1:  # nothing varies within a row: the output is the shift
        torch.testing.assert_close(own_norm(*leaves), plain_norm(*leaves))
    else:
        compare(own_norm, plain_norm, leaves, within=3)


def test_layer_norm_is_exact_far_from_zero():
    x, gain, shift = draw((SEEDS, 50, 64), (SEEDS, 64), (SEEDS, 64))
    leaves = [(1e3 + x).detach(), gain, shift]
    compare(own_norm, plain_norm, leaves, within=3)


def test_rows_beyond_the_last_add_nothing():
    """Without eps their scale would be infinite."""
    leaves = draw((SEEDS, 37, 40), (SEEDS, 40), (SEEDS, 40))
    found = results(lambda x, g, b: stacked_layer_norm(x, (40,), g, b, 0.0), leaves, torch.float32)
    for own, usual in zip(found, results(plain_norm, leaves, torch.float64), strict=True):
        assert relative(own, usual) < 1e-4


def test_layer_norm_takes_what_does_not_lie_in_order():
    x, gain, shift = draw((SEEDS, 32, 40), (SEEDS, 32), (SEEDS, 32))
    compare(lambda x, g, b: own_norm(x.mT, g, b), lambda x, g, b: plain_norm(x.mT, g, b), (x, gain, shift), within=3)


def plain_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1) @ v


@pytest.mark.parametrize("features", [16, 32, 64, 8])
@pytest.mark.parametrize("tokens", [2, 5, 16, 17, 32, 33, 64, 65, 66, FEW_TOKENS, FEW_TOKENS + 1])
def test_attention_is_that_of_every_seed(tokens, features):
    """TF32 alone would be 1,000 times as far off."""
    compare(stacked_attention, plain_attention, draw(*[(SEEDS, 5, 2, tokens, features)] * 3), within=4)


def test_attention_that_looks_at_one_token_only():
    """Scores far apart: the softmax must not overflow, and nothing may leak from the token left out of the tiles."""
    q, k, v = draw(*[(SEEDS, 2, 2, 17, 16)] * 3)
    q = 100 * q.detach()
    found, wanted = results(stacked_attention, (q, k, v), torch.float32), results(plain_attention, (q, k, v), q.dtype)
    for own, usual in zip(found, wanted, strict=True):
        assert own.isfinite().all()
        assert relative(own, usual) < 1e-3


def test_attention_takes_heads_as_a_linear_map_leaves_them():
    q, k, v = draw(*[(SEEDS, 4, 17, 2, 16)] * 3)

    def turned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda *each: function(*(t.transpose(2, 3) for t in each))

    compare(turned(stacked_attention), turned(plain_attention), (q, k, v), within=4)


def plain_linear(x: Tensor, weight: Tensor, shift: Tensor | None = None) -> Tensor:
    shifts = [None] * len(x) if shift is None else shift
    return torch.stack([functional.linear(h, w, b) for h, w, b in zip(x, weight, shifts, strict=True)])


@pytest.mark.parametrize("rows", [(MANY_ROWS + 7,), (300, 9)], ids=["rows", "tokens"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_linear_maps_of_many_rows_are_those_of_every_seed(rows, bias):
    leaves = draw((SEEDS, *rows, 6), (SEEDS, 4, 6), *([(SEEDS, 4)] if bias else []), dtype=torch.float64)
    for own, wanted in zip(
        results(stacked_linear, leaves, torch.float64), results(plain_linear, leaves, torch.float64), strict=True
    ):
        torch.testing.assert_close(own, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("rows", [(1,), (128,), (128, 65), (2111,)], ids=["a row", "rows", "tokens", "many rows"])
@pytest.mark.parametrize("weight", [(128, 128), (256, 128), (128, 256), (256, 3072), (208, 144)])
def test_large_linear_maps_are_those_of_every_seed(weight, rows, bias):
    """Products of parts on the tensor cores; TF32 alone would be 1,000 times as far off."""
    leaves = draw((SEEDS, *rows, weight[1]), (SEEDS, *weight), *([(SEEDS, weight[0])] if bias else []))
    assert _fits_tensor_cores(leaves[0].flatten(1, -2), leaves[1])
    compare(stacked_linear, plain_linear, leaves, within=3)


def test_large_linear_maps_take_what_does_not_lie_in_order_and_what_seeds_share():
    x, weight, shift = draw((128, 200), (SEEDS, 128, 128), (SEEDS, 128))

    def turned(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, w, b: function(x.mT[None].expand(SEEDS, -1, -1), w.mT, b).mT

    compare(turned(stacked_linear), turned(plain_linear), (x, weight, shift), within=3)
    rows = x.detach().mT.contiguous()[None].expand(SEEDS, -1, -1)
    assert rows.stride(0) == 0
    compare(lambda w, b: stacked_linear(rows.to(w.dtype), w, b), lambda w, b: plain_linear(rows.to(w.dtype), w, b),
            (weight, shift), within=3)  # fmt: skip


@pytest.mark.parametrize("needs", list(itertools.product((True, False), repeat=3)))
def test_a_large_linear_map_tells_each_only_what_it_needs(needs):
    """Also through feedback that all seeds share."""
    delta, rows, matrix = (leaf.detach() for leaf in draw((SEEDS, 200, 128), (SEEDS, 200, 256), (128, 256)))
    feedback = matrix.expand(SEEDS, -1, -1)
    assert _fits_tensor_cores(delta, feedback)
    with torch.no_grad():  # as inside a backward
        found = linear_backward(delta, rows, feedback, needs)
    exact = delta.double() @ matrix.double(), delta.double().mT @ rows.double(), delta.double().sum(1)
    for own, wanted, needed in zip(found, exact, needs, strict=True):
        assert (own is not None) == needed
        assert own is None or relative(own, wanted) < 1e-6


@pytest.mark.parametrize("size", [1e-14, 1e14])
def test_large_linear_maps_keep_their_precision_over_orders_of_magnitude(size):
    x, weight, shift = draw((SEEDS, 200, 128), (SEEDS, 128, 128), (SEEDS, 128))
    compare(stacked_linear, plain_linear, [size * x.detach(), size * weight.detach(), size**2 * shift.detach()], 2)


def test_large_linear_maps_keep_what_is_not_finite():
    """A net that diverges is told by it."""
    x, weight, shift = (leaf.detach() for leaf in draw((SEEDS, 200, 128), (SEEDS, 128, 128), (SEEDS, 128)))
    x[0, 3, 5], x[1, 4, 6] = torch.inf, torch.nan
    found, wanted = stacked_linear(x, weight, shift), plain_linear(x, weight, shift)
    assert found[0, 3].isinf().all()
    assert torch.equal(found[0, 3], wanted[0, 3])
    assert torch.equal(found.isnan(), wanted.isnan())


def test_plain_tf32_where_it_is_allowed_is_that_of_torch(monkeypatch):
    x, weight = draw((SEEDS, 200, 128), (SEEDS, 128, 128))
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", True)
    assert torch.equal(stacked_linear(x, weight), x @ weight.mT)


def test_a_large_linear_map_can_be_differentiated_twice():
    leaves = draw((SEEDS, 20, 128), (SEEDS, 128, 128), (SEEDS, 128))

    def slope(function: Callable[..., Tensor], x: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        (down,) = torch.autograd.grad(function(x, weight, shift).tanh().sum(), x, create_graph=True)
        return down

    compare(lambda *each: slope(stacked_linear, *each), lambda *each: slope(plain_linear, *each), leaves, within=4)


@pytest.mark.parametrize("features", [16, 128], ids=["torch's products", "our own"])
def test_a_captured_step_with_branches_is_the_step(features):
    """Gradients of a captured backward, whose products are branches of the graph, are those of a plain one."""
    leaves = draw((SEEDS, MANY_ROWS + 8, features), (SEEDS, features, features), (SEEDS, features))

    def step() -> tuple[Tensor, ...]:
        x, weight, shift = leaves
        for _ in range(3):
            x = stacked_linear(x, weight, shift).tanh()
        return torch.autograd.grad(x.square().sum(), leaves)

    wanted = [g.clone() for g in step()]
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        found = step()
    for _ in range(20):
        graph.replay()
        for own, usual in zip(found, wanted, strict=True):
            assert torch.equal(own, usual)


def test_an_error_in_a_branch_of_a_capture_is_not_hidden():
    """By the capture's complaint that the branch was left open."""
    (x,) = draw((4, 4))

    def short() -> Tensor:
        raise torch.OutOfMemoryError("no room")

    with pytest.raises(torch.OutOfMemoryError, match="no room"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        side_by_side((lambda: x + 1, lambda: x * 2, short))
