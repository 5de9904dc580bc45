"""Faults of units: dead or saturated."""

import torch
from torch import Tensor, nn

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._nets import CHANNELS, WIDTH
from creditscope.clinic._patient import Patient, seeded, take_step
from creditscope.clinic._surgery import fill_biases, layers_of, middle, multiply, net_of


@fault("ReLUs dead by their bias", "CS106", on=("plain", "conv", "residual", "transformer", "gcn"))
def dead_by_bias(admit: Admit) -> Patient:
    """A bias of −10 in the middle for all units but one in ten: no row passes."""
    patient = admit(activation=nn.ReLU)
    at = middle(patient)
    block = net_of(patient).blocks[at]
    (layer,) = layers_of(getattr(block, "w1", block))
    with torch.no_grad():
        layer.bias[torch.arange(len(layer.bias)) % 10 != 0] = -10.0  # pyright: ignore[reportArgumentType, reportOptionalSubscript]
    patient.where = (f"blocks.{at}",)
    return patient


@fault("one step far too large", "CS110", "CS109", "CS106", on=("plain", "conv", "residual", "transformer"))
def one_large_step(admit: Admit) -> Patient:
    """A first step with a rate a hundred times too large, as without warm-up; it kills units. The rest is usual."""
    patient = admit(activation=nn.ReLU)

    def spike(patient: Patient, inputs: Tensor, target: Tensor) -> Tensor:
        first = not patient.optimiser.state
        for group in patient.optimiser.param_groups:
            group["lr"] = 0.3 if first else 1e-3
        return take_step(patient, inputs, target)

    patient.step = spike
    return patient


@fault("tanh saturated", "CS107", on=("plain", "conv", "residual", "transformer"))
def tanh_saturated(admit: Admit) -> Patient:
    """Weights a hundred times too large before every tanh: units say ±1 from the start."""
    patient = admit(activation=nn.Tanh)
    net = net_of(patient)
    parts = [net.stem, *net.blocks] if admit.architecture in ("plain", "conv") else [b.w1 for b in net.blocks]
    for part in parts:
        multiply(part, 100)  # pyright: ignore[reportArgumentType]
    patient.where = ("stem", "blocks.*")
    return patient


class Gated(nn.Module):
    """block(h) · σ(W h + b), a gate for each feature."""

    def __init__(self, block: nn.Module, gate: nn.Module):
        super().__init__()
        self.block, self.gate, self.act = block, gate, nn.Sigmoid()

    def forward(self, h: Tensor) -> Tensor:
        return self.block(h) * self.act(self.gate(h))


@fault("gate shut", "CS107", on=("plain", "conv", "transformer"))
def gate_shut(admit: Admit) -> Patient:
    """The bias of a gate is −15: a sigmoid of 3e-7 for every row."""
    patient = admit()
    at, blocks = middle(patient), net_of(patient).blocks
    image = isinstance(patient.inputs, Tensor) and patient.inputs.ndim == 4
    with seeded():
        gate = nn.Conv2d(CHANNELS, CHANNELS, 1) if image else nn.Linear(WIDTH, WIDTH)
    fill_biases(gate, -15.0)
    blocks[at] = Gated(blocks[at], gate)
    patient.optimise()
    patient.where = (f"blocks.{at}",)
    return patient
