"""Layers of many seeds at once, for which `vmap` has no rule or a slow one: linear maps, layer norm, attention.

A net under `vmap` that calls one of them inside `StackedFunctions()` gets it as one operation on all seeds: products as
one batched product whose weight gradients come out in the layout of the weights, attention by the fused kernel.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

MANY_ROWS = 1024
"""Rows from which on one seed's products fill a GPU, but sums over rows into small weights do not."""
PARTS = 32
FEW_TOKENS = 128


class OneForAll(torch.autograd.Function):
    """Inside `vmap`, calls `function` once, outside the map, on the plain tensors of all seeds, seeds first.

    What it returns goes on inside. So states can be kept and cut in a stack as in a single net, too.
    """

    @staticmethod
    def forward(function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Reached only where nothing differs between seeds: a tap before the first parameter, say."""
        raise RuntimeError("Expected a tensor that differs between seeds, but all seeds share it.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        """Nothing is kept: the function's own operations carry the gradient."""

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Tensor, int]:
        """The call; a tensor that the seeds share is not copied."""

        def stacked(argument: Any, dim: Any) -> Any:
            if not isinstance(argument, Tensor):
                return argument
            return argument.expand(info.batch_size, *argument.shape) if dim is None else argument.movedim(dim, 0)

        return args[0](*map(stacked, args[1:], in_dims[1:])), 0


class StackedFunctions(TorchFunctionMode):
    """Inside, linear maps, layer norms and plain attention are those of this file."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Others, and attention with a mask or dropout, are left to `vmap`."""
        kwargs = kwargs or {}
        if func is functional.linear:
            x, weight, bias = _linear_arguments(*args, **kwargs)
            if weight.ndim == 2:
                return OneForAll.apply(stacked_linear, x, weight, bias)
        if func is functional.layer_norm:
            return OneForAll.apply(stacked_layer_norm, *_layer_norm_arguments(*args, **kwargs))
        if func is functional.scaled_dot_product_attention and len(args) == 3 and not kwargs and args[0].ndim == 4:
            return OneForAll.apply(stacked_attention, *args)
        return func(*args, **kwargs)


def _linear_arguments(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple:
    return input, weight, bias


def _layer_norm_arguments(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> tuple:
    return input, tuple(normalized_shape), weight, bias, eps


def stacked_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x Wᵀ + b with x (seeds, …, in), W (seeds, out, in), b (seeds, out)."""
    return _StackedLinear.apply(x, weight, bias)  # pyright: ignore[reportReturnType]


class _StackedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = x.reshape(len(x), -1, x.shape[-1])
        ctx.save_for_backward(rows, weight)
        return _affine(rows, weight, bias).view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        (delta,) = grad_outputs
        flat = delta.reshape(len(delta), -1, delta.shape[-1])
        needs_x, needs_weight, needs_bias = ctx.needs_input_grad
        down = (flat @ weight).view(*delta.shape[:-1], -1) if needs_x else None
        return (
            down,
            product_over_rows(flat, rows) if needs_weight else None,
            sum_over_rows(flat) if needs_bias else None,
        )


def _affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Batched x Wᵀ + b; where each seed's product fills the device, seed by seed, with the bias added inside it."""
    if bias is None:
        return rows @ weight.mT
    if not _many_rows(rows):
        return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)
    y = rows.new_empty(*rows.shape[:2], weight.shape[1])
    for seed in range(len(rows)):
        torch.addmm(bias[seed], rows[seed], weight[seed].T, out=y[seed])
    return y


def product_over_rows(delta: Tensor, rows: Tensor) -> Tensor:
    """δᵀ x of every seed, (seeds, out, in), from (seeds, rows, out) and (seeds, rows, in).

    A sum over many rows is taken in parts, because few seeds with small weights would leave most of a GPU idle.
    """
    if not _many_rows(delta):
        return delta.mT @ rows
    (parts, rest), (x_parts, x_rest) = _in_parts(delta, PARTS), _in_parts(rows, PARTS)
    total = (parts.flatten(0, 1).mT @ x_parts.flatten(0, 1)).unflatten(0, parts.shape[:2]).sum(1)
    return total + rest.mT @ x_rest if rest.shape[1] else total


def sum_over_rows(delta: Tensor) -> Tensor:
    """Σ δ of every seed, (seeds, features), likewise."""
    if not _many_rows(delta):
        return delta.sum(-2)
    parts, rest = _in_parts(delta, 2 * PARTS)
    return parts.sum(2).sum(1) + rest.sum(1) if rest.shape[1] else parts.sum(2).sum(1)


def _many_rows(x: Tensor) -> bool:
    return x.is_cuda and x.ndim == 3 and x.shape[1] >= MANY_ROWS


def _in_parts(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """(seeds, rows, features) as (seeds, parts, rows of a part, features), and the rows left over."""
    whole = x.shape[1] - x.shape[1] % count
    return x[:, :whole].unflatten(1, (count, -1)), x[:, whole:]


def stacked_layer_norm(
    x: Tensor, shape: tuple[int, ...], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer norm of x (seeds, …, features) with gain and shift (seeds, features)."""
    if weight is None or bias is None or len(shape) != 1:
        y = functional.layer_norm(x, list(shape), None, None, eps)
        gain, shift = (t if t is None else t.view(len(x), *[1] * (x.ndim - t.ndim), *shape) for t in (weight, bias))
        y = y if gain is None else y * gain
        return y if shift is None else y + shift
    return _StackedLayerNorm.apply(x, weight, bias, eps)  # pyright: ignore[reportReturnType]


class _StackedLayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        rows = x.reshape(len(x), -1, x.shape[-1])
        y, mean, scale = torch.native_layer_norm(rows, rows.shape[-1:], None, None, eps)
        ctx.save_for_backward(rows, y, mean, scale, weight)
        return torch.addcmul(bias.unsqueeze(1), y, weight.unsqueeze(1)).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        rows, y, mean, scale, weight = ctx.saved_tensors
        delta = grad_outputs[0].reshape(rows.shape)
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        down = None
        if needs_x:
            inner, only_x = delta * weight.unsqueeze(1), (True, False, False)
            down, _, _ = torch.ops.aten.native_layer_norm_backward(
                inner, rows, rows.shape[-1:], mean, scale, None, None, only_x
            )
            down = down.view(grad_outputs[0].shape)
        return (
            down,
            sum_over_rows(delta * y) if needs_weight else None,
            sum_over_rows(delta) if needs_bias else None,
            None,
        )


def stacked_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of (seeds, rows, heads, tokens, features).

    Fused; or, for few tokens on CUDA, by plain products, which are faster there in float32.
    """
    if q.is_cuda and q.shape[-2] <= FEW_TOKENS:
        shape = q.shape
        q, k, v = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
        weights = torch.baddbmm(q.new_empty(1), q, k.mT, beta=0, alpha=q.shape[-1] ** -0.5).softmax(-1)
        return (weights @ v).view(shape)
    mixed = functional.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
    return mixed.unflatten(0, q.shape[:2])
