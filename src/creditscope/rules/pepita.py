"""PEPITA: a second pass on the input that the error has modulated; layers learn from the difference of both.

Dellaferrera & Kreiman, "Error-driven input modulation: solving the credit assignment problem without a backward pass"
(ICML 2022).
"""

import math

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import Credit, CreditContext, TapRule, TapShapes, register_rule
from creditscope.stack import as_arguments, with_first


@register_rule("pepita")
class PEPITA(TapRule):
    """a_l = h_l(x) − h_l(x + F e); F uniform, ±√(6/inputs)·`scale`.

    All stages learn at the inputs of the second pass, the first one at x + F e. Within a stage credit goes through its
    derivative, as under every rule; the published update of single layers leaves that of the activation out.
    """

    label = "PEPITA"
    formula = "a_l = h_l(x) − h_l(x + F e)"
    needs_feedback = True
    hands_on = True
    passes = 2.0  # the second, and the one that stages learn in

    def __init__(self, *, scale: float = 0.05):
        if scale <= 0:
            raise CreditscopeError(f"Expected a scale > 0, but got {scale}.")
        self.scale = scale

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """F of shape (numbers of an input, C)."""
        inputs = math.prod(tap_shapes.inputs)
        bound = math.sqrt(6 / inputs) * self.scale
        return [(2 * torch.rand(inputs, classes, generator=generator) - 1) * bound]

    def credit(self, ctx: CreditContext) -> Credit:
        x = as_arguments(ctx.inputs)[0]
        if not x.is_floating_point():
            raise CreditscopeError(f"Expected inputs that are numbers for rule 'pepita', but got {x.dtype}.")
        moved = x + (ctx.error @ ctx.feedback[0].T).view_as(x)
        other = ctx.forward(with_first(ctx.inputs, moved)).states
        return Credit([h - m for h, m in zip(ctx.states, other, strict=True)], other, moved)
