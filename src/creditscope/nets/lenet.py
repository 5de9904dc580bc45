"""LeNet for small colour images: three convolutions, one dense layer, a head.

After LeCun et al., "Gradient-based learning applied to document recognition" (1998), in the sizes that published tables
of feedback alignment use.
"""

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.nets import register_net


@register_net("lenet")
class LeNet(nn.Module):
    """Convolutions of `width`, 2·width and 4·width channels, each 5×5, ReLU and (but the last) 2×2 max-pooling; a dense
    layer of `dense` units; a head. With `norm`, batch norm before every ReLU; with `padded`, maps keep their size.

    Defaults are those of biotorch's table (32, 64, 128, 84, without norm or padding).
    """

    accepts = ("images",)
    convolves = True
    stem_tap = "stem"
    block_taps = "blocks.*"

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        width: int = 32,
        dense: int = 84,
        norm: bool = False,
        padded: bool = False,
    ):
        super().__init__()
        if width < 1 or dense < 1:
            raise CreditscopeError(f"Expected a LeNet of width >= 1 and dense >= 1, but got {width} and {dense}.")
        padding = 2 if padded else 0

        def convolution(before: int, after: int, *, pool: bool) -> nn.Sequential:
            norms = [nn.BatchNorm2d(after)] if norm else []
            pools = [nn.MaxPool2d(2)] if pool else []
            return nn.Sequential(nn.Conv2d(before, after, 5, padding=padding), *norms, nn.ReLU(), *pools)

        self.stem = convolution(input_shape[0], width, pool=True)
        maps = [convolution(width, 2 * width, pool=True), convolution(2 * width, 4 * width, pool=padded)]
        features = _features(nn.Sequential(self.stem, *maps), input_shape)
        norms = [nn.BatchNorm1d(dense)] if norm else []
        self.blocks = nn.ModuleList([*maps, nn.Sequential(nn.Flatten(), nn.Linear(features, dense), *norms, nn.ReLU())])
        self.head = nn.Linear(dense, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images (rows, channels, y, x) to logits (rows, classes)."""
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def _features(maps: nn.Sequential, input_shape: tuple[int, ...]) -> int:
    """Numbers that the convolutions leave of an image; refuses images that are too small for them."""
    training = maps.training
    try:
        with torch.no_grad():
            found = maps.eval()(torch.zeros(1, *input_shape)).numel()
    except RuntimeError as error:
        raise CreditscopeError(
            f"Expected images of at least 32×32 (with padded=true 8×8) for a LeNet, but got shape {input_shape}."
        ) from error
    maps.train(training)
    return found
