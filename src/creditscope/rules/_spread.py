"""Credit spread over tokens (rows, tokens, features), and errors over the nodes of a graph."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from creditscope.anatomy import Shapes
from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.rules._rule import CreditContext
from creditscope.stack import as_arguments

TOKENS = ("all", "class")
"""Who is given a sample's credit: all its tokens, or the class token alone."""


def feature_count(shape: tuple[int, ...]) -> int:
    """Features of a row's state that credit is drawn for: tokens (T, d) share d of them, others are flattened."""
    return shape[-1] if len(shape) == 2 else math.prod(shape)


def spread_over_tokens(a: Tensor, h: Tensor, ctx: CreditContext, tokens: str) -> Tensor:
    """Credit (rows, features) in the shape of the state h; for the tokens named, if it has tokens.

    Where tokens have errors of their own, there is credit for each already, (rows, tokens, features).
    """
    if h.ndim != 3 or a.shape == h.shape:
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


def graph_of(inputs: Any) -> Adjacency:
    """Â among what the net is called with, (x, Â)."""
    arguments = as_arguments(inputs)
    if graphs := [argument for argument in arguments if isinstance(argument, Adjacency)]:
        return graphs[0]
    raise CreditscopeError(
        "Expected a graph task and net for this rule, called with node features and an Adjacency, but got inputs of "
        f"type {', '.join(type(a).__name__ for a in arguments)}. Use task=sbm net=gcn, say."
    )


def propagated(matrix: Adjacency, x: Tensor, powers: int, most: int | None = None) -> Iterator[Tensor]:
    """S x, S² x, … up to S^powers x, one product each; powers above `most` are left at that."""
    for power in range(powers):
        if most is None or power < most:
            x = matrix @ x
        yield x


def check_spreading(alpha: float, steps: int) -> None:
    """Refuse options that spread nothing, or without end."""
    if not 0 < alpha < 1 or steps < 1:
        raise CreditscopeError(f"Expected alpha between 0 and 1 and steps >= 1, but got alpha {alpha}, steps {steps}.")


def pseudo_errors(
    matrix: Adjacency, error: Tensor, output: Tensor, mask: Tensor | None, alpha: float, steps: int, balance: bool
) -> Tensor:
    """Ê: errors of labelled nodes as they are, those of the others spread from them.

    Z ← (1 − α) E + α S Z, `steps` times from Z = E, spreads them. Such a row is given the mean L1 size of the labelled
    errors, and dropped unless exactly one class of (prediction − Ê) exceeds ½: unless it points at one class. With
    `balance`, where more such rows are left than there are labelled nodes, they are scaled down to count as much as
    those do, all together.
    """
    if mask is None:
        return error
    z = error
    for _ in range(steps):
        z = (1 - alpha) * error + alpha * (matrix @ z)
    length, labelled = z.abs().sum(-1, keepdim=True), mask.sum().clamp(min=1)
    guessed = torch.where(length > 0, z / length, 0) * (error.abs().sum() / labelled)
    points_at_one = ((output.softmax(-1) - guessed) > 0.5).sum(-1, keepdim=True) == 1
    kept = points_at_one & (length > 0) & ~mask.unsqueeze(-1)
    if balance:
        guessed = guessed * (labelled.to(error.dtype) / kept.sum().clamp(min=1)).clamp(max=1)
    return torch.where(mask.unsqueeze(-1), error, guessed * kept)


def one_hot(ctx: CreditContext) -> Tensor:
    """y*, (rows, classes): 0 for rows without a loss."""
    if ctx.target.is_floating_point() or ctx.target.ndim != 1:
        raise CreditscopeError(
            f"Expected class labels, one per row, for a rule that looks at the target, but got a tensor of "
            f"{ctx.target.dtype} and shape {tuple(ctx.target.shape)}. Use a rule that looks at the error."
        )
    known = ctx.target if ctx.mask is None else torch.where(ctx.mask, ctx.target, 0)
    found = (known.unsqueeze(-1) == torch.arange(ctx.output.shape[-1], device=known.device)).to(ctx.output.dtype)
    return found if ctx.mask is None else found * ctx.mask.unsqueeze(-1)


def row_features(h: Tensor, ctx: CreditContext) -> Tensor:
    """A state as one vector a row: of tokens the class token, or their mean; others flattened.

    Tokens that have outputs of their own stay as they are.
    """
    if h.ndim == 3 and ctx.output.shape[:-1] == h.shape[:-1]:
        return h
    if h.ndim == 3:
        return h.mean(1) if ctx.class_token is None else h[:, ctx.class_token]
    return h.flatten(1)


def features_last(h: Tensor) -> Tensor:
    """A state with its features as the last dimension: the channels of images, elsewhere they are last already."""
    return h.movedim(1, -1) if h.ndim > 3 else h


def features_back(x: Tensor, h: Tensor) -> Tensor:
    """Undo `features_last`, for a state of h's number of dimensions."""
    return x.movedim(-1, 1) if h.ndim > 3 else x


def feature_size(shape: tuple[int, ...]) -> int:
    """Features at every place of a row's state: the channels of an image, elsewhere the last dimension."""
    return shape[0] if len(shape) > 2 else (shape or (0,))[-1]


def chained_features(tap_shapes: Shapes, rule: str) -> list[int]:
    """How many features each tap has, for a rule that maps them from tap to tap, place by place; refuses others."""
    for below, above in pairwise(tap_shapes):
        places = [shape[1:] if len(shape) > 2 else shape[:-1] for shape in (below, above)]
        if not below or len(below) != len(above) or places[0] != places[1]:
            raise CreditscopeError(
                "Expected taps that differ in their features at most (the last dimension; of images the channels) for "
                f"{rule}, but got states of shapes {below} and {above}. Choose other taps, or another rule."
            )
    return [feature_size(shape) for shape in tap_shapes]


def send_back(a: Tensor, B: Tensor) -> Tensor:
    """B a for every row and place."""
    return features_back(features_last(a) @ B.T, a)
