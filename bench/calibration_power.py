"""What CS005 can see: power over rows, seeds and features, and its three answers over true alignments; all simulated.

Gradient W e and credit c·ĝ + √(1 − c²)·â with â of B e: errors e of ten classes, W and B random, drawn anew for every
seed, and c the true alignment. Both lie in the span of W and B, in which they are measured: its 20 directions stand for
d features, so that only the null's √d has to be put right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from creditscope.auditing.methods import Moment
from creditscope.auditing.stats import z_limit
from creditscope.auditing.tap_credit import POWER, judge_taps
from creditscope.auditing.thresholds import Thresholds
from creditscope.measure.alignment import measure_alignment
from creditscope.measure.nulls import NORMAL_POINT
from creditscope.measure.numerics import unit_rows
from creditscope.record import Facts, RuleFacts, Snapshot, TapMeasures

CLASSES = 10
SEEDS = (1, 3, 5, 10, 20)
TRUE = (0.0, 0.02, 0.05, 0.08, 0.12, 0.2)
"""Alignments that the answers are asked of."""
TAPS = 4
GRID = torch.logspace(-2.7, -0.02, 24).tolist()
GROUPS = 4000
"""Resampled sets of seeds behind a power."""
Units = tuple[Tensor, Tensor]


def random_units(rows: int, d: int, draws: int, stream: torch.Generator) -> Units:
    """Directions of credit without alignment and of gradients, (draws, rows, min(d, 20))."""
    target = torch.randint(CLASSES, (draws, rows), generator=stream)
    logits = torch.randn(draws, rows, CLASSES, generator=stream) + 2 * one_hot(target, CLASSES)
    error = logits.softmax(-1) - one_hot(target, CLASSES)
    matrices = torch.randn(draws, d, 2 * CLASSES, generator=stream)
    if d > 2 * CLASSES:
        matrices = torch.linalg.qr(matrices, mode="r").R
    a, g = (error @ matrices[..., part].mT for part in (slice(CLASSES), slice(CLASSES, None)))
    return unit_rows(a)[0], unit_rows(g)[0]


def measured(units: Units, c: float, d: int) -> dict[str, Tensor]:
    """Alignment and null of every draw, with a true alignment c."""
    a, g = units
    found = measure_alignment(c * g + (1 - c * c) ** 0.5 * a, g)
    shrink = (a.shape[-1] / d) ** 0.5
    sd, sd_F = found["null_sd"] * shrink, found["null_sd_F"] * shrink
    return {"cos": found["cos"], "cos_F": found["cos_F"], "null_sd": sd, "null_sd_F": sd_F,
            "null_q99": NORMAL_POINT * sd}  # fmt: skip


def smallest_seen(rows: int, d: int, draws: int, stream: torch.Generator) -> dict[str, float]:
    """By number of seeds, the true alignment whose mean is above its null with 80 %; what the formula says of one."""
    units = random_units(rows, d, draws, stream)
    limit = z_limit(Thresholds().orientation)
    groups = {n: torch.randint(draws, (GROUPS, n), generator=stream) for n in SEEDS}
    powers: dict[int, list[float]] = {n: [] for n in SEEDS}
    for c in GRID:
        found = measured(units, c, d)
        for n, group in groups.items():
            cos, sd = found["cos"][group].mean(1), found["null_sd"][group].square().sum(1).sqrt() / n
            powers[n].append(float((cos > limit * sd).double().mean()))
    formula = (limit + z_limit(1 - POWER)) * float(measured(units, 0.0, d)["null_sd"].square().mean().sqrt())
    return {**{f"n = {n}": _crossing(powers[n]) for n in SEEDS}, "formula, n = 1": round(formula, 3)}


def _crossing(powers: Sequence[float]) -> float:
    """Where the power first reaches 80 %, between two points of the grid; NaN if it never does."""
    for i, power in enumerate(powers):
        if power >= POWER and i:
            share = (POWER - powers[i - 1]) / (power - powers[i - 1])
            return round(GRID[i - 1] + share * (GRID[i] - GRID[i - 1]), 3)
    return float("nan")


def answers(rows: int, d: int, repeats: int, stream: torch.Generator) -> Iterator[dict[str, Any]]:
    """The shares of CS005's answers about four taps of one true alignment, for each of these and number of seeds."""
    facts = Facts(
        rule=RuleFacts(name="simulated", label="simulated"),
        taps=tuple(map(str, range(TAPS))),
        tap_shapes=((d,),) * TAPS,
        stem_tap=False,
    )
    pool = 20 * repeats
    units = random_units(rows, d, pool, stream)
    for c in TRUE:
        values = torch.stack(list((found := measured(units, c, d)).values()))
        for n in SEEDS:
            said = []
            for _ in range(repeats):
                drawn = values[:, torch.randint(pool, (n, TAPS), generator=stream)]
                moments = [_moment(facts, dict(zip(found, seed.tolist(), strict=True))) for seed in drawn.unbind(1)]
                said.append(_answer(moments))
            shares = {word: round(said.count(word) / repeats, 3) for word in ("passed", "undecided", "issue")}
            yield {"rows": rows, "d": d, "null_sd": round(float(found["null_sd"].mean()), 3), "true": c,
                   "seeds": n, **shares}  # fmt: skip


def _moment(facts: Facts, measures: dict[str, list[float]]) -> Moment:
    needed = [f.name for f in fields(TapMeasures) if f.default is MISSING]
    taps = dict.fromkeys(needed, (0.0,) * TAPS) | {name: tuple(v) for name, v in measures.items()}
    taken = TapMeasures(**taps)  # pyright: ignore[reportArgumentType]
    return Moment(facts, Snapshot(epoch=1, step=1, rows=1, rows_covered=1, rows_fitted=0, loss=0.0, taps=taken))


def _answer(moments: Sequence[Moment]) -> str:
    found = judge_taps(moments, range(TAPS), Thresholds())
    assert not isinstance(found, str)
    said = {tap.answer for tap in found}
    return "issue" if "below" in said else "undecided" if "open" in said else "passed"
