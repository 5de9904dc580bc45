"""Faults of the graph: a path is cut, so that something is never told anything."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._nets import EncoderBlock, Net, ResidualBlock, ResidualConv
from creditscope.clinic._patient import Patient
from creditscope.clinic._surgery import after_block, layers_of, middle, net_of

MAIN = ("plain", "conv", "residual", "transformer")


@fault("stream detached", "CS103", on=(*MAIN, "lstm"))
def stream_detached(admit: Admit) -> Patient:
    """A `.detach()` left over in the middle."""
    return after_block(admit(), Tensor.detach)


class Quiet(nn.Module):
    """A block that is run without a graph."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.block = block

    def forward(self, h: Tensor, *rest) -> Tensor:
        with torch.no_grad():
            return self.block(h, *rest)


@fault("block under no_grad", "CS103", on=(*MAIN, "gcn"))
def block_under_no_grad(admit: Admit) -> Patient:
    """`torch.no_grad()` around a block that is meant to learn."""
    patient = admit()
    at, blocks = middle(patient), net_of(patient).blocks
    blocks[at] = Quiet(blocks[at])
    patient.where = (f"blocks.{at}",)
    return patient


@fault("round trip by numpy", "CS103", on=MAIN)
def round_trip(admit: Admit) -> Patient:
    """The last block's output is computed with NumPy and comes back as a new tensor."""
    patient = admit()
    return after_block(
        patient, lambda h: torch.from_numpy(h.detach().numpy().clip(-10, 10)), at=len(net_of(patient).blocks) - 1
    )


@fault("rounding in the path", "CS103", on=MAIN)
def rounding(admit: Admit) -> Patient:
    """States are quantised without a straight-through gradient: what comes back is 0 everywhere."""
    return after_block(admit(), lambda h: torch.round(h * 8) / 8)


@fault("argmax in the path", "CS103", on=("plain", "residual", "transformer"))
def argmax(admit: Admit) -> Patient:
    """A hard choice handed on as one-hot."""
    return after_block(admit(), lambda h: functional.one_hot(h.argmax(-1), h.shape[-1]).float())


def _detach_skip(block: nn.Module) -> None:
    """The same block, which adds to a copy of its input that nothing is sent through."""
    if isinstance(block, ResidualBlock):
        block.forward = lambda h: h.detach() + block.branch(h)
    elif isinstance(block, ResidualConv):
        block.forward = lambda h: block.act2(h.detach() + block.branch(h))
    elif isinstance(block, EncoderBlock):
        block.forward = lambda h: block.think(h.detach() + block.attention(block.norm1(h)))


@fault("skip detached", "CS103", on=("residual", "resnet", "transformer"))
def skip_detached(admit: Admit) -> Patient:
    """The branch is told of the loss, the skip is not."""
    patient = admit()
    at = middle(patient)
    _detach_skip(net_of(patient).blocks[at])
    patient.where = (f"blocks.{at}",)
    return patient


class Short(Net):
    """A net whose loop ends a block too early."""

    def forward(self, x: Tensor, *rest) -> Tensor:
        h = self.stem(x)
        for block in self.blocks[:-1]:
            h = block(h, *rest)
        return self.head(self.pool(h))


@fault("block never called", "CS103", on=(*MAIN, "lstm"))
def block_never_called(admit: Admit) -> Patient:
    """`range(depth - 1)`: the last block has parameters and no part in the output."""
    patient = admit()
    net = net_of(patient)
    patient.model = Short(net.stem, net.blocks, net.pool, net.head)
    patient.where = (f"blocks.{len(net.blocks) - 1}",)
    return patient


@fault("branch of zeros", "CS103", "CS106", on=("residual", "resnet", "transformer"))
def branch_of_zeros(admit: Admit) -> Patient:
    """Both layers of a branch start at 0 and stay there, dead: each is the other's gradient."""
    patient = admit()
    at = middle(patient)
    block = net_of(patient).blocks[at]
    parts = [block.w1, block.w2] if isinstance(block, EncoderBlock) else [block]
    with torch.no_grad():
        for layer in (layer for part in parts for layer in layers_of(part)):
            layer.weight.zero_()
            if layer.bias is not None:
                layer.bias.zero_()
    patient.where = (f"blocks.{at}",)
    return patient


@fault("all weights zero", "CS103", "CS108", "CS106", on=("plain", "conv", "gcn"))
def all_weights_zero(admit: Admit) -> Patient:
    """Nothing goes up or comes down; only the last bias learns. Cut, identical rows, dead units: all is true."""
    patient = admit()
    with torch.no_grad():
        for parameter in patient.model.parameters():
            parameter.zero_()
    return patient
