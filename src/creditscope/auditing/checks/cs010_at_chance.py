"""CS010, at chance: accuracy is no more than a little above the best constant predictor."""

from collections.abc import Sequence
from dataclasses import replace

from creditscope.auditing.checks import Finding, Moment, RunCheck, Thresholds, register_check
from creditscope.auditing.stats import share_bounds, t_bounds
from creditscope.record import Facts
from creditscope.text import number


@register_check("cs010_at_chance")
class AtChance(RunCheck):
    """Of one run by the exact binomial bounds over the test rows, over seeds by those of the mean."""

    code, title, line = "CS010", "accuracy at chance", "depth"
    value_is = "accuracy"
    when = "the upper bound of accuracy is less than {chance_gain:g} above the best constant guess"
    why = "Alignment of a net that has learnt nothing is no evidence."
    remedy = "Train longer, or fix the training before asking about credit."
    sufficient = False

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        return f"best constant {facts.best_constant:.3f} + {limits.chance_gain:g}"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        facts, snapshot = moment.facts, moment.snapshot
        if facts.best_constant is None:
            return self.not_applicable("the targets are not classes")
        if snapshot.accuracy is None:
            return self.skipped("accuracy was not measured")
        if moment.random_targets:
            return self.not_applicable("random targets: an accuracy at chance is what is expected")
        if snapshot.untrained:
            return self.not_applicable("not trained yet: an accuracy at chance is what is expected")
        rows = facts.test_rows or snapshot.rows_covered
        bounds = share_bounds(round(snapshot.accuracy * rows), rows, confidence=limits.chance_confidence)
        return self._decide(snapshot.accuracy, bounds, facts.best_constant, f"over {rows:,} rows", limits)

    def pool(self, moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
        """By the bounds of the mean over seeds, test set fixed."""
        values, best = [m.snapshot.accuracy for m in moments], moments[0].facts.best_constant
        known = [value for value in values if value is not None]
        unasked = any(m.random_targets or m.snapshot.untrained for m in moments)
        if len(moments) == 1 or len(known) < len(values) or best is None or unasked:
            return super().pool(moments, findings, limits)
        bounds, mean = t_bounds(known, confidence=limits.chance_confidence), sum(known) / len(known)
        found = self._decide(mean, bounds, best, f"over {len(known)} seeds", limits)
        return replace(found, seeds_hit=sum(f.is_issue for f in findings))

    def _decide(self, value: float, bounds: tuple[float, float], best: float, over: str, limits: Thresholds) -> Finding:
        low, high = bounds
        ends = f"{number(max(low, 0.0), '.3f')} to {number(min(high, 1.0), '.3f')}"
        said = f"accuracy {value:.3f} ({ends}, one-sided {limits.chance_confidence:.0%}, {over})"
        constant = f"the best constant guess, {best:.3f}"
        if high < best + limits.chance_gain:
            gain = f"{100 * limits.chance_gain:g} pp"
            return self.issue(f"{said} is less than {gain} above {constant}", value=value)
        if low > best:
            return self.passed(f"{said} clears {constant}", value=value)
        return self.undecided(f"{said} does not clear {constant}", value=value)
