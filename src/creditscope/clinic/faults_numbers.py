"""Faults of arithmetic: a module gives, or sends back, what is no number."""

import torch
from torch import Tensor, nn

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._nets import CHANNELS, WIDTH, Attention, EncoderBlock
from creditscope.clinic._patient import Patient
from creditscope.clinic._surgery import after_block, middle, net_of

MAIN = ("plain", "conv", "residual", "transformer")


@fault("logarithm of zero", "CS102", on=MAIN)
def logarithm_of_zero(admit: Admit) -> Patient:
    """log(ReLU(h)) without an ε."""
    return after_block(admit(), lambda h: torch.log(torch.relu(h)))


@fault("square root at zero", "CS102", on=MAIN)
def root_at_zero(admit: Admit) -> Patient:
    """√(h·[h > 0]): every state is finite, its gradient is ∞·0."""
    return after_block(admit(activation=nn.GELU), lambda h: torch.sqrt(h * (h > 0)))


class Standardise(nn.Module):
    """Every input divided by its own spread over the rows; without an ε."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0)) / x.std(0)


@fault("division by zero", "CS102", on=("plain", "conv", "residual", "lstm"))
def division_by_zero(admit: Admit) -> Patient:
    """Pixels that never change have no spread."""
    patient = admit()
    net = net_of(patient)
    net.stem = nn.Sequential(Standardise(), net.stem)
    patient.where = ("stem",)
    return patient


@fault("exponential overflows", "CS102", on=MAIN)
def exponential_overflows(admit: Admit) -> Patient:
    """A softmax by hand at a low temperature, without taking off the greatest."""

    def sharpen(h: Tensor) -> Tensor:
        e = torch.exp(h * 1000)
        return e / e.sum(-1, keepdim=True)

    return after_block(admit(), sharpen)


@fault("half precision overflows", "CS102", on=MAIN)
def half_overflows(admit: Admit) -> Patient:
    """A sum of squares in float16 goes over 65,504."""

    def shrink(h: Tensor) -> Tensor:
        size = ((1e4 * h).half() ** 2).sum(-1, keepdim=True).float()
        return 1e4 * h / size * size

    return after_block(admit(), shrink)


class MaskedAttention(Attention):
    """Attention by hand, whose mask lets no query look anywhere."""

    def forward(self, h: Tensor) -> Tensor:
        q, k, v = self.qkv(h).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return self.o(scores.masked_fill(torch.ones_like(scores, dtype=torch.bool), -torch.inf).softmax(-1) @ v)


class MaskedMean(nn.Module):
    """The mean over the places (`dims`) that a mask keeps: none."""

    def __init__(self, dims: tuple[int, ...]):
        super().__init__()
        self.dims = dims

    def forward(self, h: Tensor) -> Tensor:
        kept = torch.zeros_like(h)
        return (h * kept).sum(self.dims) / kept.sum(self.dims)


@fault("mask hides everything", "CS102", on=("transformer", "conv", "lstm"))
def mask_hides_everything(admit: Admit) -> Patient:
    """The mask is the wrong way round, so that 0/0 is taken: in attention, or in a pool over places."""
    patient = admit()
    net = net_of(patient)
    if admit.architecture == "transformer":
        at = middle(patient)
        block = net.blocks[at]
        assert isinstance(block, EncoderBlock)
        block.attention = MaskedAttention(WIDTH)
        patient.where = (f"blocks.{at}",)
    else:
        maps = admit.architecture == "conv"
        net.pool, net.head = MaskedMean((2, 3) if maps else (1,)), nn.Linear(CHANNELS if maps else WIDTH, 10)
        patient.where = ("pool",)
    patient.optimise()
    return patient
