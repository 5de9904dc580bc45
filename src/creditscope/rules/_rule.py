"""The contract: what every rule states of itself, what the two families answer, and what they look at.

Checks and figures read these facts, never a rule's name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError
from creditscope.rules._learning import advanced

TapShapes = Sequence[tuple[int, ...]]
"""The shape of one row's state at each tap."""


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
    draws_noise: ClassVar[bool] = False
    """Whether its credit is another at every step, on the same rows and weights: judged by the mean of its draws."""
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
    feedback: Sequence[Tensor]
    """What `draw_feedback` returned."""
    top_gradient: Tensor | None
    """g_L, the exact gradient at the last tap, if the rule set `needs_top_gradient`."""
    inputs: Any
    """What the net was called with."""
    mask: Tensor | None = None
    """Rows that carry credit; None means all."""
    class_token: int | None = None
    """Which token the head reads, if the net has such a token."""
    normalise: Callable[[Tensor], Tensor] = field(default=lambda a: a)
    """The run's credit normalisation, for rules whose credit is made from the credit above (sample-mean: nothing)."""


@dataclass(frozen=True)
class LearningContext:
    """All that a rule learns its feedback from, at the weights of one training step, before they move.

    >>> from creditscope.rules.dfa import DFA
    >>> class ForgetfulDFA(DFA):
    ...     learns_feedback = True
    ...
    ...     def learn_feedback(self, ctx):
    ...         return [0.99 * B for B in ctx.feedback]
    >>> from creditscope.testing import assert_rule
    >>> assert_rule(ForgetfulDFA)
    """

    inputs: Any
    """What the net is called with."""
    feedback: Sequence[Tensor]
    """What `draw_feedback` returned, as it has been learned since."""
    state_shapes: Sequence[tuple[int, ...]]
    """Shapes (rows, …) of h_0 .. h_L."""
    push_forward: Callable[[Sequence[Tensor]], Tensor]
    """From tangents (probes, rows, …), one tensor per tap, to the derivatives of the logits along each of them alone:
    (taps, probes, rows, classes)."""


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
    learns_feedback: ClassVar[bool] = False
    """Whether its feedback moves in training, by `learn_feedback`."""

    def exact_taps(self, count: int) -> tuple[int, ...]:
        """Which of the taps 0..count−1 are handed the true gradient."""
        return ()

    def draw_feedback(
        self, tap_shapes: Sequence[tuple[int, ...]], classes: int, generator: torch.Generator
    ) -> list[Tensor]:
        """Feedback tensors, drawn on the CPU from `generator` alone; none by default."""
        return []

    def learn_feedback(self, ctx: LearningContext) -> Sequence[Tensor]:
        """New values for all feedback tensors, before the credit of a training step; measuring never learns."""
        return ctx.feedback

    def redraw(self, feedback: Sequence[Tensor], draw: int) -> Sequence[Tensor]:
        """The feedback of another draw, for a rule that sets `draws_noise`: counters (int64) that many steps later."""
        return [advanced(b, draw) if b.dtype == torch.int64 else b for b in feedback]

    def credit(self, ctx: CreditContext) -> Sequence[Tensor]:
        """One credit tensor per tap, each of the shape of its state, per sample, not divided by the rows."""
        raise CreditscopeError(f"Expected rule {type(self).__name__!r} to define credit(self, ctx), but it does not.")


class WeightRule(Rule):
    """A rule whose credit is what a backward pass delivers through the converted net.

    >>> from creditscope.rules import convert_linears
    >>> import creditscope as cs
    >>> class SignFeedback(cs.WeightRule):
    ...     label, needs_feedback = "sign feedback", True
    ...
    ...     def convert(self, net, anatomy, generator):
    ...         convert_linears(net, self, lambda name, layer: layer.weight.detach().sign())
    >>> from creditscope.testing import assert_rule
    >>> assert_rule(SignFeedback)
    """

    def convert(self, net: nn.Module, anatomy: Anatomy, generator: torch.Generator) -> None:
        """Swap modules of `net` in place for ones that own feedback; nothing by default (backprop)."""
