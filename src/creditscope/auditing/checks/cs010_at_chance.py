"""CS010, at chance: the lower bound of accuracy does not clear the best constant predictor."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.findings import Finding
from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import binomial_lower
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts


@register_check("cs010_at_chance")
class AtChance(RunCheck):
    """Exact binomial bound over the test rows."""

    code = "CS010"
    title = "accuracy at chance"
    line = "depth"
    value_is = "accuracy"
    why = "Alignment of a net that has learnt nothing is no evidence."
    remedy = "Train longer, or fix the training before asking about credit."
    sufficient = False

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        """The bound of the accuracy must be above it."""
        return f"best constant {facts.best_constant:.3f}"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Compared with always naming the most frequent class."""
        facts, snapshot = moment.facts, moment.snapshot
        if facts.best_constant is None:
            return self.not_applicable("the targets are not classes")
        if snapshot.accuracy is None:
            return self.skipped("accuracy was not measured")
        if moment.random_targets:
            return self.not_applicable("random targets: an accuracy at chance is what is expected")
        rows = facts.test_rows or snapshot.rows_covered
        low = binomial_lower(snapshot.accuracy, rows, confidence=limits.chance_confidence)
        said = f"accuracy {snapshot.accuracy:.3f} (lower bound {low:.3f} over {rows:,} rows)"
        if low <= facts.best_constant:
            return self.issue(
                f"{said} does not clear the best constant guess, {facts.best_constant:.3f}",
                value=snapshot.accuracy,
            )
        return self.passed(f"{said} clears the best constant guess, {facts.best_constant:.3f}", value=snapshot.accuracy)
