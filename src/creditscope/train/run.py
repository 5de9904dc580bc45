"""A run while it is trained: what it holds, and an epoch of it, one step after the other.

This is the *loop* engine, one seed at a time; `stacked.py` trains many at once by the same steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.losses import RowErrors, errors_function
from creditscope.measure.observation import exact_weight_gradients, gather_facts
from creditscope.measure.snapshot import LastStep
from creditscope.nets._layers import seed_dropout, set_dropout_step
from creditscope.record.schema import Facts
from creditscope.record.spec import RunSpec
from creditscope.registry import NETS
from creditscope.rng import generator, global_stream
from creditscope.rules import Application, AppliedRule, apply_rule, rule_class, weight_names
from creditscope.stack import Batch, Net, pattern_of
from creditscope.taps import resolve_taps
from creditscope.tasks import AnyTask, load_task
from creditscope.train.data import Data, number_format, place_data


class PausedError(Exception):
    """An epoch was asked to pause, and has, after a step; it goes on when it is trained again."""


@dataclass
class Run:
    """Everything a run holds while it is trained, with the spec of every seed: here, of the one."""

    specs: tuple[RunSpec, ...]
    task: AnyTask
    data: Data
    net: Net
    application: Application
    facts: Facts
    optimiser: torch.optim.Optimizer
    step: int = field(default=0, kw_only=True)
    """Steps done of an epoch that was paused, else 0;"""
    loss: Tensor = field(init=False)
    """and the sum of their losses, (seeds,)."""

    def __post_init__(self) -> None:
        self.loss = torch.zeros(len(self.specs), dtype=torch.float64, device=self.device)

    @property
    def engine(self) -> str:
        return "loop"

    @property
    def spec(self) -> RunSpec:
        return self.specs[0]

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """Parameters the optimiser moves, by name."""
        return {name: p for name, p in self.net.named_parameters() if p.requires_grad}

    def train_epoch(
        self, epoch: int, *, keep_last: bool, pause: Callable[[], bool] = lambda: False
    ) -> tuple[Tensor, LastStep | None]:
        """One pass over the data; the mean loss of every seed, on the device, and on wish what the last step did.

        `PausedError` after a step, but the last, at which `pause` says so.
        """
        self.net.train()
        self.set_learning_rate(epoch)
        plan = [told.to(self.device) for told in self.data.plan_epoch(self.spec.seed, epoch)]
        last, steps = None, self.data.steps
        for i in range(self.step, steps):
            batch = self.data.train_batch(*(told[i] for told in plan))
            set_dropout_step(pattern_of(self.net), epoch * steps + i)
            before = copy_of(self.trained) if keep_last and i == steps - 1 else None
            errors = self.train_step(batch)
            self.loss += errors.mean_loss
            if before is not None:
                last = self.last_step(batch, errors, before)
            self.pause_after(i + 1, pause)
        return self.mean_loss(), last

    def pause_after(self, step: int, pause: Callable[[], bool]) -> None:
        """Note that a step is done, and pause if so asked, unless the epoch is over."""
        self.step = step
        if step < self.data.steps and pause():
            raise PausedError

    def mean_loss(self) -> Tensor:
        """Of the epoch that is over, of every seed; the next begins."""
        mean = self.loss / self.data.steps
        self.step = 0
        self.loss.zero_()
        return mean

    def set_learning_rate(self, epoch: int) -> None:
        """In place where it lives on the device: a captured step reads it there."""
        value = learning_rate(self.spec, epoch)
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(value)
            else:
                group["lr"] = value

    def train_step(self, batch: Batch) -> RowErrors:
        """Feedback that is learned, forward, credit, backward, optimiser."""
        self.optimiser.zero_grad(set_to_none=True)
        errors_of = errors_function(self.net, batch.target, mask=batch.mask)
        errors = self.application.applied.backward(batch.inputs, errors_of)
        try:
            self.optimiser.step()
        except RuntimeError as error:
            if "without overflow" not in str(error):
                raise
            # a step that is longer than the number format can say; where torch does not refuse it, it is infinite
            return replace(errors, loss=torch.full_like(errors.loss, math.inf))
        return errors

    def last_step(self, batch: Batch, errors: RowErrors, before: dict[str, Tensor]) -> LastStep:
        """What a step was given and applied, just after it; from a copy of the weights just before it."""
        trained = self.trained
        gradients = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in trained.items()}
        exact = exact_weight_gradients(self.net, batch.inputs, batch.target, mask=batch.mask, tensors=before)
        with torch.no_grad():
            update = {n: p - before[n] for n, p in trained.items()}
        error = (errors.error.square().sum((-2, -1)) / errors.count).sqrt()
        return LastStep(gradients, exact, update, error)

    def tensors(self, seed: int = 0) -> dict[str, Tensor]:
        """Weights, buffers and feedback of one seed (by its place among `specs`)."""
        assert isinstance(self.net, nn.Module)
        return {**self.net.state_dict(), **self.application.applied.tensors()}

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
        batch=data.batch,
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
    optimiser = make_optimiser(spec, application.applied)
    return Run((spec,), task, data, net, application, facts, optimiser)


def copy_of(tensors: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    """Copies that gradients can be taken at."""
    return {name: t.detach().clone().requires_grad_() for name, t in tensors.items()}


def make_optimiser(spec: RunSpec, applied: AppliedRule, *, captured: bool = False) -> torch.optim.Optimizer:
    """AdamW (decoupled decay), Adam (decay as an L2 term inside) or plain SGD, at the spec's learning rate.

    All are elementwise, so stacked parameters need nothing of their own. On CUDA they are fused; on a CPU not, because
    there a fused one rounds an element by its place in memory, but each operation is called once for all parameters.
    `captured` ones read their learning rate from the device, as float32.
    """
    kinds = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    groups = decay_groups(spec, applied)
    device = groups[0]["params"][0].device if groups else torch.device("cpu")
    options: dict[str, Any] = {"lr": spec.lr, ("fused" if device.type == "cuda" else "foreach"): True}
    if captured:
        options["lr"] = torch.tensor(spec.lr, device=device)
        if spec.optimiser != "sgd":
            options["capturable"] = True
    return kinds[spec.optimiser](groups, **options)


def decay_groups(spec: RunSpec, applied: AppliedRule) -> list[dict[str, Any]]:
    """What is stepped, by weight decay: the run's, of all or of the first layer alone (`decay_on`), or the rule's own.

    Feedback that follows its weight is stepped beside it.
    """
    first, follow = applied.anatomy.stages[0], applied.followers()
    own = getattr(applied.rule, "decay", None)
    converted = set(weight_names(applied.net).values())
    groups: dict[float, list[Tensor]] = {}
    for name, p in applied.net.named_parameters():
        if not p.requires_grad:
            continue
        decay = spec.weight_decay if spec.decay_on == "all" or name in first else 0.0
        decay = own if own is not None and name in converted else decay
        groups.setdefault(decay, []).extend([p, *follow.get(name, [])])
    return [{"params": members, "weight_decay": decay} for decay, members in groups.items()]


def learning_rate(spec: RunSpec, epoch: int) -> float:
    """lr · ½(1 + cos(π·epoch/epochs)) for epoch 0, 1, …, without warm-up and never 0; or constant; or in steps.

    >>> learning_rate(RunSpec(task="t", net="n", rule="r", lr=2.0, epochs=2), 1)
    1.0
    """
    if spec.schedule == "constant":
        return spec.lr
    if spec.schedule == "steps":
        return spec.lr / 10 ** sum(5 * epoch >= fifths * spec.epochs for fifths in (2, 3, 4))
    return spec.lr * 0.5 * (1 + math.cos(math.pi * epoch / spec.epochs))
