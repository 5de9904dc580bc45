"""A run while it is trained: what it holds, an epoch of it one step after the other, and its snapshots.

This is the *loop* engine, one seed at a time; `stacked.py` trains many at once by the same steps.
"""

import base64
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.losses import RowErrors, errors_function
from creditscope.measure.battery import complete_snapshots
from creditscope.measure.layers import layer_names, measure_layers
from creditscope.measure.observation import exact_weight_gradients, observe
from creditscope.measure.snapshot import StepTensors, take_snapshot, take_snapshots
from creditscope.measure.subject import Labelled, Subject, subjects_of
from creditscope.nets._dropout import seed_dropout, set_dropout_step
from creditscope.record.schema import Facts, Snapshot
from creditscope.record.spec import RunSpec
from creditscope.registry import NETS
from creditscope.rng import generator, global_stream
from creditscope.rules import Application, apply_rule, feedback_state, rule_class
from creditscope.stack import Net, StackedNet, call_net, pattern_of
from creditscope.taps import resolve_taps
from creditscope.tasks import AnyTask, load_task
from creditscope.train.data import Batch, Data, check_data, place_data
from creditscope.train.facts import gather_facts
from creditscope.train.optimiser import learning_rate, make_optimiser, number_format, set_learning_rate


@dataclass
class Run:
    """Everything a run holds while it is trained."""

    spec: RunSpec
    task: AnyTask
    data: Data
    net: Net
    application: Application
    facts: Facts
    optimiser: torch.optim.Optimizer

    @property
    def engine(self) -> str:
        """What provenance calls it."""
        return "loop"

    @property
    def specs(self) -> tuple[RunSpec, ...]:
        """The spec of every seed: here, of the one."""
        return (self.spec,)

    @property
    def device(self) -> torch.device:
        """Where it is trained."""
        return next(self.net.parameters()).device

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """Parameters the optimiser moves, by name."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}

    def train_epoch(self, epoch: int, *, keep_last: bool) -> tuple[Tensor, "LastStep | None"]:
        """One pass over the data; the mean loss of every seed, on the device, and on wish what the last step did."""
        self.net.train()
        set_learning_rate(self.optimiser, learning_rate(self.spec, epoch))
        plan = [told.to(self.device) for told in self.data.plan_epoch(self.spec.seed, epoch)]
        losses, last, steps = [], None, self.data.steps
        for i in range(steps):
            batch = self.data.train_batch(*(told[i] for told in plan))
            set_dropout_step(pattern_of(self.net), epoch * steps + i)
            before = copy_of(self.trained) if keep_last and i == steps - 1 else None
            errors = self.train_step(batch)
            losses.append(errors.mean_loss)
            if before is not None:
                last = LastStep.of(self, batch, errors, before)
        return torch.stack(losses).double().mean(0, keepdim=True), last

    def train_step(self, batch: Batch) -> RowErrors:
        """Feedback that is learned, forward, credit, backward, optimiser."""
        self.optimiser.zero_grad(set_to_none=True)
        self.application.applied.learn(batch.inputs)
        errors_of = errors_function(self.net, batch.target, mask=batch.mask)
        errors = self.application.applied.backward(batch.inputs, errors_of)
        self.optimiser.step()
        return errors

    def tensors(self, seed: int = 0) -> dict[str, Tensor]:
        """Weights, buffers and feedback of one seed (by its place among `specs`)."""
        assert isinstance(self.net, nn.Module)
        return {**self.net.state_dict(), **feedback_state(self.application)}

    def optimiser_state(self, seed: int = 0) -> dict[int, dict[str, Tensor]]:
        """What the optimiser keeps for each trained parameter of one seed."""
        return self.optimiser.state_dict()["state"]


def build_run(
    spec: RunSpec, task: AnyTask | None = None, device: torch.device | None = None, data: Data | None = None
) -> Run:
    """Data, net, rule and optimiser of a run, all drawn from its seed; refuses data that do not fit.

    Data placed for another seed of the same spec can be given, and are then shared.
    """
    task = task or load_task(spec.task, **spec.task_options)
    check_data(task, spec)
    device = device or torch.device("cpu")
    data = data or place_data(task, spec, device)
    net_class = NETS.get(spec.net)
    with global_stream(spec.seed, "init"):
        net = net_class(task.input_shape, task.classes, **spec.net_options)
    net = net.to(device, number_format(spec.precision))
    seed_dropout(net, spec.seed)
    rule = rule_class(spec.rule)(**spec.rule_options)
    stem = [net_class.stem_tap] if net_class.stem_tap else []
    application = apply_rule(
        rule,
        net,
        resolve_taps(net, [*stem, net_class.block_taps]),
        data.sample_batch().inputs,
        generator(spec.seed, "feedback"),
        credit_norm=spec.credit_norm,
        penalty=spec.penalty,
        train_last=0 if spec.frozen else spec.train_last,
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
    optimiser = make_optimiser(spec, net, first=application.anatomy.stages[0])
    return Run(spec, task, data, net, application, facts, optimiser)


def copy_of(tensors: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Copies that gradients can be taken at."""
    return {name: t.detach().clone().requires_grad_() for name, t in tensors.items()}


@dataclass(frozen=True)
class LastStep:
    """What the last step of an epoch was given and applied; ‖e‖ as the root of its mean square over rows."""

    tensors: StepTensors
    error: Tensor

    @classmethod
    def of(cls, run: Run, batch: Batch, errors: RowErrors, before: dict[str, Tensor]) -> "LastStep":
        """Just after the step, from a copy of the weights just before it."""
        trained = run.trained
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in trained.items()}
        exact = exact_weight_gradients(run.net, batch.inputs, batch.target, mask=batch.mask, tensors=before)
        with torch.no_grad():
            update = {n: p - before[n] for n, p in trained.items()}
        error = (errors.error.square().sum((-2, -1)) / errors.count).sqrt()
        return cls(StepTensors(gradients, exact, update), error)


@torch.no_grad()
def evaluate(run: Run) -> tuple[Tensor, Tensor]:
    """Mean loss, and one correct/incorrect flag per row, over the whole test set; seeds first, in a stack."""
    losses, correct = [], []
    for batch in run.data.test_batches():
        logits, target = call_net(run.net, batch.inputs), batch.target
        if batch.scored is not None:
            logits, target = logits[..., batch.scored, :], target[batch.scored]
        losses.append(errors_function(run.net, target)(logits).loss)
        correct.append(logits.argmax(-1) == target)
    return torch.cat(losses, dim=-1).mean(-1), torch.cat(correct, dim=-1)


def snapshot_run(
    run: Run, epoch: int, *, train_loss: Tensor | None = None, last: LastStep | None = None
) -> list[Snapshot]:
    """Measure every seed on its snapshot rows in eval mode, accuracy on all test rows; changes nothing."""
    spec, batch = run.spec, run.data.snapshot_batch()
    run.net.eval()
    loss, correct = evaluate(run)
    ends = epoch in (0, spec.epochs)
    layers = _layers(run, batch, ends=ends)  # first, so that its states and the observation's are not held at once
    applied, noise = run.application.applied, spec.noise and spec.tier != "quick"
    seen = observe(run.net, applied, batch.inputs, batch.target, mask=batch.mask, noise=noise)
    scalars = {"loss": loss, "accuracy": correct.double().mean(-1)}
    if train_loss is not None:
        scalars["train_loss"] = train_loss.view(loss.shape)
    if last is not None:
        scalars["step_error"] = last.error
    when = {"epoch": epoch, "step": epoch * run.data.steps, "last_step": last.tensors if last else None}
    when["layers"] = layers
    if isinstance(run.net, StackedNet):
        taken = take_snapshots(seen, run.facts, scalars=scalars, **when)
    else:
        taken = [take_snapshot(seen, run.facts, scalars=scalars, **when)]
    seeds = [member.seed for member in run.specs]
    taken = complete_snapshots(
        taken, seen, run.facts, run.net, seeds=seeds, subjects=lambda: _subjects(run, batch), tier=spec.tier, ends=ends
    )
    if epoch < spec.epochs:
        return taken
    flags = correct.view(len(taken), -1).cpu().numpy()
    return [replace(snapshot, correct=pack_bits(row)) for snapshot, row in zip(taken, flags, strict=True)]


def _layers(run: Run, batch: Batch, *, ends: bool) -> dict[str, Tensor] | None:
    """What is measured layer by layer, if the net names its pre-activations; with probes before and after training."""
    if not layer_names(run.net):
        return None
    probe = None
    if ends:
        train, test = map(_labelled, run.data.probe_batches())
        probe = train, test
    taps = run.application.anatomy.taps
    return measure_layers(run.net, taps, batch.inputs, batch.target, mask=batch.mask, probe=probe)


def _subjects(run: Run, batch: Batch) -> list[Subject]:
    """Every seed's net, with the rows that measurements may run it on."""
    return subjects_of(
        run.net,
        run.application.applied,
        [spec.seed for spec in run.specs],
        inputs=batch.inputs,
        target=batch.target,
        mask=batch.mask,
        probe=cache(lambda: tuple(map(_labelled, run.data.probe_batches()))),
        test=cache(lambda: list(map(_labelled, run.data.test_batches()))),
    )


def _labelled(batch: Batch) -> Labelled:
    return Labelled(batch.inputs, batch.target, batch.scored)


def pack_bits(flags: np.ndarray) -> str:
    """One bit per flag, as base64."""
    return base64.b64encode(np.packbits(flags).tobytes()).decode()
