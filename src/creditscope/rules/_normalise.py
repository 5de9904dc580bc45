"""Credit normalisation: none (the textbook rule), by the RMS of the batch, or by the RMS of each sample."""

from typing import get_args

from torch import Tensor

from creditscope.errors import UnknownNameError
from creditscope.record.spec import CreditNorm

EPS = 1e-6


def normalise_credit(a: Tensor, how: CreditNorm) -> Tensor:
    """a / (RMS(a) + 1e-6) with the RMS over the batch or over each row; a itself for "none".

    >>> import torch
    >>> [f"{a:.3f}" for a in normalise_credit(torch.tensor([[3.0, 4.0], [30.0, 40.0]]), "sample").flatten()]
    ['0.849', '1.131', '0.849', '1.131']
    """
    if how == "none":
        return a
    if how == "batch":
        return a / (a.square().mean().sqrt() + EPS)
    if how == "sample":
        over = tuple(range(1, a.ndim))
        return a / (a.square().mean(dim=over, keepdim=True).sqrt() + EPS)
    raise UnknownNameError("credit normalisation", how, get_args(CreditNorm))
