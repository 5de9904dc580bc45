"""Losses per row and their errors e = ∂ℓ/∂logits, computed without cancellation where a closed form is known."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from creditscope.errors import CreditscopeError
from creditscope.stack import Net, StackedNet, transforms_active

IGNORED = -100
"""The label of a token or pixel that nothing is asked of, as in `torch.nn.functional.cross_entropy`."""
RowLoss = Callable[[Tensor, Tensor], Tensor]
"""A function (output, target) → one loss per row."""


@dataclass(frozen=True)
class RowErrors:
    """Loss ℓ_i and error e_i of every row; `covered` rows are those the loss speaks of. Seeds may come first."""

    loss: Tensor
    error: Tensor
    covered: Tensor
    mask: Tensor | None
    """The mask that was given, if any."""
    output: Tensor
    target: Tensor
    loss_function: RowLoss | None = None
    """What made the losses (None: cross-entropy)."""
    of_mean: Tensor | None = None
    """The gradient of the mean loss by the output, where it was taken as such: to the last bit what autograd gives."""

    @property
    def gradient(self) -> Tensor:
        """The gradient of the mean loss by the output."""
        return self.error / self.count if self.of_mean is None else self.of_mean

    def at(self, output: Tensor) -> "RowErrors":
        """Errors of the same rows at another output."""
        if self.loss_function is None:
            return cross_entropy_errors(output, self.target, self.mask)
        return row_errors(output, self.target, self.loss_function, self.mask)

    @property
    def count(self) -> Tensor | int:
        """How many rows the mean is over: all of them, or those of the mask."""
        return self.loss.shape[-1] if self.mask is None else self.mask.sum().clamp(min=1)

    @property
    def mean_loss(self) -> Tensor:
        """Mean loss over those rows, one for each seed."""
        return self.loss.sum(-1) / self.count


@dataclass(frozen=True)
class OverPlaces:
    """Cross-entropy of tokens or pixels, ℓ_i = mean over places with a label (not −100) of −log p_y.

    `axis` is that of the classes. With `shift`, the output at a token is about the label of the next one.

    >>> logits = torch.zeros(1, 3, 4)
    >>> OverPlaces(-1)(logits, torch.tensor([[0, 2, -100]]))
    tensor([1.3863])
    """

    axis: int
    shift: int = 0

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        """One loss per row, to be differentiated."""
        logits, label, weight = self._aligned(output, target)
        losses = -logits.log_softmax(-1).gather(-1, label.unsqueeze(-1)).squeeze(-1)
        return (losses * weight).flatten(1).sum(1)

    @torch.no_grad()
    def errors(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The losses, and their errors without cancellation as in `cross_entropy_errors`."""
        logits, label, weight = self._aligned(output.detach(), target)
        log_p, index = logits.log_softmax(-1), label.unsqueeze(-1)
        losses = -log_p.gather(-1, index).squeeze(-1)
        error = log_p.exp_().scatter_(-1, index, 0.0)
        error.scatter_(-1, index, -error.sum(-1, keepdim=True)).mul_(weight.unsqueeze(-1))
        if self.shift:
            error = functional.pad(error, [0, 0] * (error.ndim - 2) + [0, self.shift])
        return (losses * weight).flatten(1).sum(1), error.movedim(-1, self.axis)

    def hits(self, output: Tensor, target: Tensor) -> Tensor:
        """The share of a row's labels that its largest logits give."""
        logits, label, weight = self._aligned(output, target)
        return ((logits.argmax(-1) == label) * weight.double()).flatten(1).sum(1)

    def covers(self, target: Tensor) -> Tensor:
        """Which rows have a label."""
        return (target[:, self.shift :] != IGNORED).flatten(1).any(1)

    def weighted_labels(self, target: Tensor) -> tuple[Tensor, Tensor]:
        """The labels, and what each counts: rows count alike."""
        target = target[:, self.shift :]
        keep = target != IGNORED
        counts = keep.flatten(1).sum(1).clamp(min=1).view(-1, *[1] * (target.ndim - 1))
        return torch.where(keep, target, 0), keep.double() / counts

    def _aligned(self, output: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = output.movedim(self.axis, -1)
        label, weight = self.weighted_labels(target)
        return logits[:, : logits.shape[1] - self.shift], label, weight.to(output.dtype)


def row_errors(output: Tensor, target: Tensor, loss: RowLoss | None = None, mask: Tensor | None = None) -> RowErrors:
    """Errors of every row of one net under `loss` (default cross-entropy); rows outside `mask` get none."""
    _check_rows(output, target, loss)
    if loss is None:
        return cross_entropy_errors(output, target, mask)
    output = output.detach()
    if isinstance(loss, OverPlaces):
        losses, error = loss.errors(output, target)
        return RowErrors(losses, error, loss.covers(target), mask, output, target, loss)
    with torch.enable_grad():
        leaf = output.requires_grad_()
        losses = _checked(losses_per_row(leaf, target, loss, mask), output)
        (error,) = torch.autograd.grad(losses.sum(), leaf)
    covered = (error.flatten(1) != 0).any(1) if mask is None else mask
    return RowErrors(losses.detach(), error, covered, mask, output.detach(), target, loss)


def couples_rows(loss: RowLoss, output: Tensor, target: Tensor, mask: Tensor | None = None) -> bool:
    """Whether the loss of one row depends on the output of another (contrastive losses, statistics of the batch).

    By gradients, Σ_i w_i ∂ℓ_i/∂o_j = w_j Σ_i ∂ℓ_i/∂o_j for all weights w if, and only if, rows are apart; and by
    values, since a statistic may be detached: every other row alone has the losses that it has among all.
    """
    output = output.detach().requires_grad_()
    with torch.enable_grad(), torch.autocast(output.device.type, enabled=False):
        losses = _checked(losses_per_row(output, target, loss, mask), output)
        w = torch.arange(len(losses), device=output.device, dtype=torch.float64).cos().to(losses.dtype)
        found = [torch.autograd.grad(total, output, retain_graph=True)[0] for total in (losses.sum(), losses @ w)]
    apart, weighted = found[0].flatten(1) * w.unsqueeze(1).to(output.dtype), found[1].flatten(1)
    if _differ(weighted, apart, found[0].abs().amax()):
        return True
    try:
        with torch.no_grad(), torch.autocast(output.device.type, enabled=False):
            alone = losses_per_row(output[::2], target[::2], loss, None if mask is None else mask[::2])
    except (RuntimeError, ValueError, IndexError):  # it holds something of every row: the gradients have decided
        return False
    return alone.shape == losses[::2].shape and _differ(alone, losses[::2], losses.abs().amax())


def _differ(ours: Tensor, theirs: Tensor, size: Tensor) -> bool:
    """By more than rounding; what is not finite differs not."""
    return bool(((ours - theirs).abs().amax() > 1e3 * torch.finfo(ours.dtype).eps * size).detach())


def mean_errors(output: Tensor, target: Tensor, loss: RowLoss | None = None, mask: Tensor | None = None) -> RowErrors:
    """The same, with the gradient of the mean loss taken as such, `of_mean`, for a rule that asks for no other.

    Its bits are those of `loss(output, target).mean().backward()`; the errors are this times the rows.
    """
    _check_rows(output, target, loss)
    output = output.detach()
    with torch.enable_grad():
        leaf = output.detach().requires_grad_()
        losses = _checked(losses_per_row(leaf, target, loss or _cross_entropy, mask), output)
        count = len(losses) if mask is None else mask.sum().clamp(min=1)
        (of_mean,) = torch.autograd.grad(losses.mean() if mask is None else losses.sum() / count, leaf)
    covered = torch.ones_like(losses, dtype=torch.bool) if mask is None else mask
    return RowErrors(losses.detach(), of_mean * count, covered, mask, output, target, loss, of_mean)


def _cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    return functional.cross_entropy(output, target, reduction="none")  # by name, because autocast goes by names


def _check_rows(output: Tensor, target: Tensor, loss: RowLoss | None) -> None:
    if len(target) != len(output):
        raise CreditscopeError(
            f"Expected one target per row, but got {len(output)} rows and {len(target)} targets. "
            "Is the model batch first?"
        )
    if loss is None and output.ndim != 2:
        raise CreditscopeError(
            f"Expected logits of shape (rows, classes) for cross-entropy, but got {tuple(output.shape)}. "
            "Pass loss=, a function that returns one loss per row."
        )


def _checked(losses: Tensor, output: Tensor) -> Tensor:
    if losses.shape != output.shape[:1]:
        raise CreditscopeError(
            f"Expected the loss to return one value per row, shape {tuple(output.shape[:1])}, "
            f"but got shape {tuple(losses.shape)}. Use reduction='none' and average within a row."
        )
    return losses


def losses_per_row(output: Tensor, target: Tensor, loss: RowLoss | None, mask: Tensor | None) -> Tensor:
    """The loss of every row as a function of the output, to be differentiated; 0 for rows outside the mask."""
    if mask is not None:  # a row without a label may hold anything
        target = torch.where(mask.view(-1, *[1] * (target.ndim - 1)), target, 0)
    if loss is None and output.ndim == 2 and not transforms_active():
        losses = _cross_entropy(output, target.long())  # the same at less cost
    elif loss is None:
        losses = -output.log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
    else:
        losses = loss(output, target)
    return losses if mask is None else losses * mask


def cross_entropy_errors(output: Tensor, target: Tensor, mask: Tensor | None = None) -> RowErrors:
    """Errors of logits (…, rows, classes) under cross-entropy; targets and mask may be shared by what comes before.

    e = softmax − onehot, with 1 − p_y summed from the other classes: exact even where p_y → 1. (log p_y itself rounds
    to 0 there, so −expm1(log p_y) would lose it.)
    """
    output = output.detach()
    if mask is not None:  # a row without a label may hold anything
        target = torch.where(mask, target, 0)
    if target.ndim < output.ndim - 1:
        target = target.expand(output.shape[:-1])
    log_p = output.log_softmax(-1)
    index = target.unsqueeze(-1)
    others = log_p.exp().scatter(-1, index, 0.0)
    error = others.scatter(-1, index, -others.sum(-1, keepdim=True))
    losses = -log_p.gather(-1, index).squeeze(-1)
    if mask is None:
        covered = torch.ones_like(losses, dtype=torch.bool)
    else:
        losses, error, covered = losses * mask, error * mask.unsqueeze(-1), mask.expand(losses.shape)
    return RowErrors(losses, error, covered, mask, output, target)


def errors_function(
    net: Net, target: Tensor, loss: RowLoss | None = None, mask: Tensor | None = None
) -> Callable[[Tensor], RowErrors]:
    """From the outputs of one net, or of all seeds of a stack, to their errors."""
    if isinstance(net, StackedNet):
        return lambda output: cross_entropy_errors(output, target, mask)
    return lambda output: row_errors(output, target, loss, mask)
