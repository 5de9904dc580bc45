"""The rotation null: the law of the mean cosine when all credit is turned by one random rotation.

cos = (1/n) Σ ĝ_iᵀ R â_i with R Haar-distributed has mean 0 and variance ‖M‖²_F / d, where
M = (1/n) Σ ĝ_i â_iᵀ. Samples of one batch share R, so n does not help as in a t-test over rows.
"""

import torch
from torch import Tensor


def rotation_null_sd(square: Tensor, rows: Tensor, features: int) -> Tensor:
    """Null sd of a mean cosine over `rows` rows from `square` = ‖Σ ĝ_i â_iᵀ‖²_F: ‖M‖_F / √d."""
    return square.sqrt() / rows / features**0.5


def cross_moment_square(a: Tensor, g: Tensor) -> Tensor:
    """‖Σ ĝ_i â_iᵀ‖²_F of unit rows, both (…, n, d), by the d×d matrix; rows left out must be zero in both."""
    return (g.mT @ a).square().sum((-2, -1))


def cross_moment_square_from_grams(gram_a: Tensor, gram_g: Tensor) -> Tensor:
    """The same from the n×n Gram matrices ââᵀ and ĝĝᵀ: Σ_ij (â_i·â_j)(ĝ_i·ĝ_j); smaller where n < d."""
    return (gram_a * gram_g).sum((-2, -1)).clamp(min=0)


def haar_rotation(d: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    """A Haar-distributed orthogonal d×d matrix."""
    return haar_frame(d, d, generator, dtype)


def turned_rows(x: Tensor, generator: torch.Generator) -> Tensor:
    """x R for rows x (n, d) and a Haar rotation R, shared by all rows; drawn on the CPU.

    With fewer rows than features no d×d matrix is needed: x = Tᵀ Vᵀ by a QR of xᵀ, and Vᵀ R is distributed as the
    transpose of any d×n matrix with Haar-distributed orthonormal columns.
    """
    n, d = x.shape
    if n >= d:
        return x @ haar_frame(d, d, generator, device=x.device).to(x)
    return torch.linalg.qr(x.mT, mode="r").R.mT @ haar_frame(d, n, generator, device=x.device).to(x).mT


def haar_frame(
    d: int,
    n: int,
    generator: torch.Generator,
    dtype: torch.dtype = torch.float64,
    device: torch.device | None = None,
) -> Tensor:
    """n ≤ d orthonormal columns, Haar-distributed: QR, on the device, of a d×n Gaussian with the sign fix."""
    q, r = torch.linalg.qr(torch.randn(d, n, generator=generator, dtype=dtype).to(device))
    return q * r.diagonal().sign()
