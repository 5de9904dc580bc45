"""How much of a batch's gradients, or credits, is one direction shared by all rows."""

import math

import torch
from torch import Tensor

from creditscope.measure.numerics import UnitRows

DRIFT_ROWS = 128
"""Rows of a batch in `batch_drift`, as published."""


def common_share(rows: UnitRows) -> Tensor:
    """(‖Σx‖² − Σ‖x‖²) / ((n−1) Σ‖x‖²): the mean product of two different rows over their mean square.

    1 if all rows are alike, about 0 if they have nothing in common, −1/(n−1) if they cancel; it does not depend on n.

    >>> round(float(common_share(UnitRows.of(torch.ones(5, 3)))), 4)
    1.0
    """
    total = (rows.size.unsqueeze(-2) @ rows.unit).squeeze(-2).square().sum(-1)
    squares, n = rows.size.square().sum(-1), rows.keep.sum(-1)
    return torch.where(n > 1, (total - squares) / ((n - 1) * squares), torch.nan)


def batch_drift(rows: UnitRows, *, batch: int = DRIFT_ROWS) -> Tensor:
    """Mean pairwise cosine of the mean rows of consecutive whole batches; NaN if there are fewer than two.

    It grows with the batch, which is why `common_share` is the one to judge by.
    """
    count = rows.size.shape[-1] // batch
    if count < 2:
        return rows.size.new_full(rows.size.shape[:-1], math.nan)
    weighted = (rows.unit * rows.size.unsqueeze(-1))[..., : count * batch, :]
    means = UnitRows.of(weighted.unflatten(-2, (count, batch)).sum(-2))
    k = means.keep.sum(-1)
    return torch.where(k > 1, (means.unit.sum(-2).square().sum(-1) - k) / (k * (k - 1)), torch.nan)
