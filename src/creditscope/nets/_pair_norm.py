"""PairNorm: node states centred over nodes and rescaled together, so that they cannot all become alike.

Zhao & Akoglu, "PairNorm: tackling oversmoothing in GNNs" (ICLR 2020).
"""

from typing import Any

import torch
from torch import Tensor, nn


class PairNorm(nn.Module):
    """s · (x_i − x̄) / √(mean over nodes of ‖x_i − x̄‖²) for states (nodes, features); states all alike become 0."""

    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Shape (nodes, features) to the same shape."""
        normed, _ = _CentredAndScaled.apply(x)  # pyright: ignore[reportGeneralTypeIssues]
        return self.scale * normed

    def extra_repr(self) -> str:
        """As printed."""
        return f"scale={self.scale}"


class _CentredAndScaled(torch.autograd.Function):
    """Its own function because of many seeds: each is summed by itself, so its last bits do not depend on the others.

    The largest entry is divided out first, so that collapsed states (1e-30, say) do not underflow.
    """

    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        """The normed states, and the norm that was divided out."""
        x = x - x.mean(-2, keepdim=True)
        largest = x.abs().amax((-2, -1), keepdim=True)
        x = x / torch.where(largest == 0, 1.0, largest)
        length = x.square().sum(-1, keepdim=True).mean(-2, keepdim=True).sqrt()
        length = torch.where(length == 0, 1.0, length)
        return x / length, length * torch.where(largest == 0, 1.0, largest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        """Both results are all that the derivatives need."""
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Tensor:
        """With u = normed states of n nodes: δ minus its part along u, centred, over the norm."""
        normed, length = ctx.saved_tensors
        delta = grad_outputs[0].contiguous()
        along = (delta * normed).sum((-2, -1), keepdim=True) / normed.shape[-2]
        delta = (delta - normed * along) / length
        return delta - delta.mean(-2, keepdim=True)

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> tuple[Tensor, None]:
        """With u = normed states of n nodes: the tangent, centred and over the norm, minus its part along u."""
        normed, length = ctx.saved_tensors
        tangent = grad_inputs[0]
        tangent = (tangent - tangent.mean(-2, keepdim=True)) / length
        along = (tangent * normed).sum((-2, -1), keepdim=True) / normed.shape[-2]
        return tangent - normed * along, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Any, tuple[int, int]]:
        """All seeds at once, seeds first."""
        return _CentredAndScaled.apply(args[0].movedim(in_dims[0], 0).contiguous()), (0, 0)
