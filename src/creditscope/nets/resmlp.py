"""Residual MLP: h ← h + W2·GELU(W1·LN(h)), with or without a terminal LayerNorm before the head."""

import math

from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.nets import register_net


class ResidualBlock(nn.Module):
    """h + W2·GELU(W1·LN(h)); W2 starts near zero, so the block starts near the identity."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.w1 = nn.Linear(width, width)
        self.act = nn.GELU()
        self.w2 = nn.Linear(width, width)
        nn.init.normal_(self.w2.weight, std=0.01)
        nn.init.zeros_(self.w2.bias)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.w2(self.act(self.w1(self.norm(h))))


@register_net("resmlp")
class ResMLP(nn.Module):
    """Stem Linear, `depth` residual blocks of `width`, head = [LayerNorm,] Linear; inputs are flattened."""

    accepts = ("vectors", "images")
    stem_tap = "stem"
    block_taps = "blocks.*"

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        depth: int = 4,
        width: int = 128,
        terminal_norm: bool = True,
    ):
        super().__init__()
        if depth < 1 or width < 1:
            raise CreditscopeError(
                f"Expected a ResMLP of depth >= 1 and width >= 1, but got depth {depth} and width {width}."
            )
        self.stem = nn.Linear(math.prod(input_shape), width)
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width) if terminal_norm else nn.Identity()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x.flatten(1))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))
