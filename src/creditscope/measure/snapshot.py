"""Turn an observation into a snapshot: every measurement on the device, then one transfer to the host."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creditscope.measure.alignment import compare_rows
from creditscope.measure.noise import measure_noise
from creditscope.measure.numerics import error_resolution, flat_rows, row_norms, unit_rows
from creditscope.measure.observation import Observation
from creditscope.measure.scale import measure_scale
from creditscope.measure.weights import Direction, gradient_sizes, measure_update
from creditscope.record.schema import Facts, Snapshot, TapMeasures, WeightMeasures

Measured = dict[str, Tensor]
Tensors = Sequence[Tensor]
TOGETHER = 2**21
"""Entries of a state above which taps are measured one by one: more would cost memory and gain nothing."""


@torch.no_grad()
def take_snapshot(
    seen: Observation,
    facts: Facts,
    *,
    epoch: int,
    step: int = 0,
    last_step: "StepTensors | None" = None,
    scalars: Mapping[str, Tensor] | None = None,
    **given: Any,
) -> Snapshot:
    """All measurements of one moment.

    `last_step` is what the last training step was given and applied; `scalars` are numbers on the device (accuracy,
    training loss) that travel with the rest; `given` are ready fields.
    """
    with torch.autocast(seen.output.device.type, enabled=False):
        e_norms = row_norms(flat_rows(seen.errors.error))
        fitted = seen.errors.covered & (e_norms < error_resolution(e_norms.dtype))
        rows = Rows(e_norms, ~fitted)
        taps = _taps(seen.states, seen.exact, seen.credits, seen.exact64, rows)
        token = {} if facts.class_token is None else _class_token(seen, rows, facts.class_token)
        weights = _weights(seen, last_step) if seen.exact_weights else {}
        counts = {"rows_covered": seen.errors.covered.sum(), "rows_fitted": fitted.sum()}
        single = _gamma(taps, facts) | counts | {"loss": seen.errors.mean_loss} | dict(scalars or {})
        host = to_host([taps, token, weights, single])
    return Snapshot(
        epoch=epoch,
        step=step,
        rows=len(seen.errors.loss),
        taps=TapMeasures(**host[0]),
        class_token=TapMeasures(**host[1]) if token else None,
        weights=WeightMeasures(**host[2]) if weights else None,
        notes=tuple(seen.notes),
        **host[3],
        **given,
    )


@dataclass(frozen=True)
class Rows:
    """‖e‖ of every row, and whether the row is still open: not fitted."""

    e_norms: Tensor
    open: Tensor


def _taps(states: Tensors, exact: Tensors, credits: Tensors, exact64: Tensors | None, rows: "Rows") -> Measured:
    """Every per-tap measurement; taps of equal shape are measured together, as long as they are small."""
    groups: dict[Any, list[int]] = {}
    for tap, h in enumerate(states):
        groups.setdefault(h.shape if h.numel() <= TOGETHER else tap, []).append(tap)
    found: list[Measured] = []
    for taps in groups.values():
        h, g, a = (torch.stack([flat_rows(x[t]) for t in taps]) for x in (states, exact, credits))
        unit_g, g_norms = unit_rows(g)
        g_norms = g_norms * rows.open  # a fitted row has no gradient worth measuring
        measured = measure_scale(h, g_norms, rows.e_norms) | compare_rows(*unit_rows(a), unit_g, g_norms)
        if exact64 is None:
            measured["g_noise"] = g.new_full((len(taps),), math.nan)
        else:
            g64 = torch.stack([flat_rows(exact64[t]) for t in taps])
            measured["g_noise"] = measure_noise(g, g64, rows.open)
        found.append(measured)
    place = {tap: (i, j) for i, taps in enumerate(groups.values()) for j, tap in enumerate(taps)}
    places = [place[tap] for tap in range(len(place))]
    return {key: torch.stack([found[i][key][j] for i, j in places]) for key in found[0]}


def _class_token(seen: Observation, rows: "Rows", token: int) -> Measured:
    """The per-tap measurements of one token alone."""

    def alone(tensors: Tensors) -> list[Tensor]:
        return [t[:, token] for t in tensors]

    exact64 = None if seen.exact64 is None else alone(seen.exact64)
    return _taps(alone(seen.states), alone(seen.exact), alone(seen.credits), exact64, rows)


@dataclass(frozen=True)
class StepTensors:
    """The last training step: the rule's and BP's gradient on its batch, and the update that was applied."""

    gradients: Mapping[str, Tensor]
    exact: Mapping[str, Tensor]
    update: Mapping[str, Tensor]


def _weights(seen: Observation, last: StepTensors | None) -> Measured:
    rows = seen.errors.count
    exact = {name: Direction.of(g) for name, g in seen.exact_weights.items()}
    ruled = exact | {name: Direction.of(g) for name, g in seen.rule_weights.items()}
    found = gradient_sizes(list(ruled.values()), rows)
    found |= {f"exact_{key}": value for key, value in gradient_sizes(list(exact.values()), rows).items()}
    found["cos"] = torch.stack([ruled[name].cosine(exact[name]) for name in exact])
    if last is None:
        unknown = found["norm"].new_full((len(exact),), math.nan)
        names = ("step_norm", "step_all_zero", "step_underflow", "update_cos", "decrease_share")
        return found | dict.fromkeys(names, unknown)
    steps = gradient_sizes([Direction.of(last.gradients[name]) for name in exact], 1)
    found |= {f"step_{key}": value for key, value in steps.items()}
    return found | measure_update(last.update, {name: Direction.of(last.exact[name]) for name in exact})


def _gamma(taps: Measured, facts: Facts) -> Measured:
    """Γ = mean cosine over the block taps, over those without exact credit, and the null sd of the first."""
    cos, null_sd = taps["cos"].unbind(), taps["null_sd"].unbind()
    over = facts.gamma_taps
    inexact = [cos[i] for i in over if i not in facts.exact_taps]
    return {
        "gamma": torch.stack([cos[i] for i in over]).mean(),
        "gamma_inexact": torch.stack(inexact).mean() if inexact else torch.full_like(cos[0], math.nan),
        "gamma_null_sd": torch.stack([null_sd[i] for i in over]).norm() / len(over),
    }


def to_host(groups: list[Measured]) -> list[dict[str, Any]]:
    """Every tensor as plain numbers, in one transfer; counts and flags as int, NaN and infinity as None."""
    tensors = [tensor for group in groups for tensor in group.values()]
    flat = iter(torch.cat([t.detach().reshape(-1).double() for t in tensors]).tolist())

    def number(kind: torch.dtype) -> float | int | None:
        value = next(flat)
        if not math.isfinite(value):
            return None
        return value if kind.is_floating_point else int(value)

    def read(tensor: Tensor) -> Any:
        values = tuple(number(tensor.dtype) for _ in range(tensor.numel()))
        return values if tensor.ndim else values[0]

    return [{key: read(tensor) for key, tensor in group.items()} for group in groups]
