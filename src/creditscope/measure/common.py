"""How much of a batch's gradients, or credits, is one direction shared by all rows."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.measure.numerics import drop_rows_, relative_sizes, unit_rows, usable

DRIFT_ROWS = 128
"""Rows of a batch in `batch_drift`, as published."""


@dataclass(frozen=True)
class BatchRows:
    """Rows as directions and sizes over the largest; rows that cannot be used are zero in both."""

    unit: Tensor
    """(…, rows, features)"""
    size: Tensor
    keep: Tensor
    """Which rows can be used, (…, rows)."""

    @classmethod
    def of(cls, x: Tensor, among: Tensor | None = None) -> "BatchRows":
        """Rows of x that have a direction, those `among` a mask if there is one."""
        unit, norms = unit_rows(x)
        keep = usable(norms) if among is None else usable(norms) & among
        return cls(drop_rows_(unit, keep), relative_sizes(norms, keep), keep)


def common_share(rows: BatchRows) -> Tensor:
    """(‖Σx‖² − Σ‖x‖²) / ((n−1) Σ‖x‖²): the mean product of two different rows over their mean square.

    1 if all rows are alike, about 0 if they have nothing in common, −1/(n−1) if they cancel; it does not depend on n.

    >>> round(float(common_share(BatchRows.of(torch.ones(5, 3)))), 4)
    1.0
    """
    total = (rows.size.unsqueeze(-2) @ rows.unit).squeeze(-2).square().sum(-1)
    squares, n = rows.size.square().sum(-1), rows.keep.sum(-1)
    return torch.where(n > 1, (total - squares) / ((n - 1) * squares), torch.nan)


def batch_drift(rows: BatchRows, *, batch: int = DRIFT_ROWS) -> Tensor:
    """Mean pairwise cosine of the mean rows of consecutive whole batches; NaN if there are fewer than two.

    It grows with the batch, which is why `common_share` is the one to judge by.
    """
    count = rows.size.shape[-1] // batch
    if count < 2:
        return rows.size.new_full(rows.size.shape[:-1], math.nan)
    weighted = (rows.unit * rows.size.unsqueeze(-1))[..., : count * batch, :]
    means = BatchRows.of(weighted.unflatten(-2, (count, batch)).sum(-2))
    k = means.keep.sum(-1)
    return torch.where(k > 1, (means.unit.sum(-2).square().sum(-1) - k) / (k * (k - 1)), torch.nan)
