"""Watch a model of your own: per-layer states, exact gradients and credit, without touching anything of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from creditscope.auditing import Audit, audit
from creditscope.errors import CreditscopeError
from creditscope.losses import RowLoss
from creditscope.measure.ablation import check_initial, fingerprint, is_at
from creditscope.measure.functional_net import Subject, subjects_of
from creditscope.measure.instruments import complete_snapshots
from creditscope.measure.observation import gather_facts, observe
from creditscope.measure.probe import spread_rows
from creditscope.measure.snapshot import take_snapshots
from creditscope.record import Facts, Record, Snapshot
from creditscope.record.spec import TIERS, Tier
from creditscope.record.store import WATCHED, write_watched
from creditscope.record.table import to_frame, to_xarray
from creditscope.rng import generator
from creditscope.rules import (
    BY_TAP_RULE,
    Application,
    ConversionReport,
    CreditContext,
    Rule,
    TapRule,
    apply_rule,
    make_rule,
    transport_of,
)
from creditscope.stack import Batch
from creditscope.taps import resolve_taps
from creditscope.text import count
from creditscope.train.data import SAMPLE_ROWS
from creditscope.train.device import begin_provenance, now


class Scope:
    """Takes snapshots of a model between training steps; made by `watch`.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 3
    >>> scope = cs.watch(model, taps="1", stem="0")
    >>> for epoch in range(2):
    ...     taken = scope.snapshot(x, y, epoch=epoch, tier="quick")
    >>> [snapshot.epoch for snapshot in scope.snapshots], len(taken.taps.g_norm)
    ([0, 1], 2)
    >>> scope.audit().methods[0].taps
    ('0', '1')
    """

    def __init__(
        self,
        model: nn.Module,
        taps: tuple[str, ...],
        *,
        stem: bool,
        rule: Rule,
        loss: RowLoss | None,
        seed: int,
        initial: Mapping[str, Tensor] | None = None,
        apply: Callable[[Any], Application] | None = None,
    ):
        self.model, self.taps, self.stem = model, taps, stem
        self.rule, self.loss, self.seed, self.initial = rule, loss, seed, initial
        self._when_watched = fingerprint(model) if initial is None else {}
        self.snapshots: list[Snapshot] = []
        self._apply = apply
        """From rows to the rule at work in training; None: the model is trained elsewhere."""
        self._application: Application | None = None
        self._facts: Facts | None = None

    def snapshot(
        self,
        inputs: Any,
        target: Tensor,
        *,
        epoch: int | None = None,
        mask: Tensor | None = None,
        noise: bool = True,
        tier: Tier = "standard",
    ) -> Snapshot:
        """Measure on these rows; the model's `.grad`, buffers, mode, hooks and the random streams stay as they are.

        `inputs` is a tensor, a tuple of arguments or a dictionary of keyword arguments; rows outside `mask` carry no
        loss; `noise` also recomputes the gradients in float64 to see whether they are resolved. `tier` says how much is
        measured: "quick" neither that nor controls, "standard" the cheap controls too, "full" also what runs the model
        many times (fresh feedback, rho, descent, skipped blocks, a linear probe trained on half of the rows and tested
        on the others): over 200 forward passes a tap in float64, and 1,000 more where rows interact (batch norm in
        train mode), which are minutes for a small convolutional net on a CPU. Take it once or twice, on a few hundred
        rows. The last two put back every block by itself, too, if `watch` was given `initial`. Without it, a snapshot
        with `epoch=0` is one of the untrained model, if no weight has changed since it was watched.
        """
        if tier not in TIERS:
            raise CreditscopeError(f"Expected tier to be one of {', '.join(TIERS)}, but got {tier!r}.")
        told, epoch = epoch is not None, self._check_epoch(epoch)
        check_tensors(target, mask)
        if len(target) < 2:
            raise CreditscopeError(f"Expected at least 2 rows to measure, but got {len(target)}.")
        application = self._application = self._bind(few_rows(inputs))
        check_target(target, mask, self.loss, application.anatomy.classes)
        facts = self._gather(application, target if mask is None else target[mask])
        if self._facts is not None and self._facts.weights != facts.weights:
            raise CreditscopeError(
                "Expected the same trainable parameters at every snapshot, but some were frozen or freed. Watch anew."
            )
        self._facts = facts
        applied, noise = application.applied, noise and tier != "quick"
        seen = observe(self.model, applied, inputs, target, loss=self.loss, mask=mask, noise=noise)
        scalars = {}
        if self.loss is None:
            hits = (seen.output.argmax(-1) == target) & seen.errors.covered
            scalars["accuracy"] = hits.sum().double() / seen.errors.count
        taken = take_snapshots(seen, facts, epoch=epoch, scalars=scalars)

        def subjects() -> list[Subject]:
            given = {"inputs": inputs, "target": target, "mask": mask, "loss": self.loss}
            began = None if (initial := self.initial) is None else lambda: initial
            labelled = self._labelled(inputs, target, mask)
            return subjects_of(self.model, applied, [self.seed], **given, **labelled, initial=began)

        last = self.initial is not None and tier != "quick"
        (taken,) = complete_snapshots(
            taken, seen, facts, self.model, seeds=[self.seed], subjects=subjects, tier=tier, ends=False, last=last
        )
        taken = replace(taken, untrained=self._is_untrained(first=told and epoch == 0))
        self.snapshots.append(taken)
        return taken

    @property
    def parameters(self) -> ConversionReport:
        """Which parameters the watched rule trains, which get exact gradients, which are frozen."""
        if self._application is None:
            raise CreditscopeError("Expected a snapshot before parameters, but got none. Call snapshot(x, y) first.")
        return self._application.report

    @property
    def records(self) -> list[Record]:
        """The snapshots as one record, for audits, views and figures."""
        if self._facts is None:
            raise CreditscopeError("Expected at least one snapshot, but got none. Call snapshot(x, y) first.")
        provenance = begin_provenance(self._facts, device=next(self.model.parameters()).device, engine=WATCHED)
        return [Record(None, provenance, tuple(self.snapshots))]

    def save(self, folder: str | Path) -> Path:
        """Write the snapshots so far as a record, for `creditscope audit` and `creditscope report` on that folder.

        A later call replaces what an earlier one wrote.
        """
        (record,) = self.records
        whole = replace(record.provenance, status="complete", finished=now())
        write_watched(Path(folder), replace(record, provenance=whole))
        return Path(folder)

    def audit(self, **options: Any) -> Audit:
        """The verdict, layer by layer; use of depth is not tested, because a watched model has no trainer."""
        return audit(self.records, **options)

    def plot(self):
        """Credit and gradient sizes per tap, and accuracy (else the loss) over snapshots, as a matplotlib Figure."""
        from creditscope import plots

        known = any(snapshot.accuracy is not None for snapshot in self.snapshots)
        course = partial(plots.over_epochs, quantity="accuracy" if known else "loss")
        return plots.overview(self.records, panels=("credit", "sizes", course))

    def to_xarray(self):
        """Named axes: rule, seed, epoch, tap."""
        return to_xarray(self.records)

    def frame(self):
        """A long pandas table, one row per snapshot and tap."""
        return to_frame(self.records)

    def __repr__(self) -> str:
        size = f"{count(len(self.taps), 'tap')}, {count(len(self.snapshots), 'snapshot')}"
        return f"Scope({type(self.model).__name__}, {size})"

    def _repr_html_(self) -> str:
        from creditscope.report.notebook import show_records

        return show_records(self.records if self.snapshots else [], repr(self))

    def _is_untrained(self, *, first: bool) -> bool:
        """By what the user kept; else if this is said to come `first`, and the weights are those that were watched."""
        if self.initial is not None:
            return is_at(self.model, self.initial)
        return first and fingerprint(self.model) == self._when_watched

    def _check_epoch(self, epoch: int | None) -> int:
        """The one given, or the one after the last snapshot's; snapshots of a record go forward."""
        first = self.snapshots[-1].epoch + 1 if self.snapshots else 0
        if epoch is None:
            return first
        if not isinstance(epoch, SupportsIndex):
            raise CreditscopeError(f"Expected epoch to be a whole number, but got {epoch!r}.")
        if index(epoch) < first:
            wanted = f"after {first - 1}, the last snapshot's (or a new watch)" if self.snapshots else "from 0 on"
            raise CreditscopeError(f"Expected an epoch {wanted}, but got {epoch}.")
        return index(epoch)

    def _bind(self, rows: Any) -> Application:
        """The rule on this model: the one at work in training, or with the feedback that it would draw."""
        if self._apply is not None:
            return self._apply(rows)
        return apply_rule(self.rule, self.model, self.taps, rows, generator(self.seed, "feedback"))

    def _labelled(self, inputs: Any, target: Tensor, mask: Tensor | None) -> dict[str, Any]:
        """Rows for a probe, every other one to train on, and rows that accuracy is over; none without class labels."""
        if self.loss is not None:
            return {}
        rows = torch.arange(len(target), device=target.device) if mask is None else mask.nonzero()[:, 0]
        halves = [half[spread_rows(len(half)).to(half.device)] for half in (rows[::2], rows[1::2])]
        return {
            "probe": lambda: tuple(Batch(inputs, target, scored=half) for half in halves),
            "test": lambda: [Batch(inputs, target, scored=rows)],
        }

    def _gather(self, application: Application, target: Tensor) -> Facts:
        anatomy = application.anatomy
        facts: dict[str, Any] = {}
        if self.loss is None:
            most = int(torch.bincount(target.flatten(), minlength=anatomy.classes).max())
            facts = {"chance": 1 / anatomy.classes, "best_constant": most / target.numel()}
        precision = str(next(self.model.parameters()).dtype).removeprefix("torch.")
        facts |= {"stem_tap": self.stem, "precision": precision, "trainer": False}
        known = gather_facts(self.rule, application, **facts)
        if self.rule.local and self._apply is None:  # trained otherwise: nothing here is this rule's doing
            known = replace(known, rule=replace(known.rule, label=f"{known.rule.label}, measured only"))
        return known


class _GivenCredit(TapRule):
    """Credit that a user's function computes."""

    name = "given credit"
    needs_top_gradient = True
    label = "given credit"

    def __init__(self, function: Callable[[CreditContext], Sequence[Tensor]]):
        self.function = function

    def credit(self, ctx: CreditContext) -> Sequence[Tensor]:
        return self.function(ctx)


def watch(
    model: nn.Module,
    *,
    taps: str | Sequence[str],
    stem: str | None = None,
    rule: str | Rule | type[Rule] | None = None,
    credit: Callable[[CreditContext], Sequence[Tensor]] | None = None,
    loss: RowLoss | None = None,
    seed: int = 0,
    initial: Mapping[str, Tensor] | None = None,
) -> Scope:
    """A scope on `model` at the modules that `taps` name (globs such as "blocks.*"), and `stem` as tap 0.

    Without a rule the credit is what backprop gives (for a model converted by `convert`, what its feedback
    gives). `rule` is a tap rule: a name, `path/to/file.py:Class`, a class or an instance; `credit` a function from
    `CreditContext` to one tensor per tap. `loss` maps (output, target) to one loss per row; the default is
    cross-entropy on class labels. `seed` is that of feedback and controls. `initial` is a copy of the state dict from
    before training: with it, snapshots tell what accuracy is left if a block alone is put back (tiers standard, full).

    >>> import copy, torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 3
    >>> scope = cs.watch(model, taps="1", stem="0", rule="dfa", initial=copy.deepcopy(model.state_dict()))
    >>> taken = scope.snapshot(x, y)
    >>> len(taken.taps.cos), taken.untrained, taken.taps.rewind == (None, taken.accuracy)
    (2, True, True)
    """
    if initial is not None:
        check_initial(model, initial)
    if rule is not None and credit is not None:
        raise CreditscopeError("Expected a rule or a credit function, but got both. Leave one out.")
    transport = transport_of(model)
    if credit is not None:
        chosen: Rule = _GivenCredit(credit)
    elif rule is None:
        chosen = transport.rule if transport else make_rule("bp")
    else:
        chosen = make_rule(rule)
        if transport and not chosen.local:
            if type(chosen) is not type(transport.rule):
                raise CreditscopeError(
                    f"Expected to watch this model under {transport.rule.name!r}, which it was converted to, but got "
                    f"{chosen.name!r}. Leave rule= out."
                )
            chosen = transport.rule
        if not chosen.local and chosen.needs_feedback and transport is None:
            raise CreditscopeError(
                f"Expected a model converted to rule {chosen.name!r} before it is watched under it, but it has "
                f"no feedback. Call creditscope.convert(model, {chosen.name!r}, ...) first."
            )
    names = name_taps(model, taps, stem)
    if chosen.local and chosen.learns_feedback:
        raise CreditscopeError(
            f"Expected a rule whose feedback is fixed, but {chosen.name!r} learns it in training, and a watched model "
            "is not trained here. Train it by creditscope.run, or in a loop of your own by creditscope.attach."
        )
    return Scope(model, names, stem=stem is not None, rule=chosen, loss=loss, seed=seed, initial=initial)


def convert(
    model: nn.Module,
    rule: str | Rule | type[Rule],
    *,
    taps: str | Sequence[str],
    inputs: Any,
    stem: str | None = None,
    seed: int = 0,
    **options: Any,
) -> ConversionReport:
    """Give the linear layers of `model` the feedback of a weight rule, in place; then train it as usual.

    `rule`, `taps` and `stem` are as for `watch`; `inputs` are a few rows that the model can be called with, `options`
    those of the rule, `seed` that of its feedback. The report lists every parameter as rule-trained, exact or frozen;
    what cannot be converted is refused.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> x, y = torch.randn(20, 4), torch.arange(20) % 3
    >>> print(cs.convert(model, "fa", taps="1", inputs=x))
    FA: 6 parameters
      rule-trained (4): 0.weight, 0.bias, 1.0.weight, 1.0.bias
      exact gradient (2): 2.weight, 2.bias
    """
    chosen = make_rule(rule, options)
    if chosen.local or not chosen.needs_feedback:
        raise CreditscopeError(
            f"Expected a weight rule such as 'fa' to convert a model to, but got {chosen.name!r}. {BY_TAP_RULE}"
        )
    if chosen.learns_feedback or chosen.follows:
        raise CreditscopeError(
            f"Expected a rule whose feedback stays, or is made of the weights alone, but {chosen.name!r} moves it in "
            "every step, which a plain backward does not. Train by creditscope.attach(model, …), whose backward does."
        )
    feedback = generator(seed, "feedback")
    return apply_rule(chosen, model, name_taps(model, taps, stem), few_rows(inputs), feedback).report


def name_taps(model: nn.Module, taps: str | Sequence[str], stem: str | None) -> tuple[str, ...]:
    """The modules that the taps name, the stem first."""
    if not set(resolve_taps(model, taps)) - {stem}:
        raise CreditscopeError(f"Expected at least one tap besides the stem {stem!r}, but got none. Name a block.")
    return resolve_taps(model, [*([stem] if stem else []), *([taps] if isinstance(taps, str) else taps)])


def few_rows(inputs: Any) -> Any:
    """Rows enough to read a model's anatomy off one forward; several arguments may not be sliced alike (a graph)."""
    return inputs if isinstance(inputs, tuple | Mapping) else (inputs[:SAMPLE_ROWS],)


def check_tensors(target: Any, mask: Any) -> None:
    """Refuse lists and arrays."""
    for name, given in (("target", target), ("mask", target if mask is None else mask)):
        if not isinstance(given, Tensor):
            raise CreditscopeError(
                f"Expected {name} to be a tensor, but got {type(given).__name__}. Use torch.as_tensor({name})."
            )


def check_target(target: Tensor, mask: Tensor | None, loss: RowLoss | None, classes: int | None) -> None:
    """Refuse a mask that is none, and targets that the default loss cannot be taken of.

    Without `classes` the labels themselves are not looked at, for which a device would be waited for.
    """
    if mask is not None and (mask.dtype != torch.bool or mask.shape != target.shape[:1]):
        raise CreditscopeError(
            f"Expected a mask of {len(target)} bools, one a row, but got {mask.dtype} of shape {tuple(mask.shape)}."
        )
    if loss is not None:
        return
    if target.ndim != 1 or target.is_floating_point() or target.dtype == torch.bool:
        raise CreditscopeError(
            f"Expected one class label per row for cross-entropy, but got targets of {target.dtype} and shape "
            f"{tuple(target.shape)}. Pass loss= for other targets."
        )
    if classes is None:
        return
    used = target if mask is None else target[mask]
    if used.numel() == 0 or int(used.min()) < 0 or int(used.max()) >= classes:
        found = f"{int(used.min())} to {int(used.max())}" if used.numel() else "none"
        raise CreditscopeError(
            f"Expected labels from 0 to {classes - 1}, but got {found}. Use mask= for rows without a label."
        )
