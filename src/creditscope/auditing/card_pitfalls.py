"""Known ways to be wrong about credit assignment, each ticked by what was measured, with the evidence."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import Outcome
from creditscope.auditing.columns import OF_ANSWER
from creditscope.auditing.methods import Method, accuracies
from creditscope.auditing.stats import Interval
from creditscope.text import amount, count, number, points, span

State = Literal["avoided", "met", "not measured", "not applicable"]


@dataclass(frozen=True)
class Pitfall:
    """One pitfall, whether this method's report falls into it, and how one knows."""

    title: str
    state: State
    evidence: str


Evidence = tuple[State, str]
PITFALLS: dict[str, Callable[[Method, MethodAudit], Evidence]] = {}


def list_pitfalls(method: Method, found: MethodAudit) -> tuple[Pitfall, ...]:
    """Every pitfall, answered for one method."""
    return tuple(Pitfall(title, *ask(method, found)) for title, ask in PITFALLS.items())


def _pitfall(title: str):
    return lambda ask: PITFALLS.setdefault(title, ask)


@_pitfall("Gradient norms that scale with the batch")
def _batch_scaled(method: Method, found: MethodAudit) -> Evidence:
    tops = found.per_tap[-1].g_norm if found.per_tap else None
    if tops is None:
        return "not measured", "no gradient norm at the top tap"
    return "avoided", f"‖g‖ is per sample, of a sum-reduced loss; median {amount(tops.mean, 2)} at the top tap"


@_pitfall("A floor that a change of units crosses")
def _units(method: Method, found: MethodAudit) -> Evidence:
    if method.facts.precision == "float64":
        return "avoided", "the run itself is in float64"
    noise = [tap.g_noise for tap in found.per_tap if tap.g_noise is not None]
    if not noise:
        return "not measured", "the gradient was not recomputed in float64"
    worst = amount(max(noise), 2)
    return "avoided", f"resolution is judged by recomputation in float64 (worst g_noise {worst}), not by size"


@_pitfall("Clamped cosines; rows without gradient scored")
def _clamped(method: Method, found: MethodAudit) -> Evidence:
    taps = [record.last.taps for record in method.whole]
    if not taps:
        return "not measured", "every run diverged"
    names = ("rows_used", "rows_no_gradient", "rows_no_credit")
    used, without_gradient, without_credit = (sum(sum(getattr(t, name)) for t in taps) for name in names)
    return "avoided", (
        f"cosines are never clamped; over taps and seeds {used} rows used, {without_gradient} without gradient and "
        f"{without_credit} without credit left out and counted"
    )


@_pitfall("Γ from a tap that is handed the answer")
def _answered_taps(method: Method, found: MethodAudit) -> Evidence:
    exact = [f"{t.tap}" for t in found.per_tap if t.exact]
    if not exact:
        return "avoided", "no tap is handed the gradient"
    if found.gamma_inexact is None:
        return "not applicable", "every block tap is handed the gradient; Γ says nothing of the rule"
    without, with_it = number(found.gamma_inexact, "+.3f"), number(found.gamma, "+.3f")
    return "avoided", f"exact tap {', '.join(exact)}: Γ without it {without}, with it {with_it}"


@_pitfall("No null per tap")
def _nulls(method: Method, found: MethodAudit) -> Evidence:
    inexact = [tap for tap in found.per_tap if not tap.exact]
    if not inexact:
        return "not applicable", "no tap without exact credit"
    known = [tap.null_sd for tap in inexact if tap.null_sd]
    said = f"rotation null at {len(known)} of {len(inexact)} taps without exact credit"
    said += f", sd of the mean {_range(known)}" if known else ""
    return "avoided" if len(known) == len(inexact) else "not measured", said


@_pitfall("Not rejecting taken for nothing there")
def _not_rejected(method: Method, found: MethodAudit) -> Evidence:
    asked = [tap for tap in found.per_tap if not tap.exact]
    if not asked or method.facts.rule.approximates != "gradient":
        return "not applicable", "no tap is asked for alignment"
    answers = Counter(tap.answer for tap in asked if tap.answer)
    if not answers:
        return "not measured", "no tap has an answer over seeds"
    said = ", ".join(f"{answers[answer]} {OF_ANSWER[answer]} {answer}" for answer in OF_ANSWER if answers[answer])
    return "avoided", f"bounds over {count(len(method.whole), 'seed')} answer, not a test that does not reject: {said}"


@_pitfall("A mean that hides the layers")
def _hidden_layers(method: Method, found: MethodAudit) -> Evidence:
    if hides := [f for f in found.findings if f.code == "CS006" and f.is_issue]:
        return "met", hides[0].message
    return (
        "avoided",
        f"every tap is given; Γ is their plain mean over taps {', '.join(map(str, method.facts.gamma_taps))}",
    )


@_pitfall("Alignment of the drawn feedback taken for learnt alignment")
def _initial_alignment(method: Method, found: MethodAudit) -> Evidence:
    if not method.facts.rule.needs_feedback:
        return "not applicable", "the rule has no feedback"
    known = {tap.tap: tap.acquired for tap in found.per_tap if tap.acquired and not tap.exact}
    if not known:
        return "not measured", "no fresh feedback was drawn"
    draws = max(record.last.fresh_draws for record in method.whole)
    return "avoided", f"cos minus that of {draws} fresh draws of the feedback: {_list('tap', known)}"


@_pitfall("A second witness that is not independent")
def _dependent_witness(method: Method, found: MethodAudit) -> Evidence:
    known = [tap for tap in found.per_tap if tap.descent and not tap.exact]
    if known:
        return "avoided", f"descent, with its own null, at {len(known)} taps without exact credit; ρ only checks cos_F"
    if all(tap.exact for tap in found.per_tap):
        return "not applicable", "every tap is handed the exact gradient"
    return "not measured", "no descent"


@_pitfall("No weight-space alignment")
def _weight_space(method: Method, found: MethodAudit) -> Evidence:
    known = {tap.tap: tap.stage_cos for tap in found.per_tap if tap.stage_cos}
    if not known:
        return "not measured", "no weight gradients of stages"
    nulls = [tap.stage_null_sd for tap in found.per_tap if tap.stage_cos and tap.stage_null_sd]
    null = f"sd of their null {_range(nulls)}" if nulls else "their null was not drawn"
    return "avoided", f"cosine of each stage's weight gradients with BP's: {_list('stage', known)}; {null}"


@_pitfall("No frozen baseline, or one of another trainer")
def _baseline(method: Method, found: MethodAudit) -> Evidence:
    if not method.facts.trainer:
        return "not applicable", "a watched model has no trainer"
    own = accuracies(method.runs).keys()
    shared = [len(own & accuracies(runs).keys()) for runs in (method.frozen_own, method.frozen_bp)]
    if not all(shared):
        return "not measured", "own-rule frozen and BP-frozen runs of the same seeds are not both on record"
    return "avoided", (
        f"own-rule frozen ({shared[0]} seeds) and BP-frozen ({shared[1]} seeds), same trainer, initialisation, data "
        "order and epochs, paired by seed"
    )


@_pitfall("A task that needs no depth")
def _task_without_depth(method: Method, found: MethodAudit) -> Evidence:
    if found.bp_gain is None:
        return "not measured", "BP and frozen BP of the same seeds are not both on record"
    met = any(f.code == "CS004" and f.outcome == Outcome.NOT_APPLICABLE for f in found.findings)
    return "met" if met else "avoided", f"BP gains {points(found.bp_gain.mean)} pp by training the blocks"


@_pitfall("One trained block taken for depth")
def _one_block(method: Method, found: MethodAudit) -> Evidence:
    if method.facts.blocks < 1:
        return "not applicable", "no block lies between the first tap and the last"
    if found.trained_depth is None:
        return "not measured", "too few seeds with every block put back"
    return "avoided", f"trained depth {found.trained_depth.beside(found.bp_trained_depth)}"


@_pitfall("One seed, or seeds chosen afterwards")
def _seeds(method: Method, found: MethodAudit) -> Evidence:
    lost = f"; diverged: {found.verdict.diverged}" if found.verdict.diverged else ""
    listed = f"{len(found.seeds)} on record and all used: {', '.join(map(str, found.seeds))}{lost}"
    if len(found.seeds) < 2:
        return "met", listed
    return "avoided", f"{listed} (a record cannot show runs that were thrown away)"


@_pitfall("No interval")
def _no_interval(method: Method, found: MethodAudit) -> Evidence:
    if found.accuracy is None or found.accuracy.low is None:
        return "met", "one value has no interval"
    return "avoided", f"95 % {found.accuracy.kind} intervals, n = {found.accuracy.n}, over {found.accuracy.over}"


@_pitfall("Widths, seeds or recipes mixed")
def _mixed_settings(method: Method, found: MethodAudit) -> Evidence:
    return "avoided", f"one setting: {found.setting}"


@_pitfall("Chance level left out")
def _chance(method: Method, found: MethodAudit) -> Evidence:
    facts = method.facts
    if facts.best_constant is None or facts.chance is None:
        return "not applicable", "the targets are not classes"
    return "avoided", f"chance {facts.chance:.3f}, best constant guess {facts.best_constant:.3f}"


@_pitfall("Rows that interact")
def _interacting_rows(method: Method, found: MethodAudit) -> Evidence:
    if found.rows_interact:
        return "met", "a row's gradient is not its own alone (message passing, or BatchNorm in train mode)"
    return "avoided", "one row's output does not depend on another row"


@_pitfall("Numbers typed by hand")
def _typed_numbers(method: Method, found: MethodAudit) -> Evidence:
    named = [record.name for record in method.runs.values() if record.path]
    commits = sorted({r.provenance.commit[:9] for r in method.runs.values() if r.provenance.commit})
    where = f"records {', '.join(named)}" if named else "records in memory"
    return "avoided", f"read from {where}" + (f"; commit {', '.join(commits)}" if commits else "")


def _range(values: list[float]) -> str:
    return span(number(min(values), ".3f"), number(max(values), ".3f"), " to ")


def _list(noun: str, known: dict[int, Interval]) -> str:
    return ", ".join(f"{noun} {tap} {interval.text('+.2f')}" for tap, interval in known.items())
