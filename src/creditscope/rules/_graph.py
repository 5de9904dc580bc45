"""What rules for graphs share: the graph a net was called with, its powers, and errors spread over it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.stack import as_arguments


def graph_of(inputs: Any) -> Adjacency:
    """Â among what the net is called with, (x, Â)."""
    for argument in as_arguments(inputs):
        if isinstance(argument, Adjacency):
            return argument
    raise CreditscopeError(
        "Expected a graph task and net for this rule, called with node features and an Adjacency, but got inputs of "
        f"type {', '.join(type(a).__name__ for a in as_arguments(inputs))}. Use task=sbm net=gcn, say."
    )


def propagated(matrix: Adjacency, x: Tensor, powers: int, most: int | None = None) -> Iterator[Tensor]:
    """S x, S² x, … up to S^powers x, one product each; powers above `most` are left at that."""
    for power in range(powers):
        if most is None or power < most:
            x = matrix @ x
        yield x


def spread_errors(matrix: Adjacency, error: Tensor, alpha: float, steps: int) -> Tensor:
    """Z ← (1 − α) E + α S Z, `steps` times from Z = E."""
    z = error
    for _ in range(steps):
        z = (1 - alpha) * error + alpha * (matrix @ z)
    return z


def check_spreading(alpha: float, steps: int) -> None:
    """Refuse options that spread nothing, or without end."""
    if not 0 < alpha < 1 or steps < 1:
        raise CreditscopeError(f"Expected alpha between 0 and 1 and steps >= 1, but got alpha {alpha}, steps {steps}.")


def pseudo_errors(
    matrix: Adjacency,
    error: Tensor,
    output: Tensor,
    mask: Tensor | None,
    *,
    alpha: float,
    steps: int,
    balance: bool = True,
) -> Tensor:
    """Ê: errors of labelled nodes as they are, those of the others spread from them.

    A spread row is given the mean L1 size of the labelled errors, and dropped unless exactly one class of
    (prediction − Ê) exceeds ½: unless it points at one class. With `balance`, where more such rows are left than there
    are labelled nodes, they are scaled down to count as much as those do, all together.
    """
    if mask is None:
        return error
    z = spread_errors(matrix, error, alpha, steps)
    length, labelled = z.abs().sum(-1, keepdim=True), mask.sum().clamp(min=1)
    guessed = torch.where(length > 0, z / length, 0) * (error.abs().sum() / labelled)
    points_at_one = ((output.softmax(-1) - guessed) > 0.5).sum(-1, keepdim=True) == 1
    kept = points_at_one & (length > 0) & ~mask.unsqueeze(-1)
    if balance:
        guessed = guessed * (labelled.to(error.dtype) / kept.sum().clamp(min=1)).clamp(max=1)
    return torch.where(mask.unsqueeze(-1), error, guessed * kept)
