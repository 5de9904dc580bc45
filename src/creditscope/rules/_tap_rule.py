"""Tap rules make the credit a_l at taps; each stage then learns from its own, with its input held fixed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError
from creditscope.losses import RowErrors
from creditscope.record.spec import CreditNorm
from creditscope.rules._learning import LearningContext, advanced, push_forward
from creditscope.rules._normalise import normalise_credit, normalise_link
from creditscope.rules._rule import Rule
from creditscope.stack import Net, StackedNet, as_arguments, pattern_of
from creditscope.taps import Forward, cut_forward


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


@dataclass
class AppliedTapRule:
    """A tap rule at work on a net."""

    rule: TapRule
    net: Net
    anatomy: Anatomy
    feedback: list[Tensor]
    credit_norm: CreditNorm = "none"
    penalty: float = 0.0
    batch: int = 1
    """Rows of a training step, however many there are here."""

    def learn(self, inputs: Any) -> None:
        """Move the feedback, in place, if the rule learns it; the net and its buffers stay as they are."""
        if self.rule.learns_feedback:
            for own, new in zip(self.feedback, self.learned(inputs), strict=True):
                own.copy_(new)

    @torch.no_grad()
    def learned(self, inputs: Any) -> list[Tensor]:
        """What the feedback would become."""
        net, taps = pattern_of(self.net), self.anatomy.taps

        def learn(inputs, tensors, feedback) -> list[Tensor]:
            rows = len(as_arguments(inputs)[0])
            context = LearningContext(
                inputs=inputs,
                feedback=feedback,
                state_shapes=[(rows, *shape) for shape in self.anatomy.shapes],
                push_forward=lambda tangents: push_forward(net, taps, inputs, tensors, tangents),
            )
            return list(self.rule.learn_feedback(context))

        tensors = {name: p.detach() for name, p in self.net.named_parameters()}
        tensors |= {name: b.clone() for name, b in self.net.named_buffers()}
        return self._each_seed(learn, inputs, tensors, self.feedback)

    def backward(self, inputs: Any, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """Fill `.grad` of the trained parameters from one forward and no discarded product."""
        forward = cut_forward(self.net, self.anatomy.taps, inputs, top_gradient=self.rule.needs_top_gradient)
        errors = errors_of(forward.output)
        n = errors.count
        roots, gradients = [forward.output], [errors.error / n]
        top = None
        if self.rule.needs_top_gradient:
            torch.autograd.backward(roots, gradients)
            top = _gradient_of(forward.passed[-1]) * n
            roots, gradients = [], []
        credits = self._credits(forward, errors, top, self._normalise_link)
        for state, credit in zip(forward.states, self._applied(forward, credits), strict=True):
            if state.requires_grad:  # a frozen stage has no root
                roots.append(state)
                gradients.append(credit / n)
        if roots:
            torch.autograd.backward(roots, gradients)
        return errors

    def measure(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Credit at every tap of a watched forward before any normalisation, and the weight gradients of training
        times the rows, by one backward that stops at every tap.
        """
        credits = self._credits(forward, errors, exact[-1], lambda a: a)
        trained_on = credits
        if self.credit_norm != "none":
            trained_on = self._credits(forward, errors, exact[-1], self._normalise_link)
        roots = [(forward.output, errors.error)]
        roots += zip(forward.states, self._applied(forward, trained_on), strict=True)
        outputs, gradients = zip(*((h, a) for h, a in roots if h.grad_fn is not None), strict=True)
        with forward.gate.shut():
            found = torch.autograd.grad(
                outputs, list(parameters.values()), gradients, retain_graph=True, allow_unused=True
            )
        return credits, {name: g for name, g in zip(parameters, found, strict=True) if g is not None}

    def _normalise(self, a: Tensor) -> Tensor:
        return normalise_credit(a, self.credit_norm, self.batch)

    def _normalise_link(self, a: Tensor) -> Tensor:
        return normalise_link(a, self.credit_norm)

    def _credits(self, forward: Forward, errors: RowErrors, top: Tensor | None, normalise) -> list[Tensor]:
        """What the rule gives on one net, or on every seed's own share of a stack."""

        def credit(inputs, error, output, target, states, feedback, top) -> list[Tensor]:
            context = CreditContext(
                error=error,
                output=output,
                target=target,
                states=states,
                feedback=feedback,
                top_gradient=top,
                inputs=inputs,
                mask=errors.mask,
                class_token=self.anatomy.class_token,
                normalise=normalise,
            )
            return self._checked(list(self.rule.credit(context)), states)

        states = [h.detach() for h in forward.states]
        top = top if self.rule.needs_top_gradient else None
        seen = (errors.error, errors.output, errors.target, states, self.feedback, top)
        return self._each_seed(credit, forward.inputs, *seen)

    def _checked(self, credits: list[Tensor], states: Sequence[Tensor]) -> list[Tensor]:
        shapes = [tuple(a.shape) if isinstance(a, Tensor) else type(a).__name__ for a in credits]
        wanted = [tuple(h.shape) for h in states]
        if shapes != wanted:
            raise CreditscopeError(
                f"Expected rule {self.rule.name!r} to give one credit per tap "
                f"of the state's shape, {wanted}, but got {shapes}."
            )
        return credits

    def _each_seed(self, function: Callable, inputs: Any, *arguments: Any) -> Any:
        if isinstance(self.net, StackedNet):
            return self.net.each(function, inputs, *arguments)
        return function(inputs, *arguments)

    def _applied(self, forward: Forward, credits: Sequence[Tensor]) -> list[Tensor]:
        applied = list(credits)
        if self.credit_norm != "none":
            applied = [self._each_seed(lambda _, a: self._normalise(a), None, a) for a in credits]
        if self.penalty:
            for i, f in self.anatomy.block_changes(forward):
                applied[i] = applied[i] + 2 * self.penalty * f
        return applied


def _gradient_of(leaf: Tensor) -> Tensor:
    if leaf.grad is None:
        raise CreditscopeError(
            "Expected the head to depend on the last tap, but it does not. Tap a module that it reads."
        )
    return leaf.grad
