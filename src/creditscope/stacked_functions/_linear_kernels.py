# pyright: reportMissingImports=false, reportIndexIssue=false, reportOperatorIssue=false
"""Products of linear maps on the tensor cores, at the precision of float32, in Triton, which comes with torch for CUDA.

A factor is split into two TF32 numbers, and three products of these make one of float32 ("tf32x3"); or into three
bfloat16 numbers, and six products ("bf16x6"), which is faster where the axis that is summed does not lie last. Both
round like float32 (tests compare them with float64). Of numbers below 1e-30 the smallest parts are lost.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from creditscope.stacked_functions.devices import works

TILE, INNER = 64, 32
"""Rows and columns of the result that a program makes, and how many factors it adds up at a time."""
MANY_TILES = 512
"""Fewer leave part of a GPU idle; tiles of half the width are more."""
MANY_PROGRAMS, FEW_ROWS = 384, 256
"""A sum over rows is taken in parts, up to so many programs, but no part has fewer rows."""


@triton.jit
def _rows_by_matrix(
    x, matrix, shift, y, rows, inner, outer, x_seed, matrix_seed, matrix_inner, matrix_outer,
    SHIFT: tl.constexpr, PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tile, seed = tl.program_id(0), tl.program_id(1).to(tl.int64)
    columns = tl.cdiv(outer, N)
    m = (tile // columns) * M + tl.arange(0, M)
    n = (tile % columns) * N + tl.arange(0, N)
    k = tl.arange(0, K)
    left = x + seed * x_seed + m[:, None].to(tl.int64) * inner + k[None, :]
    right = matrix + seed * matrix_seed + k[:, None] * matrix_inner + n[None, :] * matrix_outer
    total = tl.zeros((M, N), dtype=tl.float32)
    for start in range(0, inner, K):
        a = tl.load(left, mask=(m[:, None] < rows) & (k[None, :] < inner - start), other=0.0)
        b = tl.load(right, mask=(n[None, :] < outer) & (k[:, None] < inner - start), other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        left += K
        right += K * matrix_inner
    if SHIFT:
        total += tl.load(shift + seed * outer + n, mask=n < outer, other=0.0)[None, :]
    place = y + seed * rows * outer + m[:, None].to(tl.int64) * outer + n[None, :]
    tl.store(place, total, mask=(m[:, None] < rows) & (n[None, :] < outer))


@triton.jit
def _over_rows(
    delta, x, product, total, rows, out, inner, x_seed, part_rows,
    PRECISION: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    tile, part, seed = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    columns = tl.cdiv(inner, N)
    m = (tile // columns) * M + tl.arange(0, M)
    n = (tile % columns) * N + tl.arange(0, N)
    row = part * part_rows + tl.arange(0, K)
    end = tl.minimum(part * part_rows + part_rows, rows)
    above = delta + seed * rows * out + row[:, None].to(tl.int64) * out + m[None, :]
    below = x + seed * x_seed + row[:, None].to(tl.int64) * inner + n[None, :]
    products = tl.zeros((M, N), dtype=tl.float32)
    sums = tl.zeros((M,), dtype=tl.float32)
    for start in range(0, part_rows, K):
        there = row[:, None] + start < end
        a = tl.load(above, mask=there & (m[None, :] < out), other=0.0)
        b = tl.load(below, mask=there & (n[None, :] < inner), other=0.0)
        products = tl.dot(tl.trans(a), b, products, input_precision=PRECISION)
        sums += tl.sum(a, 0)
        above += K * out
        below += K * inner
    place = seed * tl.num_programs(1) + part
    of_tile = m[:, None] * inner + n[None, :]
    tl.store(product + place * out * inner + of_tile, products, mask=(m[:, None] < out) & (n[None, :] < inner))
    if tile % columns == 0:
        tl.store(total + place * out + m, sums, mask=m < out)


def rows_by_matrix(x: Tensor, matrix: Tensor, shift: Tensor | None = None) -> Tensor:
    """x M + b of every seed, (seeds, rows, outer), from (seeds, rows, inner), (seeds, inner, outer), (seeds, outer)."""
    (seeds, rows, inner), outer = x.shape, matrix.shape[2]
    x = _rows_in_order(x)
    y = x.new_empty(seeds, rows, outer)
    wide = triton.cdiv(rows, TILE) * triton.cdiv(outer, TILE) * seeds >= MANY_TILES
    summed_last = matrix.stride(1) == 1
    width, precision = TILE if wide else TILE // 2, "tf32x3" if summed_last or not wide else _split()
    _rows_by_matrix[triton.cdiv(rows, TILE) * triton.cdiv(outer, width), seeds](
        x, matrix, x if shift is None else shift.contiguous(), y, rows, inner, outer, x.stride(0), *matrix.stride(),
        shift is not None, precision, TILE, width, INNER, num_warps=4, num_stages=3,
    )  # fmt: skip
    return y


def over_rows(delta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """δᵀ x and Σ δ of every seed, from (seeds, rows, out) and (seeds, rows, inner)."""
    (seeds, rows, out), inner = delta.shape, x.shape[2]
    delta, x = delta.contiguous(), _rows_in_order(x)
    tiles = triton.cdiv(out, TILE) * triton.cdiv(inner, TILE)
    wanted = min(triton.cdiv(MANY_PROGRAMS, tiles * seeds), max(1, rows // FEW_ROWS))
    part_rows = triton.cdiv(triton.cdiv(rows, wanted), INNER) * INNER
    parts = triton.cdiv(rows, part_rows)
    product, total = x.new_empty(seeds, parts, out, inner), x.new_empty(seeds, parts, out)
    _over_rows[tiles, parts, seeds](
        delta, x, product, total, rows, out, inner, x.stride(0), part_rows,
        _split(), TILE, TILE, INNER, num_warps=4, num_stages=3,
    )  # fmt: skip
    return (product.squeeze(1), total.squeeze(1)) if parts == 1 else (product.sum(1), total.sum(1))


def _rows_in_order(x: Tensor) -> Tensor:
    """Rows without gaps; what the seeds share stays one."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


@cache
def _split() -> str:
    """How factors are split whose summed axis does not lie last; an older Triton knows one way only."""
    square = torch.zeros(1, 16, 16, device="cuda")
    sizes = (16, 16, 16, 0, 16, "bf16x6", TILE, TILE, INNER)
    known = works(lambda: _over_rows[1, 1, 1](square, square, square, square[0], *sizes, num_warps=4, num_stages=3))
    return "bf16x6" if known else "tf32x3"
