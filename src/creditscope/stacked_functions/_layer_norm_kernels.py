# pyright: reportMissingImports=false, reportIndexIssue=false
"""Layer norm of many seeds as one kernel forward and one backward, in Triton, which comes with torch for CUDA.

Each program takes rows of one seed. Mean and scale are computed again in the backward, where the row is read anyway.
The backward also sums over its rows what gain and shift are told; a last sum over programs gives their gradients.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 2048
"""Numbers a program holds at a time."""
ROWS = 32
"""Rows a backward program goes through."""


@triton.jit
def _norm_forward(x, gain, shift, y, rows, features, eps, TALL: tl.constexpr, WIDE: tl.constexpr):
    seed = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * TALL + tl.arange(0, TALL)
    column = tl.arange(0, WIDE)
    within = column < features
    here = (row < rows)[:, None] & within[None, :]
    place = (seed * rows + row)[:, None] * features + column[None, :]
    value = tl.load(x + place, mask=here, other=0.0)
    mean = tl.sum(value, 1) / features
    centred = tl.where(here, value - mean[:, None], 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 1) / features + eps)
    g = tl.load(gain + seed * features + column, mask=within, other=0.0)
    b = tl.load(shift + seed * features + column, mask=within, other=0.0)
    tl.store(y + place, centred * scale[:, None] * g[None, :] + b[None, :], mask=here)


@triton.jit
def _norm_backward(
    x, gain, delta, down, of_gain, of_shift, rows, features, eps,
    SPAN: tl.constexpr, TALL: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    seed = tl.program_id(1).to(tl.int64)
    column = tl.arange(0, WIDE)
    within = column < features
    g = tl.load(gain + seed * features + column, mask=within, other=0.0)
    sum_gain = tl.zeros((WIDE,), dtype=tl.float32)
    sum_shift = tl.zeros((WIDE,), dtype=tl.float32)
    for start in range(0, SPAN, TALL):
        row = tl.program_id(0) * SPAN + start + tl.arange(0, TALL)
        here = (row < rows)[:, None] & within[None, :]
        place = (seed * rows + row)[:, None] * features + column[None, :]
        value = tl.load(x + place, mask=here, other=0.0)
        told = tl.load(delta + place, mask=here, other=0.0)
        mean = tl.sum(value, 1) / features
        centred = tl.where(here, value - mean[:, None], 0.0)
        scale = tl.where(row < rows, 1 / tl.sqrt(tl.sum(centred * centred, 1) / features + eps), 0.0)
        unit = centred * scale[:, None]
        sum_gain += tl.sum(told * unit, 0)
        sum_shift += tl.sum(told, 0)
        inner = told * g[None, :]
        along = tl.sum(inner * unit, 1) / features
        common = tl.sum(inner, 1) / features
        tl.store(down + place, (inner - common[:, None] - unit * along[:, None]) * scale[:, None], mask=here)
    place = (seed * tl.num_programs(0) + tl.program_id(0)) * features + column
    tl.store(of_gain + place, sum_gain, mask=within)
    tl.store(of_shift + place, sum_shift, mask=within)


def _tile(features: int) -> tuple[int, int]:
    """Rows and columns that a program holds at a time."""
    wide = triton.next_power_of_2(features)
    return max(1, TILE // wide), wide


def layer_norm_forward(x: Tensor, gain: Tensor, shift: Tensor, eps: float) -> Tensor:
    """Layer norm of x (seeds, rows, features), contiguous float32."""
    seeds, rows, features = x.shape
    tall, wide = _tile(features)
    y = torch.empty_like(x)
    _norm_forward[triton.cdiv(rows, tall), seeds](x, gain, shift, y, rows, features, eps, tall, wide)
    return y


def layer_norm_backward(x: Tensor, gain: Tensor, delta: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, gain and shift."""
    seeds, rows, features = x.shape
    tall, wide = _tile(features)
    span = max(ROWS, tall)
    programs = triton.cdiv(rows, span)
    down = torch.empty_like(x)
    sums = x.new_empty(2, seeds, programs, features)
    _norm_backward[programs, seeds](x, gain, delta, down, sums[0], sums[1], rows, features, eps, span, tall, wide)
    of_gain, of_shift = sums.sum(2)
    return down, of_gain, of_shift
