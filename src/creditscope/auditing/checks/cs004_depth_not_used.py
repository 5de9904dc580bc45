"""CS004, depth not used: accuracy over the better frozen baseline, paired over seeds."""

from creditscope.auditing.checks import MethodCheck, register_check
from creditscope.auditing.findings import Finding
from creditscope.auditing.methods import Method, accuracies
from creditscope.auditing.stats import t_bounds
from creditscope.auditing.thresholds import PUBLISHED_GAIN, Thresholds


@register_check("cs004_depth_not_used")
class DepthNotUsed(MethodCheck):
    """Δ = accuracy − the better of own-rule frozen and BP-frozen; a bound decides, not a mean."""

    code = "CS004"
    title = "depth not used"
    line = "depth"

    def judge(self, method: Method, limits: Thresholds) -> Finding:
        """Passed, issue or undecided by the one-sided bounds of Δ against the gain that counts."""
        if not method.facts.trainer:
            return self.not_applicable("use of depth not tested: a watched model has no trainer")
        own, frozen_own = accuracies(method.runs), accuracies(method.frozen_own)
        bp, frozen_bp = accuracies(method.bp), accuracies(method.frozen_bp)
        lost = [
            name
            for name, runs in (("BP", method.bp), ("frozen BP", method.frozen_bp), ("own frozen", method.frozen_own))
            if any(r.provenance.status == "diverged" for r in runs.values())
        ]
        if lost:
            return self.skipped(f"{' and '.join(lost)} diverged, so there is nothing to compare with")
        missing = [
            name
            for name, found in (("own frozen", frozen_own), ("BP", bp), ("frozen BP", frozen_bp))
            if len(found.keys() & own.keys()) < limits.seeds
        ]
        if len(own) < limits.seeds:
            return self.skipped(f"{len(own)} seed{'s' * (len(own) != 1)}, needs {limits.seeds:g}")
        if missing:
            return self.skipped(f"no {' and no '.join(missing)} runs of the same seeds on record: add --baselines")
        seeds = sorted(own.keys() & frozen_own.keys() & bp.keys() & frozen_bp.keys())
        if len(seeds) < max(limits.seeds, 2):
            return self.skipped(
                f"{len(seeds)} seeds have all baselines, needs {max(limits.seeds, 2):g}: add --baselines"
            )
        bp_gain = _mean([bp[s] - frozen_bp[s] for s in seeds])
        if bp_gain < limits.task_gain:
            return self.not_applicable(
                f"this task cannot show use of depth: BP itself gains {100 * bp_gain:+.1f} pp over frozen blocks, "
                f"under {100 * limits.task_gain:g} pp"
            )
        better, name = max(
            ((b, n) for b, n in ((frozen_own, "own-rule frozen"), (frozen_bp, "BP-frozen"))),
            key=lambda pair: _mean([pair[0][s] for s in seeds]),
        )
        published = _mean([own[s] - frozen_own[s] for s in seeds]) < PUBLISHED_GAIN
        return self._decide([own[s] - better[s] for s in seeds], name, bp_gain, published, limits)

    def _decide(
        self, gains: list[float], baseline: str, bp_gain: float, published: bool, limits: Thresholds
    ) -> Finding:
        low, high = t_bounds(gains, confidence=limits.depth_confidence)
        assert low is not None
        assert high is not None
        mean = _mean(gains)
        said = (
            f"{100 * mean:+.1f} pp over the {baseline} baseline ({100 * low:+.1f} to {100 * high:+.1f}, "
            f"n = {len(gains)}, t over seeds), {mean / bp_gain:.0%} of BP's gain"
        )
        if low >= limits.depth_gain:
            return self.passed(said, value=mean, published=published)
        if high < limits.depth_gain:
            return self.issue(f"{said}: training the blocks does not pay", value=mean, published=published)
        return self.undecided(f"{said}: more seeds needed", value=mean, published=published)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
