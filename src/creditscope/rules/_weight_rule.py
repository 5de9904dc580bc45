"""Weight rules change how a linear map sends credit down; the rest of the backward pass stays exact."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.anatomy import Anatomy
from creditscope.losses import RowErrors
from creditscope.rules._feedback_linear import transport_of
from creditscope.rules._rule import Rule
from creditscope.stack import Net, call_net
from creditscope.taps import Forward, watch_forward


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


@dataclass
class AppliedWeightRule:
    """A weight rule at work on a converted net."""

    rule: WeightRule
    net: Net
    anatomy: Anatomy
    penalty: float = 0.0

    def learn(self, inputs: Any) -> None:
        """Feedback of weight rules does not move by itself."""

    def backward(self, inputs: Any, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """Fill `.grad` of the trained parameters by one backward pass."""
        if self.penalty:
            forward = watch_forward(self.net, self.anatomy.taps, inputs)
            errors = errors_of(forward.output)
            roots, gradients = self._roots(forward, errors)
            torch.autograd.backward(roots, [g / errors.count for g in gradients])
        else:
            output = call_net(self.net, inputs)
            errors = errors_of(output)
            output.backward(errors.error / errors.count)
        return errors

    def measure(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Credit at every tap of a watched forward, and the weight gradients of training times the rows.

        Both are the exact ones for backprop, so nothing is computed; a penalty costs one more backward.
        """
        credits, weights = list(exact), {}
        wanted = list(parameters.values())
        if transport_of(self.net) is not None:
            credited = wanted if not self.penalty else []
            found = torch.autograd.grad(
                forward.output, [*forward.states, *credited], errors.error, retain_graph=True, allow_unused=True
            )
            credits = [torch.zeros_like(h) if a is None else a for h, a in zip(exact, found, strict=False)]
            weights = dict(zip(parameters, found[len(exact) :], strict=False))
        if self.penalty:
            roots, gradients = self._roots(forward, errors)
            found = torch.autograd.grad(roots, wanted, gradients, retain_graph=True, allow_unused=True)
            weights = dict(zip(parameters, found, strict=True))
        return credits, {name: g for name, g in weights.items() if g is not None}

    def _roots(self, forward: Forward, errors: RowErrors) -> tuple[list[Tensor], list[Tensor]]:
        roots, gradients = [forward.output], [errors.error]
        if self.penalty:
            pulls = [torch.zeros_like(h) for h in forward.states]
            for i, f in self.anatomy.block_changes(forward):
                pulls[i] += 2 * self.penalty * f
                pulls[i - 1] -= 2 * self.penalty * f
            roots += forward.states
            gradients += pulls
        return roots, gradients
