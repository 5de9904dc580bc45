"""A residual convolutional net for small images: h ← ReLU(h + f(h)) with f two 3×3 convolutions.

He et al., "Deep residual learning for image recognition" (CVPR 2016), in the form for CIFAR-10.
"""

from torch import Tensor, nn
from torch.nn import functional

from creditscope.errors import CreditscopeError, one_of
from creditscope.nets import register_net

GROUPS = 8
"""Of group norm, at most; at least two channels each."""


def make_norm(kind: str, channels: int) -> nn.Module:
    """Batch norm, or group norm, which computes a row from that row alone."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    most = min(GROUPS, max(1, channels // 2))
    return nn.GroupNorm(next(n for n in range(most, 0, -1) if channels % n == 0), channels)


class ConvBlock(nn.Module):
    """ReLU(s(h) + f(h)); where the size changes, s takes every second place and fills new channels with 0."""

    def __init__(self, before: int, after: int, norm: str):
        super().__init__()
        self.stride = 1 if before == after else 2
        self.more = after - before
        self.conv1 = nn.Conv2d(before, after, 3, stride=self.stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm1, self.norm2 = make_norm(norm, after), make_norm(norm, after)

    def forward(self, h: Tensor) -> Tensor:
        """Maps (rows, channels, y, x) to maps."""
        f = self.norm2(self.conv2(functional.relu(self.norm1(self.conv1(h)))))
        if self.stride > 1:
            h = functional.pad(h[..., :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))
        return functional.relu(h + f)


@register_net("resnet")
class ResNet(nn.Module):
    """Stem of `width` channels, three groups of `depth`/3 blocks with width, 2·width, 4·width channels, mean, head.

    `norm` group or batch. A depth of 9 and a width of 16 is ResNet-20.
    """

    accepts = ("images",)
    convolves = True
    stem_tap = "stem"
    block_taps = "blocks.*"

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, *, depth: int = 3, width: int = 16, norm: str = "group"
    ):
        super().__init__()
        if depth < 3 or depth % 3 or width < 1:
            raise CreditscopeError(
                f"Expected a ResNet of a depth that is a multiple of 3 and width >= 1, but got {depth} and {width}."
            )
        one_of("norm of a ResNet", norm, ("group", "batch"))
        convolution = nn.Conv2d(input_shape[0], width, 3, padding=1, bias=False)
        self.stem = nn.Sequential(convolution, make_norm(norm, width), nn.ReLU())
        channels = [width * 2 ** (3 * i // depth) for i in range(depth)]
        self.blocks = nn.ModuleList(
            ConvBlock(before, after, norm) for before, after in zip([width, *channels], channels, strict=False)
        )
        self.head = nn.Linear(channels[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (rows, channels, y, x) to logits (rows, classes)."""
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean((-2, -1)))
