"""Statistics of the states of many modules at once: samples of one shape are measured together, after the forward."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creditscope.measure.numerics import constants

ROWS, FEATURES = 64, 128
"""Of a sample, at most; spread evenly."""
NEAR = 0.025
"""How near its bounds, as a share of the half range, an entry is saturated: the slope is below a twentieth."""
PLAIN = (1e-15, 1e15)
"""Norms between these are right in float32 as they stand."""

Measured = dict[str, Tensor]


def spread(state: Tensor, rows: int) -> Tensor:
    """At most so many rows."""
    return state[:: max(1, -(-len(state) // rows))]


def few_entries(state: Tensor) -> Tensor:
    """A few rows and features as a matrix; by an odd step, which does not stay in one column of a row of tokens."""
    rows = spread(state, ROWS).flatten(1)
    step = max(1, -(-rows.shape[1] // FEATURES))
    return rows[:, :: step + (step > 1 and step % 2 == 0)].float()


@dataclass(frozen=True)
class Sample:
    """What is kept of one state until all are measured."""

    few: Tensor
    norm: Tensor
    """Of all entries."""
    entries: int
    by_rows: bool
    tokens: Tensor | None
    """A few rows with all their tokens and a few features."""

    @classmethod
    def of(cls, state: Tensor, *, by_rows: bool) -> "Sample":
        tokens = None
        if by_rows and state.ndim == 3 and state.shape[1] > 1:
            tokens = spread(state, ROWS)
            tokens = tokens[..., :: max(1, -(-tokens[0].numel() // FEATURES))].float()
        norm = torch.linalg.vector_norm(state, dtype=torch.promote_types(state.dtype, torch.float32)).double()
        few = few_entries(state)
        few = few.clone() if few.data_ptr() == state.data_ptr() else few  # a module may work in place on it
        return cls(few, norm, state.numel(), by_rows, tokens)


def measure_samples(samples: Sequence[Sample]) -> list[Measured]:
    """RMS and share of finite entries; of rows their dispersion, and that of their tokens, over the RMS, and rank.

    The RMS is that of all entries; the others are of the sample, rank the participation ratio of its centred rows.
    """
    found: list[Measured] = [{} for _ in samples]
    _in_groups([s.few for s in samples], _of_matrices, found)
    _in_groups([s.tokens for s in samples], _of_tokens, found)
    if samples:
        norms = torch.stack([s.norm for s in samples])
        counts = constants(tuple(s.entries for s in samples), norms.device)
        estimate, known = (torch.stack([one[name] for one in found]) for name in ("rms", "finite"))
        plain = (norms > PLAIN[0]) & (norms < PLAIN[1])
        rms = torch.where(plain, norms / counts.sqrt(), estimate)
        too_large = norms.isinf() & (known == 1) & (estimate > PLAIN[1])  # not the entries, their squares
        finite = torch.where(norms.isfinite() | too_large, 1.0, known.clamp(max=0.999))
        for sample, one, r, f in zip(samples, found, rms.unbind(), finite.unbind(), strict=True):
            one["rms"], one["finite"] = r, f
            if not sample.by_rows:
                del one["dispersion"], one["rank"]
    return found


def dispersions(matrices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Of the rows of matrices, over their size: √(mean variance / mean square); None stays None."""
    found: list[Measured] = [{} for _ in matrices]
    _in_groups(matrices, _of_matrices, found)
    return [one.get("dispersion") for one in found]


def _in_groups(
    tensors: Iterable[Tensor | None], measure: Callable[[Tensor], Measured], found: Sequence[dict[str, Any]]
) -> None:
    """`measure` of all tensors of one shape in one go; each adds to what was found of its own."""
    groups: dict[torch.Size, list[tuple[Tensor, dict[str, Any]]]] = {}
    for tensor, own in zip(tensors, found, strict=True):
        if tensor is not None:
            groups.setdefault(tensor.shape, []).append((tensor, own))
    for group in groups.values():
        measured = measure(torch.stack([tensor for tensor, _ in group]))
        for name, values in measured.items():
            for (_, own), value in zip(group, values.unbind(), strict=True):
                own[name] = value


def _of_matrices(x: Tensor) -> Measured:
    """Of (samples, rows, features); by way of entries over the largest, so that no square overflows or vanishes."""
    largest = _largest(x)
    scaled = x / torch.where(largest > 0, largest, 1.0)[:, None, None]
    whole = torch.linalg.vector_norm(scaled.flatten(1), dim=1)
    centred = scaled - scaled[:, :1]  # so that rows which are alike differ by nothing, not by rounding of their mean
    centred = centred - centred.mean(1, keepdim=True)
    size = _largest(centred).clamp(min=torch.finfo(x.dtype).tiny)
    centred /= size[:, None, None]
    gram = centred @ centred.mT
    squares = gram.diagonal(dim1=1, dim2=2).sum(-1)
    return {
        "rms": whole.double() * largest / x[0].numel() ** 0.5,
        "finite": (x.abs() <= torch.finfo(x.dtype).max).flatten(1).float().mean(1),
        "dispersion": squares.sqrt() * size / whole,
        "rank": squares.square() / gram.square().sum((1, 2)),
    }


def _largest(x: Tensor) -> Tensor:
    """The largest entry in size of each sample."""
    flat = x.flatten(1)
    return torch.maximum(flat.amax(1), -flat.amin(1))


def _of_tokens(x: Tensor) -> Measured:
    """Of (samples, rows, tokens, features)."""
    size = _largest(x).clamp(min=torch.finfo(x.dtype).tiny)
    x = x / size[:, None, None, None]
    apart = x - x[:, :, :1]
    apart = apart - apart.mean(2, keepdim=True)
    apart, whole = (torch.linalg.vector_norm(t.flatten(1), dim=1) for t in (apart, x))
    return {"token_dispersion": apart / whole}


@dataclass(frozen=True)
class Bounds:
    """A sample whose entries may lie at bounds: `lower` is that of its function (the upper is 1), None if unknown."""

    few: Tensor
    lower: float | None
    dead: Tensor | None = None
    """Share of dead units, if what gave the sample is a rectifier."""
    lowest: float = 0.0
    """No rectifier gives less."""


def measure_bounds(samples: Sequence[Bounds]) -> list[Measured]:
    """The share of entries next to a bound, and of dead units; NaN where the function is none of that kind."""
    found: list[Measured] = [{} for _ in samples]
    _in_groups([s.few for s in samples], _at_bounds, found)
    results = []
    for sample, one in zip(samples, found, strict=True):
        if sample.lower is not None:
            results.append({"saturated": one["as_tanh" if sample.lower < 0 else "as_sigmoid"]})
        else:
            dead = torch.where(one["low"] >= sample.lowest, sample.dead, torch.nan) if sample.dead is not None else None
            results.append({"saturated": one["as_if"]} | ({} if dead is None else {"dead": dead}))
    return results


def _at_bounds(x: Tensor) -> Measured:
    """Shares as of tanh and as of a sigmoid; `as_if`: where the range is one of theirs and they fill it, else NaN.

    What a ReLU gives may end below 1, too; but then not many entries lie there.
    """
    x = x.flatten(1)
    low, high = x.amin(1), x.amax(1)
    as_tanh = (x.abs() > 1 - NEAR).float().mean(1)
    as_sigmoid = ((2 * x - 1).abs() > 1 - NEAR).float().mean(1)
    full = (high <= 1) & (high > 1 - NEAR)
    is_tanh = full & (low >= -1) & (low < NEAR - 1)
    at_top = (x > 1 - NEAR / 2).float().mean(1)
    is_sigmoid = full & (low >= 0) & (low < NEAR) & (at_top > 0.1)
    as_if = torch.where(is_tanh, as_tanh, torch.where(is_sigmoid, as_sigmoid, torch.nan))
    return {"low": low, "as_tanh": as_tanh, "as_sigmoid": as_sigmoid, "as_if": as_if}
