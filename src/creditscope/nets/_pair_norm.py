"""PairNorm: node states centred over nodes and rescaled together, so that they cannot all become alike.

Zhao & Akoglu, "PairNorm: tackling oversmoothing in GNNs" (ICLR 2020).
"""

import torch
from torch import Tensor, nn


class PairNorm(nn.Module):
    """s · (x_i − x̄) / √(mean over nodes of ‖x_i − x̄‖²) for states (nodes, features).

    The largest entry is divided out first, which changes neither the value nor the gradient, so that collapsed states
    (1e-30, say) do not underflow. States that are all alike become 0.
    """

    def __init__(self, scale: float = 1.0):
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        """Shape (nodes, features) to the same shape."""
        x = x - x.mean(-2, keepdim=True)
        largest = x.detach().abs().amax((-2, -1), keepdim=True)
        x = x / torch.where(largest == 0, 1.0, largest)
        square = x.square().sum(-1, keepdim=True).mean(-2, keepdim=True)
        return self.scale * x / torch.where(square == 0, 1.0, square).sqrt()

    def extra_repr(self) -> str:
        """As printed."""
        return f"scale={self.scale}"
