"""Norms and directions that are right from 1e-30 to 1e30; nothing is clamped.

A float32 Σx² underflows below 1e-19 per entry and overflows above 1e19, so every row is first divided
by its largest entry. Rows are the last axis but one, features the last; axes before them (taps, seeds) are kept.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

QUARTILES = (0.25, 0.5, 0.75)


def flat_rows(x: Tensor) -> Tensor:
    """(rows, …) to (rows, features): a sample is the unit, its tokens are one vector."""
    return x.reshape(x.shape[0], -1)


def unit_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows divided by their norm, and the norms; a zero row stays zero, a row with a NaN is all NaN.

    >>> units, norms = unit_rows(torch.tensor([[3e-30, 4e-30], [0.0, 0.0]]))
    >>> [f"{u:.2f}" for u in units.flatten()], [f"{n:.1e}" for n in norms]
    (['0.60', '0.80', '0.00', '0.00'], ['5.0e-30', '0.0e+00'])
    """
    scaled, largest = _scaled(x)
    length = scaled.norm(dim=-1, keepdim=True)
    return scaled.div_(torch.where(length == 0, 1.0, length)), (length * largest).squeeze(-1)


def row_norms(x: Tensor) -> Tensor:
    """‖x_i‖ of every row."""
    scaled, largest = _scaled(x)
    return scaled.norm(dim=-1) * largest.squeeze(-1)


def wide_norms(x: Tensor) -> Tensor:
    """‖x_i‖ of every row (rows, …) in float64, in which no square of a float32 overflows or vanishes: one pass."""
    flat = flat_rows(x)
    if x.dtype == torch.float64:
        return row_norms(flat)
    return torch.linalg.vector_norm(flat, dim=-1, dtype=torch.float64)


def norms(tensors: Sequence[Tensor], order: float = 2) -> list[Tensor]:
    """‖x‖ of whole tensors in float64, likewise."""
    return list(torch._foreach_norm([t.detach() for t in tensors], order, dtype=torch.float64))


@lru_cache(64)
def constants(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers on a device, which is not waited for a second time."""
    return torch.tensor(values, dtype=torch.float64, device=device)


def _scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows over their largest entry in size, and that entry."""
    largest = torch.maximum(x.amax(-1, keepdim=True), -x.amin(-1, keepdim=True)) + 0.0  # + 0: no negative zero
    return x / torch.where(largest == 0, 1.0, largest), largest


def usable(norms: Tensor) -> Tensor:
    """Rows that have a direction: a finite norm that is not zero."""
    return torch.isfinite(norms) & (norms > 0)


def drop_rows_(x: Tensor, keep: Tensor) -> Tensor:
    """Set the rows of x that are not kept to zero, whatever they hold; in place."""
    return x.mul_(keep[..., None]).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)


def relative_sizes(norms: Tensor, keep: Tensor) -> Tensor:
    """Norms over the largest of them, so that their squares neither overflow nor vanish; 0 where not kept."""
    norms = torch.where(keep, norms, 0)
    largest = norms.amax(-1, keepdim=True)
    return norms / torch.where(largest == 0, 1.0, largest)


@dataclass(frozen=True)
class UnitRows:
    """Rows as directions (…, rows, features) and sizes over the largest; those not kept are zero in both."""

    unit: Tensor
    size: Tensor
    keep: Tensor

    @classmethod
    def of(cls, x: Tensor, among: Tensor | None = None) -> "UnitRows":
        """Rows of x that have a direction, those `among` a mask if there is one."""
        unit, norms = unit_rows(x)
        keep = usable(norms) if among is None else usable(norms) & among
        return cls(drop_rows_(unit, keep), relative_sizes(norms, keep), keep)


def mean_where(values: Tensor, keep: Tensor) -> Tensor:
    """Mean over rows (the last axis) of the values kept; NaN if none is."""
    return torch.where(keep, values, 0).sum(-1) / keep.sum(-1)


def mean_cosine(a: UnitRows, g: UnitRows) -> Tensor:
    """The mean over rows that both have."""
    return mean_where((a.unit * g.unit).sum(-1), a.keep & g.keep)


def quartiles_where(values: Tensor, keep: Tensor) -> Tensor:
    """Lower quartile, median and upper quartile over rows of the values kept, first axis; NaN if none is.

    Linear between neighbours, as `torch.nanquantile`, which cannot be mapped over seeds.
    """
    keep = keep & ~values.isnan()
    ordered = torch.where(keep, values, torch.nan).sort(dim=-1).values  # NaN last
    top = keep.sum(-1, keepdim=True) - 1

    def between(rank: Tensor) -> Tensor:
        below = rank.floor().clamp(min=0)  # no rank is below 0
        low, high = (ordered.gather(-1, i.long()).squeeze(-1) for i in (below, rank.ceil().clamp(min=0)))
        return torch.lerp(low, high, (rank - below).squeeze(-1).to(ordered.dtype))

    return torch.stack([between(level * top) for level in QUARTILES])


def median_where(values: Tensor, keep: Tensor) -> Tensor:
    """Median over rows of the values kept; NaN if none is."""
    return quartiles_where(values, keep)[1]


def angles(a: Tensor, g: Tensor, cosines: Tensor) -> Tensor:
    """Angle in degrees between unit rows with these cosines, by 2·asin(½·‖â ∓ ĝ‖): accurate near 0 and 180.

    Not by atan2, which on a CPU rounds the last few of all rows otherwise, so that a seed would feel its place.
    """
    sign = torch.where(cosines < 0, -1.0, 1.0).to(a.dtype)
    short = (a - sign[..., None] * g).norm(dim=-1)
    acute = torch.rad2deg(2 * torch.asin(short / 2))
    return torch.where(sign > 0, acute, 180 - acute)
