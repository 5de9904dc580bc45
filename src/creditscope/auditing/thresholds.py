"""The one table of thresholds: checks, reference lines and docs all read it.

Ours and, where the published protocol (arXiv 2606.21126) states one, its threshold beside it.
"""

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError

PUBLISHED_GROWTH, PUBLISHED_FLOOR, PUBLISHED_GAIN = 50.0, 1.28e-5, 0.02
"""The published protocol's thresholds; unlike ours they do not move."""
PUBLISHED_ROWS = 128
"""Rows N of the mean that the published floor was stated for; `PUBLISHED_FLOOR` is N times that, per sample."""
TRAJECTORY_ROWS = 1024
"""Rows N of the mean that published trajectories of gradients are in."""
USUAL_GAMMA = 0.0
"""What the usual pair asks of Γ beside an accuracy above chance."""


def _limit(value: float, meaning: str, *checks: str, published: str = "", kind: str = "size") -> Any:
    """`kind` is size (a number ≥ 0), share (0 to 1), probability (between 0 and 1) or count (whole)."""
    meta = {"check": checks[0], "checks": checks, "meaning": meaning, "published": published, "kind": kind}
    return field(default=value, metadata=meta)


_share, _probability, _count = (partial(_limit, kind=kind) for kind in ("share", "probability", "count"))
EVERY_RUN_CHECK = "each run check"
"""Stands for the codes where a threshold is about seeds, not about one check."""
ALIGNMENT = ("CS005", "CS006", "CS008")
"""Checks that ask whether taps carry credit."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Every number a verdict depends on; `creditscope list thresholds` says what each means.

    >>> import creditscope as cs
    >>> cs.Thresholds().changed(growth=20).growth
    20
    """

    growth: float = _limit(
        PUBLISHED_GROWTH,
        "RMS(h_l) / RMS(h_l−1) above this: the block overwrites the stream",
        "CS001",
        published="50, same quantity",
    )
    noise: float = _limit(0.1, "g_noise above this at a tap: the reference is not resolved", "CS002")
    fitted_rows: float = _share(0.5, "share of rows without a resolvable error above this: unresolved", "CS002")
    floor: float = _limit(
        PUBLISHED_FLOOR,
        "median ‖g_L‖ per sample below this: a tip, for comparison only",
        "CS002",
        published=f"1e-7 for a mean over N = {PUBLISHED_ROWS} rows, i.e. 1.28e-5 per sample",
    )
    common: float = _share(0.3, "share of the reference that is one direction for all rows above this: a tip", "CS003")
    depth_gain: float = _share(
        PUBLISHED_GAIN,
        "accuracy over the better frozen baseline that counts as use of depth",
        "CS004",
        published="0.02 on the mean, against the method's own frozen baseline, no interval",
    )
    depth_confidence: float = _probability(
        0.95, "one-sided confidence of the paired bound over seeds", "CS004", "CS011"
    )
    task_gain: float = _share(0.05, "BP's own gain below this: the task cannot show use of depth", "CS004")
    seeds: int = _count(3, "fewest seeds for a paired bound", "CS004", "CS011")
    depth_loss: float = _share(0.02, "accuracy below the better frozen baseline that fails on any task", "CS004")
    alignment: float = _share(
        0.05,
        "δ, the smallest alignment of interest: a cosine (or β, of a rule that draws noise) that counts",
        *ALIGNMENT,
    )
    alignment_confidence: float = _probability(
        0.95, "one-sided confidence of bounds over seeds; Holm over the taps for what lies below", *ALIGNMENT, "CS012"
    )
    orientation: float = _probability(
        0.01, "one-sided level at which a mean must lie above the null of the mean", *ALIGNMENT, "CS012"
    )
    weighted_share: float = _share(
        0.5,
        "upper bound of cos_F under this share of cos: a few rows decide, or many get no credit, so undecided at best",
        *ALIGNMENT,
    )
    exact_cos: float = _share(0.999, "cosine below this at a tap that is declared exact: it is not", "CS005")
    hidden_share: float = _share(
        0.5, "share of taps that carry credit at or below which a positive Γ hides the layers", "CS006"
    )
    hidden_taps: int = _count(3, "fewest taps without exact credit for the question to make sense", "CS006")
    probe_gain: float = _share(
        0.1, "bound of a probe over the best constant guess above this: information is there", "CS009"
    )
    chance_gain: float = _share(0.02, "accuracy over the best constant guess that counts as having learnt", "CS010")
    chance_confidence: float = _probability(0.95, "one-sided confidence of the bound on an accuracy", "CS010", "CS009")
    rewind_loss: float = _share(0.01, "accuracy lost when a block is put back that counts as trained", "CS011")
    trained_share: float = _share(0.5, "share of BP's trained blocks below which blocks learned nothing", "CS011")
    descent_share: float = _share(
        0.05,
        "share of the gradient's decrease of the loss that a stage's own update must reach, of a rule with another aim",
        "CS012",
    )
    used_classes: float = _share(
        0.5, "share of the output's classes that labels reach up to, at or below: too many", "CS101"
    )
    start_loss: float = _limit(2.0, "first loss over a constant's above this, of labels: out of scale", "CS104")
    start_loss_numbers: float = _limit(10.0, "the same of targets that are numbers", "CS104")
    start_rms: float = _limit(100.0, "RMS of every tap at the start above this: out of scale", "CS104")
    sure_rows: float = _share(
        0.5, "share of rows with a probability over 0.999 at the start, above the best constant", "CS104"
    )
    vanishing: float = _limit(
        1e-4,
        "relative gradient of the first (or last) layers over the largest below this: it vanishes (explodes)",
        "CS105",
    )
    dead_units: float = _share(
        0.75, "share of a layer's units that are zero in every row above this: dead", "CS106", "CS110"
    )
    saturated: float = _share(0.6, "share of a layer's entries at its bounds above this: saturated", "CS107")
    dispersion: float = _limit(
        1e-3, "dispersion of rows or tokens over their size below this: the same", "CS108", "CS106", "CS110"
    )
    dropped: float = _share(0.9, "share of entries that a dropout takes above this: nothing is left", "CS108")
    line: float = _limit(
        1.01, "participation ratio of rows below this, and little more to the end: they lie on one line", "CS108"
    )
    shrunk: float = _share(
        0.1, "median of ‖W‖ over its first value below this: decay outweighs the gradient", "CS109", "CS110"
    )
    update_low: float = _limit(
        5e-5, "summed median ‖ΔW‖/‖W‖ per step below this, and a loss that does not fall: too low", "CS110"
    )
    update_least: float = _limit(
        1e-4,
        "the same in all, where steps are not told; weights that moved less need not all have moved",
        "CS110",
        "CS109",
    )
    update_step: float = _limit(0.03, "median ‖ΔW‖/‖W‖ per step above this, and little learnt: too high", "CS110")
    update_fast: float = _limit(
        0.01, "the same of the last snapshot, and a loss that rises: too high, however many answers are right", "CS110"
    )
    idle_gain: float = _share(0.1, "share of the best constant's loss that large steps must win", "CS110")
    update_high: float = _limit(0.5, "summed median ‖ΔW‖/‖W‖ above this, and a loss that rises: too high", "CS110")
    loss_gain: float = _share(0.01, "share of the first loss that it must fall by, not to be too low", "CS110")
    learnt_gain: float = _share(0.1, "accuracy over the best constant guess above this: not too high", "CS110")
    risen: float = _limit(1.2, "loss over the first one and over the best constant's above this: it rises", "CS110")
    seed_confidence: float = _probability(
        0.95,
        "one-sided confidence of bounds over seeds: of a mean (growth, noise), or of the share that has an event",
        EVERY_RUN_CHECK,
    )
    seed_share: float = _share(
        0.5,
        "share of seeds with an event: an issue if the bound lies above or all have it, passed if below or none has",
        EVERY_RUN_CHECK,
    )

    def changed(self, **values: float) -> "Thresholds":
        """A copy with other values; unknown names are refused."""
        kinds = {f.name: f.metadata["kind"] for f in fields(self)}
        for name, value in values.items():
            if name not in kinds:
                raise UnknownNameError("threshold", name, kinds)
            if not isinstance(value, int | float) or not value >= 0:
                raise CreditscopeError(f"Expected threshold {name!r} to be a number >= 0, but got {value!r}.")
            if not {"probability": 0 < value < 1, "share": value <= 1}.get(kinds[name], True):
                raise CreditscopeError(f"Expected threshold {name!r} to lie between 0 and 1, but got {value!r}.")
            if kinds[name] == "count" and value != int(value):
                raise CreditscopeError(f"Expected threshold {name!r} to be a whole number, but got {value!r}.")
        return replace(self, **values)


def table(limits: Thresholds | None = None) -> list[dict[str, Any]]:
    """One row per threshold: name, value, check (the first of `checks`), meaning, published, kind."""
    limits = limits or Thresholds()
    return [{"name": f.name, "value": getattr(limits, f.name), **f.metadata} for f in fields(limits)]
