"""StudentNet: h ← h + φ_α(W h + b) with φ_α(z) = (1 − α) z + α tanh(z); no LayerNorm anywhere."""

import math

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.nets import register_net


class StudentBlock(nn.Module):
    """h + φ_α(W h + b)."""

    def __init__(self, width: int, alpha: float):
        super().__init__()
        self.alpha = alpha
        self.linear = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        z = self.linear(h)
        return h + (1 - self.alpha) * z + self.alpha * torch.tanh(z)


@register_net("student")
class StudentNet(nn.Module):
    """Stem Linear, `depth` blocks of `width`, head Linear; default initialisation; inputs are flattened."""

    accepts = ("vectors", "images")
    stem_tap = "stem"
    block_taps = "blocks.*"

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, *, depth: int = 4, width: int = 128, alpha: float = 1.0
    ):
        super().__init__()
        if depth < 1 or width < 1 or not 0 <= alpha <= 1:
            raise CreditscopeError(
                "Expected a StudentNet of depth >= 1, width >= 1 and alpha from 0 to 1, "
                f"but got depth {depth}, width {width} and alpha {alpha}."
            )
        self.stem = nn.Linear(math.prod(input_shape), width)
        self.blocks = nn.ModuleList(StudentBlock(width, alpha) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = block(h)
        return self.head(h)
