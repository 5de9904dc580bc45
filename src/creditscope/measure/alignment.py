"""What a tap is told (credit a) against what it should be told (gradient g), and controls by a batch's own rows."""

import math

import torch
from torch import Tensor

from creditscope.measure.nulls import FEW_FEATURES, NORMAL_POINT, by_place, places_and_features, rotation_quantile
from creditscope.measure.numerics import (
    UnitRows,
    angles,
    drop_rows_,
    flat_rows,
    mean_cosine,
    mean_where,
    median_where,
    relative_sizes,
    row_norms,
    unit_rows,
    usable,
)
from creditscope.measure.observation import Observation
from creditscope.record.schema import Facts

RANK_ROWS = 256
"""Participation ratios are taken over at most this many rows."""
FEW_RANK_ROWS, FEW_RANK_FEATURES = 64, 1024
"""The same, and features by an odd step, of a watched model whose credit is not compared."""
DRIFT_ROWS = 128
"""Rows of a batch in `batch_drift`, as published."""


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
    squares, (rank_a, rank_g) = _second_moments(unit_a, unit_g, size_a, size_g)
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


def rank_of_rows(x: Tensor, keep: Tensor) -> Tensor:
    """`participation_ratio` of rows (rows, features), over a few of both; those not kept are zero."""
    step = -(-x.shape[1] // FEW_RANK_FEATURES) | 1
    rows = x[:FEW_RANK_ROWS, ::step] * keep[:FEW_RANK_ROWS, None]
    rows = (rows / rows.abs().amax().clamp(min=torch.finfo(x.dtype).tiny)).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
    return participation_ratio(rows.mT @ rows if rows.shape[1] <= rows.shape[0] else rows @ rows.mT)


def _null(
    a: Tensor,
    g: Tensor,
    size_a: Tensor,
    size_g: Tensor,
    squares: list[Tensor],
    rows: Tensor,
    lengths: Tensor,
    shape: tuple[int, ...],
) -> dict[str, Tensor]:
    """The null of `cos`, of `cos_F`, and the 99 % point of the first: the wider of the two forms."""
    whole = a.shape[-1]
    sd, sd_F = (square.sqrt() / n / whole**0.5 for square, n in zip(squares, (rows, lengths), strict=True))
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


def _second_moments(a: Tensor, g: Tensor, size_a: Tensor, size_g: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """‖Σ ĝ_i â_iᵀ‖²_F of unit rows and of rows at their sizes, and the ranks of credit and gradient.

    By the d×d products, or where n is smaller by the n×n Gram matrices: Σ_ij (â_i·â_j)(ĝ_i·ĝ_j).
    """
    n, d = a.shape[-2:]
    few = min(n, RANK_ROWS)
    pairs = (a, size_a), (g, size_g)
    if n <= d:
        grams = [x @ x.mT for x, _ in pairs]
        sized = [gram * s[..., None] * s[..., None, :] for gram, (_, s) in zip(grams, pairs, strict=True)]
        squares = [(x * y).sum((-2, -1)).clamp(min=0) for x, y in (grams, sized)]
        moments = [gram[..., :few, :few] for gram in sized]
    else:
        rows = [units * size[..., None] for units, size in pairs]
        squares = [(y.mT @ x).square().sum((-2, -1)) for x, y in ((a, g), rows)]
        first = [x[..., :few, :] for x in rows]
        moments = [x.mT @ x if d <= few else x @ x.mT for x in first]
    return squares, [participation_ratio(moment) for moment in moments]


def participation_ratio(moment: Tensor) -> Tensor:
    """(Σλ)² / Σλ² of a second moment Σ x xᵀ (or of the Gram matrix): how many directions are in use."""
    return moment.diagonal(dim1=-2, dim2=-1).sum(-1).square() / moment.square().sum((-2, -1))


def measure_reading(credits: list[UnitRows], gradients: list[UnitRows]) -> dict[str, Tensor]:
    """The published reading of credit: what a block is told at its output, against the gradient at its input.

    Mean over rows of cos(a_l, g_{l−1}) at tap l; NaN at tap 0 and where the two states differ in size.
    """
    nothing = torch.full_like(credits[0].size[0], torch.nan)
    pairs = zip(credits[1:], gradients[:-1], strict=True)
    found = [mean_cosine(a, g) if a.unit.shape == g.unit.shape else nothing for a, g in pairs]
    return {"cos_input": torch.stack([nothing, *found])}


def measure_skip_credit(credits: list[UnitRows], gradients: list[UnitRows], facts: Facts) -> dict[str, Tensor]:
    """Credit that skips alone would carry down, which is the last tap's: its cosine with the tap's own and with g.

    NaN where a stage above does not add to its input; nothing for a net without such stages, and for exact credit.
    """
    if not any(facts.residual) or not facts.inexact_taps:
        return {}
    top, nothing = credits[-1], torch.full_like(credits[0].size[0], torch.nan)
    found: dict[str, list[Tensor]] = {"skip_cos": [], "skip_alone": []}
    for tap, pair in enumerate(zip(credits, gradients, strict=True)):
        carried = all(facts.residual[tap + 1 :])
        for series, rows in zip(found.values(), pair, strict=True):
            series.append(mean_cosine(top, rows) if carried else nothing)
    return {name: torch.stack(series) for name, series in found.items()}


def measure_handed_on(seen: Observation) -> dict[str, Tensor]:
    """Median over rows of ‖s_l − h_l‖/‖h_l‖, s the states that stages learn at; nothing if these are the forward's."""
    pairs = [(flat_rows(s - h), flat_rows(h)) for s, h in zip(seen.handed_on, seen.states, strict=False)]
    sizes = [(row_norms(moved), row_norms(h)) for moved, h in pairs]
    return {"handed_on": torch.stack([median_where(a / b, usable(b)) for a, b in sizes])} if sizes else {}


def measure_common(gradients: list[UnitRows], credits: list[UnitRows]) -> dict[str, Tensor]:
    """`common_share` of gradient and credit at every tap."""
    sides = {"common": gradients, "common_a": credits}
    return {name: torch.stack([common_share(rows) for rows in taps]) for name, taps in sides.items()}


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
    """Mean pairwise cosine of the mean rows of whole batches, NaN of fewer than two; it grows with the batch."""
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
    told, wanted = (torch.take_along_dim(x, i[..., None], -2) for x, i in ((a.unit, following), (g.unit, order)))
    mean = torch.where(place < count, (told * wanted).sum(-1), 0).sum(-1) / count.squeeze(-1)
    return torch.where(count.squeeze(-1) > 1, mean, torch.nan)
