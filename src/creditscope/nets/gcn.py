"""Graph convolutional network: H ← ReLU(Â H W), last layer linear, Glorot initialisation without bias.

Kipf & Welling, "Semi-supervised classification with graph convolutional networks" (ICLR 2017). Options make it a net
with skip connections, one with PairNorm, or, without Â, a plain MLP on node features.
"""

from torch import Tensor, nn

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.graph import Adjacency
from creditscope.nets import register_net
from creditscope.nets._layers import HashDropout, PairNorm

NORMS = {"none": nn.Identity, "pair": PairNorm}


class GraphConvolution(nn.Module):
    """Z = Â drop(H) W, or drop(H) W if nothing is propagated: (nodes, inputs) to (nodes, outputs)."""

    def __init__(self, inputs: int, outputs: int, *, dropout: float, gain: float, layer: int, propagate: bool):
        super().__init__()
        self.propagate = propagate
        self.drop = HashDropout(dropout, layer)
        self.linear = nn.Linear(inputs, outputs, bias=False)
        nn.init.xavier_uniform_(self.linear.weight, gain=gain)

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        z = self.linear(self.drop(h))
        return adjacency @ z if self.propagate else z


class GraphLayer(nn.Module):
    """ReLU(norm(Z)), added to H if it is residual."""

    def __init__(self, conv: GraphConvolution, norm: nn.Module, *, residual: bool):
        super().__init__()
        self.conv, self.norm, self.residual = conv, norm, residual
        self.act = nn.ReLU()

    def forward(self, h: Tensor, adjacency: Adjacency) -> Tensor:
        new = self.act(self.norm(self.conv(h, adjacency)))
        return h + new if self.residual else new


@register_net("gcn")
class GCN(nn.Module):
    """`depth` convolutions of `width` hidden features; taps are H_1 .. H_{depth−1}, the last layer is the head.

    `residual`: from the second layer on, H ← H + ReLU(Z). `norm` "pair": PairNorm before every ReLU. `propagate` False:
    Â = I. Z_l is what `layers.l.conv` gives, and the head for the last.
    """

    accepts = ("graph",)
    stem_tap = None
    block_taps = "layers.*"
    pre_activations = ("layers.*.conv", "head")

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        depth: int = 2,
        width: int = 64,
        dropout: float = 0.0,
        gain: float = 1.0,
        residual: bool = False,
        norm: str = "none",
        propagate: bool = True,
    ):
        super().__init__()
        if depth < 2 or width < 1 or not gain > 0:
            raise CreditscopeError(
                "Expected a GCN of depth >= 2, width >= 1 and gain > 0, "
                f"but got depth {depth}, width {width} and gain {gain}."
            )
        if norm not in NORMS:
            raise UnknownNameError("norm of a GCN", norm, NORMS)
        shared = {"dropout": dropout, "gain": gain, "propagate": propagate}
        sizes = [input_shape[0], *[width] * (depth - 1)]
        self.layers = nn.ModuleList(
            GraphLayer(GraphConvolution(sizes[i], width, layer=i, **shared), NORMS[norm](), residual=residual and i > 0)
            for i in range(depth - 1)
        )
        self.head = GraphConvolution(width, classes, layer=depth - 1, **shared)

    def forward(self, x: Tensor, adjacency: Adjacency) -> Tensor:
        for layer in self.layers:
            x = layer(x, adjacency)
        return self.head(x, adjacency)
