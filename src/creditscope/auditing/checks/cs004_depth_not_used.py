"""CS004, depth not used: accuracy over the better frozen baseline, paired over seeds."""

from creditscope.auditing.checks import Finding, Method, MethodCheck, Thresholds, register_check
from creditscope.auditing.depth import use_of_depth
from creditscope.auditing.methods import accuracies
from creditscope.auditing.stats import t_bounds
from creditscope.auditing.thresholds import PUBLISHED_GAIN
from creditscope.text import count, number, points


@register_check("cs004_depth_not_used")
class DepthNotUsed(MethodCheck):
    """Δ = accuracy − the better of own-rule frozen and BP-frozen; a bound decides, not a mean."""

    code, title, line = "CS004", "depth not used", "depth"
    value_is = "accuracy over the better frozen baseline"
    value_limit = "depth_gain"
    when = (
        "the upper bound of accuracy over the better frozen baseline is below {depth_gain:g}, or "
        "below −{depth_loss:g} on a task without depth"
    )
    why = (
        "A random deep net with a trained head already classifies well; accuracy alone does not show that the "
        "blocks learnt."
    )
    remedy = (
        "More seeds if undecided; another task if not applicable; otherwise do not claim that the rule trains "
        "depth. The depth ladder shows from which block on training pays."
    )

    def judge(self, method: Method, limits: Thresholds) -> Finding:
        """A method that is worse than frozen fails on any task; whether depth helps is asked where it helps BP."""
        if method.random_targets:
            return self.not_applicable("random targets: accuracy cannot show use of depth")
        if not method.facts.trainer:
            return self.skipped(
                "a watched model has no frozen baselines; as a net (register_net) of run(baselines=True) it has"
            )
        if method.facts.blocks < 1:
            return self.not_applicable("no block lies between the first tap and the last")
        if missing := _missing(method, limits):
            return self.skipped(missing)
        found, fewest = use_of_depth(method), max(limits.seeds, 2)
        if found is None or len(found.seeds) < fewest:
            there = len(found.seeds) if found else 0
            return self.skipped(f"{there} seeds have all baselines, needs {fewest:g}: add --baselines")
        low, high = t_bounds(found.gains, confidence=limits.depth_confidence)
        shown = found.share is not None and found.bp_gain >= limits.task_gain
        share = f", {number(found.share, '.0%')} of BP's gain" if shown else ""
        said = (
            f"{points(found.gain)} pp over the {found.baseline} baseline ({points(low)} to {points(high)}, "
            f"one-sided {limits.depth_confidence:.0%} t bounds, n = {len(found.seeds)}){share}"
        )
        others = {"value": found.gain, "published": found.own_gain < PUBLISHED_GAIN}
        if high < -limits.depth_loss:
            return self.issue(f"{said}: worse than with frozen blocks", **others)
        if found.bp_gain < limits.task_gain:
            return self.not_applicable(
                f"this task cannot show use of depth: BP itself gains {points(found.bp_gain)} pp over frozen "
                f"blocks, under {100 * limits.task_gain:g} pp; {said}"
            )
        if low >= limits.depth_gain:
            return self.passed(said, **others)
        if high < limits.depth_gain:
            return self.issue(f"{said}: training the blocks does not pay", **others)
        return self.undecided(f"{said}: more seeds needed", **others)


def _missing(method: Method, limits: Thresholds) -> str:
    """Which input is not there, in words; empty if all are."""
    own = accuracies(method.runs)
    baselines = {"own frozen": method.frozen_own, "BP": method.bp, "frozen BP": method.frozen_bp}
    if len(own) < limits.seeds:
        return f"{count(len(own), 'seed')}, needs {limits.seeds:g}: --seeds {limits.seeds:g} --baselines"
    absent = [n for n, runs in baselines.items() if len(accuracies(runs).keys() & own.keys()) < limits.seeds]
    lost = [n for n in absent if len(baselines[n].keys() & own.keys()) >= limits.seeds]
    if lost:
        return f"runs of {' and of '.join(lost)} diverged, so there is too little to compare with"
    return f"no {' and no '.join(absent)} runs of the same seeds on record: add --baselines" if absent else ""
