"""Train a model of your own by any rule, in your own loop: `backward` fills `.grad`, everything else stays yours."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.errors import CreditscopeError
from creditscope.losses import RowErrors, RowLoss, mean_errors, row_errors
from creditscope.returned import OutputReader, Read, reader_of
from creditscope.rng import generator
from creditscope.rules import (
    Application,
    AppliedRule,
    ConversionReport,
    Rule,
    apply_rule,
    layers_with_feedback,
    make_rule,
    restore,
    transport_of,
)
from creditscope.scope import Scope, few_rows, name_taps
from creditscope.targets import check_target, check_tensors


class Trainer:
    """A rule at work on a model of yours; made by `attach`.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 3
    >>> trainer = cs.attach(model, "local", taps="1", stem="0")
    >>> optimiser = torch.optim.AdamW(model.parameters())
    >>> for epoch in range(2):
    ...     optimiser.zero_grad()
    ...     losses = trainer.backward(x, y)
    ...     optimiser.step()
    ...     taken = trainer.watch.snapshot(x, y, epoch=epoch, tier="quick")
    >>> losses.shape, trainer.report.names("exact")
    (torch.Size([20]), ['2.weight', '2.bias'])
    """

    model: nn.Module
    watch: Scope
    """Snapshots of the model under the rule as it stands, feedback and all; nothing is learned there."""

    def __init__(
        self,
        model: nn.Module,
        taps: tuple[str, ...],
        *,
        stem: str | None,
        rule: Rule,
        loss: RowLoss | None,
        output: OutputReader,
        seed: int,
    ):
        self.model, self.rule, self.loss, self.seed = model, rule, loss, seed
        self._net, self._taps = Read(model, output), taps
        self.watch = Scope(self._net, taps, stem=stem, rule=rule, loss=loss, seed=seed, apply=self._apply_again)
        self._application: Application | None = None
        self._detached = False
        self._stepped = _Stepped()

    def backward(self, inputs: Any, target: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """One step of the rule: its own tensors learn, and `.grad` of the parameters gets what the rule tells.

        As `loss.backward()` does, it adds to a `.grad` that is there. `inputs` are a tensor, a tuple of arguments or
        a dictionary of keyword arguments. Gives the losses of the rows, detached, in `mask` if there is one: their mean
        is the loss.
        """
        check_tensors(target, mask)
        applied = self._bind(few_rows(inputs)).applied
        classes = applied.anatomy.classes if target.device.type == "cpu" else None
        check_target(target, mask, self.loss, classes)
        self._stepped.check(self)
        self._place(applied)
        how = row_errors if self.rule.local else mean_errors

        def errors_of(output: Tensor) -> RowErrors:
            return how(output, target, self.loss, mask)

        losses = applied.backward(inputs, errors_of).loss
        for memory in self.followers():
            memory.grad = None if memory.grad is None else memory.grad.clone()  # one tensor would be clipped twice
        self._stepped.note(self)
        return losses if mask is None else losses[mask]

    def parameters(self) -> Iterator[Tensor]:
        """For the optimiser: those of the model, then feedback that must be stepped as its weight is (Kolen–Pollack).

        All other rules do with `model.parameters()`.
        """
        self._stepped.asked = True
        yield from self.model.parameters()
        yield from self.followers()

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The same as groups of an optimiser: weights with feedback, and what follows them, have the rule's decay."""
        decay, named = getattr(self.rule, "decay", None), dict(self.model.named_parameters())
        if decay is None:
            return [{"params": list(self.parameters())}]
        layers = layers_with_feedback(self.model).values()
        own = {id(layer.weight) for layer in layers}
        decayed = [p for p in named.values() if id(p) in own]
        self._stepped.asked = True
        return [
            {"params": [p for p in named.values() if id(p) not in own]},
            {"params": [*decayed, *self.followers()], "weight_decay": decay},
        ]

    def followers(self) -> list[Tensor]:
        """Feedback that the optimiser must step."""
        return [] if self._application is None else list(chain(*self._application.applied.followers().values()))

    @property
    def report(self) -> ConversionReport:
        """Which parameters the rule trains, which get exact gradients, which are frozen."""
        return self._known("report").report

    def state_dict(self) -> dict[str, Tensor]:
        """The rule's own tensors by name: feedback, small nets and their moments, counters."""
        applied = self._known("state_dict").applied
        if self.rule.local:
            return {name: tensor.detach() for name, tensor in applied.tensors().items()}
        layers = layers_with_feedback(self.model).items()
        return {f"{name}.{own}": buffer for name, layer in layers for own, buffer in layer.named_buffers()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Put back what `state_dict` gave, of the same rule on a model of the same shapes."""
        own = self.state_dict()
        shapes, given = ({name: tuple(t.shape) for name, t in tensors.items()} for tensors in (own, state))
        if shapes != given:
            raise CreditscopeError(
                f"Expected the tensors of rule {self.rule.name!r} on this model, {shapes}, but got {given}."
            )
        for name, tensor in own.items():
            tensor.copy_(state[name])

    def detach(self) -> nn.Module:
        """Leave the model as it was, with the weights it has now: plain layers, no feedback; gives the model."""
        if not self.rule.local:
            restore(self.model)
        self._application, self._detached = None, True
        return self.model

    def _bind(self, rows: Any) -> Application:
        """The rule at work, from the first rows on."""
        if self._detached:
            raise CreditscopeError("Expected a trainer at work, but it was detached. Attach a new one.")
        if self._application is None:
            feedback = generator(self.seed, "feedback")
            self._application = apply_rule(self.rule, self._net, self._taps, rows, feedback)
        return self._application

    def _apply_again(self, rows: Any) -> Application:
        """The rule as it stands, on the model in its present mode: for the scope."""
        own, stream = self._bind(rows).applied.feedback, generator(self.seed, "feedback")
        return apply_rule(self.rule, self._net, self._taps, rows, stream, feedback=own)

    def _known(self, what: str) -> Application:
        if self._application is None:
            raise CreditscopeError(
                f"Expected a trainer that has seen rows before {what}, but got none. Pass a few of them to attach, "
                "inputs=, or call backward first."
            )
        return self._application

    def _place(self, applied: AppliedRule) -> None:
        """Feedback on the device and in the precision of the model, which may be others since."""
        weight = next(self.model.parameters())
        applied.feedback = tree_map(
            lambda b: b.to(weight.device, weight.dtype if b.is_floating_point() else None), applied.feedback
        )


class _Stepped:
    """Whether feedback that follows its weights is handed to the optimiser, which nobody tells."""

    def __init__(self) -> None:
        self.asked, self.known = False, False
        self.noted: list[Tensor] = []

    def note(self, trainer: Trainer) -> None:
        self.noted = [] if self.known else [t.clone() for t in self._pair(trainer)]

    def check(self, trainer: Trainer) -> None:
        """Refuse one that was never asked for; warn, once, of one that stands still while the weights move.

        By values, because not every optimiser counts up the version of what it writes.
        """
        if not trainer.followers():
            return
        wanted = (
            f"an optimiser that also steps the feedback of {trainer.rule.name!r}, as torch.optim.SGD("
            "trainer.parameters(), …) does, or, with the rule's own weight decay, trainer.parameter_groups()"
        )
        if not self.asked:
            raise CreditscopeError(f"Expected {wanted}, but neither was asked for.")
        moved = [not torch.equal(*pair) for pair in zip(self.noted, self._pair(trainer), strict=False)]
        if moved and moved[0]:
            self.known = True
            if not moved[1]:
                warnings.warn(f"Expected {wanted}, but the weights moved and it did not.", stacklevel=3)

    def _pair(self, trainer: Trainer) -> list[Tensor]:
        """A trained weight and its feedback, if that follows."""
        if not trainer.followers():
            return []
        layers = [m for m in layers_with_feedback(trainer.model).values() if m.weight.requires_grad]
        return [layers[0].weight.detach(), layers[0].feedback] if layers else []


def attach(
    model: nn.Module,
    rule: str | Rule | type[Rule] = "dfa",
    *,
    taps: str | Sequence[str],
    stem: str | None = None,
    loss: RowLoss | None = None,
    output: OutputReader | str | int | None = None,
    seed: int = 0,
    inputs: Any = None,
    **options: Any,
) -> Trainer:
    """Put a rule to work on `model` for a training loop of your own: `trainer.backward(x, y)` in place of
    `loss.backward()`.

    `rule`, `taps` and `stem` are as for `watch`, and `options` those of the rule. `loss` maps (output, target) to one
    loss per row, over tokens or outputs as you like; the default is cross-entropy on class labels. `output` takes the
    logits out of what the model returns, by name, place or function; they are found by themselves where they can be.
    `seed` is that of the feedback. `inputs`, a few rows that the model can be called with, are asked for by rules whose
    feedback the optimiser steps; others look at the rows of the first step. With `rule="bp"` gradients are bit by bit
    those of PyTorch.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 3
    >>> trainer = cs.attach(model, "fa", taps="1", stem="0")
    >>> optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> for step in range(3):
    ...     optimiser.zero_grad()
    ...     mean = trainer.backward(x, y).mean()
    ...     optimiser.step()
    >>> print(trainer.detach())
    Sequential(
      (0): Linear(in_features=4, out_features=8, bias=True)
      ...
    """
    if loss is not None and not callable(loss):
        raise CreditscopeError(
            f"Expected loss to be a function (output, target) → one loss per row, but got {loss!r}. An option of the "
            "rule with that name goes in with the rule: rule=creditscope.rules.make_rule(name, {'loss': …})."
        )
    if isinstance(inputs, str):
        raise CreditscopeError(
            f"Expected inputs to be rows that the model can be called with, but got {inputs!r}. An option of the rule "
            "with that name goes in with the rule: rule=creditscope.rules.make_rule(name, {'inputs': …})."
        )
    chosen = make_rule(rule, options)
    if transport_of(model) is not None:
        raise CreditscopeError(
            "Expected a plain model, but it has feedback already, of convert or another trainer. "
            "creditscope.restore(model) gives a plain one."
        )
    if inputs is None and getattr(chosen, "follows", False):
        raise CreditscopeError(
            f"Expected inputs= for rule {chosen.name!r}, because its feedback must be there before the optimiser is "
            "made, but got none. Pass a few rows that the model can be called with."
        )
    names = name_taps(model, taps, stem)
    trainer = Trainer(model, names, stem=stem, rule=chosen, loss=loss, output=reader_of(output), seed=seed)
    if inputs is not None:
        trainer._bind(few_rows(inputs))
    return trainer
