"""The loop engine: one run, one seed, one device, from spec to record."""

import base64
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.losses import RowErrors, row_errors
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import take_snapshot
from creditscope.record.schema import Facts, RunSpec, Snapshot
from creditscope.record.store import RecordWriter
from creditscope.registry import NETS
from creditscope.rng import generator, global_stream
from creditscope.rules import Application, apply_rule, feedback_state, rule_class
from creditscope.taps import resolve_taps
from creditscope.tasks import Task, load_task
from creditscope.train.facts import gather_facts
from creditscope.train.optimiser import cosine_lr, make_optimiser
from creditscope.train.provenance import begin_provenance, now

SAMPLE_ROWS = 8
"""Rows enough to read a net's anatomy off one forward."""
TEST_CHUNK = 4096

OnEpoch = Callable[[int, float], None]
"""Called after every epoch with the epochs done and the mean training loss."""


@dataclass
class Run:
    """Everything a run holds while it is trained."""

    spec: RunSpec
    task: Task
    net: nn.Module
    application: Application
    facts: Facts
    optimiser: torch.optim.Optimizer
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """Parameters the optimiser moves, by name."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}


def check_batch(spec: RunSpec, task: Task) -> None:
    """Refuse a batch that the data cannot fill."""
    if spec.batch > len(task.y_train):
        raise CreditscopeError(
            f"Expected a batch of at most the {len(task.y_train)} training rows of {spec.task!r}, but got {spec.batch}."
        )


def build_run(spec: RunSpec, task: Task | None = None, device: torch.device | None = None) -> Run:
    """Data, net, rule and optimiser of a run, all drawn from its seed; refuses data that do not fit."""
    task = task or load_task(spec.task, **spec.task_options)
    check_batch(spec, task)
    device = device or torch.device("cpu")
    dtype = getattr(torch, spec.precision)
    x_train, x_test = (torch.from_numpy(x).to(device, dtype) for x in (task.x_train, task.x_test))
    y_train, y_test = (torch.from_numpy(y).to(device) for y in (task.y_train, task.y_test))
    net_class = NETS.get(spec.net)
    with global_stream(spec.seed, "init"):
        net = net_class(task.input_shape, task.classes, **spec.net_options).to(device, dtype)
    rule = rule_class(spec.rule)(**spec.rule_options)
    application = apply_rule(
        rule,
        net,
        resolve_taps(net, [net_class.stem_tap, net_class.block_taps]),
        x_train[:SAMPLE_ROWS],
        generator(spec.seed, "feedback"),
        credit_norm=spec.credit_norm,
        penalty=spec.penalty,
        freeze_blocks=spec.frozen,
    )
    facts = gather_facts(
        rule,
        application.anatomy,
        application.report,
        stem_tap=True,
        precision=spec.precision,
        chance=task.chance,
        best_constant=task.best_constant,
        test_rows=len(task.y_test),
    )
    optimiser = make_optimiser(spec, [p for p in net.parameters() if p.requires_grad])
    return Run(spec, task, net, application, facts, optimiser, x_train, y_train, x_test, y_test)


def train_epoch(run: Run, epoch: int, *, keep_last: bool) -> tuple[Tensor, "LastStep | None"]:
    """One pass over the data in the epoch's own order, the incomplete last batch dropped.

    Returns the mean loss as a tensor (no host sync) and, if asked, what the last step did.
    """
    spec, net = run.spec, run.net
    net.train()
    for group in run.optimiser.param_groups:
        group["lr"] = cosine_lr(spec, epoch)
    order = torch.randperm(len(run.y_train), generator=generator(spec.seed, "order", epoch))
    batches = order.to(run.y_train.device)[: len(order) // spec.batch * spec.batch].view(-1, spec.batch)
    total = torch.zeros((), dtype=torch.float64, device=run.y_train.device)
    last = None
    for i, index in enumerate(batches):
        target = run.y_train[index]

        def errors_of(output: Tensor, target: Tensor = target) -> RowErrors:
            return row_errors(output, target)

        run.optimiser.zero_grad(set_to_none=True)
        errors = run.application.applied.backward(run.x_train[index], errors_of)
        total += errors.mean_loss
        if keep_last and i == len(batches) - 1:
            last = LastStep.before(run, errors)
        run.optimiser.step()
    if last is not None:
        last.finish(run)
    return total / len(batches), last


@dataclass
class LastStep:
    """What the last step of an epoch was given and what it changed."""

    gradients: dict[str, Tensor]
    update: dict[str, Tensor]
    error: Tensor

    @classmethod
    def before(cls, run: Run, errors: RowErrors) -> "LastStep":
        """Keep the gradients and the weights as they are before the optimiser's step."""
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in run.trained.items()}
        weights = {n: p.detach().clone() for n, p in run.trained.items()}
        return cls(gradients, weights, errors.error.square().sum(-1).mean().sqrt())

    def finish(self, run: Run) -> None:
        """Turn the weights before into the update that was applied."""
        self.update = {n: p.detach() - self.update[n] for n, p in run.trained.items()}


@torch.no_grad()
def evaluate(run: Run) -> tuple[Tensor, Tensor]:
    """Mean loss and one correct/incorrect flag per row, over the whole test set."""
    losses, correct = [], []
    for x, y in zip(run.x_test.split(TEST_CHUNK), run.y_test.split(TEST_CHUNK), strict=True):
        logits = run.net(x)
        losses.append(row_errors(logits, y).loss)
        correct.append(logits.argmax(-1) == y)
    return torch.cat(losses).mean(), torch.cat(correct)


def snapshot_run(run: Run, epoch: int, *, step: int, train_loss: Tensor | None, last: LastStep | None) -> Snapshot:
    """Measure a run on its first evaluation rows in eval mode, accuracy on all test rows; changes nothing."""
    spec = run.spec
    run.net.eval()
    loss, correct = evaluate(run)
    seen = observe(
        run.net,
        run.application.applied,
        run.x_test[: spec.eval_rows],
        run.y_test[: spec.eval_rows],
        noise=spec.noise,
    )
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
        update=last.update if last else None,
        step_gradients=last.gradients if last else None,
        scalars=scalars,
        correct=bits,
    )


def snapshot_due(spec: RunSpec, epoch: int) -> bool:
    """Before training, at the end, and every `snapshot_every` epochs (0: only those two)."""
    return epoch in (0, spec.epochs) or (spec.snapshot_every > 0 and epoch % spec.snapshot_every == 0)


def train_run(run: Run, *, audit: bool = True, on_epoch: OnEpoch | None = None, on_snapshot=None) -> int | None:
    """Train to the end; returns the epoch in which the loss stopped being finite, or None.

    `audit=False` trains without measuring; the weights come out the same to the last bit.
    """
    spec = run.spec
    steps = len(run.y_train) // spec.batch

    def snap(epoch: int, train_loss: Tensor | None, last: LastStep | None) -> None:
        if audit and snapshot_due(spec, epoch):
            taken = snapshot_run(run, epoch, step=epoch * steps, train_loss=train_loss, last=last)
            if on_snapshot:
                on_snapshot(taken)

    snap(0, None, None)
    for epoch in range(spec.epochs):
        keep = audit and snapshot_due(spec, epoch + 1)
        train_loss, last = train_epoch(run, epoch, keep_last=keep)
        mean_loss = float(train_loss)
        if not math.isfinite(mean_loss):
            return epoch + 1
        snap(epoch + 1, train_loss, last)
        if on_epoch:
            on_epoch(epoch + 1, mean_loss)
    return None


def record_run(spec: RunSpec, root, *, task: Task | None = None, on_epoch: OnEpoch | None = None) -> str:
    """Train and measure a run, and leave its whole record under `root`; says how it ended."""
    from safetensors.torch import save_file

    started = time.perf_counter()
    run = build_run(spec, task)
    with RecordWriter(root, spec).open() as writer:
        provenance = begin_provenance(
            run.facts,
            device=run.x_train.device,
            engine="loop",
            data_checksum=run.task.checksum(),
            parameters=sum(p.numel() for p in run.net.parameters()),
        )
        writer.write_provenance(provenance)
        diverged = train_run(run, on_epoch=on_epoch, on_snapshot=writer.append)
        state = {**run.net.state_dict(), **feedback_state(run.application)}
        part = writer.weights_path.with_suffix(".part")
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, part)
        part.replace(writer.weights_path)
        status = "complete" if diverged is None else "diverged"
        seconds = round(time.perf_counter() - started, 3)
        writer.write_provenance(
            replace(provenance, status=status, diverged_epoch=diverged, finished=now(), seconds=seconds)
        )
        return status
