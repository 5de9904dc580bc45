"""Linear maps and layer norm of many seeds, and the sums over rows that their gradients are."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.stacked_functions.devices import has_tensor_cores, has_triton, side_by_side

MANY_ROWS = 1024
"""Rows from which on one seed's products fill a GPU, but sums over rows into small weights do not."""
PARTS = 32
LARGE = 128 * 128
"""Entries of a weight from which on kernels of our own are faster than cuBLAS, if its sides are multiples of `SIDE`."""
SIDE = 16
FEATURES = 4096
"""A row of more does not fit into one program of the kernels."""


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
        down, of_weight, of_bias = linear_backward(flat, rows, weight, ctx.needs_input_grad)
        return down if down is None else down.view(*delta.shape[:-1], -1), of_weight, of_bias


def linear_backward(
    delta: Tensor, rows: Tensor, matrix: Tensor, needs: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """What a linear map of rows x (…, rows, in) is told by δ (…, rows, out), each part only if it `needs` to be.

    The rows are told δ M, with M the weight or feedback in its place; the weight δᵀ x; the bias Σ δ.
    """
    needs_rows, needs_weight, needs_bias = needs
    if not torch.is_grad_enabled() and _fits_tensor_cores(delta, matrix):
        from creditscope.stacked_functions._triton_kernels import over_rows, rows_by_matrix

        down, (of_weight, of_bias) = side_by_side(
            (
                lambda: rows_by_matrix(delta, matrix) if needs_rows else None,
                lambda: over_rows(delta, rows) if needs_weight or needs_bias else (None, None),
            )
        )
        return down, of_weight if needs_weight else None, of_bias if needs_bias else None
    down, of_weight, of_bias = side_by_side(
        (
            lambda: delta @ matrix if needs_rows else None,
            lambda: product_over_rows(delta, rows) if needs_weight else None,
            lambda: sum_over_rows(delta) if needs_bias else None,
        )
    )
    return down, of_weight, of_bias


def _affine(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Batched x Wᵀ + b; where each seed's product fills the device, seed by seed, with the bias added inside it."""
    if _fits_tensor_cores(rows, weight):
        from creditscope.stacked_functions._triton_kernels import rows_by_matrix

        return rows_by_matrix(rows, weight.mT, bias)
    if bias is None:
        return rows @ weight.mT
    if not _many_rows(rows):
        return torch.baddbmm(bias.unsqueeze(1), rows, weight.mT)
    y = rows.new_empty(*rows.shape[:2], weight.shape[1])
    parts = zip(bias, rows, weight, y, strict=True)
    side_by_side([lambda b=b, x=x, w=w, out=out: torch.addmm(b, x, w.T, out=out) for b, x, w, out in parts])
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


def _fits_tensor_cores(x: Tensor, weight: Tensor) -> bool:
    """Whether kernels of our own take rows and weights of many seeds; where plain TF32 is allowed, torch does."""
    return (
        x.is_cuda
        and x.ndim == 3
        and x.dtype == weight.dtype == torch.float32
        and weight.shape[1] % SIDE == weight.shape[2] % SIDE == 0
        and weight.shape[1] * weight.shape[2] >= LARGE
        and not torch.backends.cuda.matmul.allow_tf32
        and has_tensor_cores()
    )


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
    own_kernels = x.is_cuda and x.dtype == weight.dtype == torch.float32 and x.shape[-1] <= FEATURES and has_triton()
    function = _NormInOneKernel if own_kernels else _StackedLayerNorm
    return function.apply(x, weight, bias, eps)  # pyright: ignore[reportReturnType]


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
        of_weight = sum_over_rows(delta * y) if needs_weight else None
        return down, of_weight, sum_over_rows(delta) if needs_bias else None, None


class _NormInOneKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        from creditscope.stacked_functions._triton_kernels import layer_norm_forward

        rows, weight = x.reshape(len(x), -1, x.shape[-1]).contiguous(), weight.contiguous()
        ctx.eps = eps
        ctx.save_for_backward(rows, weight)
        return layer_norm_forward(rows, weight, bias.contiguous(), eps).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        from creditscope.stacked_functions._triton_kernels import layer_norm_backward

        rows, weight = ctx.saved_tensors
        delta = grad_outputs[0].reshape(rows.shape).contiguous()
        down, of_gain, of_shift = layer_norm_backward(rows, weight, delta, ctx.eps)
        return down.view(grad_outputs[0].shape), of_gain, of_shift, None
