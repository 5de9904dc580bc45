"""Layer norm of many seeds."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.stacked_functions.devices import has_triton
from creditscope.stacked_functions.linear import sum_over_rows

FEATURES = 4096
"""A row of more does not fit into one program of the kernels."""


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
    function = _InOneKernel if own_kernels else _StackedLayerNorm
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
        return (
            down,
            sum_over_rows(delta * y) if needs_weight else None,
            sum_over_rows(delta) if needs_bias else None,
            None,
        )


class _InOneKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        from creditscope.stacked_functions._layer_norm_kernels import layer_norm_forward

        rows, weight = x.reshape(len(x), -1, x.shape[-1]).contiguous(), weight.contiguous()
        ctx.eps = eps
        ctx.save_for_backward(rows, weight)
        return layer_norm_forward(rows, weight, bias.contiguous(), eps).view(x.shape)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        from creditscope.stacked_functions._layer_norm_kernels import layer_norm_backward

        rows, weight = ctx.saved_tensors
        delta = grad_outputs[0].reshape(rows.shape).contiguous()
        down, of_gain, of_shift = layer_norm_backward(rows, weight, delta, ctx.eps)
        return down.view(grad_outputs[0].shape), of_gain, of_shift, None
