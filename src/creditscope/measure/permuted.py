"""Permuted error: what a row's credit is worth to another row."""

import torch
from torch import Tensor

from creditscope.measure.numerics import UnitRows


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
