"""The one table of thresholds: checks, reference lines and docs all read it.

Ours and, where the published protocol (arXiv 2606.21126) states one, its threshold beside it.
"""

from dataclasses import dataclass, field, fields, replace
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


def _limit(value: float, checks: tuple[str, ...], meaning: str, published: str = "", *, kind: str = "size") -> Any:
    """`kind` is size (a number ≥ 0), share (0 to 1), probability (between 0 and 1) or count (whole)."""
    meta = {"check": checks[0], "checks": checks, "meaning": meaning, "published": published, "kind": kind}
    return field(default=value, metadata=meta)


EVERY_RUN_CHECK = "each run check"
"""Stands for the codes where a threshold is about seeds, not about one check."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Every number a verdict depends on; `creditscope list thresholds` says what each means.

    >>> import creditscope as cs
    >>> cs.Thresholds().changed(growth=20).growth
    20
    """

    growth: float = _limit(
        PUBLISHED_GROWTH,
        ("CS001",),
        "RMS(h_l) / RMS(h_l−1) above this: the block overwrites the stream",
        "50, same quantity",
    )
    noise: float = _limit(0.1, ("CS002",), "g_noise above this at a tap: the reference is not resolved")
    fitted_rows: float = _limit(
        0.5, ("CS002",), "share of rows without a resolvable error above this: unresolved", kind="share"
    )
    floor: float = _limit(
        PUBLISHED_FLOOR,
        ("CS002",),
        "median ‖g_L‖ per sample below this: a tip, for comparison only",
        f"1e-7 for a mean over N = {PUBLISHED_ROWS} rows, i.e. 1.28e-5 per sample",
    )
    common: float = _limit(
        0.3,
        ("CS003",),
        "share of the reference that is one direction for all rows above this: a tip",
        kind="share",
    )
    depth_gain: float = _limit(
        PUBLISHED_GAIN,
        ("CS004",),
        "accuracy over the better frozen baseline that counts as use of depth",
        "0.02 on the mean, against the method's own frozen baseline, no interval",
        kind="share",
    )
    depth_confidence: float = _limit(
        0.95, ("CS004",), "one-sided confidence of the paired bound over seeds", kind="probability"
    )
    task_gain: float = _limit(
        0.05, ("CS004",), "BP's own gain below this: the task cannot show use of depth", kind="share"
    )
    seeds: int = _limit(3, ("CS004",), "fewest seeds for a paired bound", kind="count")
    depth_loss: float = _limit(
        0.02, ("CS004",), "accuracy below the better frozen baseline that fails on any task", kind="share"
    )
    alignment: float = _limit(
        0.05,
        ("CS005", "CS006", "CS008"),
        "δ, the smallest alignment of interest: a cosine (or β, of a rule that draws noise) that counts",
        kind="share",
    )
    alignment_confidence: float = _limit(
        0.95,
        ("CS005", "CS006", "CS008", "CS012"),
        "one-sided confidence of bounds over seeds; Holm over the taps for what lies below",
        kind="probability",
    )
    orientation: float = _limit(
        0.01,
        ("CS005", "CS006", "CS008", "CS012"),
        "one-sided level at which a mean must lie above the null of the mean",
        kind="probability",
    )
    weighted_share: float = _limit(
        0.5,
        ("CS005", "CS006", "CS008"),
        "upper bound of cos_F under this share of cos: a few rows decide, so undecided at best",
        kind="share",
    )
    exact_cos: float = _limit(
        0.999, ("CS005",), "cosine below this at a tap that is declared exact: it is not", kind="share"
    )
    hidden_share: float = _limit(
        0.5, ("CS006",), "share of taps that carry credit at or below which a positive Γ hides the layers", kind="share"
    )
    hidden_taps: int = _limit(
        3, ("CS006",), "fewest taps without exact credit for the question to make sense", kind="count"
    )
    probe_gain: float = _limit(
        0.1, ("CS009",), "bound of a probe over the best constant guess above this: information is there", kind="share"
    )
    chance_gain: float = _limit(
        0.02, ("CS010",), "accuracy over the best constant guess that counts as having learnt", kind="share"
    )
    chance_confidence: float = _limit(
        0.95, ("CS010", "CS009"), "one-sided confidence of the bound on an accuracy", kind="probability"
    )
    rewind_loss: float = _limit(
        0.01, ("CS011",), "accuracy lost when a block is put back that counts as trained", kind="share"
    )
    trained_share: float = _limit(
        0.5, ("CS011",), "share of BP's trained blocks below which blocks learned nothing", kind="share"
    )
    descent_share: float = _limit(
        0.05,
        ("CS012",),
        "share of the gradient's decrease of the loss that a stage's own update must reach, of a rule with another aim",
        kind="share",
    )
    seed_confidence: float = _limit(
        0.95,
        (EVERY_RUN_CHECK,),
        "one-sided confidence of bounds over seeds: of a mean (growth, noise), or of the share that has an event",
        kind="probability",
    )
    seed_share: float = _limit(
        0.5,
        (EVERY_RUN_CHECK,),
        "share of seeds with an event: an issue if the bound lies above or all have it, passed if below or none has",
        kind="share",
    )

    def changed(self, **values: float) -> "Thresholds":
        """A copy with other values; unknown names are refused."""
        kinds = {f.name: f.metadata["kind"] for f in fields(self)}
        for name, value in values.items():
            if name not in kinds:
                raise UnknownNameError("threshold", name, kinds)
            if not isinstance(value, int | float) or not value >= 0:
                raise CreditscopeError(f"Expected threshold {name!r} to be a number >= 0, but got {value!r}.")
            inside = {"probability": 0 < value < 1, "share": value <= 1}.get(kinds[name], True)
            if not inside:
                raise CreditscopeError(f"Expected threshold {name!r} to lie between 0 and 1, but got {value!r}.")
            if kinds[name] == "count" and value != int(value):
                raise CreditscopeError(f"Expected threshold {name!r} to be a whole number, but got {value!r}.")
        return replace(self, **values)


def table(limits: Thresholds | None = None) -> list[dict[str, Any]]:
    """One row per threshold: name, value, check (the first of `checks`), meaning, published, kind."""
    limits = limits or Thresholds()
    return [{"name": f.name, "value": getattr(limits, f.name), **f.metadata} for f in fields(limits)]
