"""CS001, a block overwrites the stream: RMS(h_l) / RMS(h_{l−1}) at residual taps of equal shape."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.checks._orientation import list_taps
from creditscope.auditing.findings import Finding
from creditscope.auditing.moment import Moment
from creditscope.auditing.thresholds import PUBLISHED_GROWTH, Thresholds
from creditscope.record import Facts, Snapshot


def growths(facts: Facts, snapshot: Snapshot) -> dict[int, float]:
    """Growth of the stream over every residual stage of equal shape, by tap."""
    rms, found = snapshot.taps.h_rms, {}
    for tap in comparable_taps(facts):
        above, below = rms[tap], rms[tap - 1]
        if above is not None and below:
            found[tap] = above / below
    return found


def comparable_taps(facts: Facts) -> list[int]:
    """Residual taps of the same shape as the tap before."""
    return [t for t, adds in enumerate(facts.residual) if adds and facts.tap_shapes[t] == facts.tap_shapes[t - 1]]


@register_check("cs001_overwritten_stream")
class OverwrittenStream(RunCheck):
    """Issue above the growth limit; a block that nearly erases the stream is a tip."""

    code = "CS001"
    title = "a block overwrites the stream"
    line = "credit"
    value_is = "largest growth over one block"
    value_limit = "growth"
    why = (
        "What earlier layers wrote is then a rounding error in the sum, whatever their credit was: the block "
        "overwrites the stream instead of adding to it."
    )
    remedy = (
        "Penalise the residual branch (`--penalty 0.01`), normalise it, or lower the learning rate of that block. "
        "If credit is normalised (`--credit-norm sample` or `batch`), try without: normalisation removes the fixed "
        "point that a penalty has."
    )

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """The largest growth decides."""
        facts, snapshot = moment.facts, moment.snapshot
        if not any(facts.residual):
            return self.not_applicable(
                "no tapped module gives the tap before it plus something (is the skip outside of it?)"
            )
        comparable = comparable_taps(facts)
        if not comparable:
            return self.not_applicable("no residual tap has the shape of the tap before it")
        found = growths(facts, snapshot)
        if not found:
            return self.skipped("the states have no finite size at neighbouring taps")
        tap, worst = max(found.items(), key=lambda item: item[1])
        published = worst > PUBLISHED_GROWTH
        said = f"tap {tap} ({facts.taps[tap]}) is {worst:.3g} times the size of the tap before it"
        if worst > limits.growth:
            return self.issue(f"{said}; the limit is {limits.growth:g}", value=worst, published=published)
        unknown = [tap for tap in comparable if tap not in found]
        if unknown:
            return self.skipped(f"the growth has no finite value at {list_taps(unknown)}")
        low, least = min(found.items(), key=lambda item: item[1])
        if least * limits.growth < 1:
            said = f"tap {low} shrinks the stream {1 / least:.3g}-fold" if least else f"the stream is zero at tap {low}"
            return self.tip(said, value=worst, published=published)
        return self.passed(f"largest growth over one block {worst:.3g}", value=worst, published=published)
