"""Controls by a batch's own rows: what of it is one direction for all, and what a row's credit is worth to another."""

import math

import torch
from torch import Tensor

from creditscope.measure.numerics import UnitRows
from creditscope.record.schema import Facts

DRIFT_ROWS = 128
"""Rows of a batch in `batch_drift`, as published."""


def measure_common(gradients: list[UnitRows], credits: list[UnitRows]) -> dict[str, Tensor]:
    """`common_share` of gradient and credit at every tap."""
    return {
        "common": torch.stack([common_share(g) for g in gradients]),
        "common_a": torch.stack([common_share(a) for a in credits]),
    }


def common_share(rows: UnitRows) -> Tensor:
    """(‖Σx‖² − Σ‖x‖²) / ((n−1) Σ‖x‖²): the mean product of two different rows over their mean square.

    1 if all rows are alike, about 0 if they have nothing in common, −1/(n−1) if they cancel; it does not depend on n.

    >>> round(float(common_share(UnitRows.of(torch.ones(5, 3)))), 4)
    1.0
    """
    total = (rows.size.unsqueeze(-2) @ rows.unit).squeeze(-2).square().sum(-1)
    squares, n = rows.size.square().sum(-1), rows.keep.sum(-1)
    return torch.where(n > 1, (total - squares) / ((n - 1) * squares), torch.nan)


def measure_drift(gradients: list[UnitRows], facts: Facts) -> dict[str, Tensor]:
    """`batch_drift` at every tap; NaN of a graph, which is one batch."""
    if facts.rows_interact:
        return {"drift": torch.full_like(torch.stack([g.size[0] for g in gradients]), torch.nan)}
    return {"drift": torch.stack([batch_drift(g) for g in gradients])}


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


def measure_permuted(gradients: list[UnitRows], credits: list[UnitRows], keys: Tensor) -> dict[str, Tensor]:
    """`permuted_cosine` at every tap."""
    pairs = zip(credits, gradients, strict=True)
    return {"permuted_cos": torch.stack([permuted_cosine(a, g, keys) for a, g in pairs])}


def permuted_cosine(a: UnitRows, g: UnitRows, keys: Tensor) -> Tensor:
    """Mean over rows i of cos(a_π(i), g_i), with π the cycle through the usable rows in the order of `keys` (rows,).

    π has no fixed point, and rows without credit or gradient take no part; NaN if fewer than two are left.
    """
    keep = a.keep & g.keep
    count = keep.sum(-1, keepdim=True)
    order = torch.where(keep, keys, torch.inf).argsort(dim=-1)  # usable rows first, in a random order
    place = torch.arange(keep.shape[-1], device=keep.device)
    following = order.gather(-1, torch.remainder(place + 1, count.clamp(min=1)).expand(order.shape))
    pairs = (_rows(a.unit, following) * _rows(g.unit, order)).sum(-1)
    mean = torch.where(place < count, pairs, 0).sum(-1) / count.squeeze(-1)
    return torch.where(count.squeeze(-1) > 1, mean, torch.nan)


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Rows (…, rows, features) in another order, (…, rows)."""
    return x.gather(-2, index.unsqueeze(-1).expand(x.shape))
