"""The shape of a record. A test keeps `docs/records.md` at it; `docs/measurements.md` has the definitions.

`None` stands for a number that was not measured or does not exist (a cosine without usable rows).
Lists called "per tap" or "per weight" follow `Facts.taps` and `Facts.weights`.
"""

from binascii import Error as NoBase64Error
from binascii import a2b_base64
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from itertools import islice, pairwise
from typing import Annotated, Any, Literal, NamedTuple

from creditscope.errors import CreditscopeError
from creditscope.record.flat import name_numbers, tabulate_taps
from creditscope.record.spec import LARGEST, RunSpec, check_numbers

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
MOST_SNAPSHOTS = 10**6
"""Of a run, those that were thinned out included."""
BY_ROUNDING = 1e-3
"""So much beyond its range a number may come to lie."""


class Within(NamedTuple):
    """The bounds of a number; whoever only makes records needs no library for them, a file's reader is told."""

    ge: float
    le: float | None = None

    def __get_pydantic_core_schema__(self, kind: Any, handler: Any) -> Any:
        return handler(kind) | ({"ge": self.ge} if self.le is None else {"ge": self.ge, "le": self.le})


Number = float | None
Size = Annotated[float, Within(0)] | None
Cosine = Annotated[float, Within(-1 - BY_ROUNDING, 1 + BY_ROUNDING)] | None
Share = Annotated[float, Within(0, 1 + BY_ROUNDING)] | None
Angle = Annotated[float, Within(0, 180 + BY_ROUNDING)] | None
Count = Annotated[int, Within(0, LARGEST)]
NUMBERS = (Number, Size, Cosine, Share, Angle)
"""Numbers, and those that have a range: a file with another one is refused."""
Series = tuple[Number, ...]
Sizes = tuple[Size, ...]
Cosines = tuple[Cosine, ...]
Shares = tuple[Share, ...]
Angles = tuple[Angle, ...]
Counts = tuple[Count, ...]


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
    stage: Count
    role: Literal["rule", "exact", "unused"]
    shape: Counts = ()
    """Of a watched model; () for others."""


@dataclass(frozen=True, kw_only=True)
class ModuleFact:
    """One call of a module in the forward of a watched model."""

    name: str
    kind: str
    """The name of its class."""
    call: Count = 0
    """Which of its calls, from 0 on: a shared ReLU has several."""
    units: Count = 0
    owner: str = ""
    """The module with parameters whose units these are: its own name, or that of the layer before an activation."""
    source: Count = 0
    """Number of the state that it read: the same for modules that read the same one; 0 if not known."""


@dataclass(frozen=True, kw_only=True)
class CutFacts:
    """Modules of a watched model in whose forward a gradient is cut, by name."""

    skips: tuple[str, ...] = ()
    """A state is detached and added to what was made from it."""
    detached: tuple[str, ...] = ()
    """A state that carries a gradient is detached."""
    without_grad: tuple[str, ...] = ()
    """Trainable modules that ran with gradients off."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is true of the run from its first step to its last; checks and figures read it instead of torch."""

    rule: RuleFacts
    taps: tuple[str, ...]
    tap_shapes: tuple[Counts, ...]
    stem_tap: bool
    exact_taps: Counts = ()
    residual: tuple[bool, ...] = ()
    rows_interact: bool = False
    class_token: Count | None = None
    weights: tuple[WeightFact, ...] = ()
    frozen_weights: tuple[str, ...] = ()
    classes: Count = 0
    chance: Share = None
    best_constant: Share = None
    test_rows: Count = 0
    precision: str = "float32"
    trainer: bool = True
    """False for a watched model: nothing is known of how it was trained."""
    modules: tuple[ModuleFact, ...] = ()
    """Of a watched model: calls in the order in which they ended."""
    cuts: CutFacts | None = None

    @property
    def is_network(self) -> bool:
        """Whether a model was watched under backprop itself: the net is judged, and no rule."""
        return not (self.trainer or self.inexact_taps or self.rule.local or self.rule.needs_feedback)

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
    diverged_epoch: Count | None = None
    creditscope: str = ""
    commit: str = ""
    python: str = ""
    torch: str = ""
    numpy: str = ""
    platform: str = ""
    cpu: str = ""
    """Which instructions torch computed with, on which last bits depend (AVX2, AVX512, …)."""
    place: str = ""
    """Where it was trained: here, ray, slurm, …."""
    device: str = ""
    threads: Count = 0
    engine: str = ""
    stack: tuple[int, ...] = ()
    note: str = ""
    data_checksum: str = ""
    parameters: Count = 0
    started: str = ""
    finished: str = ""
    seconds: Annotated[float, Within(0)] = 0.0
    resumes: Count = 0
    facts: Facts
    seal: dict[str, str] | None = field(default=None, compare=False, repr=False)
    """Digests of the record's files once it is finished; None before, and in records of earlier versions."""


@dataclass(frozen=True, kw_only=True)
class TapMeasures:
    """Per tap. Gradients g and credit a are per sample; rows without either are left out and counted."""

    h_norm: Sizes
    h_norm_q25: Sizes
    h_norm_q75: Sizes
    h_rms: Sizes
    g_norm: Sizes
    g_norm_q25: Sizes
    g_norm_q75: Sizes
    g_rel: Sizes
    g_noise: Sizes
    cos: Cosines
    cos_F: Cosines  # noqa: N815 (the field's own symbol)
    angle: Angles
    null_sd: Sizes
    z: Series
    ratio: Sizes
    rank_a: Sizes
    rank_g: Sizes
    rows_used: Counts
    rows_no_gradient: Counts
    rows_no_credit: Counts
    null_sd_F: Sizes = ()  # noqa: N815
    null_q99: Sizes = ()
    g_noise_float32: Sizes = ()
    # measured where the tier asks for it; empty otherwise
    cos_input: Cosines = ()
    stage_cos: Cosines = ()
    stage_null_sd: Sizes = ()
    # of a rule that draws noise in every step, over draws of its own
    beta: Series = ()
    beta_se: Sizes = ()
    beta_null_sd: Sizes = ()
    draw_noise: Sizes = ()
    draw_cos: Cosines = ()
    # of a rule whose stages learn at other states, and of credit that skips alone would carry
    handed_on: Sizes = ()
    skip_cos: Cosines = ()
    skip_alone: Cosines = ()
    # of the reference, and of the credit
    common: Cosines = ()
    common_a: Cosines = ()
    drift: Cosines = ()
    # beside each its null: fresh draws of all feedback, or random rotations of the credit
    fresh_cos: Cosines = ()
    fresh_sd: Sizes = ()
    permuted_cos: Cosines = ()
    rho: Cosines = ()
    rho_exact: Cosines = ()
    fresh_rho: Cosines = ()
    fresh_rho_sd: Sizes = ()
    descent: Sizes = ()
    descent_null: Sizes = ()
    descent_null_sd: Sizes = ()
    fresh_descent: Sizes = ()
    fresh_descent_sd: Sizes = ()
    descent_stage: Sizes = ()
    descent_stage_null: Sizes = ()
    descent_stage_null_sd: Sizes = ()
    # accuracies: of a linear probe; with the block before the tap put back to where it began, or skipped
    probe: Shares = ()
    rewind: Shares = ()
    rewind_refit: Shares = ()
    skip_one: Shares = ()


@dataclass(frozen=True, kw_only=True)
class WeightMeasures:
    """Per weight: the rule's gradient against the exact one, on the snapshot's rows unless it says `step`."""

    norm: Sizes
    exact_norm: Sizes
    all_zero: Counts
    underflow: Counts
    exact_all_zero: Counts
    exact_underflow: Counts
    cos: Cosines
    update_cos: Cosines
    decrease_share: Series
    step_norm: Sizes
    step_all_zero: tuple[Count | None, ...]
    step_underflow: tuple[Count | None, ...]
    z: Series = ()
    feedback_angle: Angles = ()
    feedback_gap: Sizes = ()
    w_norm: Sizes = ()
    exact_float32: Sizes = ()
    # of a watched model: whether a gradient gets there at all; what happened since the snapshot before
    reached: Counts = ()
    unit_spread: Sizes = ()
    lost: Shares = ()
    update: Sizes = ()
    changed: tuple[Count | None, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ModuleMeasures:
    """Per call of a module of a watched model (`Facts.modules`): what it gives, over rows spread evenly."""

    rms: Sizes
    dispersion: Sizes
    token_dispersion: Sizes
    rank: Sizes
    dead: Shares
    saturated: Shares
    dropped: Shares
    finite: Shares


@dataclass(frozen=True, kw_only=True)
class OutputMeasures:
    """The output of a watched model beside its targets."""

    rms: Size
    dispersion: Size = None
    best_constant_loss: Number = None
    sure: Share = None
    probabilities: Share = None
    log_probabilities: Share = None
    bounded: Count | None = None
    loss_has_softmax: Count | None = None
    loss_has_sigmoid: Count | None = None
    loss_is_likelihood: Count | None = None
    classes: Count | None = None
    largest_label: Number = None
    targets_differ: Count | None = None


@dataclass(frozen=True, kw_only=True)
class LayerMeasures:
    """Of a net that names its pre-activations Z_0..Z_{L−1}: layer by layer, over all rows at once.

    H_0 is the input, H_1..H_{L−1} are the taps, H_L is the output.
    """

    z_grad: Sizes
    rms: Sizes
    dispersion: Sizes
    probe: Shares = ()
    probe_rows: Count = 0


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All measurements of a run at one moment."""

    epoch: Count
    step: Count
    rows: Count
    rows_covered: Count
    rows_fitted: Count
    loss: Number
    accuracy: Share = None
    accuracy_refit: Share = None
    train_loss: Number = None
    step_error: Size = None
    gamma: Cosine = None
    gamma_inexact: Cosine = None
    gamma_null_sd: Size = None
    taps: TapMeasures
    class_token: TapMeasures | None = None
    weights: WeightMeasures | None = None
    layers: LayerMeasures | None = None
    modules: ModuleMeasures | None = None
    output: OutputMeasures | None = None
    fresh_draws: Count = 0
    descent_turns: Count = 8  # as in records that do not say
    probe_rows: Count = 0
    untrained: bool = False
    correct: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A row per tap."""
        return str(tabulate_taps(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from creditscope.report.notebook import show_snapshot  # only notebooks need it

        return show_snapshot(self)

    def scalars(self, facts: Facts | None = None) -> dict[str, float]:
        """Every number that was measured, by a flat name, for loggers; `facts` name weights and modules."""
        return name_numbers(self, facts)

    @property
    def place(self) -> tuple[int, int]:
        """By which snapshots of a run are ordered."""
        return self.epoch, self.step

    @property
    def when(self) -> str:
        """The epoch; of a model that is watched step by step, the step."""
        return f"step {self.step}" if self.step and not self.epoch else f"epoch {self.epoch}"

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


OF_WATCHED = frozenset(
    {"g_noise_float32", "lost", "shape", "modules", "cuts", "reached", "unit_spread", "update", "changed", "output"}
)
"""Fields of a watched model alone, which are not written where they are empty."""
REQUIRED = {
    kind: frozenset(f.name for f in fields(kind) if f.default is MISSING)
    for kind in (TapMeasures, WeightMeasures, ModuleMeasures)
}
"""Lists that are never empty."""


def check_whole(
    spec: RunSpec | None, provenance: Provenance, snapshots: Sequence[Snapshot], *, left_out: int = 0
) -> None:
    """What types cannot say: refuse a record whose lines or lists are not all there, or whose numbers do not agree.

    `left_out`: so many snapshots were thinned out.
    """
    if spec is not None:
        check_numbers(spec)
        _check_epochs(spec, provenance.status == "complete", [s.epoch for s in snapshots], left_out)
    elif any(later.place <= earlier.place for earlier, later in pairwise(snapshots)):
        raise CreditscopeError("Expected every snapshot at a later epoch or step than the one before, but got others.")
    _check_facts(provenance.facts)
    facts = provenance.facts
    taps, weights, modules = len(facts.taps), len(facts.weights), len(facts.modules)
    for snapshot in snapshots:
        if not _is_even(snapshot, taps, weights, modules):
            told = f"{taps} taps and {weights} weights{f', and {modules} modules,' * bool(modules)}"
            raise CreditscopeError(f"Expected {told} in every list of epoch {snapshot.epoch}, but got other lengths.")
        if not _rows_agree(snapshot):
            raise CreditscopeError(
                f"Expected no more rows to be used than the {snapshot.rows} of epoch {snapshot.epoch}, but got more."
            )
        try:
            a2b_base64(snapshot.correct or "")
        except (NoBase64Error, ValueError):
            raise CreditscopeError("Expected `correct` to be bits in base64, but got other text.") from None


def _check_epochs(spec: RunSpec, complete: bool, found: Sequence[int], left_out: int) -> None:
    """Snapshots when the spec asks for them, each once and in order; to its end, unless the run diverged."""
    last = found[-1] if found else "none"
    if complete and last != spec.epochs:
        raise CreditscopeError(f"Expected snapshots to epoch {spec.epochs}, but the last is {last}.")
    if len(found) + left_out > MOST_SNAPSHOTS:
        raise CreditscopeError(f"Expected at most {MOST_SNAPSHOTS} snapshots, but got more.")
    due = list(islice(spec.due_epochs(), len(found) + left_out + complete))
    there = due if left_out == 0 else [e for e in due if e in set(found)]
    if list(found) != there or len(due) != len(found) + left_out:
        raise CreditscopeError(
            f"Expected the {len(due)} snapshots that the spec asks for, each once and in order, but got "
            f"{len(found)} that are not these{f' without {left_out} left out' * bool(left_out)}."
        )


def _check_facts(facts: Facts) -> None:
    taps = len(facts.taps)
    lengths = len(facts.tap_shapes), len(facts.residual) or taps
    exact, stages = set(facts.exact_taps), [w.stage for w in facts.weights]
    if not taps or lengths != (taps, taps):
        raise CreditscopeError(f"Expected a shape for each of {taps} taps in the facts, but got other lengths.")
    if len(exact) < len(facts.exact_taps) or max(exact, default=0) >= taps or max(stages, default=0) > taps:
        raise CreditscopeError(
            f"Expected exact taps and weights of a net with {taps} taps in the facts, but got others."
        )


def _is_even(snapshot: Snapshot, taps: int, weights: int, modules: int) -> bool:
    groups = ((snapshot.taps, taps), (snapshot.class_token, taps))
    for measures, places in (*groups, (snapshot.weights, weights), (snapshot.modules, modules)):
        if measures is not None:
            required = REQUIRED[type(measures)]
            if any(len(v) != places for name, v in vars(measures).items() if v or name in required):
                return False
    layers = snapshot.layers
    return layers is None or all(
        len(values) == len(layers.z_grad) + 1 for values in (layers.rms, layers.dispersion, layers.probe or layers.rms)
    )


def _rows_agree(snapshot: Snapshot) -> bool:
    counted: list[Iterable[int]] = [(snapshot.rows_covered, snapshot.rows_fitted)]
    for group in (snapshot.taps, snapshot.class_token):
        counted += [group.rows_used, group.rows_no_gradient, group.rows_no_credit] if group else []
    return all(max(rows, default=0) <= snapshot.rows for rows in counted)
