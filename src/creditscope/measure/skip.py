"""Accuracy with one block left out: what the net would do without it."""

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.measure.functional_net import replaced_states
from creditscope.measure.subject import Subject
from creditscope.stack import Batch, call_net


@torch.no_grad()
def measure_skips(subject: Subject) -> Tensor:
    """Accuracy if the stage before a tap handed on the state of the tap before; NaN where it does not add to that."""
    if subject.test is None:
        raise CreditscopeError("Expected class labels, but got a loss of another kind.")
    anatomy = subject.applied.anatomy
    skippable = [
        tap for tap, adds in enumerate(anatomy.residual) if adds and anatomy.shapes[tap] == anatomy.shapes[tap - 1]
    ]
    found = torch.full((len(anatomy.taps),), torch.nan, dtype=torch.float64, device=subject.target.device)
    if not skippable:
        return found
    batches = list(subject.test())
    for tap in skippable:
        right = torch.cat([_right(subject, tap, batch) for batch in batches])
        found[tap] = right.double().mean()
    return found


def _right(subject: Subject, tap: int, batch: Batch) -> Tensor:
    """Which of the rows that count are classified rightly without stage `tap`."""
    kept: list[Tensor] = []

    def keep(h: Tensor) -> Tensor:
        kept.append(h.clone())  # the stage may work in place
        return h

    names = subject.taps
    with replaced_states(subject.net, {names[tap - 1]: keep, names[tap]: lambda h: kept[0]}):
        logits = call_net(subject.net, batch.inputs, subject.tensors)
    return batch.only_scored(logits.argmax(-1) == batch.target)
