"""Faults of the optimiser: some weights, or all, move too little, too much, or not at all."""

import copy

from torch import Tensor, nn

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._patient import Patient, call, take_step
from creditscope.clinic._surgery import middle, net_of

MAIN = ("plain", "conv", "residual", "transformer")
TOO_SMALL = ("CS109", "CS110")
TOO_LARGE = ("CS110", "CS109")
"""Updates that are too small everywhere, and a learning rate that is too low, are one fault; so for too large."""


@fault("layer not in the optimiser", "CS109", on=(*MAIN, "lstm", "gcn"))
def layer_not_in_the_optimiser(admit: Admit) -> Patient:
    """Parameters were gathered by hand, and a block was left out."""
    patient = admit(depth=3)
    at = middle(patient)
    left_out = set(net_of(patient).blocks[at].parameters())
    patient.optimise(p for p in patient.model.parameters() if p not in left_out)
    patient.where = (f"blocks.{at}",)
    return patient


@fault("optimiser of another model", "CS109", on=MAIN)
def other_model(admit: Admit) -> Patient:
    """The model was copied after the optimiser was made: steps move the copy."""
    patient = admit()
    patient.model = copy.deepcopy(patient.model)
    return patient


@fault("learning rate zero", *TOO_SMALL, on=MAIN)
def rate_zero(admit: Admit) -> Patient:
    """A warm-up whose schedule is never stepped."""
    patient = admit()
    patient.optimise(rate=0.0)
    return patient


@fault("gradient clipped to nothing", *TOO_SMALL, on=MAIN)
def clipped(admit: Admit) -> Patient:
    """A norm of 1e-6 is allowed, with SGD."""
    patient = admit()
    patient.optimise(rate=0.1, sgd=True, momentum=0.9)

    def step(patient: Patient, inputs: Tensor, target: Tensor) -> Tensor:
        patient.optimiser.zero_grad()
        loss = patient.mean_loss(call(patient.model, inputs), target)
        loss.backward()
        nn.utils.clip_grad_norm_(patient.model.parameters(), 1e-6)
        patient.optimiser.step()
        return loss

    patient.step = step
    return patient


@fault("learning rate a thousand times too low", *reversed(TOO_SMALL), on=(*MAIN, "gcn", "lstm"))
def rate_too_low(admit: Admit) -> Patient:
    """1e-6 with Adam."""
    patient = admit()
    patient.optimise(rate=1e-6)
    return patient


@fault("learning rate a hundred times too high", *TOO_LARGE, on=(*MAIN, "gcn", "lstm"))
def rate_too_high(admit: Admit) -> Patient:
    """1 with Adam: the loss climbs and jumps."""
    patient = admit()
    patient.optimise(rate=1.0)
    return patient


@fault("steps that overflow", "CS110", "CS102", "CS109", on=("plain", "conv", "lstm"))
def overflowing_steps(admit: Admit) -> Patient:
    """SGD with a rate so high that the loss ends as no number."""
    patient = admit()
    patient.optimise(rate=300.0, sgd=True, momentum=0.9)
    return patient


@fault("gradients never zeroed", *TOO_LARGE, on=("plain", "conv", "residual", "transformer"))
def never_zeroed(admit: Admit) -> Patient:
    """`zero_grad` forgotten: every step takes all gradients so far."""
    patient = admit()
    patient.optimise(rate=0.3, sgd=True)

    def step(patient: Patient, inputs: Tensor, target: Tensor) -> Tensor:
        loss = patient.mean_loss(call(patient.model, inputs), target)
        loss.backward()
        patient.optimiser.step()
        return loss

    patient.step = step
    return patient


@fault("weight decay that empties the net", "CS109", "CS110", on=MAIN)
def decayed(admit: Admit) -> Patient:
    """A decay of 30 where 0.03 was meant: a tenth of every weight is taken at each step."""
    patient = admit()
    patient.optimise(weight_decay=30.0)
    return patient


@fault("learning rate that climbs", *TOO_LARGE, on=("plain", "residual", "transformer"))
def climbing_rate(admit: Admit) -> Patient:
    """The schedule multiplies where it should divide."""
    patient = admit()

    def step(patient: Patient, inputs: Tensor, target: Tensor) -> Tensor:
        for group in patient.optimiser.param_groups:
            group["lr"] *= 1.15
        return take_step(patient, inputs, target)

    patient.step = step
    return patient
