"""What a tap is told (credit a) against what it should be told (gradient g)."""

import torch
from torch import Tensor

from creditscope.measure.nulls import (
    FEW_FEATURES,
    NORMAL_POINT,
    by_place,
    cross_moment_square,
    cross_moment_square_from_grams,
    places_and_features,
    rotation_null_sd,
    rotation_quantile,
)
from creditscope.measure.numerics import (
    UnitRows,
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


def measure_alignment(a: Tensor, g: Tensor, shape: tuple[int, ...] = ()) -> dict[str, Tensor]:
    """Cosines, angle, rotation null, sizes and ranks of credit and gradient, each (…, rows, features), per sample.

    `cos` is the mean over rows that have both; `cos_F` = ⟨A, G⟩ / (‖A‖ ‖G‖) over all rows. `shape` is that of a row's
    state before it was flattened; the null depends on its places.
    """
    return compare_rows(*unit_rows(a), *unit_rows(g), shape)


def compare_rows(
    unit_a: Tensor, norm_a: Tensor, unit_g: Tensor, norm_g: Tensor, shape: tuple[int, ...] = ()
) -> dict[str, Tensor]:
    """`measure_alignment` of rows given as directions and norms; the directions are used up."""
    has_a, has_g = usable(norm_a), usable(norm_g)
    keep = has_a & has_g
    drop_rows_(unit_a, keep)
    drop_rows_(unit_g, keep)
    cosines = (unit_a * unit_g).sum(-1)
    cos = mean_where(cosines, keep)
    size_a, size_g = relative_sizes(norm_a, has_a), relative_sizes(norm_g, has_g)
    inner, lengths = (cosines * size_a * size_g).sum(-1), size_a.norm(dim=-1) * size_g.norm(dim=-1)
    squares, rank_a, rank_g = _second_moments(unit_a, unit_g, size_a, size_g)
    null = _null(unit_a, unit_g, size_a, size_g, squares, keep.sum(-1), lengths, shape)
    return {
        "cos": cos,
        "cos_F": inner / lengths,
        "angle": mean_where(angles(unit_a, unit_g, cosines), keep),
        **null,
        "z": cos / null["null_sd"],
        "ratio": median_where(norm_a / norm_g, keep),
        "rank_a": rank_a,
        "rank_g": rank_g,
        "rows_used": keep.sum(-1),
        "rows_no_gradient": (~has_g).sum(-1),
        "rows_no_credit": (~has_a).sum(-1),
    }


def _null(
    a: Tensor,
    g: Tensor,
    size_a: Tensor,
    size_g: Tensor,
    squares: tuple[Tensor, Tensor],
    rows: Tensor,
    lengths: Tensor,
    shape: tuple[int, ...],
) -> dict[str, Tensor]:
    """The null of `cos`, of `cos_F`, and the 99 % point of the first: the wider of the two forms."""
    whole = a.shape[-1]
    sd, sd_F = (rotation_null_sd(x, n, whole) for x, n in zip(squares, (rows, lengths), strict=True))
    q99 = rotation_quantile(_moment(a, g, rows), sd) if whole < FEW_FEATURES else NORMAL_POINT * sd
    places, d = places_and_features(shape)
    if places > 1:
        moment = _moment(by_place(a, shape), by_place(g, shape), rows)
        sized_a, sized_g = (by_place(x * size[..., None], shape) for x, size in ((a, size_a), (g, size_g)))
        moments = moment, _moment(sized_a, sized_g, lengths)
        features, features_F = (m.square().sum((-2, -1)).sqrt() / d**0.5 for m in moments)
        q99 = torch.maximum(q99, rotation_quantile(moment, features))
        sd, sd_F = torch.maximum(sd, features), torch.maximum(sd_F, features_F)
    return {"null_sd": sd, "null_sd_F": sd_F, "null_q99": q99}


def _moment(a: Tensor, g: Tensor, over: Tensor) -> Tensor:
    """Σ g_i a_iᵀ over a number, (…, d, d)."""
    return g.mT @ a / over[..., None, None]


def _second_moments(
    a: Tensor, g: Tensor, size_a: Tensor, size_g: Tensor
) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """‖Σ ĝ_i â_iᵀ‖²_F of unit rows and of rows at their sizes, and the ranks of credit and gradient.

    They come from n×n or d×d products, whichever are smaller.
    """
    n, d = a.shape[-2:]
    few = min(n, RANK_ROWS)
    if n <= d:
        grams = [a @ a.mT, g @ g.mT]
        sized = [
            gram * size[..., None] * size[..., None, :] for gram, size in zip(grams, (size_a, size_g), strict=True)
        ]
        squares = cross_moment_square_from_grams(*grams), cross_moment_square_from_grams(*sized)
        moments = [gram[..., :few, :few] for gram in sized]
    else:
        rows = [units * size[..., None] for units, size in ((a, size_a), (g, size_g))]
        squares = cross_moment_square(a, g), cross_moment_square(*rows)
        first = [x[..., :few, :] for x in rows]
        moments = [x.mT @ x if d <= few else x @ x.mT for x in first]
    return squares, participation_ratio(moments[0]), participation_ratio(moments[1])


def participation_ratio(moment: Tensor) -> Tensor:
    """(Σλ)² / Σλ² of a second moment Σ x xᵀ (or of the Gram matrix): how many directions are in use."""
    return moment.diagonal(dim1=-2, dim2=-1).sum(-1).square() / moment.square().sum((-2, -1))


def measure_reading(credits: list[UnitRows], gradients: list[UnitRows]) -> dict[str, Tensor]:
    """The published reading of credit: what a block is told at its output, against the gradient at its input.

    Mean over rows of cos(a_l, g_{l−1}) at tap l; NaN at tap 0 and where the two states differ in size.
    """
    nothing = torch.full_like(credits[0].size[0], torch.nan)
    found = [nothing]
    for a, g in zip(credits[1:], gradients[:-1], strict=True):
        alike = a.unit.shape == g.unit.shape
        found.append(mean_where((a.unit * g.unit).sum(-1), a.keep & g.keep) if alike else nothing)
    return {"cos_input": torch.stack(found)}
