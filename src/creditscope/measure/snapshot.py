"""Turn an observation into a snapshot: every measurement on the device, then one transfer to the host."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from creditscope.measure.alignment import compare_rows, rank_of_rows
from creditscope.measure.movement import WeightSample, measure_movement, unit_spreads
from creditscope.measure.numerics import (
    constants,
    flat_rows,
    median_where,
    norms,
    quartiles_where,
    row_norms,
    unit_rows,
    usable,
    wide_norms,
)
from creditscope.measure.observation import Observation, fitted_rows, map_seeds
from creditscope.measure.outputs import measure_output
from creditscope.measure.weights import (
    Direction,
    find_rounding,
    gradient_sizes,
    leave_out,
    measure_update,
    plain_norm,
)
from creditscope.record.schema import (
    Facts,
    LayerMeasures,
    ModuleMeasures,
    OutputMeasures,
    Snapshot,
    TapMeasures,
    WeightMeasures,
)

Measured = dict[str, Tensor]
Host = dict[str, Any]
TOGETHER = 2**21
"""Entries of a state above which taps are measured one by one: more would cost memory and gain nothing."""
NOT_OF_WATCHED = ("step_norm", "step_all_zero", "step_underflow", "update_cos", "decrease_share")
"""What only a trainer knows of weights."""
OVERFLOWED = 1e30
"""Noise of a row whose gradient is not finite."""


@dataclass(frozen=True)
class LastStep:
    """The last training step: the rule's and BP's gradient on its batch, the update that was applied, and ‖e‖."""

    gradients: Mapping[str, Tensor]
    exact: Mapping[str, Tensor]
    update: Mapping[str, Tensor]
    error: Tensor
    """The root of its mean square over rows."""


@torch.no_grad()
def take_snapshots(
    seen: Observation,
    facts: Facts,
    *,
    epoch: int,
    step: int = 0,
    last_step: LastStep | None = None,
    scalars: Mapping[str, Tensor] | None = None,
    layers: Measured | None = None,
    samples: tuple[WeightSample, WeightSample | None] | None = None,
) -> list[Snapshot]:
    """All measurements of one moment, one snapshot for each seed; they come to the host in one transfer.

    `scalars` are numbers on the device (accuracy, training loss) and `layers` the measures of `measure_layers`, which
    travel with the rest; `samples` are those of the weights now and at the snapshot before, of a watched model.
    """

    def measure(seen: Observation, last: dict[str, Any] | None, scalars: dict[str, Tensor]) -> list[Measured]:
        return _measure(seen, facts, LastStep(**last) if last else None, scalars)

    given, rows = (vars(last_step) if last_step else None, dict(scalars or {})), seen.errors.loss.shape[-1]
    with torch.autocast(seen.output.device.type, enabled=False):
        measured = measure(seen, *given) if seen.seeds is None else map_seeds(measure, seen, *given)
        if seen.modules is not None:
            seen.modules.measure()
            measured[2] |= _of_watched(seen, samples)
            others = [seen.modules.results(facts.modules), measure_output(seen.errors)]
        else:
            others = [{}, {}]
        hosts = to_host([*measured, layers or {}, *others, seen.asides if seen.seeds is None else {}], seeds=seen.seeds)
        asides = [host.pop() for host in hosts]
        seen.asides = asides[0]
    return [_snapshot(*host, notes=tuple(seen.notes), rows=rows, epoch=epoch, step=step) for host in hosts]


def _measure(seen: Observation, facts: Facts, last_step: LastStep | None, scalars: dict[str, Tensor]) -> list[Measured]:
    """Measurements per tap, per tap on the class token, per weight, and single ones; all on the device."""
    e_norms, fitted = fitted_rows(seen.errors)
    given = seen.modules is not None and all(a is g for a, g in zip(seen.credits, seen.exact, strict=True))
    of_taps, of_weights = (_taps_given_gradients, _weights_given_gradients) if given else (_taps, _weights)
    taps = of_taps(seen, e_norms, ~fitted)
    token = {} if facts.class_token is None else of_taps(_at_token(seen, facts.class_token), e_norms, ~fitted)
    weights = of_weights(seen, last_step) if seen.exact_weights else {}
    counts = {"rows_covered": seen.errors.covered.sum(), "rows_fitted": fitted.sum()}
    single = _gamma(taps, facts) | counts | {"loss": seen.errors.mean_loss} | scalars
    return [taps, token, weights, single | ({"step_error": last_step.error} if last_step else {})]


def _snapshot(
    taps: Host, token: Host, weights: Host, single: Host, layers: Host, modules: Host, output: Host, **others: Any
) -> Snapshot:
    return Snapshot(
        taps=TapMeasures(**taps),
        class_token=TapMeasures(**token) if token else None,
        weights=WeightMeasures(**weights) if weights else None,
        layers=LayerMeasures(**layers) if layers else None,
        modules=ModuleMeasures(**modules) if modules else None,
        output=OutputMeasures(**output) if output else None,
        **single,
        **others,
    )


def _taps(seen: Observation, e_norms: Tensor, unfitted: Tensor) -> Measured:
    """Every per-tap measurement; taps of equal shape are measured together, as long as they are small.

    `e_norms` is ‖e‖ of every row, and `unfitted` says which rows have a gradient worth measuring.
    """
    groups: dict[Any, list[int]] = {}
    for tap, h in enumerate(seen.states):
        groups.setdefault(h.shape if h.numel() <= TOGETHER else tap, []).append(tap)
    found: dict[int, Measured] = {}
    for taps in groups.values():
        h, g, a = (torch.stack([flat_rows(x[t]) for t in taps]) for x in (seen.states, seen.exact, seen.credits))
        unit_g, g_norms = unit_rows(g)
        g_norms = g_norms * unfitted
        measured = measure_scale(h, g_norms, e_norms)
        measured |= compare_rows(*unit_rows(a), unit_g, g_norms, tuple(seen.states[taps[0]].shape[1:]))
        if seen.exact64 is None:
            measured["g_noise"] = g.new_full((len(taps),), math.nan)
        else:
            measured["g_noise"] = measure_noise(g, torch.stack([flat_rows(seen.exact64[t]) for t in taps]), unfitted)
        found |= {tap: {key: values[i] for key, values in measured.items()} for i, tap in enumerate(taps)}
    return {key: torch.stack([found[tap][key] for tap in range(len(found))]) for key in found[0]}


def _taps_given_gradients(seen: Observation, e_norms: Tensor, unfitted: Tensor) -> Measured:
    """The same of a watched model whose credit is the gradient: it is not compared with itself, and has no null."""
    h_norms, g_norms = (torch.stack([wide_norms(x) for x in side]) for side in (seen.states, seen.exact))
    g_norms = g_norms * unfitted
    sizes = constants(tuple(h.numel() for h in seen.states), g_norms.device)
    has = usable(g_norms)
    some = torch.where(has.any(-1), 1.0, torch.nan)
    ranks = [rank_of_rows(flat_rows(g), keep) for g, keep in zip(seen.exact, has, strict=True)]
    unknown, without, noise = torch.full_like(some, torch.nan), (~has).sum(-1), torch.full_like(some, torch.nan)
    if seen.exact64 is not None:
        pairs = zip(seen.exact, seen.exact64, strict=True)
        noise = torch.stack([measure_noise(flat_rows(g), flat_rows(g64), unfitted) for g, g64 in pairs])
    beside = {}
    if seen.exact32 is not None and seen.exact64 is not None:
        pairs = zip(seen.exact32, seen.exact64, strict=True)
        beside["g_noise_float32"] = torch.stack(
            [measure_noise(flat_rows(g), flat_rows(g64), unfitted) for g, g64 in pairs]
        )
    return {
        **beside,
        **scale_of_norms(h_norms, sizes.sqrt(), g_norms, e_norms),
        **dict.fromkeys(("cos", "cos_F", "ratio"), some),
        "angle": some - 1,
        **dict.fromkeys(("null_sd", "null_sd_F", "null_q99", "z"), unknown),
        **dict.fromkeys(("rank_a", "rank_g"), torch.stack(ranks)),
        "rows_used": has.sum(-1),
        **dict.fromkeys(("rows_no_gradient", "rows_no_credit"), without),
        "g_noise": noise,
    }


def _at_token(seen: Observation, token: int) -> Observation:
    """What was seen at one token alone."""
    names = [name for name in ("states", "exact", "credits", "exact64", "exact32") if getattr(seen, name) is not None]
    return replace(seen, **{name: [t[:, token] for t in getattr(seen, name)] for name in names})


def _weights(seen: Observation, last: LastStep | None) -> Measured:
    rows = seen.errors.count
    exact = {name: Direction.of(g) for name, g in seen.exact_weights.items()}
    ruled = exact | {name: Direction.of(g) for name, g in seen.rule_weights.items()}
    found = gradient_sizes(list(ruled.values()), rows)
    found |= {f"exact_{key}": value for key, value in gradient_sizes(list(exact.values()), rows).items()}
    found["exact_float32"] = torch.stack([plain_norm(g / rows) for g in seen.exact_weights.values()])
    found["w_norm"] = torch.stack([Direction.of(seen.weights[name]).norm for name in exact])
    rounding = find_rounding(seen.exact_weights, seen.exact64_weights)
    found["cos"] = leave_out(torch.stack([ruled[name].cosine(exact[name]) for name in exact]), rounding)
    if last is None:
        unknown = found["norm"].new_full((len(exact),), math.nan)
        return found | dict.fromkeys(NOT_OF_WATCHED, unknown)
    steps = gradient_sizes([Direction.of(last.gradients[name]) for name in exact], 1)
    found |= {f"step_{key}": value for key, value in steps.items()}
    found |= measure_update(last.update, {name: Direction.of(last.exact[name]) for name in exact})
    return found | {"update_cos": leave_out(found["update_cos"], rounding)}


def _weights_given_gradients(seen: Observation, last: LastStep | None) -> Measured:
    """The same of a watched model whose credit is the gradient, all weights at once."""
    rows, g = seen.errors.count, list(seen.exact_weights.values())
    norm, w_norm = (torch.stack(norms(x)) for x in (g, [seen.weights[name] for name in seen.exact_weights]))
    largest = torch.stack(norms(g, torch.inf)) / rows
    zero, underflow = largest == 0, (largest.float().square() == 0) & (largest != 0)
    rounding = find_rounding(seen.exact_weights, seen.exact64_weights)
    unknown = torch.full_like(norm, torch.nan)
    return {
        **dict.fromkeys(("norm", "exact_norm"), norm / rows),
        **dict.fromkeys(("all_zero", "exact_all_zero"), zero),
        **dict.fromkeys(("underflow", "exact_underflow"), underflow),
        "cos": leave_out(torch.where(usable(norm), 1.0, unknown), rounding),
        "w_norm": w_norm,
        **dict.fromkeys(NOT_OF_WATCHED, unknown),
    }


def _of_watched(seen: Observation, samples: tuple[WeightSample, WeightSample | None] | None) -> Measured:
    """Whether a gradient reaches each weight, and how far it moved since the snapshot before."""
    if not seen.exact_weights:
        return {}
    reached = constants(tuple(name not in seen.unreached for name in seen.exact_weights), seen.output.device) > 0
    spreads = unit_spreads([seen.weights[name] for name in seen.exact_weights])
    lost = {} if seen.lost is None else {"lost": torch.stack(seen.lost)}
    return {"reached": reached, "unit_spread": spreads} | lost | (measure_movement(*samples) if samples else {})


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


def to_host(groups: list[Measured], seeds: int | None = None) -> list[list[Host]]:
    """Every tensor as plain numbers, in one transfer, one list of groups per seed (one list if there is no such axis).

    Counts and flags become int, NaN and infinity None.
    """
    single = seeds is None
    tensors = [tensor for group in groups for tensor in group.values()]
    rows = [t.detach().reshape(seeds or 1, -1).double() for t in tensors]
    table = torch.cat(rows, dim=1).tolist() if rows else [[]] * (seeds or 1)

    def read(tensor: Tensor, flat: Iterator[float]) -> Any:
        whole = not tensor.dtype.is_floating_point
        count = tensor.numel() // (seeds or 1)
        values = tuple(None if not math.isfinite(v) else int(v) if whole else v for v in islice(flat, count))
        return values if tensor.ndim > (0 if single else 1) else values[0]

    hosts = []
    for row in table:
        flat = iter(row)
        hosts.append([{key: read(tensor, flat) for key, tensor in group.items()} for group in groups])
    return hosts


def measure_scale(h: Tensor, g_norms: Tensor, e_norms: Tensor) -> dict[str, Tensor]:
    """Quartiles over rows of ‖h‖ and ‖g‖, RMS of h, and g_rel = median ‖g‖·‖h‖/‖e‖, which is free of scale.

    h is (…, rows, features), the norms are (…, rows).
    """
    return scale_of_norms(row_norms(h), (h.shape[-2] * h.shape[-1]) ** 0.5, g_norms, e_norms)


def scale_of_norms(h_norms: Tensor, root: Tensor | float, g_norms: Tensor, e_norms: Tensor) -> dict[str, Tensor]:
    """`measure_scale` of states that are known by ‖h‖ and the root of the number of their entries."""
    g_rel = median_where(g_norms / e_norms * h_norms, usable(g_norms) & usable(e_norms))
    found = {"h_rms": row_norms(h_norms) / root, "g_rel": g_rel}
    for name, sizes, keep in (("h_norm", h_norms, h_norms.isfinite()), ("g_norm", g_norms, usable(g_norms))):
        found[f"{name}_q25"], found[name], found[f"{name}_q75"] = quartiles_where(sizes, keep)
    return found


def measure_noise(g: Tensor, g64: Tensor, keep: Tensor) -> Tensor:
    """Median over the rows kept of ‖g − g64‖ / ‖g64‖, both (…, rows, features).

    A row that overflowed although its float64 gradient is finite counts as pure noise.
    """
    reference = row_norms(g64)
    ratio = row_norms(g.double() - g64) / reference
    return median_where(torch.where(ratio.isfinite(), ratio, OVERFLOWED), usable(reference) & keep)
