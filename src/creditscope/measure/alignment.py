"""What a tap is told (credit a) against what it should be told (gradient g)."""

from torch import Tensor

from creditscope.measure.nulls import cross_moment_square, cross_moment_square_from_grams, rotation_null_sd
from creditscope.measure.numerics import (
    angles,
    drop_rows_,
    mean_where,
    median_where,
    relative_sizes,
    unit_rows,
    usable,
)

RANK_ROWS = 256
"""Participation ratios are taken over at most this many rows."""


def measure_alignment(a: Tensor, g: Tensor) -> dict[str, Tensor]:
    """Cosines, angle, rotation null, sizes and ranks of credit and gradient, each (…, rows, features), per sample.

    `cos` is the mean over rows that have both; `cos_F` = ⟨A, G⟩ / (‖A‖ ‖G‖) over all rows.
    """
    return compare_rows(*unit_rows(a), *unit_rows(g))


def compare_rows(unit_a: Tensor, norm_a: Tensor, unit_g: Tensor, norm_g: Tensor) -> dict[str, Tensor]:
    """`measure_alignment` of rows given as directions and norms; the directions are used up."""
    has_a, has_g = usable(norm_a), usable(norm_g)
    keep = has_a & has_g
    drop_rows_(unit_a, keep)
    drop_rows_(unit_g, keep)
    cosines = (unit_a * unit_g).sum(-1)
    cos = mean_where(cosines, keep)
    size_a, size_g = relative_sizes(norm_a, has_a), relative_sizes(norm_g, has_g)
    inner = (cosines * size_a * size_g).sum(-1)
    square, rank_a, rank_g = _second_moments(unit_a, unit_g, size_a, size_g)
    null_sd = rotation_null_sd(square, keep.sum(-1), unit_a.shape[-1])
    return {
        "cos": cos,
        "cos_F": inner / (size_a.norm(dim=-1) * size_g.norm(dim=-1)),
        "angle": mean_where(angles(unit_a, unit_g, cosines), keep),
        "null_sd": null_sd,
        "z": cos / null_sd,
        "ratio": median_where(norm_a / norm_g, keep),
        "rank_a": rank_a,
        "rank_g": rank_g,
        "rows_used": keep.sum(-1),
        "rows_no_gradient": (~has_g).sum(-1),
        "rows_no_credit": (~has_a).sum(-1),
    }


def _second_moments(a: Tensor, g: Tensor, size_a: Tensor, size_g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """‖Σ ĝ_i â_iᵀ‖²_F and the ranks of credit and gradient, from n×n or d×d products, whichever are smaller."""
    n, d = a.shape[-2:]
    few = min(n, RANK_ROWS)
    if n <= d:
        gram_a, gram_g = a @ a.mT, g @ g.mT
        square = cross_moment_square_from_grams(gram_a, gram_g)
        moments = [
            gram[..., :few, :few] * size[..., :few, None] * size[..., None, :few]
            for gram, size in ((gram_a, size_a), (gram_g, size_g))
        ]
    else:
        square = cross_moment_square(a, g)
        rows = [units[..., :few, :] * size[..., :few, None] for units, size in ((a, size_a), (g, size_g))]
        moments = [x.mT @ x if d <= few else x @ x.mT for x in rows]
    return square, participation_ratio(moments[0]), participation_ratio(moments[1])


def participation_ratio(moment: Tensor) -> Tensor:
    """(Σλ)² / Σλ² of a second moment Σ x xᵀ (or of the Gram matrix): how many directions are in use."""
    return moment.diagonal(dim1=-2, dim2=-1).sum(-1).square() / moment.square().sum((-2, -1))
