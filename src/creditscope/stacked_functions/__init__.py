"""Layers of many seeds at once, for which `vmap` has no rule or a slow one: linear maps, layer norm, attention.

A net under `vmap` that calls one of them inside `StackedFunctions()` gets it as one operation on all seeds: products as
one batched product whose weight gradients come out in the layout of the weights; on CUDA, layer norm, attention over
few tokens and products of large weights as kernels of their own (in Triton, which comes with torch for CUDA).
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from creditscope.stacked_functions.attention import is_plain_attention, stacked_attention
from creditscope.stacked_functions.layers import linear_backward, stacked_layer_norm, stacked_linear

__all__ = [
    "OneForAll",
    "StackedFunctions",
    "is_plain_attention",
    "linear_backward",
    "stacked_attention",
    "stacked_layer_norm",
    "stacked_linear",
]


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
    """Inside, linear maps, layer norms and plain attention are those of this package."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Others, and attention with a mask or dropout, are left to `vmap`."""
        kwargs = kwargs or {}
        if func is functional.linear:
            x, weight, bias = _linear_arguments(*args, **kwargs)
            if weight.ndim == 2:
                return OneForAll.apply(stacked_linear, x, weight, bias)
        if func is functional.layer_norm:
            return OneForAll.apply(stacked_layer_norm, *_layer_norm_arguments(*args, **kwargs))
        if is_plain_attention(func, args, kwargs):
            return OneForAll.apply(stacked_attention, *args)
        return func(*args, **kwargs)


def _linear_arguments(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple:
    return input, weight, bias


def _layer_norm_arguments(
    input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> tuple:
    return input, tuple(normalized_shape), weight, bias, eps
