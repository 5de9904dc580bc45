"""Block-wise feedback alignment: the last block gets the exact g_L, each block below a_l = B_l a_{l+1}.

The "vanilla FA" of published audit tables: credit goes from block to block through one fixed random
matrix of entries N(0, 1/d), without a skip path backwards. It acts on features, alike at every place: the last axis of
flat states and tokens, the channels of images (C, H, W).
"""

import math
from itertools import pairwise

import torch
from torch import Tensor

from creditscope.errors import one_of
from creditscope.rules import CreditContext, TapRule, TapShapes, register_rule
from creditscope.rules._spread import TOKENS, chained_features, send_back, spread_over_tokens


@register_rule("block_fa")
class BlockFA(TapRule):
    """a_L = g_L, a_l = B_l a_{l+1}.

    On tokens (and places of images) the credit of each comes from its own above; in a net with a class token, where
    g_L is zero elsewhere, the chain runs on that token and its credit is given to all tokens, or with `tokens="class"`
    to it alone.
    """

    label = "block FA"
    formula = "a_L = g_L,  a_l = B_l a_{l+1},  B_l ~ N(0, 1/d)"
    needs_feedback = True
    needs_top_gradient = True

    def __init__(self, *, tokens: str = "all"):
        self.tokens = one_of("choice of tokens", tokens, TOKENS)

    def exact_taps(self, count: int) -> tuple[int, ...]:
        return (count - 1,)

    def draw_feedback(self, tap_shapes: TapShapes, classes: int, generator: torch.Generator) -> list[Tensor]:
        """B_l of shape (d_l, d_{l+1}) for every tap but the last; d are an image's channels."""
        pairs = pairwise(chained_features(tap_shapes, "block FA"))
        return [torch.randn(here, above, generator=generator) / math.sqrt(above) for here, above in pairs]

    def credit(self, ctx: CreditContext) -> list[Tensor]:
        """From the top down; a normalised chain is normalised at every link."""
        assert ctx.top_gradient is not None
        whole = ctx.class_token is None
        credits, above = [ctx.top_gradient], ctx.top_gradient if whole else ctx.top_gradient[:, ctx.class_token]
        for h, B in zip(reversed(ctx.states[:-1]), reversed(ctx.feedback), strict=True):
            above = send_back(ctx.normalise(above), B)
            credits.append(above if whole else spread_over_tokens(above, h, ctx, self.tokens))
        return credits[::-1]
