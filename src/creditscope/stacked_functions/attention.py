"""Attention of many seeds."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.stacked_functions.devices import has_triton

FEW_TOKENS = 128
TILES = (16, 32, 64)
"""Tokens (but for a class token), and features of a head, that the kernels take."""


def stacked_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention of (seeds, rows, heads, tokens, features).

    Fused by torch's kernel; or, for few tokens on CUDA, by a kernel of our own, or by plain products, which are faster
    than torch's there in float32.
    """
    tokens, features = q.shape[-2:]
    if not q.is_cuda or tokens > FEW_TOKENS:
        mixed = functional.scaled_dot_product_attention(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1))
        return mixed.unflatten(0, q.shape[:2])
    fits = features in TILES and (tokens in TILES or tokens - 1 in TILES) and k.shape == v.shape == q.shape
    if fits and q.dtype == torch.float32 and has_triton():
        return _InOneKernel.apply(q, k, v)  # pyright: ignore[reportReturnType]
    shape = q.shape
    q, k, v = (t.reshape(-1, *t.shape[-2:]) for t in (q, k, v))
    weights = torch.baddbmm(q.new_empty(1), q, k.mT, beta=0, alpha=features**-0.5).softmax(-1)
    return (weights @ v).view(*shape[:-1], -1)


def is_plain_attention(func: Any, args: tuple, kwargs: Any) -> bool:
    """Whether torch is called for attention over (rows, heads, tokens, features), with neither mask nor dropout."""
    return func is functional.scaled_dot_product_attention and len(args) == 3 and not kwargs and args[0].ndim == 4


class _InOneKernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        from creditscope.stacked_functions._triton_kernels import attention_forward

        q4, k4, v4 = (_tokens_first(t) for t in (q, k, v))
        out, log_sum = attention_forward(q4, k4, v4)
        ctx.save_for_backward(q4, k4, v4, out, log_sum)
        return _heads_first(out, q.shape)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor, ...]:
        from creditscope.stacked_functions._triton_kernels import attention_backward

        (delta,) = grad_outputs
        q, k, v, out, log_sum = ctx.saved_tensors
        found = attention_backward(q, k, v, out, log_sum, _tokens_first(delta))
        return tuple(_heads_first(t, delta.shape) for t in found)


def _tokens_first(t: Tensor) -> Tensor:
    """(seeds, rows, heads, tokens, features) as (rows, tokens, heads, features), which is how linear maps leave it."""
    return t.transpose(2, 3).contiguous().flatten(0, 1)


def _heads_first(t: Tensor, shape: torch.Size) -> Tensor:
    return t.unflatten(0, shape[:2]).transpose(2, 3)
