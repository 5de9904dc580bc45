# pyright: reportMissingImports=false, reportIndexIssue=false, reportOperatorIssue=false
# pyright: reportPossiblyUnboundVariable=false
"""Attention over few tokens, layer norm and linear maps of many seeds, in Triton, which comes with torch for CUDA.

Products have the precision of float32 on the tensor cores: a factor is split into two TF32 numbers, and three products
of these make one of float32 ("tf32x3"); or into three bfloat16 numbers, and six products ("bf16x6"), which is faster
where the axis that is summed does not lie last. Both round like float32 (tests compare them with float64). Of numbers
below 1e-30 the smallest parts are lost.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from creditscope.stacked_functions.devices import works

NORM_TILE, NORM_ROWS = 2048, 32
"""Numbers that a program of layer norm holds at a time, and rows that one of its backward goes through."""
TILE, INNER = 64, 32
"""Rows and columns of the result that a program makes, and how many factors it adds up at a time."""
MANY_TILES = 512
"""Fewer leave part of a GPU idle; tiles of half the width are more."""
MANY_PROGRAMS, FEW_ROWS = 384, 256
"""A sum over rows is taken in parts, up to so many programs, but no part has fewer rows."""


@triton.jit
def _attention_forward(
    q, k, v, out, log_sum, scale,
    T: tl.constexpr, F: tl.constexpr, H: tl.constexpr, ONE_MORE: tl.constexpr,
):  # fmt: skip
    # one program is one head of one row; its tokens are a power of two, which make full tiles, and perhaps one more (a
    # class token), which would spoil them and is treated as a vector; of each softmax the log of the sum is kept
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tokens: tl.constexpr = T + ONE_MORE
    start = row * tokens * H * F + head * F
    t, f = tl.arange(0, T), tl.arange(0, F)
    place = start + (t + ONE_MORE)[:, None] * (H * F) + f[None, :]
    sums = log_sum + (row * H + head) * tokens
    queries, keys, values = tl.load(q + place), tl.load(k + place), tl.load(v + place)
    score = tl.dot(queries, tl.trans(keys), input_precision="tf32x3") * scale
    top = tl.max(score, 1)
    if ONE_MORE:
        q1, k1, v1 = tl.load(q + start + f), tl.load(k + start + f), tl.load(v + start + f)
        column = tl.sum(queries * k1[None, :], 1) * scale
        top = tl.maximum(top, column)
    weight = tl.exp(score - top[:, None])
    total = tl.sum(weight, 1)
    if ONE_MORE:
        weight1 = tl.exp(column - top)
        total += weight1
        mixed = tl.dot(weight, values, input_precision="tf32x3") + weight1[:, None] * v1[None, :]
        line = tl.sum(keys * q1[None, :], 1) * scale
        corner = tl.sum(q1 * k1, 0) * scale
        top1 = tl.maximum(tl.max(line, 0), corner)
        weight_line, weight_corner = tl.exp(line - top1), tl.exp(corner - top1)
        total1 = tl.sum(weight_line, 0) + weight_corner
        mixed1 = (tl.sum(values * weight_line[:, None], 0) + weight_corner * v1) / total1
        tl.store(out + start + f, mixed1)
        tl.store(sums, top1 + tl.log(total1))
    else:
        mixed = tl.dot(weight, values, input_precision="tf32x3")
    tl.store(out + place, mixed / total[:, None])
    tl.store(sums + ONE_MORE + t, top + tl.log(total))


@triton.jit
def _attention_backward(
    q, k, v, out, delta, log_sum, dq, dk, dv, scale,
    T: tl.constexpr, F: tl.constexpr, H: tl.constexpr, ONE_MORE: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    tokens: tl.constexpr = T + ONE_MORE
    start = row * tokens * H * F + head * F
    t, f = tl.arange(0, T), tl.arange(0, F)
    place = start + (t + ONE_MORE)[:, None] * (H * F) + f[None, :]
    sums = log_sum + (row * H + head) * tokens
    queries, keys, values, told = tl.load(q + place), tl.load(k + place), tl.load(v + place), tl.load(delta + place)
    inner = tl.sum(told * tl.load(out + place), 1)
    log_total = tl.load(sums + ONE_MORE + t)
    weight = tl.exp(tl.dot(queries, tl.trans(keys), input_precision="tf32x3") * scale - log_total[:, None])
    of_values = tl.dot(tl.trans(weight), told, input_precision="tf32x3")
    of_weight = tl.dot(told, tl.trans(values), input_precision="tf32x3")
    of_score = weight * (of_weight - inner[:, None]) * scale
    of_queries = tl.dot(of_score, keys, input_precision="tf32x3")
    of_keys = tl.dot(tl.trans(of_score), queries, input_precision="tf32x3")
    if ONE_MORE:
        q1, k1, v1 = tl.load(q + start + f), tl.load(k + start + f), tl.load(v + start + f)
        told1 = tl.load(delta + start + f)
        inner1 = tl.sum(told1 * tl.load(out + start + f), 0)
        log_total1 = tl.load(sums)
        # the other tokens' look at it
        column = tl.exp(tl.sum(queries * k1[None, :], 1) * scale - log_total)
        of_column = column * (tl.sum(told * v1[None, :], 1) - inner) * scale
        of_queries += of_column[:, None] * k1[None, :]
        # its look at the other tokens
        line = tl.exp(tl.sum(keys * q1[None, :], 1) * scale - log_total1)
        of_line = line * (tl.sum(values * told1[None, :], 1) - inner1) * scale
        of_keys += of_line[:, None] * q1[None, :]
        of_values += line[:, None] * told1[None, :]
        # and at itself
        corner = tl.exp(tl.sum(q1 * k1, 0) * scale - log_total1)
        of_corner = corner * (tl.sum(told1 * v1, 0) - inner1) * scale
        tl.store(dq + start + f, tl.sum(keys * of_line[:, None], 0) + of_corner * k1)
        tl.store(dk + start + f, tl.sum(queries * of_column[:, None], 0) + of_corner * q1)
        tl.store(dv + start + f, tl.sum(told * column[:, None], 0) + corner * told1)
    tl.store(dq + place, of_queries)
    tl.store(dk + place, of_keys)
    tl.store(dv + place, of_values)


def attention_forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Mixed values, and logs of the sums, of q, k, v (rows, tokens, heads, features), contiguous float32."""
    rows, tokens, heads, features = q.shape
    out, log_sum = torch.empty_like(q), q.new_empty(rows, heads, tokens)
    more = tokens % 2
    _attention_forward[rows, heads](q, k, v, out, log_sum, features**-0.5, tokens - more, features, heads, more)
    return out, log_sum


def attention_backward(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of q, k and v."""
    rows, tokens, heads, features = q.shape
    dq, dk, dv = (torch.empty_like(q) for _ in range(3))
    more = tokens % 2
    shape = (features**-0.5, tokens - more, features, heads, more)
    _attention_backward[rows, heads](q, k, v, out, delta, log_sum, dq, dk, dv, *shape)
    return dq, dk, dv


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
    # mean and scale are computed again, because the row is read anyway; what gain and shift are told is summed over a
    # program's rows here, and over programs at last
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
    return max(1, NORM_TILE // wide), wide


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
    span = max(NORM_ROWS, tall)
    programs = triton.cdiv(rows, span)
    down = torch.empty_like(x)
    sums = x.new_empty(2, seeds, programs, features)
    _norm_backward[programs, seeds](x, gain, delta, down, sums[0], sums[1], rows, features, eps, span, tall, wide)
    of_gain, of_shift = sums.sum(2)
    return down, of_gain, of_shift


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
