"""Credit normalisation: none (the textbook rule), by the RMS of the batch, or by the RMS of each sample.

The published convention, sample-mean, is the last on credit of the mean loss: eps is 1e-6 of a loss that was divided by
the rows of a training batch, so 1e-6 times these rows in the per-sample units used here, and credit that is small is
hardly normalised. A chain, in which credit is made from the credit above, is left as it is.
"""

from typing import get_args

from torch import Tensor

from creditscope.errors import UnknownNameError
from creditscope.record.spec import CreditNorm

EPS = 1e-6


def normalise_credit(a: Tensor, how: CreditNorm, batch: int = 1) -> Tensor:
    """a / (RMS(a) + 1e-6) with the RMS over the batch or over each row; a itself for "none".

    `batch` is how many rows a training step has; it counts for "sample-mean" alone.

    >>> import torch
    >>> [f"{a:.3f}" for a in normalise_credit(torch.tensor([[3.0, 4.0], [30.0, 40.0]]), "sample").flatten()]
    ['0.849', '1.131', '0.849', '1.131']
    """
    if how == "none":
        return a
    if how == "batch":
        return a / (a.square().mean().sqrt() + EPS)
    if how in ("sample", "sample-mean"):
        over = tuple(range(1, a.ndim))
        eps = EPS if how == "sample" else EPS * batch
        return a / (a.square().mean(dim=over, keepdim=True).sqrt() + eps)
    raise UnknownNameError("credit normalisation", how, get_args(CreditNorm))


def normalise_link(a: Tensor, how: CreditNorm) -> Tensor:
    """Credit inside a chain, before the credit below is made from it."""
    return a if how == "sample-mean" else normalise_credit(a, how)
