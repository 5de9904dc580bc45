"""A net's anatomy, read off the autograd graph of one forward instead of declared: so it holds for any model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.stack import as_arguments
from creditscope.taps import Forward, check_rows, leave_untouched, may_put_time_first, watch_forward


class Shapes(tuple[tuple[int, ...], ...]):
    """The shape of one row's state at each tap; `inputs` is that of one row of what the net is called with."""

    inputs: tuple[int, ...] = ()

    @classmethod
    def of(cls, states: Iterable[Tensor], inputs: Any) -> "Shapes":
        found = cls(tuple(h.shape[1:]) for h in states)
        found.inputs = next((tuple(x.shape[1:]) for x in as_arguments(inputs) if isinstance(x, Tensor)), ())
        return found


@dataclass(frozen=True)
class Anatomy:
    """What one forward shows of a net: its taps, which parameters lie in which stage, where it adds."""

    taps: tuple[str, ...]
    shapes: Shapes
    classes: int
    stages: tuple[tuple[str, ...], ...]
    """Trainable parameters of each stage: stage l ends at tap l; one more for the head."""
    residual: tuple[bool, ...]
    """Whether stage l adds to the state of tap l − 1 (never for the first)."""
    rows_interact: bool
    """Whether one row's output depends on another row's state (train-mode BatchNorm, message passing)."""
    class_token: int | None = None
    """Which token the head reads, if the net says so (`class_token`)."""
    in_place: bool = True
    """Whether a module works in place on the state of a tap."""
    output: tuple[int, ...] = ()
    """The shape of one row's output."""

    def block_changes(self, forward: Forward) -> Iterator[tuple[int, Tensor]]:
        """(l, f_l) with f_l = h_l − h_{l−1} for every residual stage, detached."""
        for i, adds in enumerate(self.residual):
            if adds:
                yield i, forward.states[i].detach() - forward.states[i - 1].detach()


def examine(model: nn.Module, taps: Sequence[str], inputs: Any) -> Anatomy:
    """Read a net's anatomy off the autograd graph of one forward on a few rows; leaves the model as it was."""
    with leave_untouched(model) as buffers:
        taps = watch_forward(model, taps, inputs, buffers).order
        forward = watch_forward(model, taps, inputs, buffers)
        if forward.output.ndim < 2:
            raise CreditscopeError(
                f"Expected an output of shape (rows, classes), but got {tuple(forward.output.shape)}."
            )
        check_rows(forward, taps)
        for name, h in zip(taps, forward.states, strict=True):
            if may_put_time_first(model.get_submodule(name), h):
                raise CreditscopeError(
                    f"Expected the state of tap {name!r} to have rows first, but its module has batch_first=False, "
                    "which puts time there, and there is as much of both. Make it with batch_first=True."
                )
        nodes = [node_of(h) for h in forward.states]
        name_of = {id(p): name for name, p in model.named_parameters()}
        stages = []
        for root in (*nodes, node_of(forward.output)):
            below = nodes_below([root], stop=[n for n in nodes if n is not root])
            leaves = {id(node.variable) for node in below if hasattr(node, "variable")}
            stages.append(tuple(name for key, name in name_of.items() if key in leaves))
        adds = [below in nodes_below([_trunk(above)], through=_adds_or_copies) for below, above in pairwise(nodes)]
        return Anatomy(
            taps=tuple(taps),
            shapes=Shapes.of(forward.states, inputs),
            classes=forward.output.shape[-1],
            stages=tuple(stages),
            residual=(False, *adds),
            rows_interact=_rows_interact(forward),
            class_token=token if isinstance(token := getattr(model, "class_token", None), int) else None,
            in_place=any(h._version for h in forward.passed),
            output=tuple(forward.output.shape[1:]),
        )


class Likeness:
    """What a net's anatomy goes by: its modules and their mode, its parameters, and the kind of its inputs.

    >>> net, rows = nn.Linear(2, 3), torch.zeros(4, 2)
    >>> Likeness(net, rows) == Likeness(net, rows[:2]), Likeness(net, rows) == Likeness(net.eval(), rows)
    (True, False)
    """

    def __init__(self, model: nn.Module, inputs: Any):
        self.things = [*model.modules(), *model.parameters()]  # held, so that no other can have their identity
        modes = [m.training for m in model.modules()]
        kinds = [(p.requires_grad, p.dtype, p.device) for p in model.parameters()]
        given = [(x.shape[1:], x.dtype) if isinstance(x, Tensor) else type(x) for x in as_arguments(inputs)]
        self.said = (modes, kinds, given)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Likeness) or self.said != other.said or len(self.things) != len(other.things):
            return False
        return all(ours is theirs for ours, theirs in zip(self.things, other.things, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def nodes_below(
    roots: Sequence[Any], stop: Sequence[Any] = (), through: Callable[[Any], bool] = lambda node: True
) -> set[Any]:
    """Graph nodes that a backward from `roots` reaches without crossing `stop`, or what it may not go `through`."""
    found: set[Any] = set()
    todo = [r for r in roots if r is not None]
    while todo:
        node = todo.pop()
        if node in found or node in stop:
            continue
        found.add(node)
        if through(node):
            todo.extend(child for child, _ in node.next_functions if child is not None)
    return found


def _trunk(node: Any) -> Any:
    """What a block's output is before a ReLU that comes after an addition."""
    inner = node
    while type(inner).__name__.startswith("ReluBackward"):
        inner = inner.next_functions[0][0]
    return inner if type(inner).__name__.startswith("AddBackward") else node


def _adds_or_copies(node: Any) -> bool:
    return type(node).__name__.startswith(("AddBackward", "PassOnBackward"))


def node_of(h: Tensor) -> Any:
    """The graph node that a tensor comes from."""
    return h.grad_fn if h.grad_fn is not None else torch.autograd.graph.get_gradient_edge(h).node


def _rows_interact(forward: Forward) -> bool:
    """Whether the outputs of the first half of the rows have a gradient at states of the second half."""
    half = len(forward.output) // 2
    first = forward.output[:half].flatten(1)
    weights = torch.linspace(0.5, 1.5, first.shape[1], dtype=first.dtype, device=first.device)
    (g,) = torch.autograd.grad((first * weights.cos()).sum(), forward.states[:1], allow_unused=True)
    return g is not None and bool((g[half:].abs() > 0).any())  # false for what is not a number
