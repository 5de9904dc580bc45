"""Faults of labels and losses: they do not fit what the net gives."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from creditscope.clinic._case import Admit, fault
from creditscope.clinic._patient import Patient
from creditscope.clinic._surgery import net_of


def _end_with(patient: Patient, module: nn.Module) -> Patient:
    net = net_of(patient)
    net.head = nn.Sequential(net.head, module)
    patient.where = ("head",)
    return patient


@fault("softmax before cross-entropy", "CS101", on=("plain", "conv", "residual", "transformer", "lstm"))
def softmax_before_cross_entropy(admit: Admit) -> Patient:
    """Probabilities are taken for logits: the loss cannot fall under 1.46 with ten classes."""
    return _end_with(admit(), nn.Softmax(dim=-1))


@fault("sigmoid before cross-entropy", "CS101", on=("plain", "conv", "transformer"))
def sigmoid_before_cross_entropy(admit: Admit) -> Patient:
    """The same, of who thinks of one probability per class."""
    return _end_with(admit(), nn.Sigmoid())


@fault("softmax over the batch", "CS101", on=("plain", "residual", "gcn"))
def softmax_over_the_batch(admit: Admit) -> Patient:
    """`dim=0`: rows are compared instead of classes."""
    return _end_with(admit(), nn.Softmax(dim=0))


@fault("constant targets", "CS101", on=("plain", "conv", "residual", "transformer", "gcn"))
def constant_targets(admit: Admit) -> Patient:
    """A wrong column was read: every label is the same."""
    patient = admit()
    patient.target = torch.full_like(patient.target, 3)
    if patient.seen_target is not None:
        patient.seen_target = torch.full_like(patient.seen_target, 3)
    return patient


@fault("head too small for the labels", "CS101", on=("plain", "conv", "residual", "transformer"), refusal=True)
def head_too_small(admit: Admit) -> Patient:
    """Ten labels, nine outputs."""
    patient = admit(classes=9)
    patient.where = ("head",)
    return patient


def _squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target) ** 2


@fault("regression loss broadcast", "CS101", on=("plain", "conv", "residual", "transformer"), refusal=True)
def regression_broadcast(admit: Admit) -> Patient:
    """Outputs (rows, 1) less targets (rows,) are (rows, rows): every row is drawn to the mean."""
    patient = admit(classes=1)
    patient.loss, patient.target = _squares, patient.target.float() / 9
    assert patient.seen_target is not None
    patient.seen_target = patient.seen_target.float() / 9
    return patient


@fault("log-likelihood of raw outputs", "CS101", on=("plain", "conv", "transformer"))
def likelihood_of_raw_outputs(admit: Admit) -> Patient:
    """`nll_loss` without log-softmax: the loss is −z_y, which has no least value."""
    patient = admit()
    patient.loss = lambda output, target: functional.nll_loss(output, target, reduction="none")
    patient.where = ("head",)
    return patient
