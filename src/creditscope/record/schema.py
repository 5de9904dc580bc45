"""The shape of a record. `docs/records.md` describes every field; a test keeps the two together.

`None` stands for a number that was not measured or does not exist (a cosine without usable rows).
Lists called "per tap" or "per weight" follow `Facts.taps` and `Facts.weights`.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from creditscope.errors import CreditscopeError
from creditscope.options import Scalar

SCHEMA_VERSION = 2

RULE_FIELDS = ("rule", "rule_options", "rule_source", "credit_norm", "penalty")
"""Fields of a spec that tell one method from another on the same task and net."""
MEASURING_FIELDS = ("snapshot_every", "snapshot_at", "tier", "noise", "eval_rows")
"""Fields that change what is measured and nothing of the training."""
FREE_FIELDS = ("seed", "frozen", "train_last")
LATER_FIELDS = {"decay_on": "all"}
"""Fields that came after the first records of this schema; at these values they are no part of the hash."""
ROUNDING = 1e-12
"""Dispersion of a state over its size that is the rounding of its mean."""
DESCENT_TURNS = 8
"""Random rotations of the credit behind `descent_null`."""
Number = float | None
Series = tuple[Number, ...]
Counts = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a run is trained and measured; these fields are also the options of the command line."""

    epochs: int = 60
    """Passes over the training data; on a graph, steps."""
    credit_norm: Literal["none", "batch", "sample"] = "none"
    """Normalisation of a tap rule's credit."""
    penalty: float = 0.0
    """λ of the residual penalty λ‖f_l‖²."""
    frozen: bool = False
    """Do not train the blocks (stem, norm and head only)."""
    train_last: int = -1
    """Train only this many of the last blocks (a rung of the depth ladder); -1: all."""
    targets: Literal["true", "random"] = "true"
    """Labels to train on; random ones, drawn once per seed, are a control."""
    optimiser: Literal["adamw", "adam", "sgd"] = "adamw"
    """AdamW, Adam with an L2 term, or plain SGD."""
    lr: float = 1e-3
    """Learning rate at the start."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """Learning rate over epochs: half a cosine to 0, or constant."""
    weight_decay: float = 0.01
    """Weight decay (decoupled under AdamW, an L2 term under the others)."""
    decay_on: Literal["all", "first"] = "all"
    """Which weights decay: all, or those of the first layer only (up to tap 0)."""
    batch: int = 128
    """Rows per step; an incomplete last batch is dropped; a graph is one batch."""
    precision: Literal["float32", "tf32", "float64"] = "float32"
    """Number format of weights and data; tf32 (CUDA only) rounds the factors of float32 matrix products."""
    eval_rows: int = 1024
    """Test rows that snapshots are taken on."""
    snapshot_every: int = 1
    """Epochs between snapshots; 0: only before and after training."""
    snapshot_at: str = ""
    """Other epochs for snapshots: log (1, 2, 4, 8, …), or a list such as 1,5,20; before and after training always."""
    tier: Literal["quick", "standard", "full"] = "standard"
    """How much a snapshot measures: quick (no float64, no controls), standard (everything before and after training,
    the cheap measurements in between), full (everything, always)."""
    noise: bool = True
    """Recompute gradients in float64 to see whether they are resolved."""


@dataclass(frozen=True, kw_only=True)
class RunSpec(Recipe):
    """What was asked of one run. Its hash is the run's name, so equal specs are one run."""

    task: str
    task_options: dict[str, Scalar] = field(default_factory=dict)
    data_version: str = ""
    net: str
    net_options: dict[str, Scalar] = field(default_factory=dict)
    net_source: str = ""
    """Digest of a user's own net; empty for a built-in one."""
    rule: str
    rule_options: dict[str, Scalar] = field(default_factory=dict)
    rule_source: str = ""
    """Digest of a user's own rule; empty for a built-in one."""
    seed: int = 42

    def __post_init__(self) -> None:
        """Whole numbers typed for real ones are the same run."""
        for name, kind in (("penalty", float), ("lr", float), ("weight_decay", float), ("seed", int)):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, kind(value))
            except (TypeError, ValueError):
                raise CreditscopeError(f"Expected {name} to be a number, but got {value!r}.") from None

    def setting(self, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """The fields that runs must share to be compared: all but seed, frozen blocks and how they were measured."""
        return {n: v for n, v in asdict(self).items() if n not in (*FREE_FIELDS, *MEASURING_FIELDS, *without)}

    def stack_key(self) -> str:
        """Equal for runs that differ only in their seed."""
        return json.dumps({**asdict(self), "seed": None}, sort_keys=True)

    def digest(self) -> str:
        """Content hash over every field, but for later ones that change nothing: earlier records keep their names."""
        asked = {n: v for n, v in asdict(self).items() if n not in LATER_FIELDS or v != LATER_FIELDS[n]}
        text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def name(self) -> str:
        """Folder name: readable words, then the hash."""
        rule = self.rule.rpartition(":")[2]
        frozen = "-frozen" if self.frozen else ""
        return f"{self.task}-{self.net}-{rule}{frozen}-s{self.seed}-{self.digest()}"


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
    # measured where the tier asks for it; empty otherwise
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
    descent: Series = ()
    """Best decrease of the loss along −a at the tap, over that along −g."""
    descent_null: Series = ()
    """Mean of the same for credit turned by random rotations."""
    descent_null_sd: Series = ()
    """Its standard deviation over the rotations."""
    descent_stage: Series = ()
    """Best decrease along the rule's gradient of the stage's weights, over that along BP's."""
    probe: Series = ()
    """Accuracy of a linear probe on the standardised state."""
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
    probe_rows: int = 0
    """Test rows behind `probe`."""
    correct: str | None = None
    """On the last snapshot: one bit per test row, packed, base64."""
    notes: tuple[str, ...] = ()

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
