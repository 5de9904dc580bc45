"""The output of a watched model beside its targets: the best constant's loss, and whether loss and output fit.

Which loss it is, is read off its error e = ∂ℓ/∂o: cross-entropy has e = softmax(o) − onehot(y), its binary kind
σ(o) − y, the negative log-likelihood −onehot(y), whatever function was passed.
"""

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.losses import OverPlaces, RowErrors

SURE = 0.999
"""Probability of the first class at which a row counts as sure."""
TOLERANCE = 1e-3
"""How far the sum of probabilities may be from 1, and that of errors from 0."""
ALIKE, EXACTLY = 0.9, 0.9999
"""Cosines of an error with that of a loss from which it is of that kind: class weights and smooth labels turn it a
little; squared errors of outputs between 0 and 1 are not far from those of a sigmoid."""


@torch.no_grad()
def measure_output(errors: RowErrors) -> dict[str, Tensor]:
    """The fields of `OutputMeasures`."""
    output, target = errors.output.float(), errors.target
    found = {"rms": output.square().mean().sqrt(), "dispersion": _dispersion(output)}
    axis, given = _class_axis(output, target), not isinstance(errors.loss_function, OverPlaces | None)
    if axis is None or (given and output.shape[axis] == 1):
        return found | _of_numbers(output, target, errors)
    logits, labels = output.movedim(axis, -1).flatten(0, -2), target.flatten()
    used = (labels >= 0) & (labels < logits.shape[-1])
    if errors.mask is not None:
        used = used & errors.mask.reshape(-1, *[1] * (target.ndim - 1)).expand(target.shape).flatten()
    told = errors.error.float().movedim(axis, -1).flatten(0, -2)
    labels = torch.where(used, labels, 0)
    found |= _of_classes(logits, labels, told, used)
    best = _best_class(errors, labels, used, axis)
    if given:  # of another loss it is not known what a constant answer would be
        best = torch.where(found["loss_has_softmax"] | found["loss_is_likelihood"], best, torch.nan)
    else:  # known, and not to be told from errors that are rounding
        found["loss_has_softmax"] = torch.ones_like(found["loss_has_softmax"])
        found["loss_is_likelihood"] = torch.zeros_like(found["loss_is_likelihood"])
    return found | {"best_constant_loss": best}


def _class_axis(output: Tensor, target: Tensor) -> int | None:
    """Where classes lie, if the targets are labels: last, or second as in an image of labels."""
    if target.is_floating_point() or target.dtype == torch.bool or output.ndim != target.ndim + 1:
        return None
    if output.shape[:-1] == target.shape:
        return output.ndim - 1
    return 1 if (output.shape[:1] + output.shape[2:]) == target.shape else None


def _dispersion(output: Tensor) -> Tensor:
    """Dispersion of the outputs over rows, as a share of their size: 0 where every row gets the same."""
    rows = output.flatten(1)
    spread = (rows - rows.mean(0)).square().mean()
    return (spread / rows.square().mean()).sqrt().clamp(max=1)


def _of_classes(logits: Tensor, labels: Tensor, told: Tensor, used: Tensor) -> dict[str, Tensor]:
    weight, count = used.float(), used.sum().clamp(min=1)
    soft = logits.softmax(-1)
    sums = (logits.sum(-1) - 1).abs() < TOLERANCE
    onehot = torch.zeros_like(logits).scatter_(-1, labels.unsqueeze(-1), 1.0) * weight.unsqueeze(-1)
    balanced = told.sum(-1).abs().sum() < TOLERANCE * told.abs().sum()
    largest, least = torch.where(used, labels, -1).amax(), torch.where(used, labels, labels.amax()).amin()
    return {
        "sure": ((soft.amax(-1) > SURE).float() * weight).sum() / count,
        "probabilities": ((sums & (logits.amin(-1) >= 0)).float() * weight).sum() / count,
        "log_probabilities": ((logits.logsumexp(-1).abs() < TOLERANCE).float() * weight).sum() / count,
        "loss_has_softmax": balanced & (_cosine(told, (soft - onehot) * weight.unsqueeze(-1)) > ALIKE),
        "loss_is_likelihood": ~balanced & (_cosine(told, -onehot) > ALIKE),
        "classes": torch.full_like(largest, logits.shape[-1]),
        "bounded": ((logits >= 0) & (logits <= 1)).all() & (logits != logits[:1]).any(),
        "largest_label": largest.double(),
        "targets_differ": largest != least,
    }


def _of_numbers(output: Tensor, target: Tensor, errors: RowErrors) -> dict[str, Tensor]:
    """Of targets that are numbers, as many as the output has; else nothing can be said."""
    if target.numel() != output.numel():
        return {}
    wanted, kept = target.reshape(output.shape).float(), torch.ones_like(output, dtype=torch.bool)
    if errors.mask is not None:  # a row without a target may hold anything
        kept = errors.mask.reshape(-1, *[1] * (output.ndim - 1)).expand(output.shape)
        wanted = torch.where(kept, wanted, 0.0)
    spread = torch.where(kept, wanted, -torch.inf).amax(0) != torch.where(kept, wanted, torch.inf).amin(0)
    found = {
        "loss_has_sigmoid": _cosine(errors.error.float(), output.sigmoid() - wanted) > EXACTLY,
        "bounded": ((output >= 0) & (output <= 1)).all() & (output != output[:1]).any(),
        "targets_differ": spread.any(),
    }
    mean = wanted.sum(0, keepdim=True) / kept.sum(0, keepdim=True).clamp(min=1)
    inside = ((wanted >= 0) & (wanted <= 1)).all()
    constants = [mean, torch.where(inside, mean.clamp(1e-4, 1 - 1e-4).logit(), mean)]
    losses = [errors.at(c.expand_as(output).to(errors.output.dtype).contiguous()).mean_loss for c in constants]
    return found | {"best_constant_loss": torch.stack(losses).amin()}


def _best_class(errors: RowErrors, labels: Tensor, used: Tensor, axis: int) -> Tensor:
    """The loss of answering with the shares of the classes, whatever the row: their entropy, under cross-entropy."""
    classes = errors.output.shape[axis]
    counts = used.new_zeros(classes, dtype=torch.float32).index_add_(0, labels, used.float())
    log_share = (counts / counts.sum().clamp(min=1)).clamp(min=1e-8).log()
    shape = [classes if d == axis else 1 for d in range(errors.output.ndim)]
    constant = log_share.view(shape).expand_as(errors.output).to(errors.output.dtype).contiguous()
    return errors.at(constant).mean_loss


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return functional.cosine_similarity(a.flatten(), b.flatten(), dim=0)
