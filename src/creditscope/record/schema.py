"""The shape of a record. A test keeps `docs/records.md` at it; `docs/measurements.md` has the definitions.

`None` stands for a number that was not measured or does not exist (a cosine without usable rows).
Lists called "per tap" or "per weight" follow `Facts.taps` and `Facts.weights`.
"""

from dataclasses import dataclass, fields
from itertools import pairwise
from math import isfinite
from typing import Literal

from creditscope.errors import CreditscopeError
from creditscope.record.spec import RunSpec
from creditscope.text import count, number

SCHEMA_VERSION = 3
READABLE = (2, 3)
"""Versions that can be read; what an earlier one lacks is not measured."""

LARGEST = 2**53
"""Whole numbers beyond it are no counts, and a float cannot hold them."""
ROUNDING = 1e-12
"""Dispersion of a state over its size that is the rounding of its mean."""
DESCENT_ROWS = 256
"""Rows that descent is measured on, at most."""
DESCENT_TURNS = 64
"""Random rotations of the credit behind `descent_null` and `descent_stage_null`."""
OWN_DRAWS = 16
"""Draws of its own behind `beta` of a rule that draws noise in every step."""
FRESH_MOVES = 4
"""Draws of all feedback that ρ and descent are measured with; the cosine has more, see `Snapshot.fresh_draws`."""
Number = float | None
Series = tuple[Number, ...]
Counts = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RuleFacts:
    """What a rule states of itself."""

    name: str
    label: str
    variant: str = ""
    formula: str = ""
    approximates: str = "gradient"
    local: bool = False
    needs_feedback: bool = False
    draws_noise: bool = False
    """Whether its credit is another at every step, on the same rows and weights: judged by the mean of its draws."""
    rows_interact: bool = False
    learns_feedback: bool = False
    hands_on: bool = False
    """Whether stages learn at other states than the forward's."""
    passes: float = 0.0
    """What a step costs beyond backprop's, in forward passes."""


@dataclass(frozen=True, kw_only=True)
class WeightFact:
    """One parameter: the stage it lies in (L + 1 = the head) and its role under the rule."""

    name: str
    stage: int
    role: Literal["rule", "exact", "unused"]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is true of the run from its first step to its last; checks and figures read it instead of torch."""

    rule: RuleFacts
    taps: tuple[str, ...]
    tap_shapes: tuple[tuple[int, ...], ...]
    stem_tap: bool
    exact_taps: tuple[int, ...] = ()
    residual: tuple[bool, ...] = ()
    rows_interact: bool = False
    class_token: int | None = None
    weights: tuple[WeightFact, ...] = ()
    frozen_weights: tuple[str, ...] = ()
    classes: int = 0
    chance: Number = None
    best_constant: Number = None
    test_rows: int = 0
    precision: str = "float32"
    trainer: bool = True
    """False for a watched model: nothing is known of how it was trained."""

    @property
    def gamma_taps(self) -> tuple[int, ...]:
        """The taps Γ is over: all but the stem's."""
        return tuple(range(1 if self.stem_tap else 0, len(self.taps)))

    @property
    def blocks(self) -> int:
        """L: stages between the first tap and the last."""
        return len(self.taps) - 1

    @property
    def inexact_taps(self) -> tuple[int, ...]:
        """Taps without exact credit."""
        return tuple(i for i in range(len(self.taps)) if i not in self.exact_taps)


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a record comes from; `engine`: loop, stacked, captured, or watch."""

    schema_version: int = SCHEMA_VERSION
    status: Literal["running", "complete", "diverged"] = "running"
    diverged_epoch: int | None = None
    creditscope: str = ""
    commit: str = ""
    python: str = ""
    torch: str = ""
    numpy: str = ""
    platform: str = ""
    device: str = ""
    threads: int = 0
    engine: str = ""
    stack: tuple[int, ...] = ()
    note: str = ""
    data_checksum: str = ""
    parameters: int = 0
    started: str = ""
    finished: str = ""
    seconds: float = 0.0
    resumes: int = 0
    facts: Facts


@dataclass(frozen=True, kw_only=True)
class TapMeasures:
    """Per tap. Gradients g and credit a are per sample; rows without either are left out and counted."""

    h_norm: Series
    h_norm_q25: Series
    h_norm_q75: Series
    h_rms: Series
    g_norm: Series
    g_norm_q25: Series
    g_norm_q75: Series
    g_rel: Series
    g_noise: Series
    cos: Series
    cos_F: Series  # noqa: N815 (the field's own symbol)
    angle: Series
    null_sd: Series
    z: Series
    ratio: Series
    rank_a: Series
    rank_g: Series
    rows_used: Counts
    rows_no_gradient: Counts
    rows_no_credit: Counts
    null_sd_F: Series = ()  # noqa: N815
    null_q99: Series = ()
    # measured where the tier asks for it; empty otherwise
    cos_input: Series = ()
    stage_cos: Series = ()
    stage_null_sd: Series = ()
    # of a rule that draws noise in every step, over draws of its own
    beta: Series = ()
    beta_se: Series = ()
    beta_null_sd: Series = ()
    draw_noise: Series = ()
    draw_cos: Series = ()
    # of a rule whose stages learn at other states, and of credit that skips alone would carry
    handed_on: Series = ()
    skip_cos: Series = ()
    skip_alone: Series = ()
    # of the reference, and of the credit
    common: Series = ()
    common_a: Series = ()
    drift: Series = ()
    # beside each its null: fresh draws of all feedback, or random rotations of the credit
    fresh_cos: Series = ()
    fresh_sd: Series = ()
    permuted_cos: Series = ()
    rho: Series = ()
    rho_exact: Series = ()
    fresh_rho: Series = ()
    fresh_rho_sd: Series = ()
    descent: Series = ()
    descent_null: Series = ()
    descent_null_sd: Series = ()
    fresh_descent: Series = ()
    fresh_descent_sd: Series = ()
    descent_stage: Series = ()
    descent_stage_null: Series = ()
    descent_stage_null_sd: Series = ()
    # accuracies: of a linear probe; with the block before the tap put back to where it began, or skipped
    probe: Series = ()
    rewind: Series = ()
    rewind_refit: Series = ()
    skip_one: Series = ()


@dataclass(frozen=True, kw_only=True)
class WeightMeasures:
    """Per weight: the rule's gradient against the exact one, on the snapshot's rows unless it says `step`."""

    norm: Series
    exact_norm: Series
    all_zero: Counts
    underflow: Counts
    exact_all_zero: Counts
    exact_underflow: Counts
    cos: Series
    update_cos: Series
    decrease_share: Series
    step_norm: Series
    step_all_zero: tuple[int | None, ...]
    step_underflow: tuple[int | None, ...]
    z: Series = ()
    feedback_angle: Series = ()
    feedback_gap: Series = ()
    w_norm: Series = ()
    exact_float32: Series = ()


@dataclass(frozen=True, kw_only=True)
class LayerMeasures:
    """Of a net that names its pre-activations Z_0..Z_{L−1}: layer by layer, over all rows at once.

    H_0 is the input, H_1..H_{L−1} are the taps, H_L is the output.
    """

    z_grad: Series
    rms: Series
    dispersion: Series
    probe: Series = ()
    probe_rows: int = 0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All measurements of a run at one moment."""

    epoch: int
    step: int
    rows: int
    rows_covered: int
    rows_fitted: int
    loss: Number
    accuracy: Number = None
    accuracy_refit: Number = None
    train_loss: Number = None
    step_error: Number = None
    gamma: Number = None
    gamma_inexact: Number = None
    gamma_null_sd: Number = None
    taps: TapMeasures
    class_token: TapMeasures | None = None
    weights: WeightMeasures | None = None
    layers: LayerMeasures | None = None
    fresh_draws: int = 0
    descent_turns: int = 8  # as in records that do not say
    probe_rows: int = 0
    untrained: bool = False
    correct: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A row per tap; growth is RMS(h_l) / RMS(h_{l−1}), a dash stands for what is not there."""
        taps, rms = self.taps, self.taps.h_rms
        growth = [None, *(above / below if above is not None and below else None for below, above in pairwise(rms))]
        measured = {
            "‖h‖": (taps.h_norm, ".3g"),
            "growth": (growth, ".2f"),
            "‖g‖": (taps.g_norm, ".1e"),
            "noise": (taps.g_noise, ".0e"),
            "cos": (taps.cos, "+.2f"),
            "z": (taps.z, ".1f"),
        }
        table = [["tap", *map(str, range(len(rms)))]]
        table += [[name, *(number(value, form) for value in values)] for name, (values, form) in measured.items()]
        cells = [[cell.rjust(max(map(len, column))) for cell in column] for column in table]
        said = {"loss": (self.loss, ".3g"), "accuracy": (self.accuracy, ".3f"), "Γ": (self.gamma, "+.3f")}
        words = [f"{name} {number(value, form)}" for name, (value, form) in said.items() if value is not None]
        lines = [" · ".join([f"epoch {self.epoch}", *words, count(self.rows, "row")])]
        return "\n".join([*lines, *map("  ".join, zip(*cells, strict=True)), *self.notes])

    @property
    def head_taps(self) -> TapMeasures:
        """Per-tap measures of what the head reads: of the class token, in a net that has one, else of all."""
        return self.class_token or self.taps

    @property
    def tap_probe(self) -> Series:
        """A probe's accuracy at every tap, by whichever of the two groups holds it; empty if neither does."""
        return self.taps.probe or (self.layers.probe[1:-1] if self.layers else ())

    @property
    def constant_taps(self) -> tuple[int, ...]:
        """Taps that have no probe because their state is the same for every row, as far as that was measured."""
        if self.taps.probe or self.layers is None or not self.layers.probe:
            return ()
        sizes = zip(self.tap_probe, self.layers.rms[1:-1], self.layers.dispersion[1:-1], strict=True)
        return tuple(
            i
            for i, (probe, rms, dispersion) in enumerate(sizes)
            if probe is None and rms is not None and dispersion is not None and dispersion <= ROUNDING * rms
        )


COUNTS: dict[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind) if f.type in (int, Counts, tuple[int | None, ...]))
    for kind in (Snapshot, TapMeasures, WeightMeasures)
}
"""Fields that count something."""


def check_whole(spec: RunSpec | None, provenance: Provenance, snapshots: tuple[Snapshot, ...]) -> None:
    """What types cannot say: refuse a record whose lines or lists are not all there, or whose numbers cannot be."""
    if spec is not None:
        options = (spec.task_options, spec.net_options, spec.rule_options)
        asked = [*vars(spec).values(), *(value for given in options for value in given.values())]
        if not all(map(_is_possible, asked)):
            raise CreditscopeError(
                f"Expected finite numbers in the spec, whole ones of at most {LARGEST}, but got others."
            )
        last = snapshots[-1].epoch if snapshots else "none"
        if provenance.status == "complete" and last != spec.epochs:
            raise CreditscopeError(f"Expected snapshots to epoch {spec.epochs}, but the last is {last}.")
    taps, weights = len(provenance.facts.taps), len(provenance.facts.weights)
    for snapshot in snapshots:
        if not _is_even(snapshot, taps, weights):
            raise CreditscopeError(
                f"Expected {taps} taps and {weights} weights in every list of epoch {snapshot.epoch}, "
                "but got other lengths."
            )
        if not all(0 <= found <= LARGEST for found in _counts(snapshot)):
            raise CreditscopeError(f"Expected counts from 0 to {LARGEST} in every snapshot, but got others.")


def _is_possible(value: object) -> bool:
    return isfinite(value) if isinstance(value, float) else not isinstance(value, int) or abs(value) <= LARGEST


def _is_even(snapshot: Snapshot, taps: int, weights: int) -> bool:
    for measures, places in ((snapshot.taps, taps), (snapshot.class_token, taps), (snapshot.weights, weights)):
        if measures is not None and any(values and len(values) != places for values in vars(measures).values()):
            return False
    layers = snapshot.layers
    return layers is None or all(
        len(values) == len(layers.z_grad) + 1 for values in (layers.rms, layers.dispersion, layers.probe or layers.rms)
    )


def _counts(snapshot: Snapshot) -> list[int]:
    found = [getattr(snapshot, name) for name in COUNTS[Snapshot]]
    for group in (snapshot.taps, snapshot.weights):
        found += [n for name in COUNTS.get(type(group), ()) for n in getattr(group, name) if n is not None]
    return found
