"""Graph convolutional network: H ← ReLU(Â H W), last layer linear, Glorot initialisation without bias.

Kipf & Welling, "Semi-supervised classification with graph convolutional networks" (ICLR 2017).
"""

from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.nets import register_net
from creditscope.nets._dropout import HashDropout


class GraphConvolution(nn.Module):
    """act(Â drop(H) W); the smaller of the two products is taken first."""

    def __init__(self, inputs: int, outputs: int, *, dropout: float, gain: float, layer: int, linear: bool = False):
        super().__init__()
        self.drop = HashDropout(dropout, layer)
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.act = nn.Identity() if linear else nn.ReLU()
        nn.init.xavier_uniform_(self.linear.weight, gain=gain)

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        """Node states (nodes, inputs) to (nodes, outputs)."""
        return self.act(adjacency @ self.linear(self.drop(h)))


@register_net("gcn")
class GCN(nn.Module):
    """`depth` convolutions of `width` hidden features; taps are H_1 .. H_{depth−1}, the last layer is the head."""

    accepts = ("graph",)
    stem_tap = None
    block_taps = "layers.*"

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        depth: int = 2,
        width: int = 64,
        dropout: float = 0.0,
        gain: float = 1.0,
    ):
        super().__init__()
        if depth < 2 or width < 1:
            raise CreditscopeError(
                f"Expected a GCN of depth >= 2 and width >= 1, but got depth {depth} and width {width}."
            )
        sizes = [input_shape[0], *[width] * (depth - 1)]
        self.layers = nn.ModuleList(
            GraphConvolution(sizes[i], width, dropout=dropout, gain=gain, layer=i) for i in range(depth - 1)
        )
        self.head = GraphConvolution(width, classes, dropout=dropout, gain=gain, layer=depth - 1, linear=True)

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        """Node features (nodes, inputs) and Â to logits (nodes, classes)."""
        for layer in self.layers:
            x = layer(x, adjacency)
        return self.head(x, adjacency)
