"""Direct feedback alignment: a_l = B_l e, with fixed random B_l of entries N(0, 1/C).

Nøkland, "Direct feedback alignment provides learning in deep neural networks" (NeurIPS 2016).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from creditscope.rules import CreditContext, TapRule, register_rule
from creditscope.rules._tokens import check_tokens, feature_count, spread_over_tokens


@register_rule("dfa")
class DFA(TapRule):
    """a_l = B_l e, the same for every token of a sample; `tokens="class"` gives it to the class token alone."""

    label = "DFA"
    formula = "a_l = B_l e,  B_l ~ N(0, 1/C)"
    needs_feedback = True

    def __init__(self, *, tokens: str = "all"):
        self.tokens = check_tokens(tokens)

    def draw_feedback(
        self, tap_shapes: Sequence[tuple[int, ...]], classes: int, generator: torch.Generator
    ) -> list[Tensor]:
        """B_l of shape (features, C); tokens (T, d) share one of d features, other shapes are flattened."""
        features = map(feature_count, tap_shapes)
        return [torch.randn(d, classes, generator=generator) / math.sqrt(classes) for d in features]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """One product per tap."""
        pairs = zip(ctx.states, ctx.feedback, strict=True)
        return [spread_over_tokens(ctx.error @ B.T, h, ctx, self.tokens) for h, B in pairs]
