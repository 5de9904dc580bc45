"""ViT-Mini: patches of 4×4, a class token, learned positions, pre-norm blocks, terminal LayerNorm.

Dosovitskiy et al., "An image is worth 16x16 words" (ICLR 2021), small. Attention has its own q, k, v and o layers, so
that rules reach every weight.
"""

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.nets import register_net
from creditscope.nets._layers import HashDropout


class PatchEmbedding(nn.Module):
    """Image (rows, channels, y, x) to tokens (rows, 1 + patches, width), the class token first."""

    def __init__(self, input_shape: tuple[int, ...], width: int, patch: int):
        super().__init__()
        channels, height, breadth = input_shape
        if height % patch or breadth % patch:
            raise CreditscopeError(f"Expected an image of whole {patch}×{patch} patches, but got {height}×{breadth}.")
        self.patch = patch
        self.project = nn.Linear(channels * patch * patch, width)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 1 + (height // patch) * (breadth // patch), width) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        rows, channels, height, breadth = x.shape
        p = self.patch
        x = x.reshape(rows, channels, height // p, p, breadth // p, p)
        patches = x.permute(0, 2, 4, 1, 3, 5).reshape(rows, -1, channels * p * p)
        tokens = torch.cat([self.class_token.expand(rows, -1, -1), self.project(patches)], dim=1)
        return tokens + self.positions


class Attention(nn.Module):
    """Multi-head self-attention over tokens (rows, tokens, width)."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = (layer(h).unflatten(-1, (self.heads, -1)).transpose(-3, -2) for layer in (self.q, self.k, self.v))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.o(mixed.transpose(-3, -2).flatten(-2))


class EncoderBlock(nn.Module):
    """h + attention(LN h), then + MLP(LN h)."""

    def __init__(self, width: int, heads: int, ratio: int, dropout: float, layer: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.w1, self.w2 = nn.Linear(width, ratio * width), nn.Linear(ratio * width, width)
        self.act = nn.GELU()
        self.drop1, self.drop2 = HashDropout(dropout, 2 * layer), HashDropout(dropout, 2 * layer + 1)

    def forward(self, h: Tensor) -> Tensor:
        h = h + self.drop1(self.attention(self.norm1(h)))
        return h + self.drop2(self.w2(self.act(self.w1(self.norm2(h)))))


@register_net("vit")
class ViT(nn.Module):
    """`depth` encoder blocks on 4×4 patches; the head reads the class token (token 0)."""

    accepts = ("images",)
    stem_tap = "embed"
    block_taps = "blocks.*"
    class_token = 0
    added_parameters = ("embed.class_token", "embed.positions")

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        depth: int = 4,
        width: int = 128,
        heads: int = 4,
        ratio: int = 2,
        patch: int = 4,
        dropout: float = 0.0,
        terminal_norm: bool = True,
    ):
        super().__init__()
        if depth < 1 or heads < 1 or width % heads:
            raise CreditscopeError(
                "Expected a ViT of depth >= 1 whose width is a multiple of its heads, "
                f"but got depth {depth}, width {width} and {heads} heads."
            )
        self.embed = PatchEmbedding(input_shape, width, patch)
        self.blocks = nn.ModuleList(EncoderBlock(width, heads, ratio, dropout, layer) for layer in range(depth))
        self.norm = nn.LayerNorm(width) if terminal_norm else nn.Identity()
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x)
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h[:, 0]))
