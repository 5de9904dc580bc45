"""The rotation null: the law of the mean cosine when all credit is turned by one random rotation.

cos = (1/n) Σ ĝ_iᵀ R â_i with R Haar-distributed has mean 0 and variance ‖M‖²_F / d, where
M = (1/n) Σ ĝ_i â_iᵀ. Samples of one batch share R, so n does not help as in a t-test over rows.

A state with places (tokens, pixels) can be turned as a whole, or in its features only, alike at every place: then
M = (1/n) Σ_i Σ_t ĝ_it â_itᵀ is d × d, for d features. Feedback that places share is of the second kind, and that spread
is up to √places times the first. Features are the last axis of tokens and the channels of images. The null is the wider
of the two.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor

FEW_FEATURES = 16
"""Below so many features that can turn, a normal law is wrong in its tails: quantiles come from simulated rotations."""
TURNS = 4000
"""Simulated rotations."""
ENTRIES = 2**22
"""Of rotations that are made in one go."""
UPPER = 0.99
NORMAL_POINT = 2.3263478740408408
"""The 99 % point of a normal law."""


def places_and_features(shape: tuple[int, ...]) -> tuple[int, int]:
    """(places, d) of a row's state: tokens (T, d), images (C, H, W) with d = C; anything flat is one place.

    >>> places_and_features((256,)), places_and_features((65, 128)), places_and_features((16, 8, 8))
    ((1, 256), (65, 128), (64, 16))
    """
    if len(shape) < 2:
        return 1, math.prod(shape)
    if len(shape) == 2:
        return shape
    return math.prod(shape[1:]), shape[0]


def by_place(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Flattened rows (…, n, places·d) as (…, n·places, d): a row per place."""
    leading, (_, d) = x.shape[:-2], places_and_features(shape)
    x = x.unflatten(-1, shape)
    return (x.movedim(-len(shape), -1) if len(shape) > 2 else x).reshape(*leading, -1, d)


def rotation_quantile(moment: Tensor, sd: Tensor) -> Tensor:
    """The 99 % point of tr(Rᵀ M) for a Haar rotation R, M (…, d, d): normal, or simulated where d is small."""
    d = moment.shape[-1]
    if d >= FEW_FEATURES:
        return NORMAL_POINT * sd
    turns = _simulated_rotations(d, moment.device)
    traces = moment.double().flatten(-2) @ turns.flatten(-2).mT  # so that no last bit depends on how many go together
    return traces.topk(round(TURNS * (1 - UPPER)), dim=-1).values[..., -1].to(moment.dtype)


@cache
def _simulated_rotations(d: int, device: torch.device) -> Tensor:
    """The same rotations whenever they are asked for, (turns, d, d), kept on the device: only the first use waits.

    By NumPy, because `vmap` forbids torch's draws.
    """
    q, r = np.linalg.qr(np.random.default_rng(d).standard_normal((TURNS, d, d)))
    return torch.from_numpy(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[:, None, :]).to(device)


def turned_rows(x: Tensor, generator: torch.Generator, turns: int) -> list[Tensor]:
    """x R for rows x (n, d) and so many Haar rotations R, each shared by all rows; drawn on the CPU."""
    return [turned for (turned,) in turn_all([x], generator, turns)]


def turn_all(matrices: Sequence[Tensor], generator: torch.Generator, turns: int) -> list[tuple[Tensor, ...]]:
    """The same of several matrices at every turn, each by a rotation of its own.

    With fewer rows than features no d×d matrix is needed: x = T Vᵀ with an n×n corner T, and Vᵀ R is distributed as the
    transpose of any d×n matrix with Haar-distributed orthonormal columns. Draws are in float32, which a CPU makes seven
    times as fast; what is made of them is orthogonal in float64.
    """
    if not turns:
        return []
    sizes = [(x.shape[1], min(x.shape)) for x in matrices]
    corners = [x if len(x) >= x.shape[1] else torch.linalg.qr(x.mT, mode="r").R.mT for x in matrices]
    at_once, found = max(1, ENTRIES // max(1, sum(d * n for d, n in sizes))), []
    for start in range(0, turns, at_once):
        drawn = [[torch.randn(size, generator=generator) for size in sizes] for _ in range(turns - start)[:at_once]]
        turned = [_turn(corner, own) for corner, own in zip(corners, zip(*drawn, strict=True), strict=True)]
        found += zip(*turned, strict=True)
    return found


def _turn(corner: Tensor, drawn: Sequence[Tensor]) -> list[Tensor]:
    frames = haar_frames(torch.stack(list(drawn)).to(corner.device).double()).to(corner)
    return list(corner @ (frames if corner.shape[1] == frames.shape[-2] else frames.mT))


def haar_frames(drawn: Tensor) -> Tensor:
    """n ≤ d orthonormal columns each, Haar-distributed: the Q of Gaussians (…, d, n), where R's diagonal is above 0."""
    if drawn.device.type == "cuda":
        return frames_by_products(drawn)
    q, r = torch.linalg.qr(drawn)
    return q * r.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def frames_by_products(drawn: Tensor) -> Tensor:
    """The same by shifted Cholesky QR (Fukaya et al. 2020), all at once: a GPU would do one QR after the other.

    The shift makes the first Cholesky exist however badly conditioned what was drawn is; two more passes restore
    orthogonality.
    """
    d, n = drawn.shape[-2:]
    shift = 11 * n * (d + n + 1) * torch.finfo(drawn.dtype).eps
    for passes in range(3):
        squares = drawn.mT @ drawn
        if not passes:
            diagonal = squares.diagonal(dim1=-2, dim2=-1)
            diagonal += shift * diagonal.sum(-1, keepdim=True)
        corner = torch.linalg.cholesky_ex(squares).L
        drawn = torch.linalg.solve_triangular(corner, drawn.mT, upper=False).mT
    return drawn
