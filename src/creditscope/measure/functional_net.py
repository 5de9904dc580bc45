"""A net as a function of its tensors and hidden states: of one seed (`Subject`), and in float64 (`Twin`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.losses import RowLoss, errors_function
from creditscope.measure.observation import Observation, double, observe_forward, watch_in
from creditscope.rules import AppliedRule, layers_with_feedback
from creditscope.stack import Batch, Net, StackedNet, call_net, pattern_of
from creditscope.stacked_functions import OneForAll, is_plain_attention, stacked_attention

TOGETHER = {"cpu": 2**18, "cuda": 2**24}
"""Entries of a state that are changed in one go: what stays in a CPU's cache, what fills a GPU."""


@dataclass(frozen=True)
class Subject:
    """A net as a pattern and its tensors by name; buffers are copies, so that no forward can change the net's own."""

    net: nn.Module
    tensors: dict[str, Tensor]
    applied: AppliedRule
    """Bound to the pattern, with this seed's feedback."""
    seed: int
    """Of all that is drawn."""
    inputs: Any
    """The snapshot's rows, as the net is called with them."""
    target: Tensor
    mask: Tensor | None = None
    loss: RowLoss | None = None
    probe: Callable[[], tuple[Batch, Batch]] | None = None
    """Rows to train a probe on, and rows to test it on; None if there are no class labels."""
    test: Callable[[], Iterable[Batch]] | None = None
    """The rows that accuracy is over; None if there are no class labels."""
    initial: Callable[[], Mapping[str, Tensor]] | None = None
    """The tensors before training, by name; None if they are not known."""

    @property
    def taps(self) -> tuple[str, ...]:
        return self.applied.anatomy.taps

    @property
    def trained(self) -> list[str]:
        return [name for name, p in self.net.named_parameters() if p.requires_grad]


def subjects_of(net: Net, applied: AppliedRule, seeds: Sequence[int], **shared: Any) -> list[Subject]:
    """One subject per seed of a stack, or the one of a net; `shared` are the fields that do not differ."""
    pattern, found = pattern_of(net), []
    for place, seed in enumerate(seeds) if isinstance(net, StackedNet) else [(..., seeds[0])]:
        tensors = {name: p.detach()[place] for name, p in net.named_parameters()}
        tensors |= {name: b.detach()[place].clone() for name, b in net.named_buffers()}
        found.append(Subject(pattern, tensors, applied.of_seed(pattern, place), seed, **shared))
    return found


def feedback_names(net: Net) -> list[str]:
    """The buffers of all layers that hold feedback."""
    return [f"{name}.feedback" for name in layers_with_feedback(net)]


def together(device: torch.device, entries: int) -> int:
    """How many states of so many entries go into one call."""
    return max(1, TOGETHER.get(device.type, TOGETHER["cpu"]) // entries)


@dataclass(frozen=True)
class Twin:
    """A subject as a function, and what was observed of it."""

    subject: Subject
    seen: Observation
    note: str = ""
    """Why it is not in float64, if it is not."""

    def losses(self, moved: Mapping[str, Tensor] | None = None) -> Tensor:
        """ℓ_i of every row, with some tensors replaced."""
        output = call_net(self.subject.net, self.subject.inputs, {**self.subject.tensors, **(moved or {})})
        return row_losses(output, self.subject.target, self.subject.loss, self.subject.mask)

    def from_tap(self, tap: int) -> Callable[[Tensor], Tensor]:
        """ℓ_i of every row as a function of the state at a tap."""
        net, name = self.subject.net, self.subject.taps[tap]
        held = self._held_below(tap + 1)

        def losses(state: Tensor) -> Tensor:
            if held:
                with held_states(net, {**held, name: state}):
                    return self.losses()
            with replaced_states(net, {name: lambda h: state}):
                return self.losses()

        return losses

    def from_stage(self, stage: int) -> Callable[[Mapping[str, Tensor]], Tensor]:
        """ℓ_i of every row as a function of weights of a stage, by name."""
        stages = self.subject.applied.anatomy.stages
        shared = set(stages[stage]).intersection(name for below in stages[:stage] for name in below)
        held = {} if shared else self._held_below(stage)

        def losses(moved: Mapping[str, Tensor]) -> Tensor:
            with held_states(self.subject.net, held):
                return self.losses(moved)

        return losses

    @torch.no_grad()
    def _held_below(self, tap: int) -> dict[str, Tensor]:
        """States of the taps below one, to hold on to instead of computing them again; none if that is not the same."""
        net = self.subject.net
        held = dict(zip(self.subject.taps[:tap], self.seen.states, strict=False))
        plain = [m for m in map(net.get_submodule, held) if not m._forward_hooks and not m._forward_pre_hooks]
        if len(plain) < len(held) or any(isinstance(m, torch.jit.ScriptModule) for m in plain):
            return {}
        computed = self.losses()
        with held_states(net, held):
            same = torch.allclose(self.losses(), computed, rtol=torch.finfo(computed.dtype).eps ** 0.5, atol=0)
        return held if same else {}

    def mean_of(self, losses: Tensor) -> Tensor:
        return losses.sum(-1) / self.seen.errors.count

    def together(self, entries: int) -> int:
        return together(self.seen.output.device, entries)


Tensors = TypeVar("Tensors", Tensor, tuple[Tensor, ...])


@torch.no_grad()
def mapped(function: Callable[..., Tensors], *stacked: Tensor, chunk: int) -> Tensors:
    """`function` of every slice, `chunk` of them at once by `vmap`; one by one where it cannot be mapped."""
    if chunk > 1:
        try:
            with MappedAttention():
                return torch.vmap(function, chunk_size=chunk)(*stacked)
        except (RuntimeError, NotImplementedError, ValueError) as error:
            raise_out_of_memory(error)
    found = [function(*slices) for slices in zip(*stacked, strict=True)]
    if isinstance(found[0], Tensor):
        return torch.stack(found)  # pyright: ignore[reportReturnType, reportArgumentType]
    return tuple(map(torch.stack, zip(*found, strict=True)))  # pyright: ignore[reportReturnType]


def make_twin(subject: Subject) -> Twin:
    """The twin in float64, or in the net's own precision where it (or its rule) does not run in float64."""
    try:
        return _observed(_doubled(subject))
    except (RuntimeError, TypeError, CreditscopeError) as error:
        raise_out_of_memory(error)
        twin = _observed(subject)
        kind = str(twin.seen.output.dtype).removeprefix("torch.")
        why = f"the net and its rule do not run in float64 ({error})"
        return replace(twin, note=f"rho and descent measured in {kind}: {why}"[:300])


def first_rows(subject: Subject, rows: int) -> Subject:
    """The subject on its first rows that have a loss; on all rows where they cannot be told apart (a graph)."""
    apart = isinstance(subject.inputs, Tensor) and subject.loss is None and not subject.applied.anatomy.rows_interact
    if not apart or rows >= len(subject.target):
        return subject
    first = torch.arange(rows) if subject.mask is None else subject.mask.nonzero()[:rows, 0]
    return replace(subject, inputs=subject.inputs[first], target=subject.target[first], mask=None)


def _doubled(subject: Subject) -> Subject:
    applied = replace(subject.applied, feedback=tree_map(double, subject.applied.feedback))
    tensors = {name: double(t) for name, t in subject.tensors.items()}
    return replace(subject, tensors=tensors, applied=applied, inputs=double(subject.inputs))


def _observed(subject: Subject) -> Twin:
    net, tensors = subject.net, subject.tensors
    parameters = {name: tensors[name].detach().clone().requires_grad_() for name in subject.trained}
    precision = next(t.dtype for t in tensors.values() if t.is_floating_point())
    forward = watch_in(precision, net, subject.taps, subject.inputs, {**tensors, **parameters})
    errors = errors_function(net, subject.target, subject.loss, subject.mask)(forward.output)
    return Twin(subject, observe_forward(net, subject.applied, forward, errors, parameters))


def row_losses(output: Tensor, target: Tensor, loss: RowLoss | None, mask: Tensor | None) -> Tensor:
    """One loss per row, without cancellation: −log p_y = log(1 + Σ_{j≠y} exp(x_j − x_y)), exact as p_y → 1."""
    if loss is not None:
        losses = loss(output, target)
    else:
        index = (target if mask is None else torch.where(mask, target, 0)).unsqueeze(-1)
        margins = (output - output.gather(-1, index)).scatter(-1, index, -torch.inf)
        others = margins.logsumexp(-1)
        losses = torch.logaddexp(others, torch.zeros_like(others))
    return losses if mask is None else losses * mask


@contextmanager
def replaced_states(net: nn.Module, replace_by: Mapping[str, Callable[[Tensor], Tensor]]) -> Iterator[None]:
    """Inside, the modules named hand on what their function makes of their output; no hook stays behind."""
    with ExitStack() as stack:
        for name, function in replace_by.items():
            hook = net.get_submodule(name).register_forward_hook(lambda *given, function=function: function(given[-1]))
            stack.enter_context(hook)
        yield


@contextmanager
def held_states(net: nn.Module, states: Mapping[str, Tensor]) -> Iterator[None]:
    """Inside, the modules named hand on these states and compute nothing; after it they are as they were."""
    modules = {net.get_submodule(name): state for name, state in states.items()}
    before = {module: vars(module).get("forward") for module in modules}
    try:
        for module, state in modules.items():
            module.forward = lambda *_, state=state, **__: state.clone()  # the next module may work in place
        yield
    finally:
        for module, forward in before.items():
            if forward is not None:
                module.forward = forward
            elif "forward" in vars(module):
                del module.forward


class _Attention(torch.autograd.Function):
    """Attention for which `vmap` has a rule: the fused kernel on all slices; there is no backward."""

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple, *args: Any) -> tuple[Tensor, int]:
        return OneForAll.vmap(info, (None, *in_dims), stacked_attention, *args)


class MappedAttention(TorchFunctionMode):
    """Inside, plain attention under `vmap` is one call of the fused kernel."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Attention with a mask or dropout is left to `vmap`."""
        if is_plain_attention(func, args, kwargs):
            return _Attention.apply(*args)
        return func(*args, **(kwargs or {}))
