"""Weight rules change how a linear map sends credit down; the rest of the backward pass stays exact."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from creditscope.losses import RowErrors
from creditscope.rules._feedback_linear import transport_of
from creditscope.rules._penalty import block_changes
from creditscope.rules._rule import Rule
from creditscope.taps import Anatomy, Forward, watch_forward


class WeightRule(Rule):
    """A rule whose credit is what a backward pass delivers through the converted net."""

    def convert(self, net: nn.Module, anatomy: Anatomy, generator: torch.Generator) -> None:
        """Swap modules of `net` in place for ones that own feedback; nothing by default (backprop)."""


@dataclass
class AppliedWeightRule:
    """A weight rule at work on a converted net."""

    rule: WeightRule
    net: nn.Module
    anatomy: Anatomy
    penalty: float = 0.0

    def backward(self, inputs: Tensor, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """Fill `.grad` of the trained parameters by one backward pass."""
        if self.penalty:
            forward = watch_forward(self.net, self.anatomy.taps, inputs)
            errors = errors_of(forward.output)
            roots, gradients = self._roots(forward, errors)
            torch.autograd.backward(roots, [g / errors.count for g in gradients])
        else:
            output = self.net(inputs)
            errors = errors_of(output)
            output.backward(errors.error / errors.count)
        return errors

    def measure_credit(self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor]) -> list[Tensor]:
        """The credit at every tap of a watched forward; the exact gradients themselves for backprop."""
        if transport_of(self.net) is None:
            return list(exact)
        return list(torch.autograd.grad(forward.output, forward.states, errors.error, retain_graph=True))

    def measure_weight_gradients(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        """What training would put in `.grad` on these rows, times the rows; {} where that is the exact one."""
        if transport_of(self.net) is None and not self.penalty:
            return {}
        roots, gradients = self._roots(forward, errors)
        found = torch.autograd.grad(roots, list(parameters.values()), gradients, retain_graph=True, allow_unused=True)
        return {name: g for name, g in zip(parameters, found, strict=True) if g is not None}

    def _roots(self, forward: Forward, errors: RowErrors) -> tuple[list[Tensor], list[Tensor]]:
        roots, gradients = [forward.output], [errors.error]
        if self.penalty:
            pulls = [torch.zeros_like(h) for h in forward.states]
            for i, f in block_changes(forward, self.anatomy):
                pulls[i] += 2 * self.penalty * f
                pulls[i - 1] -= 2 * self.penalty * f
            roots += forward.states
            gradients += pulls
        return roots, gradients
