"""What is done to a net to give it a fault."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.clinic._nets import Net
from creditscope.clinic._patient import Patient


class Then(nn.Module):
    """A block whose output goes through a function, a module too."""

    def __init__(self, block: nn.Module, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.block, self.function = block, function

    def forward(self, h: Tensor, *rest: Any) -> Tensor:
        return self.function(self.block(h, *rest))


def net_of(patient: Patient) -> Net:
    """The model, which is one of ours."""
    assert isinstance(patient.model, Net)
    return patient.model


def middle(patient: Patient) -> int:
    """The block in the middle."""
    return len(net_of(patient).blocks) // 2


def after_block(patient: Patient, function: Callable[[Tensor], Tensor], at: int | None = None) -> Patient:
    """Send the output of a block, the middle one, through a function; what has parameters joins the optimiser."""
    blocks, at = net_of(patient).blocks, middle(patient) if at is None else at
    blocks[at] = Then(blocks[at], function)
    if isinstance(function, nn.Module):
        patient.optimise()
    patient.where = (f"blocks.{at}",)
    return patient


def layers_of(module: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """Its linear and convolutional layers."""
    return [m for m in module.modules() if isinstance(m, nn.Linear | nn.Conv2d)]


def multiply(module: nn.Module, factor: float) -> None:
    """Weights of its layers, biases left as they are."""
    with torch.no_grad():
        for layer in layers_of(module):
            layer.weight.mul_(factor)


def fill_biases(module: nn.Module, value: float) -> None:
    """The same bias for all units of its layers."""
    with torch.no_grad():
        for layer in layers_of(module):
            if layer.bias is not None:
                layer.bias.fill_(value)
