"""Direct Kolen–Pollack: DFA whose matrices get the update that the output layer would get at their tap.

Webster, Choi & Ahn, "Learning the connections in direct feedback alignment" (2021).
"""

import math

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, one_of
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._small_nets import adam, draw_moments
from creditscope.rules._spread import feature_count, row_features, spread_over_tokens


@register_rule("dkp")
class DKP(TapRule):
    """a_l = B_l e; B_l is stepped down the mean over rows of h_l eᵀ, with decay.

    By `optimiser` adam (as published: `rate` 1e-4, `decay` 1e-6) or sgd. B_l regresses to a linear read-out of h_l; at
    the last tap, before a linear head that is stepped likewise, B_L − Wᵀ shrinks by (1 − ηλ) a step. On tokens h_l is
    that of the class token, or the mean over tokens.
    """

    label = "DKP"
    formula = "a_l = B_l e,  ΔB_l = −η(h_l eᵀ + λ B_l)"
    needs_feedback = True
    learns_feedback = True

    def __init__(self, *, rate: float = 1e-4, decay: float = 1e-6, optimiser: str = "adam"):
        if rate <= 0 or decay < 0:
            raise CreditscopeError(f"Expected rate > 0 and decay >= 0, but got rate {rate}, decay {decay}.")
        self.rate, self.decay = rate, decay
        self.optimiser = one_of("optimiser of DKP's feedback", optimiser, ("adam", "sgd"))

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> dict:
        """B_l of shape (features, C), as in DFA, and Adam's moments."""
        features = [feature_count(shape) for shape in tap_shapes]
        drawn = [torch.randn(d, classes, generator=generator) / math.sqrt(classes) for d in features]
        return {"B": drawn, "moments": draw_moments(drawn) if self.optimiser == "adam" else {}}

    def learn_feedback(self, ctx: CreditContext) -> dict:
        B, rows = ctx.feedback["B"], len(ctx.error) if ctx.mask is None else ctx.mask.sum().clamp(min=1)
        error = ctx.error.flatten(0, -2)
        slopes = [row_features(h, ctx).flatten(0, -2).T @ error / rows for h in ctx.states]
        if self.optimiser == "sgd":
            stepped = [b - self.rate * (g + self.decay * b) for b, g in zip(B, slopes, strict=True)]
            return {"B": stepped, "moments": {}}
        stepped, moments = adam(B, slopes, ctx.feedback["moments"], self.rate, self.decay)
        return {"B": stepped, "moments": moments}

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        pairs = zip(ctx.states, ctx.feedback["B"], strict=True)
        return [spread_over_tokens(ctx.error @ B.T, h, ctx, "all") for h, B in pairs]
