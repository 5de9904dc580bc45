"""Healthy nets that look odd: branches of zeros, frozen or unused parts, dropout, rows known by heart."""

import torch
from torch import Tensor, nn

from creditscope.clinic._case import healthy
from creditscope.clinic._nets import WIDTH, EncoderBlock, ResidualBlock, ResidualConv
from creditscope.clinic._patient import Patient, admit, on_digits, seeded
from creditscope.clinic._surgery import net_of


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
    """Every block starts as the identity."""
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
    patient.train(60)
    net = net_of(patient)
    for parameter in (*net.stem.parameters(), *net.blocks.parameters()):
        parameter.requires_grad_(False)
    with seeded():
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
    """Zeros that are others at every step."""
    patient = admit("plain", depth=2)
    for block in net_of(patient).blocks:
        assert isinstance(block, nn.Sequential)
        block.append(nn.Dropout(0.5))
    return patient


@healthy("transformer with dropout, seen in eval mode")
def dropout_eval() -> Patient:
    """Trained with it, measured without."""
    patient = admit("transformer")
    for block in net_of(patient).blocks:
        assert isinstance(block, EncoderBlock)
        block.act = nn.Sequential(block.act, nn.Dropout(0.1))
    patient.evaluated = True
    return patient


@healthy("weight decay of 0.1")
def decay() -> Patient:
    """AdamW's, ten times the usual."""
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
    patient.train(150)
    patient.optimise(rate=3e-5)
    return patient


@healthy("sparse ReLUs")
def sparse() -> Patient:
    """A wide layer in which each row uses a tenth of the units, and every unit is used."""
    with seeded():
        wide = nn.Linear(64, 256)
        nn.init.constant_(wide.bias, -0.7)
        model = nn.Sequential(wide, nn.ReLU(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
        return on_digits(model, (64,))


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
    with seeded():
        mixture = Mixture()
        with torch.no_grad():
            mixture.router.bias[2] = -5.0
    net_of(patient).blocks.insert(2, mixture)
    patient.optimise()
    return patient
