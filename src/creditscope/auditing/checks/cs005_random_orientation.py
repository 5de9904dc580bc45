"""CS005, credit not distinguishable from a random orientation: z against the rotation null, Holm over taps."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.checks._orientation import informed_taps, list_taps, not_about_gradients
from creditscope.auditing.findings import Finding
from creditscope.auditing.moment import Moment
from creditscope.auditing.thresholds import Thresholds


@register_check("cs005_random_orientation")
class RandomOrientation(RunCheck):
    """Says nothing of size or usefulness; the cosine is given beside it as the effect size."""

    code = "CS005"
    title = "credit looks like a random orientation"
    line = "credit"
    value_is = "lowest z over the taps without exact credit"
    why = (
        "Rows of a batch share directions, so a small positive mean cosine is easily had by chance; a t-test over "
        "rows instead has 87 % false alarms."
    )
    remedy = (
        "Report that layer as untrained by credit, or as trained by something else than alignment. Look at "
        "`acquired` (cos minus that of fresh feedback): alignment that was there at the draw is not learnt."
    )

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Issue if any tap without exact credit is not above its null."""
        facts, snapshot = moment.facts, moment.snapshot
        reason = not_about_gradients(facts)
        if reason:
            return self.not_applicable(reason)
        informed = informed_taps(facts, snapshot, limits)
        unknown = [tap for tap in facts.inexact_taps if tap not in informed]
        if unknown:
            return self.skipped(f"no usable rows at {list_taps(unknown)}")
        blind = [tap for tap, above in informed.items() if not above]
        lowest = min(z for tap in informed if (z := snapshot.taps.z[tap]) is not None)
        if blind:
            effects = ", ".join(f"cos {snapshot.taps.cos[tap]:+.3f}, z {snapshot.taps.z[tap]:+.1f}" for tap in blind)
            return self.issue(f"{list_taps(blind)} ({effects}): no better than chance", value=lowest)
        return self.passed(f"all {len(informed)} taps without exact credit are above chance", value=lowest)
