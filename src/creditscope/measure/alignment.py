"""What a tap is told (credit a) against what it should be told (gradient g)."""

import torch
from torch import Tensor

from creditscope.measure.nulls import rotation_null_sd
from creditscope.measure.numerics import angles, flat_rows, mean_where, median_where, unit_rows, usable

RANK_ROWS = 256
"""Participation ratios are taken over at most this many rows."""


def measure_alignment(a: Tensor, g: Tensor) -> dict[str, Tensor]:
    """Cosines, angle, rotation null, sizes and ranks of credit and gradient, each (rows, …) and per sample.

    `cos` is the mean over rows that have both; `cos_F` = ⟨A, G⟩ / (‖A‖ ‖G‖) over all rows.
    """
    a, g = flat_rows(a), flat_rows(g)
    unit_a, norm_a = unit_rows(a)
    unit_g, norm_g = unit_rows(g)
    has_a, has_g = usable(norm_a), usable(norm_g)
    keep = has_a & has_g
    unit_a = torch.where(keep[:, None], unit_a, 0)
    unit_g = torch.where(keep[:, None], unit_g, 0)
    cosines = (unit_a * unit_g).sum(1)
    cos = mean_where(cosines, keep)
    null_sd = rotation_null_sd(unit_a, unit_g)
    size_a, size_g = _relative(norm_a, has_a), _relative(norm_g, has_g)
    size_a_kept, size_g_kept = torch.where(keep, size_a, 0), torch.where(keep, size_g, 0)
    inner = (cosines * size_a_kept * size_g_kept).sum()
    return {
        "cos": cos,
        "cos_F": inner / (size_a.norm() * size_g.norm()),
        "angle": mean_where(angles(unit_a, unit_g), keep),
        "null_sd": null_sd,
        "z": cos / null_sd,
        "ratio": median_where(norm_a / norm_g, keep),
        "rank_a": participation_ratio(unit_a, size_a_kept),
        "rank_g": participation_ratio(unit_g, size_g_kept),
        "rows_used": keep.sum(),
        "rows_no_gradient": (~has_g).sum(),
        "rows_no_credit": (~has_a).sum(),
    }


def _relative(norms: Tensor, keep: Tensor) -> Tensor:
    """Norms over the largest of them, so that their squares neither overflow nor vanish; 0 where not kept."""
    norms = torch.where(keep, norms, 0)
    largest = norms.max()
    return norms / torch.where(largest == 0, 1.0, largest)


def participation_ratio(units: Tensor, sizes: Tensor) -> Tensor:
    """(Σλ)² / Σλ² of the second moment Σ x xᵀ over rows x = size · unit: how many directions are in use."""
    rows = units[:RANK_ROWS] * sizes[:RANK_ROWS, None]
    gram = rows.T @ rows if rows.shape[1] <= rows.shape[0] else rows @ rows.T
    return gram.diagonal().sum().square() / gram.square().sum()
