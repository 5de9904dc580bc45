"""What a model is to give: class labels per row, token or pixel, or what a loss of one's own compares with."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.losses import IGNORED, OverPlaces, RowLoss
from creditscope.stack import as_arguments


@dataclass(frozen=True)
class Asked:
    """Targets as losses are taken of them: where nothing is asked, `mask` is off or the label is −100."""

    target: Tensor
    mask: Tensor | None
    loss: RowLoss | None
    """None: cross-entropy on one label per row."""
    classes: int
    note: str = ""

    @property
    def by_class(self) -> bool:
        """Whether there are class labels, and so an accuracy."""
        return self.loss is None or isinstance(self.loss, OverPlaces)

    def hits(self, output: Tensor) -> Tensor:
        """The share of labels that the output's largest logit gives, per row; 0 of rows without any."""
        if isinstance(self.loss, OverPlaces):
            return self.loss.hits(output, self.target)
        right = output.argmax(-1) == self.target
        return (right if self.mask is None else right & self.mask).to(torch.float64)

    def best_constant(self) -> float:
        """The accuracy of one label for everything."""
        if isinstance(self.loss, OverPlaces):
            labels, weights = self.loss.weighted_labels(self.target)
        else:
            labels = self.target if self.mask is None else self.target[self.mask]
            weights = torch.ones_like(labels)
        counts = torch.bincount(labels.flatten(), weights=weights.flatten().double(), minlength=self.classes)
        return float(counts.max() / counts.sum())


def read_targets(
    target: Tensor, mask: Tensor | None, loss: RowLoss | None, output: tuple[int, ...], causal: Tensor | None = None
) -> Asked:
    """Targets for outputs of that shape; `causal` are the tokens of a model that is to tell the next of each.

    One label per row for (rows, classes); one per token for (rows, tokens, classes), one per pixel for (rows, classes,
    height, width) or (rows, height, width, classes). A `mask` is of rows or of all labels; label −100 is left out.
    """
    check_tensors(target, mask)
    check_mask(target, mask, whole=loss is None)
    if loss is not None:
        return Asked(target, mask, loss, output[-1])
    if target.is_floating_point() or target.dtype == torch.bool:
        raise CreditscopeError(
            f"Expected class labels for cross-entropy, but got targets of {target.dtype} and shape "
            f"{tuple(target.shape)}. Pass loss= for other targets."
        )
    if target.ndim == 1 and len(output) == 2:
        labels = (target if mask is None else target[mask]).detach()
        if bool((labels == IGNORED).any()):
            mask = target != IGNORED if mask is None else mask & (target != IGNORED)
        _check_labels(target if mask is None else target[mask], output[-1])
        return Asked(target, mask, None, output[-1])
    over = _over_places(tuple(target.shape), output)
    note = ""
    if causal is not None and _are_the_inputs(target, causal):
        over = OverPlaces(over.axis, shift=1)
        note = "the labels are the inputs, so each token is asked for the next one, as in the model's own loss"
    if mask is not None:
        target = torch.where(mask.view(*mask.shape, *[1] * (target.ndim - mask.ndim)), target, IGNORED)
    classes = output[over.axis]
    kept = target[target != IGNORED]
    _check_labels(kept, classes)
    return Asked(target, over.covers(target), over, classes, note)


def _over_places(target: tuple[int, ...], output: tuple[int, ...]) -> OverPlaces:
    """Which axis has the classes: the one that the targets have not."""
    axes = [axis for axis, places in ((-1, output[:-1]), (1, (output[0], *output[2:]))) if target == places]
    if len(output) < 3 or not axes:
        raise CreditscopeError(
            f"Expected one class label per row, token or pixel of an output of shape {output}, but got targets of "
            f"shape {target}. Pass loss= for other targets, or output= for another output."
        )
    if len(axes) > 1:
        raise CreditscopeError(
            f"Expected to tell classes from places, but in an output of shape {output} both could be either. Pass "
            "loss=, a function that returns one loss per row."
        )
    return OverPlaces(axes[0])


def _are_the_inputs(target: Tensor, tokens: Tensor) -> bool:
    return target.shape == tokens.shape and bool(((target == tokens) | (target == IGNORED)).all())


def causal_tokens(model: nn.Module, inputs: Any) -> Tensor | None:
    """The tokens that a causal language model of transformers is called with; None of any other model."""
    if not hasattr(model, "config") or not type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        return None
    first = inputs.get("input_ids") if isinstance(inputs, Mapping) else as_arguments(inputs)[0]
    return first if isinstance(first, Tensor) else None


def _check_labels(labels: Tensor, classes: int) -> None:
    found = torch.aminmax(labels) if labels.numel() else None
    low, high = torch.stack(found).tolist() if found else (0, -1)
    if not 0 <= low <= high < classes:
        raise CreditscopeError(
            f"Expected labels from 0 to {classes - 1}, but got {f'{low} to {high}' if found else 'none'}. Use mask= "
            f"for rows without a label, or label {IGNORED}."
        )


def check_tensors(target: Any, mask: Any) -> Tensor:
    """Refuse lists and arrays; gives the target."""
    for name, given in (("target", target), ("mask", target if mask is None else mask)):
        if not isinstance(given, Tensor):
            raise CreditscopeError(
                f"Expected {name} to be a tensor, but got {type(given).__name__}. Use torch.as_tensor({name})."
            )
    return target


def check_mask(target: Tensor, mask: Tensor | None, *, whole: bool = False) -> None:
    """Refuse a mask that is none: bools of the rows or, where the `whole` target is of labels, of all these."""
    shapes = (target.shape[:1], target.shape) if whole else (target.shape[:1],)
    if mask is not None and (mask.dtype != torch.bool or mask.shape not in shapes):
        raise CreditscopeError(
            f"Expected a mask of {len(target)} bools, one a row{' (or one a label)' * whole}, but got {mask.dtype} of "
            f"shape {tuple(mask.shape)}."
        )


def check_target(target: Tensor, mask: Tensor | None, loss: RowLoss | None, classes: int | None) -> None:
    """Refuse what a step of training cannot go by: a mask that is none, other targets than one label per row.

    Without `classes` the labels themselves are not looked at, for which a device would be waited for.
    """
    check_mask(target, mask)
    if loss is not None:
        return
    if target.ndim != 1 or target.is_floating_point() or target.dtype == torch.bool:
        raise CreditscopeError(
            f"Expected one class label per row for cross-entropy, but got targets of {target.dtype} and shape "
            f"{tuple(target.shape)}. Pass loss= for other targets."
        )
    if classes is not None:
        _check_labels(target if mask is None else target[mask], classes)


def with_labels(inputs: Any, target: Tensor | None) -> tuple[Any, Any]:
    """Inputs and target apart; keyword arguments may hold the target as `labels`, as transformers' batches do."""
    if isinstance(inputs, Mapping) and "labels" in inputs:
        given = inputs["labels"] if target is None else target
        return {name: value for name, value in inputs.items() if name != "labels"}, given
    if target is None:
        raise CreditscopeError("Expected a target, or inputs by name with labels among them, but got neither.")
    return inputs, target
