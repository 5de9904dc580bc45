"""Tap rules make the credit a_l at taps; each stage then learns from its own, with its input held fixed.

Credit is normalised as the run asks: not (the textbook rule), by the RMS of the batch, or by that of each sample. The
published convention, sample-mean, is the last on credit of the mean loss: eps is 1e-6 of a loss that was divided by
the rows of a training batch, so 1e-6 times these rows in the per-sample units used here, and credit that is small is
hardly normalised. A chain, in which credit is made from the credit above, it leaves as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.losses import RowErrors
from creditscope.record.spec import CreditNorm
from creditscope.rules._learning import push_forward
from creditscope.rules._rule import CreditContext, LearningContext, TapRule
from creditscope.stack import Net, StackedNet, as_arguments, pattern_of
from creditscope.taps import Forward, cut_forward

EPS = 1e-6


def normalise_credit(a: Tensor, how: CreditNorm, batch: int = 1) -> Tensor:
    """a / (RMS(a) + 1e-6) with the RMS over the batch or over each row; a itself for "none".

    `batch` is how many rows a training step has; it counts for "sample-mean" alone.
    """
    if how == "none":
        return a
    if how == "batch":
        return a / (a.square().mean().sqrt() + EPS)
    if how in ("sample", "sample-mean"):
        over = tuple(range(1, a.ndim))
        eps = EPS if how == "sample" else EPS * batch
        return a / (a.square().mean(dim=over, keepdim=True).sqrt() + eps)
    raise UnknownNameError("credit normalisation", how, get_args(CreditNorm))


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
            if (found := forward.passed[-1].grad) is None:
                raise CreditscopeError(
                    "Expected the head to depend on the last tap, but it does not. Tap a module that it reads."
                )
            top, roots, gradients = found * n, [], []
        credits = self._credits(forward, errors, top, self.credit_norm)
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
        credits = trained_on = self._credits(forward, errors, exact[-1], "none")
        if self.credit_norm != "none":
            trained_on = self._credits(forward, errors, exact[-1], self.credit_norm)
        roots = [(forward.output, errors.error)]
        roots += zip(forward.states, self._applied(forward, trained_on), strict=True)
        outputs, gradients = zip(*((h, a) for h, a in roots if h.grad_fn is not None), strict=True)
        with forward.gate.shut():
            found = torch.autograd.grad(
                outputs, list(parameters.values()), gradients, retain_graph=True, allow_unused=True
            )
        return credits, {name: g for name, g in zip(parameters, found, strict=True) if g is not None}

    def _credits(self, forward: Forward, errors: RowErrors, top: Tensor | None, how: CreditNorm) -> list[Tensor]:
        """What the rule gives on one net, or on every seed's own share of a stack; chains are normalised by link."""
        chain = "none" if how == "sample-mean" else how

        def credit(inputs, error, output, target, states, feedback, top) -> list[Tensor]:
            settings = (errors.mask, self.anatomy.class_token, lambda a: normalise_credit(a, chain))
            context = CreditContext(error, output, target, states, feedback, top, inputs, *settings)
            credits = list(self.rule.credit(context))
            shapes = [tuple(a.shape) if isinstance(a, Tensor) else type(a).__name__ for a in credits]
            if shapes != (wanted := [tuple(h.shape) for h in states]):
                raise CreditscopeError(
                    f"Expected rule {self.rule.name!r} to give one credit per tap "
                    f"of the state's shape, {wanted}, but got {shapes}."
                )
            return credits

        states = [h.detach() for h in forward.states]
        top = top if self.rule.needs_top_gradient else None
        seen = (errors.error, errors.output, errors.target, states, self.feedback, top)
        return self._each_seed(credit, forward.inputs, *seen)

    def _applied(self, forward: Forward, credits: Sequence[Tensor]) -> list[Tensor]:
        applied = list(credits)
        if self.credit_norm != "none":
            applied = [
                self._each_seed(lambda _, a: normalise_credit(a, self.credit_norm, self.batch), None, a)
                for a in credits
            ]
        if self.penalty:
            for i, f in self.anatomy.block_changes(forward):
                applied[i] = applied[i] + 2 * self.penalty * f
        return applied

    def _each_seed(self, function: Callable, inputs: Any, *arguments: Any) -> Any:
        if isinstance(self.net, StackedNet):
            return self.net.each(function, inputs, *arguments)
        return function(inputs, *arguments)
