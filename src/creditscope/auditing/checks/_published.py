"""The usual numbers and the published diagnostics at their thresholds: checks of the decision table, of no verdict."""

from collections.abc import Sequence

from creditscope.auditing.checks._check import Check, Finding, MethodCheck, Outcome, RunCheck
from creditscope.auditing.methods import Method, Moment, accuracies
from creditscope.auditing.stats import known_mean
from creditscope.auditing.thresholds import PUBLISHED_FLOOR, PUBLISHED_GAIN, PUBLISHED_GROWTH, USUAL_GAMMA, Thresholds
from creditscope.record.table import comparable_taps, largest_growth
from creditscope.text import amount, number


def say_value(value: float | None) -> str:
    """In a row of the decision table."""
    return "not measured" if value is None else amount(value)


class _OneNumber(Check):
    """Fires or does not by one number, without an interval."""

    line, kind = "credit", "published"

    def weigh(self, fires: bool | None, value: float | None) -> Finding:
        """An issue if it fires; a number that was not measured decides nothing."""
        outcome = Outcome.SKIPPED if fires is None else Outcome.ISSUE if fires else Outcome.PASSED
        return self.finding(outcome, say_value(value), value=value)


class _OneMoment(_OneNumber, RunCheck):
    """Looks at one moment of one run."""

    def pool(self, moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
        """An issue where at least `seed_share` of the seeds has one, open where fewer have; the value is the mean."""
        hits = sum(f.is_issue for f in findings)
        if hits and hits >= limits.seed_share * len(findings):
            outcome = Outcome.ISSUE
        elif hits or any(f.outcome == Outcome.SKIPPED for f in findings):
            outcome = Outcome.UNDECIDED
        else:
            outcome = findings[0].outcome
        mean = known_mean(f.value for f in findings)
        return self.finding(outcome, say_value(mean), value=mean)


class Accuracy(_OneMoment):
    """Above chance is taken as learning."""

    code, title, kind = "accuracy", "accuracy above chance", "usual"
    traced = False

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        accuracy, chance = moment.snapshot.accuracy, moment.facts.chance
        if chance is None:
            return self.finding(Outcome.NOT_APPLICABLE, "the targets are not classes", value=accuracy)
        return self.weigh(None if accuracy is None else accuracy <= chance, accuracy)


class AccuracyAndCosine(_OneMoment):
    """Accuracy above chance and a positive mean cosine."""

    code, title, kind = "accuracy + Γ", "accuracy above chance and Γ > 0", "usual"
    traced = False

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        gamma, alone = moment.snapshot.gamma, Accuracy().judge(moment, limits).outcome
        if gamma is None or gamma <= USUAL_GAMMA:
            return self.weigh(None if gamma is None else True, gamma)
        return self.finding(alone, amount(gamma), value=gamma)


class PublishedGrowth(_OneMoment):
    """The largest growth of the stream over one block."""

    code, title = f"growth > {PUBLISHED_GROWTH:g}", "a block overwrites the stream"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        if not comparable_taps(moment.facts):
            return self.not_applicable("no residual tap has the shape of the tap before it")
        largest = largest_growth(moment.facts, moment.snapshot)
        return self.weigh(None if largest is None else largest > PUBLISHED_GROWTH, largest)


class PublishedFloor(_OneMoment):
    """The size of the gradient at the last tap."""

    code, title = f"‖g_L‖ < {number(PUBLISHED_FLOOR, 'g')}", "the gradient collapses"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        top = moment.snapshot.taps.g_norm[-1]
        return self.weigh(None if top is None else top < PUBLISHED_FLOOR, top)


class PublishedGain(_OneNumber, MethodCheck):
    """Accuracy over the method's own frozen baseline, on the mean."""

    code, title = f"gain < {100 * PUBLISHED_GAIN:g} pp", "training the blocks does not pay"

    def judge(self, method: Method, limits: Thresholds) -> Finding:
        """Issue under the gain; every seed must have its baseline."""
        own, frozen = accuracies(method.runs), accuracies(method.frozen_own)
        gains = [own[seed] - frozen[seed] if seed in own and seed in frozen else None for seed in method.runs]
        mean = None if None in gains else known_mean(gains)
        return self.weigh(None if mean is None else mean < PUBLISHED_GAIN, mean)


class PublishedStability(_OneNumber, MethodCheck):
    """Cross-batch stability, as mean drift over the block taps; it depends on the batch size, so it decides nothing."""

    code, title = "stability (drift)", "credit drifts from batch to batch"
    decides = False

    def judge(self, method: Method, limits: Thresholds) -> Finding:
        drifts = [(r.last.taps.drift, r.facts.gamma_taps) for r in method.runs.values()]
        return self.weigh(None, known_mean(known_mean(one[tap] for tap in taps) for one, taps in drifts if one))


USUAL: dict[str, RunCheck] = {"accuracy": Accuracy(), "accuracy and cosine": AccuracyAndCosine()}
PUBLISHED: dict[str, RunCheck | MethodCheck] = {
    "growth": PublishedGrowth(),
    "floor": PublishedFloor(),
    "gain": PublishedGain(),
    "stability": PublishedStability(),
}
