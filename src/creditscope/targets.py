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
    given: Tensor | None = None
    """The labels as they came, where they were not looked at: a device would be waited for, and stopped by bad ones."""

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

    def asides(self) -> dict[str, Tensor]:
        """The range of the labels and the accuracy of one label for everything, on the device."""
        if not self.by_class:
            return {}
        given = self.target if self.given is None else self.given
        if isinstance(self.loss, OverPlaces):
            labels, weights = self.loss.weighted_labels(given)
        else:
            labels = given if self.mask is None else torch.where(self.mask, given, 0)
            weights = (torch.ones_like(labels) if self.mask is None else self.mask).double()
        inside = labels.clamp(0, self.classes - 1).flatten().long()
        counts = weights.new_zeros(self.classes).index_add_(0, inside, weights.flatten())
        return {"least": labels.amin(), "largest": labels.amax(), "best_constant": counts.amax() / counts.sum()}

    def check_asides(self, found: dict[str, Any]) -> None:
        """Refuse labels that are none, once their range is on the host."""
        if found and (found["best_constant"] is None or not 0 <= found["least"] <= found["largest"] < self.classes):
            _refuse_labels(None if found["best_constant"] is None else (found["least"], found["largest"]), self.classes)


def read_targets(
    target: Tensor, mask: Tensor | None, loss: RowLoss | None, output: tuple[int, ...], *, shift: bool = False
) -> Asked:
    """Targets for outputs of that shape; with `shift`, each token is asked for the label of the next.

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
        on_host = target.device.type == "cpu"
        if not on_host or bool((target == IGNORED).any()):
            mask = target != IGNORED if mask is None else mask & (target != IGNORED)
        if on_host:
            _check_labels(target if mask is None else target[mask], output[-1])
        return Asked(_within(target, output[-1]), mask, None, output[-1], given=target)
    over, note = _over_places(tuple(target.shape), output), ""
    if shift:
        over = OverPlaces(over.axis, shift=1)
        note = "the labels are the inputs, so each token is asked for the next one, as in the model's own loss"
    if mask is not None:
        target = torch.where(mask.view(*mask.shape, *[1] * (target.ndim - mask.ndim)), target, IGNORED)
    classes = output[over.axis]
    if target.device.type == "cpu":
        _check_labels(target[target != IGNORED], classes)
    return Asked(_within(target, classes), over.covers(target), over, classes, note, given=target)


def _within(target: Tensor, classes: int) -> Tensor:
    """Labels that no device stops at; those on the host were looked at."""
    if target.device.type == "cpu":
        return target
    return torch.where(target == IGNORED, target, target.clamp(0, classes - 1))


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


def asks_for_next_token(model: nn.Module, inputs: Any, target: Tensor) -> bool:
    """Whether this is a causal language model of transformers whose labels are its inputs, as its own loss has them."""
    if not hasattr(model, "config") or not type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        return False
    tokens = inputs.get("input_ids") if isinstance(inputs, Mapping) else as_arguments(inputs)[0]
    if not isinstance(tokens, Tensor) or target.shape != tokens.shape:
        return False
    return bool(((target == tokens) | (target == IGNORED)).all())


def _check_labels(labels: Tensor, classes: int) -> None:
    found = torch.stack(torch.aminmax(labels)).tolist() if labels.numel() else None
    if found is None or not 0 <= found[0] <= found[1] < classes:
        _refuse_labels(found, classes)


def _refuse_labels(found: Any, classes: int) -> None:
    raise CreditscopeError(
        f"Expected labels from 0 to {classes - 1}, but got {f'{found[0]} to {found[1]}' if found else 'none'}. Use "
        f"mask= for rows without a label, or label {IGNORED}."
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
