"""The rotation null: the law of the mean cosine when all credit is turned by one random rotation.

cos = (1/n) Σ ĝ_iᵀ R â_i with R Haar-distributed has mean 0 and variance ‖M‖²_F / d, where
M = (1/n) Σ ĝ_i â_iᵀ. Samples of one batch share R, so n does not help as in a t-test over rows.
"""

import torch
from torch import Tensor


def rotation_null_sd(a: Tensor, g: Tensor) -> Tensor:
    """Null sd of the mean cosine of unit rows a and g, both (n, d); rows left out must be zero in both.

    ‖M‖²_F is taken from the d×d matrix or from the two n×n Gram matrices, whichever is smaller.
    """
    rows, d = a.shape
    count = (g != 0).any(dim=1).sum()
    square = (g.T @ a).square().sum() if d <= rows else ((g @ g.T) * (a @ a.T)).sum().clamp(min=0)
    return square.sqrt() / count / d**0.5


def haar_rotation(d: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """A Haar-distributed orthogonal d×d matrix: QR of a Gaussian with the sign fix."""
    q, r = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=dtype))
    return q * r.diagonal().sign()
