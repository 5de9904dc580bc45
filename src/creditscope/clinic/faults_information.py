"""Faults of information: rows become one another on the way up."""

import torch
from torch import Tensor, nn

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._nets import CHANNELS, WIDTH
from creditscope.clinic._patient import Patient, seeded
from creditscope.clinic._surgery import after_block, layers_of, net_of

MAIN = ("plain", "conv", "residual", "transformer")


@fault("mean over the batch", "CS108", on=(*MAIN, "lstm"))
def mean_over_the_batch(admit: Admit) -> Patient:
    """A pool over dimension 0 instead of 1: every row gets the mean of all."""
    return after_block(admit(), lambda h: h.mean(0, keepdim=True).expand_as(h))


class OneUnit(nn.Module):
    """A bottleneck of one number; of maps and tokens, one for all places."""

    def __init__(self, width: int):
        super().__init__()
        self.down, self.up = nn.Linear(width, 1), nn.Linear(1, width)

    def forward(self, h: Tensor) -> Tensor:
        if h.ndim == 4:
            return self.up(self.down(h.mean((2, 3))))[:, :, None, None].expand_as(h)
        return self.up(self.down(h))


@fault("bottleneck of one unit", "CS108", on=("plain", "conv", "residual", "lstm"))
def one_unit(admit: Admit) -> Patient:
    """A width of 1 where a width of 16 was meant."""
    patient = admit()
    with seeded():
        narrow = OneUnit(CHANNELS if admit.architecture == "conv" else WIDTH)
    at = len(net_of(patient).blocks) - 1 if admit.architecture == "lstm" else None  # above, time would widen it again
    return after_block(patient, narrow, at)


@fault("rows smoothed away", "CS108", "CS105", on=("gcn", "transformer"))
def smoothed_away(admit: Admit) -> Patient:
    """Twenty-four rounds of averaging, over neighbours or tokens, without a skip."""
    options = {"depth": 24, "skips": False} if admit.architecture == "transformer" else {"depth": 24}
    patient = admit(**options)
    patient.where = ("blocks.*",)
    return patient


@fault("all units alike", "CS108", on=("plain", "conv", "residual"))
def all_units_alike(admit: Admit) -> Patient:
    """Weights initialised with one constant: the units of a layer compute and learn the same for ever."""
    patient = admit()
    with torch.no_grad():
        for layer in layers_of(patient.model):
            layer.weight.fill_(1 / layer.weight[0].numel())
            if layer.bias is not None:
                layer.bias.zero_()
    patient.where = ("stem", "blocks.*", "head")
    return patient


@fault("dropout of 0.99", "CS108", on=MAIN)
def dropout(admit: Admit) -> Patient:
    """p was taken for the probability to keep."""
    return after_block(admit(), nn.Dropout(0.99))


@fault("every row the same", "CS108", "CS101", on=(*MAIN, "lstm"))
def same_row(admit: Admit) -> Patient:
    """The loader gives the first image for every index; labels are right."""
    patient = admit()
    patient.inputs = patient.inputs[:1].expand_as(patient.inputs).clone()
    patient.seen = patient.inputs[:1].expand_as(patient.seen).clone()
    patient.where = ("stem", "inputs")
    return patient
