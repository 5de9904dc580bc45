"""Faults of scale: at the start, or of gradients over depth."""

import torch
from torch import Tensor, nn

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._patient import SEED, Patient
from creditscope.clinic._surgery import layers_of, middle, multiply, net_of

MAIN = ("plain", "conv", "residual", "transformer")
ANYWHERE = ("stem", "blocks.*", "head")


@fault("logits a thousand times too large", "CS104", on=MAIN)
def huge_logits(admit: Admit) -> Patient:
    """The head is initialised without a thought of its fan-in: a loss in the hundreds."""
    patient = admit()
    multiply(net_of(patient).head, 1000)
    patient.where = ("head",)
    return patient


def _squared(output: Tensor, target: Tensor) -> Tensor:
    return (output[:, 0] - target) ** 2


@fault("regression target in raw units", "CS104", on=MAIN)
def raw_regression_target(admit: Admit) -> Patient:
    """Prices of 200,000 ± 30,000 for a net that starts at 0: steps of the learning rate never get there."""
    patient = admit(classes=1)
    assert patient.seen_target is not None
    patient.target, patient.seen_target = (
        200_000 + 10_000.0 * (y - 4.5) for y in (patient.target, patient.seen_target)
    )
    patient.loss, patient.where = _squared, ("head", "")
    return patient


@fault("inputs not normalised", "CS104", on=("plain", "conv", "transformer"))
def raw_inputs(admit: Admit) -> Patient:
    """Inputs of a size of ten thousand."""
    patient = admit()
    patient.inputs, patient.seen = 1e4 * patient.inputs, 1e4 * patient.seen
    patient.where = ("stem", "inputs")
    return patient


@fault("weights from N(0, 1)", "CS105", "CS104", on=MAIN)
def unit_weights(admit: Admit) -> Patient:
    """`torch.randn` without a scale: states and gradients grow by √fan-in a layer."""
    patient = admit()
    _draw(patient, 1.0)
    patient.where = ANYWHERE
    return patient


@fault("weights of size 0.01", "CS105", "CS108", on=("plain", "conv", "gcn"))
def small_weights(admit: Admit) -> Patient:
    """The `0.01 * randn` of old tutorials, ten tanh layers deep: rows and gradients shrink together."""
    patient = admit(depth=10, activation=nn.Tanh)
    _draw(patient, 0.01)
    patient.where = ANYWHERE
    return patient


def _draw(patient: Patient, size: float) -> None:
    generator = torch.Generator().manual_seed(SEED.get())
    with torch.no_grad():
        for layer in layers_of(patient.model):
            layer.weight.copy_(size * torch.randn(layer.weight.shape, generator=generator))


@fault("deep sigmoids", "CS105", "CS108", on=("plain", "conv", "gcn"))
def deep_sigmoids(admit: Admit) -> Patient:
    """Sixteen sigmoid layers without norm or skip: each lets a twentieth of the gradient through."""
    patient = admit(depth=16, activation=nn.Sigmoid)
    patient.where = ("blocks.*",)
    return patient


@fault("deep stack without skips", "CS105", "CS108", on=("plain", "conv", "lstm"))
def deep_stack(admit: Admit) -> Patient:
    """Twenty layers with the default initialisation, which shrinks what goes up and what comes down."""
    patient = admit(depth=20)
    patient.where = ("blocks.*",)
    return patient


@fault("one layer a million times too small", "CS105", "CS108", on=("plain", "conv"), steps=30)
def one_small_layer(admit: Admit) -> Patient:
    """What is below it gets a millionth of the gradient, and what is above sees its bias alone."""
    patient = admit(depth=3)
    at = middle(patient)
    multiply(net_of(patient).blocks[at], 1e-6)
    patient.optimise(rate=0.1, sgd=True, momentum=0.9)
    patient.where = (f"blocks.{at}",)
    return patient


@fault("residual branches too large", "CS105", "CS104", on=("residual", "resnet", "transformer"))
def large_branches(admit: Admit) -> Patient:
    """No norm, and branches that are ten times their input: the stream grows tenfold a block."""
    patient = admit(depth=10, norm=nn.Identity)
    for block in net_of(patient).blocks:
        multiply(block, 4)
    patient.where = ANYWHERE
    return patient
