"""The *stacked* engine: many seeds of one spec trained as one, and on CUDA each step replayed as one captured graph.

Nets, rules and measurements are those of the loop. All that a step reads or writes stays in place on the device (the
step's place in the epoch and the learning rate too), so that within an epoch only a host that is too far ahead waits.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.losses import RowErrors, errors_function
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import LastStep
from creditscope.nets._layers import HashDropout
from creditscope.stack import Batch, StackedNet
from creditscope.train.data import EpochPlan, GraphData
from creditscope.train.run import Run, copy_of, make_optimiser

WARM_UP_STEPS = 3
LEAD = 1.0  # seconds that the host may be ahead of the device: who is asked to stop waits for what was given to it
MARK_EVERY, LEAST_AHEAD = 8, 2  # steps from mark to mark, and marks that it may always be ahead
ALIGNMENT = 16  # bytes; products on a CPU round by how their factors lie within so many
TOLERANCE = {"float32": 1e-3, "tf32": 1e-2, "float64": 1e-8}
"""Relative error of a stacked seed's gradient above which it is not rounding, unless its own is as sensitive."""
NUDGES, NUDGE, SLACK = 4, 1e-3, 10
"""How often weights are moved to see how sensitive a gradient is, by how much of the tolerance, and what is allowed."""


class CannotStackError(CreditscopeError):
    """A net or rule does something that `vmap` cannot map over seeds."""


class Pace:
    """Keeps the host about `LEAD` ahead of the device, or a few marks: a captured step is given in no time, and who
    waits for the device (a checkpoint) waits for all that it was given."""

    def __init__(self) -> None:
        self.marks, self.ahead = deque[torch.cuda.Event](), LEAST_AHEAD

    def keep(self, mark: torch.cuda.Event | None = None) -> None:
        """Mark what was given so far; wait while more marks are ahead than the device passes in `LEAD`."""
        self.marks.append(mark or torch.cuda.Event(enable_timing=True, blocking=True))
        self.marks[-1].record()
        while len(self.marks) > 1 and (len(self.marks) > self.ahead + 1 or self.marks[1].query()):
            passed = self.marks.popleft()
            self.marks[0].synchronize()
            seconds = passed.elapsed_time(self.marks[0]) / 1e3
            self.ahead = max(LEAST_AHEAD, int(LEAD / max(seconds, 1e-6)))


@dataclass
class StackedRun(Run):
    """Runs that differ only in their seed."""

    capture: bool = False  # whether to replay the step as a CUDA graph

    def __post_init__(self) -> None:
        super().__post_init__()
        seeds, device = len(self.specs), self.device
        self._place = torch.zeros(1, dtype=torch.int64, device=device)
        self._plan: tuple[Tensor, ...] | None = None
        self._next: tuple[int, EpochPlan] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._errors: RowErrors | None = None
        self._pace = Pace()
        assert isinstance(self.net, StackedNet)
        layers = [f"{name}.step" for name, m in self.net.net.named_modules() if isinstance(m, HashDropout)]
        buffers = dict(self.net.named_buffers())
        self._dropout_step = buffers[layers[0]] if layers else torch.zeros(seeds, dtype=torch.int64, device=device)
        self.net.share_buffers(layers, self._dropout_step)

    @property
    def engine(self) -> str:
        return "captured" if self.capture else "stacked"

    def train_epoch(
        self, epoch: int, *, keep_last: bool, pause: Callable[[], bool] = lambda: False
    ) -> tuple[Tensor, LastStep | None]:
        """One pass over the data of all seeds at once; `pause`: as one seed does."""
        self.net.train()
        steps = self.data.steps
        self.set_learning_rate(epoch)
        self._load_plan(epoch)
        self._place.fill_(self.step)
        self._dropout_step.fill_(epoch * steps + self.step - 1)
        if self.capture and self._graph is None:
            self._graph = self._captured_step()
        for step in range(self.step, steps - keep_last):
            self._advance()
            if self._graph is not None and step % MARK_EVERY == 0:
                self._pace.keep()
            self.pause_after(step + 1, pause)
        last = self._observed_step() if keep_last else None
        if epoch + 1 < self.spec.epochs:  # while the device works
            self._next = epoch + 1, self._draw_plan(epoch + 1)
        return self.mean_loss(), last

    def _advance(self) -> None:
        if self._graph is None:
            self._step()
        else:
            self._graph.replay()

    def _observed_step(self) -> LastStep:
        """One step, and what it was given and did."""
        batch, before = self._batch(), copy_of(self.trained)
        self._advance()
        assert self._errors is not None
        return self.last_step(batch, self._errors, before)

    def _step(self) -> None:
        """One step of every seed; reads and writes nothing but tensors that stay where they are."""
        self._dropout_step += 1
        self._errors = self.train_step(self._batch())
        self.loss += self._errors.mean_loss
        self._place += 1

    def _batch(self) -> Batch:
        assert self._plan is not None
        return self.data.train_batch(*(told.index_select(0, self._place)[0] for told in self._plan))

    def _draw_plan(self, epoch: int) -> EpochPlan:
        """What the steps of an epoch are told, (steps, seeds, …)."""
        plans = [self.data.plan_epoch(spec.seed, epoch) for spec in self.specs]
        return tuple(torch.stack(told, dim=1) for told in zip(*plans, strict=True))

    def _load_plan(self, epoch: int) -> None:
        drawn = self._next[1] if self._next and self._next[0] == epoch else self._draw_plan(epoch)
        if self._plan is None:
            self._plan = tuple(told.to(self.device) for told in drawn)
        else:
            for place, told in zip(self._plan, drawn, strict=True):
                place.copy_(told)

    def _captured_step(self) -> torch.cuda.CUDAGraph | None:
        """The step as a CUDA graph; None, and steps one by one, if something in it cannot be captured."""
        kept = [t.detach().clone() for t in self._moving()]
        states = {p: {key: t.clone() for key, t in s.items()} for p, s in self.optimiser.state.items()}
        stream = torch.cuda.Stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                self._step()
                self._place.zero_()
        torch.cuda.current_stream(self.device).wait_stream(stream)
        self._put_back(kept, states)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                self._step()
        except RuntimeError as error:
            raise_out_of_memory(error)
            torch.cuda.synchronize(self.device)
            self._put_back(kept, states)
            self.capture = False
            return None
        return graph

    def _moving(self) -> list[Tensor]:
        """All that a step changes, but for the optimiser's own."""
        feedback = self.application.applied.tensors().values()
        return [*self.net.parameters(), *self.net.buffers(), *feedback, self._place, self.loss, self._dropout_step]

    @torch.no_grad()
    def _put_back(self, kept: list[Tensor], states: dict) -> None:
        for tensor, value in zip(self._moving(), kept, strict=True):
            tensor.copy_(value)
        for parameter, state in self.optimiser.state.items():
            for key, tensor in state.items():
                before = states.get(parameter, {}).get(key)
                tensor.zero_() if before is None else tensor.copy_(before)
        self.optimiser.zero_grad(set_to_none=True)

    def tensors(self, seed: int = 0) -> dict[str, Tensor]:
        assert isinstance(self.net, StackedNet)
        feedback = {name: b[seed] for name, b in self.application.applied.tensors().items()}
        return {**self.net.state_of(seed), **feedback}

    def optimiser_state(self, seed: int = 0) -> dict[int, dict[str, Tensor]]:
        state = self.optimiser.state_dict()["state"]
        return {i: {key: t[seed] if t.ndim else t for key, t in kept.items()} for i, kept in state.items()}


def stack_runs(runs: Sequence[Run], *, compare: bool = True) -> StackedRun:
    """Runs of one spec and many seeds, all at the same step, as one; raises `CannotStackError` if they cannot be.

    Runs that were stacked before need not be compared with runs alone again. They should not: where a stream has
    exploded meanwhile, last digits differ by more than is allowed of a net that has just been initialised.
    """
    first = runs[0]
    nets = [run.net for run in runs if isinstance(run.net, torch.nn.Module)]
    net, applied = StackedNet.of(nets), first.application.applied
    applied = applied.stacked(net, [run.application.applied for run in runs])
    # a captured optimiser takes its learning rate and bias corrections in float32, which float64 would feel
    capture = first.device.type == "cuda" and first.spec.precision != "float64"
    stacked = StackedRun(
        tuple(run.spec for run in runs),
        first.task,
        first.data,
        net,
        replace(first.application, applied=applied),
        first.facts,
        make_optimiser(first.spec, applied, captured=capture),
        capture=capture,
        step=first.step,
    )
    stacked.loss.copy_(torch.cat([run.loss for run in runs]))
    states = [run.optimiser_state() for run in runs]
    if states[0]:  # of runs that were trained before; a count of steps is the same for all
        state = {
            i: {key: torch.stack([s[i][key] for s in states]) if t.ndim else t for key, t in kept.items()}
            for i, kept in states[0].items()
        }
        stacked.optimiser.load_state_dict({**stacked.optimiser.state_dict(), "state": state})
    if first.device.type == "cpu":
        _refuse_unaligned(stacked, runs)
    if compare:
        _compare_gradients(stacked, runs)
    return stacked


def _refuse_unaligned(run: StackedRun, runs: Sequence[Run]) -> None:
    """On a CPU the last bits of a product depend on how its factors lie in memory: each seed's must lie alike."""
    item, facts = next(run.net.parameters()).element_size(), run.facts
    numbers = ALIGNMENT // item
    width = f"choose a width that is a multiple of {numbers}"
    # in a graph, seeds lie beside features
    shares = [("the features of a state", shape[-1], width) for shape in facts.tap_shapes]
    shares += [(f"weight {name}", t.numel(), width) for name, t in runs[0].tensors().items() if t.ndim >= 2]
    for kind, rows, option in (
        ("snapshot", len(run.data.snapshot_batch().target), "eval_rows"),
        ("training", run.spec.batch, "batch"),
    ):
        advice = f"choose {option} as a multiple of {numbers}"
        if isinstance(run.data, GraphData):
            advice = "on a CPU this graph is trained seed by seed"
        shares += [(f"a state of {rows} {kind} rows", rows * math.prod(shape), advice) for shape in facts.tap_shapes]
        shares += [(f"the outputs of {rows} {kind} rows for {facts.classes} classes", rows * facts.classes, advice)]
    for what, count, advice in shares:
        if count % numbers:
            raise CannotStackError(
                f"the last bits of a seed would depend on its place in the stack, because {what} ({count} numbers) "
                f"would not fill a multiple of {ALIGNMENT} bytes; {advice}"
            )


def _compare_gradients(run: StackedRun, runs: Sequence[Run]) -> None:
    """Does `vmap` carry this net and rule, and does each seed then learn as it does alone? Tried on a few rows."""
    try:
        together = _gradients(run)
    except Exception as error:
        raise_out_of_memory(error)
        raise CannotStackError(f"{type(error).__name__}: {error}") from error
    for seed, single in enumerate(runs):
        alone = _gradients(single)
        error = _norm([together[name][seed] - g for name, g in alone.items()])
        allowed = TOLERANCE[run.spec.precision] * _norm(list(alone.values()))
        if error > allowed and error > SLACK * _sensitivity(single, alone):
            raise CannotStackError(
                "a seed learns otherwise than alone; is there a tensor in the net or rule that is neither a parameter "
                "nor a buffer nor feedback?"
            )


def _norm(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([tensor.double().norm() for tensor in tensors]).norm()


@torch.no_grad()
def _sensitivity(run: Run, gradients: dict[str, Tensor]) -> Tensor:
    """How far rounding moves them: in a deep net a unit that stands at ReLU's kink takes a part of them with it."""
    draw = torch.Generator().manual_seed(0)
    kept, found = copy_of(run.trained), []
    try:
        for _ in range(NUDGES):
            for name, parameter in run.trained.items():
                noise = torch.randn(parameter.shape, generator=draw).to(parameter)
                parameter.copy_(kept[name] * (1 + NUDGE * TOLERANCE[run.spec.precision] * noise))
            with torch.enable_grad():
                moved = _gradients(run)
            found.append(_norm([moved[name] - g for name, g in gradients.items()]))
    finally:
        for name, parameter in run.trained.items():
            parameter.copy_(kept[name])
    return torch.stack(found).max()


def _gradients(run: Run) -> dict[str, Tensor]:
    """What a training step on a few rows would put in `.grad`; a snapshot is tried, too, and all is put back."""
    batch, applied = run.data.sample_batch(), run.application.applied
    moving = [*run.net.buffers(), *run.application.applied.tensors().values()]
    kept = [t.clone() for t in moving]
    try:
        run.net.train()
        applied.backward(batch.inputs, errors_function(run.net, batch.target, mask=batch.mask))
        gradients = {name: p.grad for name, p in run.trained.items() if p.grad is not None}
        run.net.eval()
        if isinstance(run.net, StackedNet):
            observe(run.net, applied, batch.inputs, batch.target, mask=batch.mask, noise=False)
        return gradients
    finally:
        run.optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            for tensor, value in zip(moving, kept, strict=True):
                tensor.copy_(value)
