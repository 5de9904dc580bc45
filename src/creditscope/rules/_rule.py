"""The contract: what every rule states of itself, what the two families answer, and what they look at.

Checks and figures read these facts, never a rule's name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.anatomy import Anatomy, Shapes
from creditscope.errors import CreditscopeError
from creditscope.rules._pass import Forward, advanced

TapShapes = Shapes
Feedback = Any
"""A rule's own tensors: a list or a dictionary of tensors, or of such lists and dictionaries."""


class Rule:
    """How credit reaches taps and weights, with its facts. Options are the keyword arguments of the constructor.

    >>> from creditscope.rules import rule_class
    >>> rule_class("dfa").label, rule_class("dfa").needs_feedback
    ('DFA', True)
    """

    name: ClassVar[str] = ""
    """The class's own, unless `register_rule` gives another."""
    label: ClassVar[str] = ""
    """What tables and figures call it."""
    formula: ClassVar[str] = ""
    """The credit a_l, in the symbols of the manual."""
    approximates: ClassVar[str] = "gradient"
    """What the credit stands for; rules that do not aim at the gradient are not judged by alignment."""
    local: ClassVar[bool] = False
    """Whether each stage learns from its own credit alone."""
    needs_feedback: ClassVar[bool] = False
    """Whether it owns feedback matrices."""
    draws_noise: bool = False
    """Whether its credit is another at every step, on the same rows and weights: judged by the mean of its draws."""
    rows_interact: bool = False
    """Whether a row's credit depends on the other rows of the batch."""
    learns_feedback: bool = False
    """Whether its feedback moves in training."""
    hands_on: bool = False
    """Whether the credit at taps says at which states stages learn: a `Credit`."""
    follows: ClassVar[bool] = False
    """Whether the optimiser steps the feedback with its weight's gradient, as it steps the weight."""
    remembers: bool = False
    """Whether layers have memories that are drawn whatever the weights are; set where a class defines `draw_memory`."""
    passes: float = 0.0
    """What a step costs beyond backprop's, in forward passes (a backward: two). Options may set these facts."""
    later_options: ClassVar[tuple[str, ...]] = ()
    """Options that came after the first records; at their defaults they are no part of a spec, nor of its name."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the class."""
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__


@dataclass(frozen=True)
class CreditContext:
    """All that a tap rule, or the `credit` of `watch`, may look at; every tensor is per sample and detached.

    >>> import torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> def broadcast(ctx):
    ...     return [ctx.error.sum(1, keepdim=True).expand_as(h) for h in ctx.states]
    >>> scope = cs.watch(model, taps="1", stem="0", credit=broadcast)
    >>> len(scope.snapshot(torch.randn(20, 4), torch.arange(20) % 3).taps.cos)
    2
    """

    error: Tensor
    """e, shape (rows, classes)."""
    output: Tensor
    """The logits, same shape."""
    target: Tensor
    """What the loss compares them with: class labels, one per row."""
    states: Sequence[Tensor]
    """h_0 .. h_L, each (rows, …)."""
    feedback: Feedback
    """What `draw_feedback` returned, as it has been learned since."""
    top_gradient: Tensor | None
    """g_L, the exact gradient at the last tap, if the rule set `needs_top_gradient`."""
    inputs: Any
    """What the net was called with."""
    mask: Tensor | None = None
    """Rows that carry credit; None means all."""
    class_token: int | None = None
    """Which token the head reads, if the net has such a token."""
    net_mixes_rows: bool = False
    """Whether one row's output depends on another row's state (a graph)."""
    normalise: Callable[[Tensor], Tensor] = field(default=lambda a: a)
    """The run's credit normalisation, for rules whose credit is made from the credit above (sample-mean: nothing)."""
    forward: Forward = field(default=None)  # pyright: ignore[reportAssignmentType]
    """Another pass, `forward(inputs=None, at=None, shift=None)`: with other inputs, states replaced or shifted."""
    loss: Callable[[Tensor], Tensor] = field(default=None)  # pyright: ignore[reportAssignmentType]
    """From logits to the run's loss of every row (0 outside the mask), to be differentiated."""

    @property
    def state_shapes(self) -> list[tuple[int, ...]]:
        """Shapes (rows, …) of h_0 .. h_L."""
        return [tuple(h.shape) for h in self.states]

    def push_forward(self, tangents: Sequence[Tensor]) -> Tensor:
        """From tangents (probes, rows, …), one tensor per tap, to (taps, probes, rows, classes): the derivatives of
        the logits along each of them alone.
        """
        return self.forward.push(tangents)


@dataclass(frozen=True)
class Credit:
    """Credit with the states that stages learn at, where those are not the forward's.

    >>> import creditscope as cs
    >>> class Rescaled(cs.TapRule):
    ...     hands_on, needs_top_gradient = True, True
    ...
    ...     def credit(self, ctx):
    ...         return cs.Credit([0 * h for h in ctx.states[:-1]] + [ctx.top_gradient], [2 * h for h in ctx.states])
    >>> from creditscope.testing import assert_rule
    >>> assert_rule(Rescaled)
    """

    at_taps: Sequence[Tensor]
    """a_l."""
    handed_on: Sequence[Tensor]
    """What tap l hands to the next stage (and the last one to the head) when they learn."""
    inputs: Tensor | None = None
    """What the net is called with when they learn (the first argument, if there are several); None: the step's own."""


class TapRule(Rule):
    """A rule that gives one credit tensor per tap.

    >>> import math, torch
    >>> import creditscope as cs
    >>> class SignDFA(cs.TapRule):
    ...     label, formula, needs_feedback = "sign DFA", "a_l = B_l sign(e)", True
    ...
    ...     def draw_feedback(self, tap_shapes, classes, generator):
    ...         return [torch.randn(math.prod(shape), classes, generator=generator) for shape in tap_shapes]
    ...
    ...     def credit(self, ctx):
    ...         return [(ctx.error.sign() @ B.T).view_as(h) for h, B in zip(ctx.states, ctx.feedback)]
    >>> from creditscope.testing import assert_rule
    >>> assert_rule(SignDFA)
    """

    local = True
    needs_top_gradient: ClassVar[bool] = False
    """Whether it looks at g_L, the exact gradient at the last tap."""
    needs_graph: ClassVar[bool] = False
    """Whether it asks for a graph net, called with node features and an `Adjacency`."""

    def exact_taps(self, count: int) -> tuple[int, ...]:
        """Which of the taps 0..count−1 are handed the true gradient."""
        return ()

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> Feedback:
        """The rule's own tensors, drawn on the CPU from `generator` alone; none by default."""
        return []

    def learn_feedback(self, ctx: CreditContext) -> Feedback:
        """New values for all of them, from the step's own rows, before its credit is given; measuring never learns."""
        return ctx.feedback

    def redraw(self, feedback: Feedback, draw: int) -> Feedback:
        """The feedback of another draw, for a rule that sets `draws_noise`: counters (int64) that many steps later."""
        return tree_map(lambda b: advanced(b, draw) if b.dtype == torch.int64 else b, feedback)

    def credit(self, ctx: CreditContext) -> Sequence[Tensor] | Credit:
        """One credit tensor per tap, each of the shape of its state, per sample, not divided by the rows."""
        raise CreditscopeError(f"Expected rule {type(self).__name__!r} to define credit(self, ctx), but it does not.")


@dataclass(frozen=True)
class Layer:
    """A layer that a weight rule may give feedback.

    >>> import torch
    >>> import creditscope as cs
    >>> class Mirrored(cs.WeightRule):
    ...     needs_feedback = True
    ...
    ...     def draw_memory(self, layer, generator):
    ...         return None if layer.in_head else 0.1 * torch.randn(layer.weight.shape, generator=generator)
    >>> from creditscope.testing import assert_rule
    >>> assert_rule(Mirrored)
    """

    name: str
    weight: Tensor
    """(out, in), or a kernel (out, in, …); detached."""
    inputs: int
    """Numbers that one output is made of."""
    outputs: int
    """Numbers that one input goes into."""
    in_head: bool
    """Whether it lies after the last tap."""


class WeightRule(Rule):
    """A rule whose credit is what a backward pass delivers through the net, whose layers send δB down instead of δW.

    >>> import creditscope as cs
    >>> class SignFeedback(cs.WeightRule):
    ...     label, needs_feedback = "sign feedback", True
    ...
    ...     def transport(self, weight, memory):
    ...         return weight.sign() * weight.abs().mean()
    >>> from creditscope.testing import assert_rule
    >>> assert_rule(SignFeedback)
    """

    decay: float | None = None
    """Weight decay of layers with feedback, and of feedback that follows; None: the run's. An option may set it."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "remembers" not in vars(cls):
            cls.remembers = cls.draw_memory is not WeightRule.draw_memory

    def convert(self, net: nn.Module, anatomy: Anatomy, generator: torch.Generator) -> None:
        """Swap layers of `net` in place for ones that own feedback; none for a rule without (backprop)."""
        from creditscope.rules._layers import convert_layers

        if self.needs_feedback:
            convert_layers(net, self, anatomy, generator)

    def draw_memory(self, layer: Layer, generator: torch.Generator) -> Tensor | None:
        """The layer's feedback, of its weight's shape, from `generator` alone; None: the layer stays exact."""
        return torch.zeros_like(layer.weight, device="cpu")

    def transport(self, weight: Tensor, memory: Tensor) -> Tensor:
        """B, of the weight's shape, whenever a backward runs (measuring included): the memory itself by default."""
        return memory

    def learn(self, weight: Tensor, memory: Tensor, noise: Callable[..., Tensor]) -> Tensor:
        """The memory's new value, once before every training step, if the rule sets `learns_feedback`.

        `noise(shape, place=0)` are the layer's own standard normal numbers of this step.
        """
        return memory
