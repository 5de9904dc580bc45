"""A plain multilayer perceptron: h ← φ(W h + b), without skips or norms."""

import math

from torch import Tensor, nn

from creditscope.errors import CreditscopeError, one_of
from creditscope.nets import register_net

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}


@register_net("mlp")
class MLP(nn.Module):
    """`depth` hidden layers of `width` units with `activation` relu, tanh or sigmoid, and a head; inputs are flattened.

    Every hidden layer is a tap; the first is no stem, because it learns as the others do.
    """

    accepts = ("vectors", "images")
    stem_tap = None
    block_taps = "layers.*"

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, *, depth: int = 3, width: int = 128, activation: str = "relu"
    ):
        super().__init__()
        if depth < 1 or width < 1:
            raise CreditscopeError(
                f"Expected an MLP of depth >= 1 and width >= 1, but got depth {depth} and width {width}."
            )
        act = ACTIVATIONS[one_of("activation", activation, tuple(ACTIVATIONS))]
        sizes = [math.prod(input_shape), *[width] * depth]
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(d, width), act()) for d in sizes[:-1])
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs (rows, …) to logits (rows, classes)."""
        h = x.flatten(1)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)
