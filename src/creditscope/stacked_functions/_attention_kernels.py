# pyright: reportMissingImports=false, reportIndexIssue=false, reportOperatorIssue=false
# pyright: reportPossiblyUnboundVariable=false
"""Attention over few tokens as one kernel forward and one backward, in Triton, which comes with torch for CUDA.

One program is one head of one row. Its tokens are a power of two, which make full tiles, and perhaps one more (a class
token), which would spoil them and is treated as a vector. Only the log of each softmax's denominator is kept.

Products are "tf32x3": each factor is split into two TF32 numbers, and three products of these on the tensor cores make
one of float32, with rounding errors of its size (a test compares them with float64).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _attention_forward(
    q, k, v, out, log_sum, scale,
    T: tl.constexpr, F: tl.constexpr, H: tl.constexpr, ONE_MORE: tl.constexpr,
):  # fmt: skip
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
