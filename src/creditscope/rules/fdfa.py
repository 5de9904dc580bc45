"""Forward direct feedback alignment: DFA whose matrices follow the net's Jacobian by forward-mode products.

Bacho & Chu, "Low-variance forward gradients using direct feedback alignment and momentum" (Neural Networks, 2024).
"""

import math

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._pass import advanced, draw_counter, gaussian_probes
from creditscope.rules._spread import feature_count, spread_over_tokens


@register_rule("fdfa")
class FDFA(TapRule):
    """a_l = B_l e with B_l ← (1 − ρ) B_l + ρ mean over rows of p (J p)ᵀ, p standard normal: B_l → E[J]ᵀ.

    In a linear net B_l becomes the product of the weights above, and the credit the gradient. On tokens B_l is the mean
    over tokens of their own Jacobians.
    """

    label = "FDFA"
    formula = "a_l = B_l e,  B_l ← (1−ρ) B_l + ρ E[p (J p)ᵀ],  p ~ N(0, I)"
    needs_feedback = True
    learns_feedback = True
    passes = 1.0  # with a tangent for each tap

    def __init__(self, *, rate: float = 0.05):
        if not 0 < rate <= 1:
            raise CreditscopeError(f"Expected a rate above 0 and up to 1, but got {rate}.")
        self.rate = rate

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """B_l of shape (features, C), as in DFA, and the counter of the probes."""
        features = [feature_count(shape) for shape in tap_shapes]
        drawn = [torch.randn(d, classes, generator=generator) / math.sqrt(classes) for d in features]
        return [*drawn, draw_counter(generator)]

    def learn_feedback(self, ctx: CreditContext) -> list[Tensor]:
        *feedback, counter = ctx.feedback
        probes = gaussian_probes(counter, ctx.states)
        pushed = ctx.push_forward([p.unsqueeze(0) for p in probes]).squeeze(1)
        learned = []
        for B, p, Jp in zip(feedback, probes, pushed, strict=True):
            p = p.mean(1) if p.ndim == 3 else p.flatten(1)
            learned.append((1 - self.rate) * B + self.rate * p.T @ Jp / len(p))
        return [*learned, advanced(counter)]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        pairs = zip(ctx.states, ctx.feedback[:-1], strict=True)
        return [spread_over_tokens(ctx.error @ B.T, h, ctx, "all") for h, B in pairs]
