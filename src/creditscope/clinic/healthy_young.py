"""Healthy nets that have not learnt much: after a few steps, or because there is little to learn."""

import torch
from torch import nn

from creditscope.clinic._case import healthy
from creditscope.clinic._patient import SEED, Patient, admit, seeded, take_step
from creditscope.clinic._surgery import layers_of
from creditscope.clinic.results import YOUNG

FEW = 12
"""Steps."""


@healthy("convolutions, a few steps", kind=YOUNG, steps=FEW)
def conv() -> Patient:
    """Nothing but early."""
    return admit("conv")


@healthy("transformer, a few steps", kind=YOUNG, steps=FEW)
def transformer() -> Patient:
    """Nothing but early."""
    return admit("transformer")


@healthy("LSTM, a few steps", kind=YOUNG, steps=FEW)
def lstm() -> Patient:
    """Nothing but early."""
    return admit("lstm")


@healthy("residual convolutions, a few steps", kind=YOUNG, steps=FEW)
def resnet() -> Patient:
    """Nothing but early."""
    return admit("resnet")


@healthy("plain MLP of 8 layers, a few steps", kind=YOUNG, steps=FEW)
def plain() -> Patient:
    """He initialisation."""
    patient = admit("plain", depth=8)
    with seeded():
        for layer in layers_of(patient.model):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return patient


@healthy("plain MLP, slow SGD", kind=YOUNG)
def slow() -> Patient:
    """0.05 without momentum: on its way."""
    patient = admit("plain", depth=2)
    patient.optimise(rate=0.05, sgd=True)
    return patient


@healthy("transformer in its warm-up", kind=YOUNG)
def warm_up() -> Patient:
    """The first 60 steps of a warm-up of 600."""
    patient = admit("transformer")

    def step(patient: Patient, inputs, target):
        for group in patient.optimiser.param_groups:
            group["lr"] = min(3e-3, group["lr"] + 5e-6)
        return take_step(patient, inputs, target)

    patient.optimise(rate=0.0)
    patient.step = step
    return patient


def _confuse(patient: Patient, share: float) -> Patient:
    """A share of the labels at random."""
    assert patient.seen_target is not None
    generator = torch.Generator().manual_seed(SEED.get())
    for target in (patient.target, patient.seen_target):
        chosen = torch.rand(len(target), generator=generator) < share
        target[chosen] = torch.randint(10, (int(chosen.sum()),), generator=generator)
    return patient


@healthy("convolutions, half of the labels noise", kind=YOUNG)
def noisy_conv() -> Patient:
    """The loss cannot fall far."""
    return _confuse(admit("conv"), 0.5)


@healthy("residual MLP, most of the labels noise", kind=YOUNG)
def noisy_residual() -> Patient:
    """The loss can hardly fall."""
    return _confuse(admit("residual"), 0.7)


@healthy("transformer, most of the labels noise", kind=YOUNG)
def noisy_transformer() -> Patient:
    """The loss can hardly fall."""
    return _confuse(admit("transformer"), 0.7)


@healthy("regression of a number that is mostly noise", kind=YOUNG)
def noisy_number() -> Patient:
    """A fifth of the variance can be told."""
    patient = admit("plain", classes=1)
    assert patient.seen_target is not None
    generator = torch.Generator().manual_seed(SEED.get())
    patient.target, patient.seen_target = (
        (y - 4.5) / 6.5 + 0.9 * torch.randn(len(y), generator=generator) for y in (patient.target, patient.seen_target)
    )
    patient.loss = lambda output, target: (output[:, 0] - target) ** 2
    return patient


@healthy("LSTM, labels of two classes, mostly noise", kind=YOUNG)
def noisy_pair() -> Patient:
    """Two classes, whose logits start near 0."""
    patient = _confuse(admit("lstm", classes=2), 0.6)
    assert patient.seen_target is not None
    patient.target, patient.seen_target = ((y > 4).long() for y in (patient.target, patient.seen_target))
    return patient
