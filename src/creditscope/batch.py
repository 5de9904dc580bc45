"""A batch: what a net is called with, what it should answer, and which of its rows count."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Inputs (a tensor, or a tuple of arguments) and one target per row."""

    inputs: Any
    """In a training batch for many seeds a `PerSeed`, with targets to match."""
    target: Tensor
    mask: Tensor | None = None
    """Which rows carry a loss (None: all)."""
    scored: Tensor | None = None
    """Index of the rows that accuracy is over (None: all)."""

    def only_scored(self, values: Tensor, dim: int = 0) -> Tensor:
        """Of values that have one entry per row along `dim`, those of the rows that accuracy is over."""
        return values if self.scored is None else values.index_select(dim, self.scored)
