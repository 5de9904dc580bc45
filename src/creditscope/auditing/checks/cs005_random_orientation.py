"""CS005, credit not distinguishable from a random orientation: z against the rotation null, Holm over taps."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.checks._orientation import cut_off_taps, informed_taps, not_about_gradients
from creditscope.auditing.findings import Finding
from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import z_limit
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts
from creditscope.words import first_few, name_all, number

MOST = 6
"""Taps that a message gives the numbers of."""


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

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        """The z of a single tap; Holm asks more of the others."""
        return f"z {z_limit(limits.orientation):.2f}"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Issue if any tap without exact credit is not above its null."""
        facts, snapshot = moment.facts, moment.snapshot
        reason = not_about_gradients(facts, snapshot)
        lost = cut_off_taps(facts, snapshot)
        if lost:
            return self.skipped(f"no gradient arrives at {name_all('tap', lost)}")
        if reason:
            return self.not_applicable(reason)
        informed = informed_taps(facts, snapshot, limits)
        unknown = [tap for tap in facts.inexact_taps if tap not in informed]
        if unknown:
            return self.skipped(f"no usable rows at {name_all('tap', unknown)}")
        blind = [tap for tap, above in informed.items() if not above]
        lowest = min(z for tap in informed if (z := snapshot.taps.z[tap]) is not None)
        if blind:
            taps = snapshot.taps
            said = [f"{t} (cos {number(taps.cos[t], '+.3f')}, z {number(taps.z[t], '+.1f')})" for t in blind]
            noun = "tap" if len(said) == 1 else "taps"
            return self.issue(f"{noun} {first_few(said, MOST)}: no better than chance", value=lowest)
        return self.passed(f"all {len(informed)} taps without exact credit are above chance", value=lowest)
