"""Healthy nets of plain torch and of ours, among them those that look odd and are not."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.clinic._case import healthy
from creditscope.clinic._nets import CHANNELS, WIDTH, EncoderBlock, ResidualBlock, ResidualConv
from creditscope.clinic._patient import SEED, Patient, admit, graph, on_digits
from creditscope.clinic._surgery import layers_of, net_of
from creditscope.registry import NETS


def _built_in(name: str, shape: tuple[int, ...], **options: Any) -> Patient:
    """A net of creditscope.nets, on digits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return on_digits(NETS.get(name)(shape, 10, **options), shape)


@healthy("plain MLP, ReLU, torch's initialisation")
def plain_relu() -> Patient:
    """As `nn.Linear` comes."""
    return admit("plain")


@healthy("plain MLP, ReLU, He initialisation")
def plain_he() -> Patient:
    """Eight layers that keep the size of their states."""
    patient = admit("plain", depth=8)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        for layer in layers_of(patient.model):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)  # pyright: ignore[reportArgumentType]
    return patient


@healthy("plain MLP, tanh, Xavier initialisation")
def plain_tanh() -> Patient:
    """Three layers."""
    patient = admit("plain", depth=2, activation=nn.Tanh)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
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
    return _built_in("mlp", (64,), depth=3, width=64)


@healthy("our resmlp")
def our_resmlp() -> Patient:
    return _built_in("resmlp", (64,), depth=4, width=64)


@healthy("our lenet")
def our_lenet() -> Patient:
    return _built_in("lenet", (1, 8, 8), width=8, padded=True)


@healthy("our resnet, group norm")
def our_resnet() -> Patient:
    return _built_in("resnet", (1, 8, 8), depth=3, width=8)


@healthy("our resnet, batch norm, seen in eval mode")
def our_batch_norm() -> Patient:
    patient = _built_in("resnet", (1, 8, 8), depth=3, width=8, norm="batch")
    patient.evaluated = True
    return patient


@healthy("our vit")
def our_vit() -> Patient:
    return _built_in("vit", (1, 8, 8), depth=3, width=32)


@healthy("our gcn")
def our_gcn() -> Patient:
    x, adjacency, y, learnt, _ = graph()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        patient = Patient(NETS.get("gcn")((32,), 4, depth=3, width=32), (x, adjacency), y, mask=learnt)
    patient.optimise(rate=1e-2)
    return patient


@healthy("convolutions without norm")
def conv() -> Patient:
    return admit("conv")


@healthy("residual convolutions, batch norm in train mode")
def resnet() -> Patient:
    return admit("resnet")


@healthy("transformer encoder")
def transformer() -> Patient:
    return admit("transformer")


@healthy("two layers of LSTM")
def lstm() -> Patient:
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

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        patient = on_digits(Reader(), (8, 8), options={"taps": "gru"})
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
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
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(SEED)
        for layer in layers_of(patient.model):
            layer.weight.normal_(0, 1 / math.sqrt(layer.weight[0].numel()))
            layer.bias.zero_()  # pyright: ignore[reportOptionalMemberAccess]
    return patient


class Scaled(nn.Module):
    """h + α·f(h) with a learned α, a number (ReZero) or one a feature (LayerScale)."""

    def __init__(self, block: ResidualBlock, alpha: Tensor):
        super().__init__()
        self.block, self.alpha = block, nn.Parameter(alpha)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.alpha * self.block.branch(h)


def _scaled(alpha: Tensor) -> Patient:
    patient = admit("residual", depth=6)
    blocks = net_of(patient).blocks
    for at, block in enumerate(blocks):
        assert isinstance(block, ResidualBlock)
        blocks[at] = Scaled(block, alpha.clone())
    patient.optimise()
    return patient


@healthy("ReZero")
def rezero() -> Patient:
    """At the start the branches get no gradient at all."""
    return _scaled(torch.zeros(()))


@healthy("LayerScale of 1e-5")
def layer_scale() -> Patient:
    """At the start the branches get a gradient of 1e-5."""
    return _scaled(torch.full((WIDTH,), 1e-5))


@healthy("residual branches that end with zeros")
def zero_branches() -> Patient:
    """W2 = 0, as in Fixup: W1 gets no gradient until the second step."""
    patient = admit("residual")
    for block in net_of(patient).blocks:
        assert isinstance(block, ResidualBlock)
        nn.init.zeros_(block.w2.weight)
        nn.init.zeros_(block.w2.bias)
    return patient


@healthy("residual convolutions whose last batch norm starts at zero")
def zero_gamma() -> Patient:
    patient = admit("resnet")
    for block in net_of(patient).blocks:
        assert isinstance(block, ResidualConv)
        nn.init.zeros_(block.norm2.weight)  # pyright: ignore[reportArgumentType]
    return patient


@healthy("head that starts at zero")
def zero_head() -> Patient:
    """Only the head gets a gradient in the first step."""
    patient = admit("transformer")
    nn.init.zeros_(net_of(patient).head.weight)  # pyright: ignore[reportArgumentType]
    return patient


@healthy("frozen backbone with a trained head")
def frozen_backbone() -> Patient:
    """What was learnt on some digits, a new head for all."""
    patient = admit("residual")
    patient.train(60, torch.Generator().manual_seed(1))
    net = net_of(patient)
    for parameter in (*net.stem.parameters(), *net.blocks.parameters()):
        parameter.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        net.head = nn.Linear(WIDTH, 10)
    patient.optimise(p for p in net.parameters() if p.requires_grad)
    return patient


@healthy("head that is not used")
def unused_head() -> Patient:
    """An auxiliary head from pre-training, left in the model."""
    patient = admit("resnet")
    net_of(patient).auxiliary = nn.Linear(WIDTH, 4)
    patient.optimise()
    return patient


@healthy("dropout of a half, train mode")
def dropout() -> Patient:
    patient = admit("plain", depth=2)
    for block in net_of(patient).blocks:
        assert isinstance(block, nn.Sequential)
        block.append(nn.Dropout(0.5))
    return patient


@healthy("transformer with dropout, seen in eval mode")
def dropout_eval() -> Patient:
    patient = admit("transformer")
    for block in net_of(patient).blocks:
        assert isinstance(block, EncoderBlock)
        block.act = nn.Sequential(block.act, nn.Dropout(0.1))
    patient.evaluated = True
    return patient


@healthy("weight decay of 0.1")
def decay() -> Patient:
    patient = admit("conv")
    patient.optimise(weight_decay=0.1)
    return patient


@healthy("all rows fitted", steps=200)
def fitted() -> Patient:
    """Sixty-four rows known by heart: gradients of 1e-3 and falling."""
    patient = admit("residual")
    patient.inputs, patient.target = patient.inputs[:64], patient.target[:64]
    patient.seen, patient.seen_target = patient.inputs, patient.target
    return patient


@healthy("fine-tuning with a small rate")
def fine_tuning() -> Patient:
    """Learnt already; 3e-5 now."""
    patient = admit("transformer")
    patient.train(150, torch.Generator().manual_seed(1))
    patient.optimise(rate=3e-5)
    return patient


@healthy("sparse ReLUs")
def sparse() -> Patient:
    """A wide layer in which each row uses a tenth of the units, and every unit is used."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        wide = nn.Linear(64, 256)
        nn.init.constant_(wide.bias, -0.7)
        model = nn.Sequential(wide, nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
        return on_digits(model, (64,), options={"taps": ["1", "3"]})


@healthy("mixture of experts, one never chosen")
def experts() -> Patient:
    """A router that takes the best of four; one of them is the best of no row yet."""

    class Mixture(nn.Module):
        """The chosen expert's output times its probability, added to the stream."""

        def __init__(self) -> None:
            super().__init__()
            self.router = nn.Linear(WIDTH, 4)
            self.experts = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4))

        def forward(self, h: Tensor) -> Tensor:
            probability = self.router(h).softmax(-1)
            best, chosen = probability.max(-1)
            given = torch.zeros_like(h)
            for at, expert in enumerate(self.experts):
                rows = (chosen == at).nonzero()[:, 0]
                if len(rows):
                    given = given.index_add(0, rows, expert(h[rows]))
            return h + best[:, None] * given

    patient = admit("residual")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        mixture = Mixture()
        with torch.no_grad():
            mixture.router.bias[2] = -5.0
    net_of(patient).blocks.insert(2, mixture)
    patient.optimise()
    return patient


@healthy("regression of a normalised number")
def regression() -> Patient:
    patient = admit("plain", classes=1)
    assert patient.seen_target is not None
    patient.target, patient.seen_target = ((y - 4.5) / 2.9 for y in (patient.target, patient.seen_target))
    patient.loss = lambda output, target: (output[:, 0] - target) ** 2
    return patient


@healthy("two classes by one logit")
def binary() -> Patient:
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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        sizes = (64, 48, 24, 8, 24, 48)
        layers = [nn.Sequential(nn.Linear(a, b), nn.GELU()) for a, b in zip(sizes, sizes[1:], strict=False)]
        model = nn.Sequential(*layers, nn.Linear(48, 64))
    patient = on_digits(model, (64,), options={"taps": [str(i) for i in range(5)]})
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

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        patient = on_digits(UNet(), (1, 8, 8), options={"taps": ["down", "bottom", "up"]})
        assert patient.seen_target is not None
        patient.target, patient.seen_target = ((x[:, 0] > 0).long() for x in (patient.inputs, patient.seen))
        patient.inputs, patient.seen = (x + 0.5 * torch.randn(x.shape) for x in (patient.inputs, patient.seen))
    patient.loss = lambda output, target: functional.cross_entropy(output, target, reduction="none").mean((1, 2))
    return patient


@healthy("torch's own TransformerEncoder")
def torch_encoder() -> Patient:
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

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        return on_digits(Encoder(), (8, 8), options={"taps": "encoder.layers.*"})
