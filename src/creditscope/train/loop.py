"""The loop engine: one run, one seed, one device, from spec to record."""

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.losses import RowErrors, row_errors
from creditscope.measure.observation import exact_weight_gradients, observe
from creditscope.measure.snapshot import StepTensors, take_snapshot
from creditscope.nets._dropout import seed_dropout, set_dropout_step
from creditscope.record.schema import Facts, RunSpec, Snapshot
from creditscope.registry import NETS
from creditscope.rng import generator, global_stream
from creditscope.rules import Application, apply_rule, rule_class
from creditscope.taps import as_arguments, resolve_taps
from creditscope.tasks import AnyTask, load_task
from creditscope.train.data import Batch, Data, check_data, place_data
from creditscope.train.facts import gather_facts
from creditscope.train.optimiser import learning_rate, make_optimiser

OnEpoch = Callable[[int, float], None]
"""Called after every epoch with the epochs done and the mean training loss."""


@dataclass
class Run:
    """Everything a run holds while it is trained."""

    spec: RunSpec
    task: AnyTask
    data: Data
    net: nn.Module
    application: Application
    facts: Facts
    optimiser: torch.optim.Optimizer

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """Parameters the optimiser moves, by name."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}


def build_run(spec: RunSpec, task: AnyTask | None = None, device: torch.device | None = None) -> Run:
    """Data, net, rule and optimiser of a run, all drawn from its seed; refuses data that do not fit."""
    task = task or load_task(spec.task, **spec.task_options)
    check_data(task, spec)
    device = device or torch.device("cpu")
    data = place_data(task, spec, device)
    net_class = NETS.get(spec.net)
    with global_stream(spec.seed, "init"):
        net = net_class(task.input_shape, task.classes, **spec.net_options)
    net = net.to(device, getattr(torch, spec.precision))
    seed_dropout(net, spec.seed)
    rule = rule_class(spec.rule)(**spec.rule_options)
    stem = [net_class.stem_tap] if net_class.stem_tap else []
    application = apply_rule(
        rule,
        net,
        resolve_taps(net, [*stem, net_class.block_taps]),
        data.sample_inputs(),
        generator(spec.seed, "feedback"),
        credit_norm=spec.credit_norm,
        penalty=spec.penalty,
        freeze_blocks=spec.frozen,
    )
    facts = gather_facts(
        rule,
        application,
        stem_tap=bool(stem),
        precision=spec.precision,
        chance=1 / task.classes,
        best_constant=task.best_constant,
        test_rows=task.test_rows,
    )
    optimiser = make_optimiser(spec, [p for p in net.parameters() if p.requires_grad])
    return Run(spec, task, data, net, application, facts, optimiser)


def train_epoch(run: Run, epoch: int, *, keep_last: bool) -> tuple[Tensor, "LastStep | None"]:
    """One pass over the data; the mean loss as a tensor (no host sync) and, if asked, what the last step did."""
    net, steps = run.net, run.data.steps
    net.train()
    for group in run.optimiser.param_groups:
        group["lr"] = learning_rate(run.spec, epoch)
    losses, last = [], None
    for i, batch in enumerate(run.data.train_batches(epoch)):

        def errors_of(output: Tensor, batch: Batch = batch) -> RowErrors:
            return row_errors(output, batch.target, mask=batch.mask)

        set_dropout_step(net, epoch * steps + i)
        run.optimiser.zero_grad(set_to_none=True)
        errors = run.application.applied.backward(batch.inputs, errors_of)
        losses.append(errors.mean_loss)
        if keep_last and i == steps - 1:
            last = LastStep.before(run, batch, errors)
        run.optimiser.step()
    return torch.stack(losses).double().mean(), last


@dataclass(frozen=True)
class LastStep:
    """What the last step of an epoch was given, and the weights before it."""

    gradients: dict[str, Tensor]
    exact: dict[str, Tensor]
    weights: dict[str, Tensor]
    error: Tensor

    @classmethod
    def before(cls, run: Run, batch: Batch, errors: RowErrors) -> "LastStep":
        """Keep all of it just before the optimiser's step."""
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in run.trained.items()}
        exact = exact_weight_gradients(run.net, batch.inputs, batch.target, mask=batch.mask)
        weights = {n: p.detach().clone() for n, p in run.trained.items()}
        return cls(gradients, exact, weights, (errors.error.square().sum() / errors.count).sqrt())

    def tensors(self, run: Run) -> StepTensors:
        """The same with the update that was applied, just after the step."""
        update = {n: p.detach() - self.weights[n] for n, p in run.trained.items()}
        return StepTensors(self.gradients, self.exact, update)


@torch.no_grad()
def evaluate(run: Run) -> tuple[Tensor, Tensor]:
    """Mean loss and one correct/incorrect flag per row, over the whole test set."""
    losses, correct = [], []
    for batch in run.data.test_batches():
        logits, target = run.net(*as_arguments(batch.inputs)), batch.target
        if batch.scored is not None:
            logits, target = logits[batch.scored], target[batch.scored]
        losses.append(row_errors(logits, target).loss)
        correct.append(logits.argmax(-1) == target)
    return torch.cat(losses).mean(), torch.cat(correct)


def snapshot_run(run: Run, epoch: int, *, step: int, train_loss: Tensor | None, last: LastStep | None) -> Snapshot:
    """Measure a run on its snapshot rows in eval mode, accuracy on all test rows; changes nothing."""
    spec, batch = run.spec, run.data.snapshot_batch()
    run.net.eval()
    loss, correct = evaluate(run)
    seen = observe(run.net, run.application.applied, batch.inputs, batch.target, mask=batch.mask, noise=spec.noise)
    scalars = {"loss": loss, "accuracy": correct.double().mean()}
    if train_loss is not None:
        scalars["train_loss"] = train_loss
    if last is not None:
        scalars["step_error"] = last.error
    bits = None
    if epoch == spec.epochs:
        bits = base64.b64encode(np.packbits(correct.cpu().numpy()).tobytes()).decode()
    return take_snapshot(
        seen,
        run.facts,
        epoch=epoch,
        step=step,
        last_step=last.tensors(run) if last else None,
        scalars=scalars,
        correct=bits,
    )


def snapshot_due(spec: RunSpec, epoch: int) -> bool:
    """Before training, at the end, and every `snapshot_every` epochs (0: only those two)."""
    return epoch in (0, spec.epochs) or (spec.snapshot_every > 0 and epoch % spec.snapshot_every == 0)


def train_run(
    run: Run, *, start: int = 0, audit: bool = True, on_epoch: OnEpoch | None = None, on_snapshot=None
) -> int | None:
    """Train from epoch `start` to the end; returns the epoch in which the loss stopped being finite, or None.

    `audit=False` trains without measuring; the weights come out the same to the last bit.
    """
    spec = run.spec
    steps = run.data.steps

    def snap(epoch: int, train_loss: Tensor | None, last: LastStep | None) -> None:
        if audit and snapshot_due(spec, epoch):
            taken = snapshot_run(run, epoch, step=epoch * steps, train_loss=train_loss, last=last)
            if on_snapshot:
                on_snapshot(taken)

    if start == 0:
        snap(0, None, None)
    for epoch in range(start, spec.epochs):
        keep = audit and snapshot_due(spec, epoch + 1)
        train_loss, last = train_epoch(run, epoch, keep_last=keep)
        mean_loss = float(train_loss)
        if not math.isfinite(mean_loss):
            return epoch + 1
        snap(epoch + 1, train_loss, last)
        if on_epoch:
            on_epoch(epoch + 1, mean_loss)
    return None
