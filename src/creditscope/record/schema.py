"""The shape of a record. `docs/records.md` describes every field; a test keeps the two together.

`None` stands for a number that was not measured or does not exist (a cosine without usable rows).
Lists called "per tap" or "per weight" follow `Facts.taps` and `Facts.weights`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from creditscope.text import count, number

SCHEMA_VERSION = 3
READABLE = (2, 3)
"""Versions that can be read; what an earlier one lacks is not measured."""

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
    """Options that differ from the rule's defaults, in words."""
    formula: str = ""
    approximates: str = "gradient"
    local: bool = False
    needs_feedback: bool = False
    draws_noise: bool = False
    """Whether its credit is another at every step, on the same rows and weights: judged by the mean of its draws."""


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
    """Whether tap 0 is the stem's (shown apart, not in Γ)."""
    exact_taps: tuple[int, ...] = ()
    residual: tuple[bool, ...] = ()
    rows_interact: bool = False
    class_token: int | None = None
    """Which token the head reads; it is measured a second time alone."""
    weights: tuple[WeightFact, ...] = ()
    """The trained parameters, in the order of the per-weight lists."""
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
    """Where a record comes from."""

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
    """loop (seed by seed), stacked (many seeds at once) or captured (the same, each step one CUDA graph)."""
    stack: tuple[int, ...] = ()
    """Seeds trained in the same stack, this one's among them."""
    note: str = ""
    """Why the run could not be stacked, if it could not."""
    data_checksum: str = ""
    parameters: int = 0
    started: str = ""
    finished: str = ""
    seconds: float = 0.0
    resumes: int = 0
    """How often the run was stopped or killed and went on."""
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
    """Of `cos_F`, what `null_sd` is of `cos`."""
    null_q99: Series = ()
    """The 99 % point of the null of `cos`; from simulated rotations where few features can turn."""
    # measured where the tier asks for it; empty otherwise
    cos_input: Series = ()
    """The published reading: cosine of the credit at the tap with the gradient at the tap before, the block's input."""
    stage_cos: Series = ()
    """Cosine of the rule's and BP's gradient of all trained weights of the stage together; None if it has none."""
    stage_null_sd: Series = ()
    """Its sd when each weight's gradient is turned at random on its output side."""
    beta: Series = ()
    """⟨ā, g⟩/‖g‖² over the mean ā of a rule's own draws, for a rule that draws noise in every step; unbiased: 1."""
    beta_se: Series = ()
    """Its standard error over the draws."""
    beta_null_sd: Series = ()
    """Its sd when the mean of the draws is turned at random."""
    draw_noise: Series = ()
    """Share of ‖a‖² that is noise of the draw."""
    common: Series = ()
    """Share of the reference that is one direction for all rows: (‖Σg‖² − Σ‖g‖²)/((n−1)Σ‖g‖²)."""
    common_a: Series = ()
    """The same of the credit: its signal-to-noise."""
    drift: Series = ()
    """The published cross-batch stability: mean cosine of the mean gradients of batches of 128 rows."""
    fresh_cos: Series = ()
    """Mean over fresh draws of all feedback of the cosine; own − fresh is the alignment acquired."""
    fresh_sd: Series = ()
    """Its standard deviation over the draws."""
    permuted_cos: Series = ()
    """Cosine of the credit of another row with the gradient."""
    rho: Series = ()
    """Pearson correlation of ⟨a, εv⟩ with the change of the loss, in float64."""
    rho_exact: Series = ()
    """The same with g for the credit: the positive control, 1 but for the curvature of the loss."""
    fresh_rho: Series = ()
    """Mean over fresh draws of all feedback of ρ."""
    fresh_rho_sd: Series = ()
    """Its standard deviation over the draws."""
    descent: Series = ()
    """Best decrease of the loss along −a at the tap, over that along −g."""
    descent_null: Series = ()
    """Mean of the same for credit turned by random rotations."""
    descent_null_sd: Series = ()
    """Its standard deviation over the rotations."""
    fresh_descent: Series = ()
    """Mean of the same for the credit of fresh feedback, over as many draws."""
    fresh_descent_sd: Series = ()
    """Its standard deviation over the draws."""
    descent_stage: Series = ()
    """Best decrease along the rule's gradient of the stage's weights, over that along BP's."""
    descent_stage_null: Series = ()
    """Mean of the same for gradients turned at random, of a rule that does not aim at the gradient."""
    descent_stage_null_sd: Series = ()
    """Its standard deviation over the rotations."""
    probe: Series = ()
    """Accuracy of a linear probe on the standardised state."""
    rewind: Series = ()
    """Accuracy with the block before the tap alone put back to where it began; None for the stem and frozen blocks."""
    rewind_refit: Series = ()
    """The same with the statistics of batch norms estimated anew, to be compared with `Snapshot.accuracy_refit`."""
    skip_one: Series = ()
    """Accuracy with the block before the tap skipped; None where there is no residual block to skip."""


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
    """The cosine in sd of its rotation null (each matrix's rows turned alike)."""
    feedback_angle: Series = ()
    """Angle of W and its feedback B in degrees, for weight rules; None where there is no feedback."""
    w_norm: Series = ()
    """Norm of the weight itself; the decay term is weight_decay · w_norm, to be compared with `exact_norm`."""
    exact_float32: Series = ()
    """Norm of BP's gradient by the plain float32 √Σx², which underflows where `exact_norm` does not."""


@dataclass(frozen=True, kw_only=True)
class LayerMeasures:
    """Of a net that names its pre-activations Z_0..Z_{L−1}: layer by layer, over all rows at once.

    H_0 is the input, H_1..H_{L−1} are the taps, H_L is the output.
    """

    z_grad: Series
    """‖∂L/∂Z_l‖_F for l = 0..L−1, L the mean loss over the rows that carry one."""
    rms: Series
    """Root mean square of H_l for l = 0..L."""
    dispersion: Series
    """The same of H_l minus its mean over rows."""
    probe: Series = ()
    """Accuracy of a linear probe on standardised H_l, before and after training; None where H_l is constant."""
    probe_rows: int = 0
    """Test rows behind it."""


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
    """With the statistics of batch norms estimated anew: what `rewind_refit` is compared with; None without any."""
    train_loss: Number = None
    step_error: Number = None
    gamma: Number = None
    gamma_inexact: Number = None
    gamma_null_sd: Number = None
    taps: TapMeasures
    class_token: TapMeasures | None = None
    """The same on the class token alone."""
    weights: WeightMeasures | None = None
    layers: LayerMeasures | None = None
    """Layer by layer, for nets that name their pre-activations."""
    fresh_draws: int = 0
    """Draws of fresh feedback behind `fresh_cos`."""
    descent_turns: int = 8
    """Random rotations behind `descent_null`."""
    probe_rows: int = 0
    """Test rows behind `probe`."""
    untrained: bool = False
    """Whether the net is as it was before training."""
    correct: str | None = None
    """On the last snapshot: one bit per test row, packed, base64."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A row per tap; growth is RMS(h_l) / RMS(h_{l−1}), a dash stands for what is not there."""
        taps, rms = self.taps, self.taps.h_rms
        growth = [None, *(above / below if above is not None and below else None for below, above in pairwise(rms))]
        columns = {
            "tap": [str(i) for i in range(len(rms))],
            "‖h‖": [number(value, ".3g") for value in taps.h_norm],
            "growth": [number(value, ".2f") for value in growth],
            "‖g‖": [number(value, ".1e") for value in taps.g_norm],
            "noise": [number(value, ".0e") for value in taps.g_noise],
            "cos": [number(value, "+.2f") for value in taps.cos],
            "z": [number(value, ".1f") for value in taps.z],
        }
        table = [[name, *column] for name, column in columns.items()]
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
