"""Watch a model of your own: per-layer states, exact gradients and credit, without touching anything of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import index
from pathlib import Path
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from creditscope.anatomy import Likeness
from creditscope.auditing import Audit, audit
from creditscope.casting import Casting
from creditscope.errors import CreditscopeError
from creditscope.find_taps import TapChoice, find_taps, no_taps, suggest_taps
from creditscope.losses import RowLoss, couples_rows
from creditscope.measure.ablation import check_initial, fingerprint, is_at
from creditscope.measure.functional_net import Subject, subjects_of
from creditscope.measure.health import with_modules
from creditscope.measure.instruments import complete_snapshots
from creditscope.measure.movement import WeightSample
from creditscope.measure.observation import gather_facts, is_plain, observe
from creditscope.measure.probe import spread_rows
from creditscope.measure.snapshot import take_snapshots
from creditscope.record import Facts, Record, Snapshot
from creditscope.record.spec import TIERS, Tier
from creditscope.record.store import WATCHED, write_watched
from creditscope.record.table import to_frame, to_xarray
from creditscope.returned import OutputReader, Read, bare, read_logits, reader_of
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
from creditscope.targets import Asked, asks_for_next_token, check_tensors, read_targets, with_labels
from creditscope.text import count
from creditscope.train.data import SAMPLE_ROWS
from creditscope.train.device import begin_provenance, now
from creditscope.unwrap import unwrap, without_prefix


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
        taps: tuple[str, ...] | None,
        *,
        rule: Rule,
        stem: str | None = None,
        loss: RowLoss | None = None,
        output: OutputReader = read_logits,
        seed: int = 0,
        initial: Mapping[str, Tensor] | None = None,
        loss_scale: Any = None,
        apply: Callable[[Any], Application] | None = None,
    ):
        self.model, self.stem = model, stem
        self.rule, self.loss, self.seed, self.initial, self.loss_scale = rule, loss, seed, initial, loss_scale
        inner, _ = unwrap(model)
        self._net = inner if isinstance(inner, Read | torch.jit.ScriptModule) else Read(inner, output)
        """The model alone, read for its logits."""
        self._found = None if taps is not None else _first_choice(inner)
        self._confirmed = taps is not None
        self._named = taps
        self._when_watched = fingerprint(self._net) if initial is None else {}
        self.snapshots: list[Snapshot] = []
        self._apply = apply
        """From rows to the rule at work in training; None: the model is trained elsewhere."""
        self._application: Application | None = None
        self._alike: Likeness | None = None
        """What the model was like when the rule was applied."""
        self._unreached: frozenset[str] | None = None
        """Weights that no gradient got to when cut paths were last looked for; None: they are to be."""
        self._couples = False
        """Whether the loss of a row depends on other rows."""
        self._shift: bool | None = None
        """Whether tokens are asked for the next one."""
        self._facts: Facts | None = None
        self._sample: WeightSample | None = None
        """Of the weights at the last snapshot."""

    @property
    def taps(self) -> tuple[str, ...]:
        """Names of the modules tapped, the stem first; those that were found are confirmed by the first snapshot."""
        if self._named is not None:
            return self._named
        found = self._found.taps if self._found else ()
        return (self.stem, *(name for name in found if name != self.stem)) if self.stem else found

    def __repr__(self) -> str:
        found = f", found {self._found}" if self._found else f", taps {', '.join(self.taps)}"
        guess = "" if self._confirmed else " (to be confirmed by the first snapshot)"
        return f"Scope({type(self.model).__name__}{found}{guess}, {count(len(self.snapshots), 'snapshot')})"

    def snapshot(
        self,
        inputs: Any,
        target: Tensor | None = None,
        *,
        epoch: int | None = None,
        step: int | None = None,
        mask: Tensor | None = None,
        noise: bool = True,
        tier: Tier = "standard",
    ) -> Snapshot:
        """Measure on these rows; the model's `.grad`, buffers, mode, hooks and the random streams stay as they are.

        `inputs` is a tensor, a tuple of arguments or a dictionary of keyword arguments (a target of `labels` among them
        need not be given again); rows outside `mask` carry no loss. Class labels may be one a row, a token or a pixel:
        a row's loss is then the mean over those that count, neither −100 nor outside a mask of their shape. Snapshots
        go forward by (`epoch`, `step`), either of which may be left out.

        `noise` also recomputes the gradients in float64 to see whether they are resolved. `tier` says how much is
        measured: "quick" neither that nor controls, "standard" the cheap controls too, "full" also what runs the model
        many times (fresh feedback, rho, descent, skipped blocks, a linear probe trained on half of the rows and tested
        on the others): over 200 forward passes a tap in float64, and 1,000 more where rows interact (batch norm in
        train mode), which are minutes for a small convolutional net on a CPU. Take it once or twice, on a few hundred
        rows. The last two put back every block by itself, too, if `watch` was given `initial`. Without it, a snapshot
        with `epoch=0` is one of the untrained model, if no weight has changed since it was watched.
        """
        if tier not in TIERS:
            raise CreditscopeError(f"Expected tier to be one of {', '.join(TIERS)}, but got {tier!r}.")
        when = next_place(self.snapshots, epoch, step)
        first = when == (0, 0) and (epoch, step) != (None, None)
        inputs, target = with_labels(inputs, target)
        target = check_tensors(target, mask)
        if len(target) < 2:
            raise CreditscopeError(f"Expected at least 2 rows to measure, but got {len(target)}.")
        if not any(p.requires_grad for p in self._net.parameters()):
            raise CreditscopeError(
                "Expected a model with a parameter that is trained, but none requires a gradient. "
                "Call requires_grad_() of what is to be trained."
            )
        taken_before = len(self.snapshots)
        look_again = tier != "quick" or taken_before & (taken_before - 1) == 0  # at snapshots 1, 2, 3, 5, 9, …
        known = self._application
        application = self._bind(inputs, again=look_again)
        find_cuts = application is not known or self._unreached is None
        asked = self._read_targets(application, inputs, target, mask)
        given = {"loss": asked.loss, "mask": asked.mask}
        applied, noise = application.applied, noise and tier != "quick"
        casting = Casting.of_caller(next(self._net.parameters()).device.type, self.loss_scale)
        given_health = {"health": True, "find_cuts": find_cuts, "casting": casting}
        seen = observe(self._net, applied, inputs, asked.target, **given, noise=noise, **given_health)
        if casting:
            plain = is_plain(self._net, self.rule)
            seen.notes.append(f"measured {'under' if plain else 'without'} {casting}")
        if look_again and self.loss is not None:
            self._couples = couples_rows(self.loss, seen.output, asked.target, asked.mask)
        if self._couples:
            applied = replace(applied, anatomy=replace(applied.anatomy, rows_interact=True))
            application = replace(application, applied=applied)
            seen.notes.append("the loss of a row depends on other rows, which are therefore moved together")
        facts = self._gather(application, asked)
        if self._facts is not None and [w.name for w in self._facts.weights] != [w.name for w in facts.weights]:
            raise CreditscopeError(
                "Expected the same trainable parameters at every snapshot, but some were frozen or freed. Watch anew."
            )
        facts = self._facts = with_modules(facts, seen, known=self._facts)
        self._unreached = seen.unreached if find_cuts or seen.unreached == self._unreached else None
        samples, self._sample = (own := WeightSample.of(seen.weights, self._sample), self._sample), own
        seen.notes += [note for note in (asked.note, self._found.note if self._found else "") if note]
        scalars = {}
        if asked.by_class:
            scalars["accuracy"] = (asked.hits(seen.output) * seen.errors.covered).sum() / seen.errors.count
        seen.asides = asked.asides()
        taken = take_snapshots(seen, facts, epoch=when[0], step=when[1], scalars=scalars, samples=samples)
        asked.check_asides(seen.asides)
        facts = self._facts = replace(facts, best_constant=seen.asides.get("best_constant"))

        def subjects() -> list[Subject]:
            began = None if (initial := self.initial) is None else lambda: initial
            labelled = self._labelled(inputs, asked)
            shared = {**given, "inputs": inputs, "target": asked.target}
            return subjects_of(self._net, applied, [self.seed], **shared, **labelled, initial=began)

        last = self.initial is not None and tier != "quick"
        (taken,) = complete_snapshots(
            taken, seen, facts, self._net, seeds=[self.seed], subjects=subjects, tier=tier, ends=False, last=last
        )
        taken = replace(taken, untrained=self._is_untrained(first=first))
        self.snapshots.append(taken)
        return taken

    @property
    def parameters(self) -> ConversionReport:
        """Which parameters the watched rule trains, which get exact gradients, which are frozen."""
        if self._application is None:
            raise CreditscopeError("Expected a snapshot before parameters, but got none. Call snapshot(x, y) first.")
        return self._application.report

    @property
    def facts(self) -> Facts:
        """What is true of the model at every snapshot: its taps, weights and modules by name, and more."""
        if self._facts is None:
            raise CreditscopeError("Expected at least one snapshot, but got none. Call snapshot(x, y) first.")
        return self._facts

    @property
    def records(self) -> list[Record]:
        """The snapshots as one record, for audits, views and figures."""
        provenance = begin_provenance(self.facts, device=next(self.model.parameters()).device, engine=WATCHED)
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

    def _repr_html_(self) -> str:
        from creditscope.report.notebook import show_records

        return show_records(self.records if self.snapshots else [], repr(self))

    def _is_untrained(self, *, first: bool) -> bool:
        """By what the user kept; else if this is said to come `first`, and the weights are those that were watched."""
        if self.initial is not None:
            return is_at(self._net, self.initial)
        return first and fingerprint(self._net) == self._when_watched

    def _bind(self, inputs: Any, *, again: bool) -> Application:
        """The rule on this model: the one at work in training, or with the feedback that it would draw.

        What was read off a forward holds as long as the model is alike; but that rows interact may show late (behind a
        scale that begins at zero), so it is read `again` now and then.
        """
        rows = few_rows(inputs)
        if self._apply is not None:
            self._application = self._apply(rows)
            return self._application
        if not self._confirmed:  # by all rows: an expert may get every one of a few, and not of these
            self._found, self._confirmed = find_taps(bare(self._net), self._net, inputs), True
        if self._application is None or again or Likeness(self._net, rows) != self._alike:
            stream = generator(self.seed, "feedback")
            self._application = apply_rule(self.rule, self._net, self.taps, rows, stream)
            self._alike = Likeness(self._net, rows)  # a rule may have changed modules
        return self._application

    def _read_targets(self, application: Application, inputs: Any, target: Tensor, mask: Tensor | None) -> Asked:
        output = (len(target), *application.anatomy.output)
        if self._shift is None:
            self._shift = asks_for_next_token(bare(self._net), inputs, target)
        return read_targets(target, mask, self.loss, output, shift=self._shift)

    def _labelled(self, inputs: Any, asked: Asked) -> dict[str, Any]:
        """Rows for a probe, every other one to train on, and rows that accuracy is over; none without class labels."""
        if asked.loss is not None:
            return {}
        target, mask = asked.target, asked.mask
        rows = torch.arange(len(target), device=target.device) if mask is None else mask.nonzero()[:, 0]
        halves = [half[spread_rows(len(half)).to(half.device)] for half in (rows[::2], rows[1::2])]
        return {
            "probe": lambda: tuple(Batch(inputs, target, scored=half) for half in halves),
            "test": lambda: [Batch(inputs, target, scored=rows)],
        }

    def _gather(self, application: Application, asked: Asked) -> Facts:
        facts: dict[str, Any] = {}
        if asked.by_class:
            facts = {"chance": 1 / asked.classes}
        precision = str(next(self._net.parameters()).dtype).removeprefix("torch.")
        facts |= {"stem_tap": self.stem is not None, "precision": precision, "trainer": False}
        known = replace(gather_facts(self.rule, application, **facts), classes=asked.classes)
        if self.rule.local and self._apply is None:  # trained otherwise: nothing here is this rule's doing
            known = replace(known, rule=replace(known.rule, label=f"{known.rule.label}, measured only"))
        return known


def _first_choice(model: nn.Module) -> TapChoice:
    """By kinds alone, until rows are there to call the model with."""
    choices = suggest_taps(model)
    if not choices:
        raise no_taps(model)
    return choices[0]


def next_place(taken: Sequence[Snapshot], epoch: Any, step: Any) -> tuple[int, int]:
    """The epoch and step of the next snapshot: those given, else the epoch after the last one's, at step 0.

    With a step alone the epoch stays; snapshots of a record go forward.
    """
    for name, given in (("epoch", epoch), ("step", step)):
        if given is not None and not isinstance(given, SupportsIndex):
            raise CreditscopeError(f"Expected {name} to be a whole number, but got {given!r}.")
    last = taken[-1].place if taken else (-1, 0)
    stays = max(last[0], 0) if step is not None else last[0] + 1
    when = (stays if epoch is None else index(epoch), 0 if step is None else index(step))
    if when <= last or min(when) < 0:
        at = f"{last[0]}" if step is None and last[1] == 0 else f"{last[0]}, step {last[1]}"
        wanted = f"after {at}, the last snapshot's (or a new watch)" if taken else "from 0 on"
        got = f"{when[0]}" if step is None else f"{when[0]}, step {when[1]}"
        raise CreditscopeError(f"Expected an epoch {wanted}, but got {got}.")
    return when


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
    taps: str | Sequence[str] | None = None,
    stem: str | None = None,
    rule: str | Rule | type[Rule] | None = None,
    credit: Callable[[CreditContext], Sequence[Tensor]] | None = None,
    loss: RowLoss | None = None,
    output: OutputReader | str | int | None = None,
    seed: int = 0,
    initial: Mapping[str, Tensor] | None = None,
    loss_scale: Any = None,
) -> Scope:
    """A scope on `model` at the modules that `taps` name (globs such as "blocks.*"), and `stem` as tap 0.

    Without taps the repeated blocks are found (`scope.taps` says which, `suggest_taps` lists choices). A model may be
    compiled, or in `DataParallel` or `DistributedDataParallel`. `output` picks the logits of what it returns, by name,
    place or function; they are found by themselves where they can be.

    Without a rule the credit is what backprop gives (for a model converted by `convert`, what its feedback
    gives). `rule` is a tap rule: a name, `path/to/file.py:Class`, a class or an instance; `credit` a function from
    `CreditContext` to one tensor per tap. `loss` maps (output, target) to one loss per row; the default is
    cross-entropy on class labels of rows, tokens or pixels. `seed` is that of feedback and controls. `initial` is a
    copy of the state dict from before training: with it, snapshots tell what accuracy is left if a block alone is put
    back (tiers standard, full).

    A snapshot that is called inside `torch.autocast` is measured under it, with the factor of the loss that
    `loss_scale` gives, a number or a `GradScaler`; what that adds to rounding stands beside float32 (`g_noise`,
    `g_noise_float32`), and what of a weight's gradient it loses (`lost`).

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
    if not isinstance(model, nn.Module):
        raise CreditscopeError(f"Expected a model, a torch.nn.Module, but got a {type(model).__name__}.")
    inner, prefix = unwrap(model)
    if initial is not None:
        initial = without_prefix(initial, prefix)
        check_initial(inner, initial)
    if rule is not None and credit is not None:
        raise CreditscopeError("Expected a rule or a credit function, but got both. Leave one out.")
    transport = transport_of(inner)
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
    taps, stem = without_prefix(taps, prefix), without_prefix(stem, prefix)
    names = None if taps is None else name_taps(inner, taps, stem)
    if taps is None and stem is not None:
        resolve_taps(inner, stem)
    if chosen.local and chosen.learns_feedback:
        raise CreditscopeError(
            f"Expected a rule whose feedback is fixed, but {chosen.name!r} learns it in training, and a watched model "
            "is not trained here. Train it by creditscope.run, or in a loop of your own by creditscope.attach."
        )
    given = {"loss": loss, "output": reader_of(output), "seed": seed, "initial": initial, "loss_scale": loss_scale}
    return Scope(model, names, stem=stem, rule=chosen, **given)


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
    return (inputs[:SAMPLE_ROWS],) if isinstance(inputs, Tensor) else inputs
