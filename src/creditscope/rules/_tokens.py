"""Credit on token states (rows, tokens, features): to all tokens of a sample, or to its class token alone."""

import math

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.rules._tap_rule import CreditContext


def check_tokens(tokens: str) -> str:
    """Refuse an option that is neither."""
    if tokens not in ("all", "class"):
        raise UnknownNameError("choice of tokens", tokens, ("all", "class"))
    return tokens


def feature_count(shape: tuple[int, ...]) -> int:
    """Features of a row's state that credit is drawn for: tokens (T, d) share d of them, others are flattened."""
    return shape[-1] if len(shape) == 2 else math.prod(shape)


def spread_over_tokens(a: Tensor, h: Tensor, ctx: CreditContext, tokens: str) -> Tensor:
    """Credit (rows, features) in the shape of the state h; for the tokens named, if it has tokens."""
    if h.ndim != 3:
        return a.view_as(h)
    if tokens == "all":
        return a.unsqueeze(1).expand_as(h)
    if ctx.class_token is None:
        raise CreditscopeError(
            "Expected a net with a class token for tokens='class', but this one names none. Use tokens='all'."
        )
    credit = torch.zeros_like(h)
    credit[:, ctx.class_token] = a
    return credit
