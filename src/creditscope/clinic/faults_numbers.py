"""Faults of arithmetic: a module gives, or sends back, what is no number."""

import torch
from torch import Tensor, nn

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._nets import TOKENS, EncoderBlock
from creditscope.clinic._patient import Patient
from creditscope.clinic._surgery import after_block, middle, net_of

MAIN = ("plain", "conv", "residual", "transformer")


@fault("logarithm of zero", "CS102", on=MAIN)
def logarithm_of_zero(admit: Admit) -> Patient:
    """log(ReLU(h)) without an ε."""
    return after_block(admit(), lambda h: torch.log(torch.relu(h)))


@fault("square root at zero", "CS102", on=MAIN)
def root_at_zero(admit: Admit) -> Patient:
    """√ReLU(h): every state is finite, its gradient is not."""
    return after_block(admit(), lambda h: torch.sqrt(torch.relu(h)))


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


@fault("mask hides everything", "CS102", on=("transformer",))
def mask_hides_everything(admit: Admit) -> Patient:
    """The mask is the wrong way round: no query may look at any key, and 0/0 is taken."""
    patient = admit()
    at = middle(patient)
    block = net_of(patient).blocks[at]
    assert isinstance(block, EncoderBlock)
    block.attention.allowed = torch.zeros(1, 1, TOKENS, TOKENS, dtype=torch.bool)
    patient.where = (f"blocks.{at}",)
    return patient
