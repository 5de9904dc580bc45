"""Healthy nets of plain torch and of ours, as people have them."""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.clinic._case import healthy
from creditscope.clinic._nets import CHANNELS, WIDTH
from creditscope.clinic._patient import Patient, admit, graph, on_digits, seeded
from creditscope.clinic._surgery import layers_of, net_of
from creditscope.registry import NETS


def _built_in(name: str, shape: tuple[int, ...], **options: Any) -> Patient:
    """A net of creditscope.nets, on digits."""
    with seeded():
        return on_digits(NETS.get(name)(shape, 10, **options), shape)


@healthy("plain MLP, ReLU, torch's initialisation")
def plain_relu() -> Patient:
    """As `nn.Linear` comes."""
    return admit("plain")


@healthy("plain MLP, ReLU, He initialisation")
def plain_he() -> Patient:
    """Eight layers that keep the size of their states."""
    patient = admit("plain", depth=8)
    with seeded():
        for layer in layers_of(patient.model):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # pyright: ignore[reportArgumentType]
    return patient


@healthy("plain MLP, tanh, Xavier initialisation")
def plain_tanh() -> Patient:
    """Three layers."""
    patient = admit("plain", depth=2, activation=nn.Tanh)
    with seeded():
        for layer in layers_of(patient.model):
            nn.init.xavier_uniform_(layer.weight)
    return patient


@healthy("plain MLP, one hidden layer of sigmoids")
def plain_sigmoid() -> Patient:
    """The net of the first chapter."""
    patient = admit("plain", depth=1, activation=nn.Sigmoid)
    patient.optimise(rate=1e-2)
    return patient


@healthy("plain MLP, GELU, SGD with momentum")
def plain_gelu() -> Patient:
    """No Adam."""
    patient = admit("plain", depth=2, activation=nn.GELU)
    patient.optimise(rate=0.2, sgd=True, momentum=0.9)
    return patient


@healthy("our mlp")
def our_mlp() -> Patient:
    """Three hidden layers."""
    return _built_in("mlp", (64,), depth=3, width=64)


@healthy("our resmlp")
def our_resmlp() -> Patient:
    """Branches that start near zero."""
    return _built_in("resmlp", (64,), depth=4, width=64)


@healthy("our lenet")
def our_lenet() -> Patient:
    """Convolutions, pools and a dense layer."""
    return _built_in("lenet", (1, 8, 8), width=8, padded=True)


@healthy("our resnet, group norm")
def our_resnet() -> Patient:
    """Functional ReLUs."""
    return _built_in("resnet", (1, 8, 8), depth=3, width=8)


@healthy("our resnet, batch norm, seen in eval mode")
def our_batch_norm() -> Patient:
    """Running statistics that have seen a few batches."""
    patient = _built_in("resnet", (1, 8, 8), depth=3, width=8, norm="batch")
    patient.evaluated = True
    return patient


@healthy("our vit")
def our_vit() -> Patient:
    """Its head reads the class token."""
    return _built_in("vit", (1, 8, 8), depth=3, width=32)


@healthy("our gcn")
def our_gcn() -> Patient:
    """Three convolutions, all rows fitted soon."""
    x, adjacency, y, learnt, _ = graph()
    with seeded():
        patient = Patient(NETS.get("gcn")((32,), 4, depth=3, width=32), (x, adjacency), y, mask=learnt)
    patient.optimise(rate=1e-2)
    return patient


@healthy("convolutions without norm")
def conv() -> Patient:
    """As the broken ones, whole."""
    return admit("conv")


@healthy("residual convolutions, batch norm in train mode")
def resnet() -> Patient:
    """As the broken ones, whole."""
    return admit("resnet")


@healthy("transformer encoder")
def transformer() -> Patient:
    """As the broken ones, whole."""
    return admit("transformer")


@healthy("two layers of LSTM")
def lstm() -> Patient:
    """As the broken ones, whole."""
    patient = admit("lstm")
    patient.optimise(rate=1e-2)
    return patient


@healthy("GRU with its last state")
def gru() -> Patient:
    """A tuple of outputs inside; the model returns logits."""

    class Reader(nn.Module):
        """The last line of the sequence read by a GRU."""

        def __init__(self) -> None:
            super().__init__()
            self.gru, self.head = nn.GRU(8, WIDTH, num_layers=2, batch_first=True), nn.Linear(WIDTH, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.gru(x)[0][:, -1])

    with seeded():
        patient = on_digits(Reader(), (8, 8))
    patient.optimise(rate=1e-2)
    return patient


@healthy("residual MLP of 24 blocks")
def deep_residual() -> Patient:
    """Depth that a skip carries."""
    return admit("residual", depth=24)


@healthy("plain MLP of 16 layers with batch norm")
def deep_batch_norm() -> Patient:
    """Depth that a norm carries."""
    patient = admit("plain", depth=16)
    with seeded():
        blocks = net_of(patient).blocks
        for at, block in enumerate(blocks):
            assert isinstance(block, nn.Sequential)
            blocks[at] = nn.Sequential(block[0], nn.BatchNorm1d(WIDTH), block[1])
    patient.optimise()
    return patient


@healthy("self-normalising MLP of 12 layers")
def selu() -> Patient:
    """SELU with LeCun's initialisation."""
    patient = admit("plain", depth=12, activation=nn.SELU)
    with seeded(), torch.no_grad():
        for layer in layers_of(patient.model):
            layer.weight.normal_(0, 1 / math.sqrt(layer.weight[0].numel()))
            layer.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
    return patient


@healthy("regression of a normalised number")
def regression() -> Patient:
    """Mean squared error of a number of size 1."""
    patient = admit("plain", classes=1)
    assert patient.seen_target is not None
    patient.target, patient.seen_target = ((y - 4.5) / 2.9 for y in (patient.target, patient.seen_target))
    patient.loss = lambda output, target: (output[:, 0] - target) ** 2
    return patient


@healthy("two classes by one logit")
def binary() -> Patient:
    """Binary cross-entropy."""
    patient = admit("conv", classes=1)
    assert patient.seen_target is not None
    patient.target, patient.seen_target = ((y > 4).float() for y in (patient.target, patient.seen_target))
    patient.loss = lambda output, target: functional.binary_cross_entropy_with_logits(
        output[:, 0], target, reduction="none"
    )
    return patient


@healthy("two classes, one of them rare")
def imbalanced() -> Patient:
    """One row in ten."""
    patient = admit("plain", classes=2)
    assert patient.seen_target is not None
    patient.target, patient.seen_target = ((y == 3).long() for y in (patient.target, patient.seen_target))
    return patient


@healthy("autoencoder with a code of eight")
def autoencoder() -> Patient:
    """A bottleneck that is meant."""
    with seeded():
        sizes = (64, 48, 24, 8, 24, 48)
        layers = [nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in pairwise(sizes)]
        model = nn.Sequential(*layers, nn.Linear(48, 64))
    patient = on_digits(model, (64,))
    patient.target, patient.seen_target = patient.inputs, patient.seen
    patient.loss = lambda output, target: ((output - target) ** 2).mean(-1)
    return patient


@healthy("U-Net that marks pixels")
def unet() -> Patient:
    """Is this pixel ink? From an image with noise, with a skip across the bottom."""

    class UNet(nn.Module):
        """Down, bottom, up, with the first maps beside the last."""

        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(1, CHANNELS, 3, padding=1), nn.ReLU())
            self.bottom = nn.Sequential(
                nn.MaxPool2d(2), nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2)
            )
            self.up = nn.Sequential(nn.Conv2d(2 * CHANNELS, CHANNELS, 3, padding=1), nn.ReLU())
            self.head = nn.Conv2d(CHANNELS, 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            h = self.down(x)
            return self.head(self.up(torch.cat([h, self.bottom(h)], 1)))

    with seeded():
        patient = on_digits(UNet(), (1, 8, 8))
        assert patient.seen_target is not None
        patient.target, patient.seen_target = ((x[:, 0] > 0).long() for x in (patient.inputs, patient.seen))
        patient.inputs, patient.seen = (x + 0.5 * torch.randn(x.shape) for x in (patient.inputs, patient.seen))
    patient.loss = lambda output, target: functional.cross_entropy(output, target, reduction="none").mean((1, 2))
    return patient


@healthy("torch's own TransformerEncoder")
def torch_encoder() -> Patient:
    """One class of torch for all layers."""

    class Encoder(nn.Module):
        """Post-norm layers, as torch has them."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Linear(8, WIDTH)
            layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(WIDTH, 10)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.encoder(self.embed(x)).mean(1))

    with seeded():
        return on_digits(Encoder(), (8, 8))
