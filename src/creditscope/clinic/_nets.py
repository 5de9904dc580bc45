"""Small nets of the usual architectures, each a stem, a list of blocks, a pool and a head, so that one fault fits all.

Sizes are such that a few dozen steps of training are seconds; initialisation is torch's own, as most people leave it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.graph import Adjacency

Activation = Callable[[], nn.Module]
WIDTH, CHANNELS, TOKENS = 32, 12, 8


class Net(nn.Module):
    """head(pool(blocks(stem(x)))); what follows x (a graph) is given to every block."""

    def __init__(self, stem: nn.Module, blocks: Iterable[nn.Module], pool: nn.Module, head: nn.Module):
        super().__init__()
        self.stem, self.blocks, self.pool, self.head = stem, nn.ModuleList(blocks), pool, head

    def forward(self, x: Tensor, *rest: Any) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h, *rest)
        return self.head(self.pool(h))


class ResidualBlock(nn.Module):
    """h + W2·φ(W1·norm(h))."""

    def __init__(self, width: int, activation: Activation, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.norm, self.w1, self.act, self.w2 = (
            norm(width),
            nn.Linear(width, width),
            activation(),
            nn.Linear(width, width),
        )

    def forward(self, h: Tensor) -> Tensor:
        return h + self.branch(h)

    def branch(self, h: Tensor) -> Tensor:
        return self.w2(self.act(self.w1(self.norm(h))))


class ResidualConv(nn.Module):
    """φ(h + f(h)) with f two 3×3 convolutions, each with batch norm."""

    def __init__(self, width: int, activation: Activation, norm: Callable[[int], nn.Module]):
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = norm(width), norm(width)
        self.act1, self.act2 = activation(), activation()

    def forward(self, h: Tensor) -> Tensor:
        return self.act2(h + self.branch(h))

    def branch(self, h: Tensor) -> Tensor:
        return self.norm2(self.conv2(self.act1(self.norm1(self.conv1(h)))))


class Attention(nn.Module):
    """Self-attention with two heads; `allowed` is True where a query may look (rows, 1, queries, keys)."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.allowed: Tensor | None = None

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(h).chunk(3, dim=-1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=self.allowed)
        return self.o(mixed.transpose(1, 2).flatten(-2))


class EncoderBlock(nn.Module):
    """h + attention(norm h), then + W2·φ(W1·norm h); without `skips` the branches alone."""

    def __init__(self, width: int, activation: Activation, norm: Callable[[int], nn.Module], skips: bool = True):
        super().__init__()
        self.norm1, self.attention, self.norm2 = norm(width), Attention(width), norm(width)
        self.w1, self.act, self.w2 = nn.Linear(width, 2 * width), activation(), nn.Linear(2 * width, width)
        self.skips = skips

    def forward(self, h: Tensor) -> Tensor:
        return self.think(h * self.skips + self.attention(self.norm1(h)))

    def think(self, h: Tensor) -> Tensor:
        return h * self.skips + self.w2(self.act(self.w1(self.norm2(h))))


class GraphBlock(nn.Module):
    """φ(Â H W + b)."""

    def __init__(self, width: int, activation: Activation):
        super().__init__()
        self.linear, self.act = nn.Linear(width, width), activation()

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        return self.act(adjacency @ self.linear(h))


class Recurrent(nn.LSTM):
    """An LSTM over tokens that gives its outputs alone."""

    def __init__(self, width: int):
        super().__init__(width, width, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        return super().forward(h)[0]


class Positions(nn.Module):
    """Tokens with a learned vector for each position."""

    def __init__(self, width: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(TOKENS, width) * 0.02)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.table


class MeanToken(nn.Module):
    """The mean over tokens."""

    def forward(self, h: Tensor) -> Tensor:
        return h.mean(1)


class LastToken(nn.Module):
    """The last token."""

    def forward(self, h: Tensor) -> Tensor:
        return h[:, -1]


def make_plain(classes: int, *, depth: int = 4, activation: Activation = nn.ReLU) -> Net:
    """An MLP without skips or norms."""
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), activation()) for _ in range(depth)]
    return Net(nn.Sequential(nn.Linear(64, WIDTH), activation()), blocks, nn.Identity(), nn.Linear(WIDTH, classes))


def make_conv(classes: int, *, depth: int = 3, activation: Activation = nn.ReLU) -> Net:
    """A convolutional net without skips or norms."""
    stem = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), activation(), nn.MaxPool2d(2))
    blocks = [nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), activation()) for _ in range(depth)]
    return Net(stem, blocks, nn.Flatten(), nn.Linear(16 * CHANNELS, classes))


def make_residual(
    classes: int, *, depth: int = 4, activation: Activation = nn.ReLU, norm: Callable[[int], nn.Module] = nn.LayerNorm
) -> Net:
    """A residual MLP with a norm in every branch and before the head."""
    blocks = [ResidualBlock(WIDTH, activation, norm) for _ in range(depth)]
    return Net(nn.Linear(64, WIDTH), blocks, norm(WIDTH), nn.Linear(WIDTH, classes))


def make_resnet(
    classes: int, *, depth: int = 3, activation: Activation = nn.ReLU, norm: Callable[[int], nn.Module] = nn.BatchNorm2d
) -> Net:
    """A residual convolutional net with batch norm."""
    stem = nn.Sequential(
        nn.Conv2d(1, CHANNELS, 3, padding=1, bias=False), norm(CHANNELS), activation(), nn.MaxPool2d(2)
    )
    blocks = [ResidualConv(CHANNELS, activation, norm) for _ in range(depth)]
    return Net(stem, blocks, nn.Flatten(), nn.Linear(16 * CHANNELS, classes))


def make_transformer(
    classes: int,
    *,
    depth: int = 3,
    activation: Activation = nn.GELU,
    norm: Callable[[int], nn.Module] = nn.LayerNorm,
    skips: bool = True,
) -> Net:
    """A pre-norm transformer encoder over the eight lines of an image; the head reads the mean token."""
    blocks = [EncoderBlock(WIDTH, activation, norm, skips) for _ in range(depth)]
    stem = nn.Sequential(nn.Linear(8, WIDTH), Positions(WIDTH))
    return Net(stem, blocks, nn.Sequential(norm(WIDTH), MeanToken()), nn.Linear(WIDTH, classes))


def make_gcn(classes: int, *, depth: int = 2, activation: Activation = nn.ReLU) -> Net:
    """A graph convolutional net on 32 features a node."""
    blocks = [GraphBlock(WIDTH, activation) for _ in range(depth)]
    return Net(nn.Linear(32, WIDTH), blocks, nn.Identity(), nn.Linear(WIDTH, classes))


def make_lstm(classes: int, *, depth: int = 2) -> Net:
    """LSTM layers over the eight lines of an image; the head reads the last state."""
    return Net(nn.Linear(8, WIDTH), [Recurrent(WIDTH) for _ in range(depth)], LastToken(), nn.Linear(WIDTH, classes))
