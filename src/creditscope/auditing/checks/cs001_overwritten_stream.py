"""CS001, a block overwrites the stream: RMS(h_l) / RMS(h_{l−1}) at residual taps of equal shape."""

from creditscope.auditing.checks import Finding, Moment, RunCheck, Thresholds, register_check
from creditscope.auditing.thresholds import PUBLISHED_GROWTH
from creditscope.record.table import comparable_taps, growths
from creditscope.text import amount, name_all


@register_check("cs001_overwritten_stream")
class OverwrittenStream(RunCheck):
    """Issue above the growth limit; a block that nearly erases the stream is a tip."""

    code, title, line = "CS001", "a block overwrites the stream", "credit"
    value_is = pooled_size = "largest growth over one block"
    value_limit = "growth"
    when = "RMS of the stream grows more than {growth:g}-fold over one block"
    why = (
        "What earlier layers wrote is then a rounding error in the sum, whatever their credit was: the block "
        "overwrites the stream instead of adding to it."
    )
    remedy = (
        "Penalise the residual branch (`--penalty 0.01`), normalise it, or lower the learning rate of that block. "
        "If credit is normalised (`--credit-norm sample` or `batch`), try without: normalisation removes the fixed "
        "point that a penalty has."
    )
    sufficient = False

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
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
        others = {"value": worst, "published": worst > PUBLISHED_GROWTH}
        said = f"tap {tap} ({facts.taps[tap]}) is {amount(worst)} times the size of the tap before it"
        if worst > limits.growth:
            return self.issue(f"{said}; the limit is {limits.growth:g}", **others)
        unknown = [tap for tap in comparable if tap not in found]
        if unknown:
            return self.skipped(f"the growth has no finite value at {name_all('tap', unknown)}")
        low, least = min(found.items(), key=lambda item: item[1])
        if least * limits.growth < 1:
            shrinks = f"tap {low} shrinks the stream {amount(1 / least)}-fold" if least else ""
            return self.tip(shrinks or f"the stream is zero at tap {low}", **others)
        return self.passed(f"largest growth over one block {amount(worst)}", **others)
