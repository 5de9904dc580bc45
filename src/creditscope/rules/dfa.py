"""Direct feedback alignment: a_l = B_l e, with fixed random B_l of entries N(0, 1/C).

Nøkland, "Direct feedback alignment provides learning in deep neural networks" (NeurIPS 2016).
"""

import math

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, one_of
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._spread import TOKENS, feature_count, spread_over_tokens


@register_rule("dfa")
class DFA(TapRule):
    """a_l = B_l e, the same for every token of a sample; `tokens="class"` gives it to the class token alone.

    With `index="input"`, a published convention, a block is given at its output the credit of the tap at its input:
    a_0 = B_0 e, a_l = B_{l−1} e. With `error="sign"` it is the sign of the error that is projected (sDFA).
    """

    label = "DFA"
    formula = "a_l = B_l e,  B_l ~ N(0, 1/C)"
    needs_feedback = True
    later_options = ("index", "error")

    def __init__(self, *, tokens: str = "all", index: str = "own", error: str = "true"):
        self.tokens = one_of("choice of tokens", tokens, TOKENS)
        self.index = one_of("index of DFA's feedback", index, ("own", "input"))
        self.error = one_of("error of DFA", error, ("true", "sign"))

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """B_l of shape (features, C); tokens (T, d) share one of d features, other shapes are flattened."""
        features = [feature_count(shape) for shape in tap_shapes]
        if self.index == "input" and len(set(features)) > 1:
            raise CreditscopeError(
                "Expected states of one size for index='input', which gives a tap the credit of the tap before it, "
                f"but got sizes {', '.join(map(str, features))}. Use index='own'."
            )
        return [torch.randn(d, classes, generator=generator) / math.sqrt(classes) for d in features]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        feedback = ctx.feedback if self.index == "own" else [ctx.feedback[0], *ctx.feedback[:-1]]
        pairs, e = zip(ctx.states, feedback, strict=True), ctx.error if self.error == "true" else ctx.error.sign()
        return [spread_over_tokens(e @ B.T, h, ctx, self.tokens) for h, B in pairs]
