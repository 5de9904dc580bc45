"""CS001, a block overwrites the stream: RMS(h_l) / RMS(h_{l−1}) at residual taps of equal shape."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.checks._orientation import list_taps
from creditscope.auditing.findings import Finding
from creditscope.auditing.thresholds import PUBLISHED_GROWTH, Thresholds
from creditscope.record import Facts, Snapshot


def growths(facts: Facts, snapshot: Snapshot) -> dict[int, float]:
    """Growth of the stream over every residual stage, by tap."""
    rms, found = snapshot.taps.h_rms, {}
    for tap, adds in enumerate(facts.residual):
        above, below = rms[tap], rms[tap - 1]
        if adds and facts.tap_shapes[tap] == facts.tap_shapes[tap - 1] and above is not None and below:
            found[tap] = above / below
    return found


def unknown_growths(facts: Facts, snapshot: Snapshot) -> list[int]:
    """Residual taps of equal shape whose growth has no finite value."""
    comparable = [t for t, adds in enumerate(facts.residual) if adds and facts.tap_shapes[t] == facts.tap_shapes[t - 1]]
    return [tap for tap in comparable if tap not in growths(facts, snapshot)]


@register_check("cs001_overwritten_stream")
class OverwrittenStream(RunCheck):
    """Issue above the growth limit; a block that nearly erases the stream is a tip."""

    code = "CS001"
    title = "a block overwrites the stream"
    line = "credit"

    def judge(self, facts: Facts, snapshot: Snapshot, limits: Thresholds) -> Finding:
        """The largest growth decides."""
        if not any(facts.residual):
            return self.not_applicable(
                "no tapped module gives the tap before it plus something (is the skip outside of it?)"
            )
        found = growths(facts, snapshot)
        if not found:
            return self.skipped("the states have no finite size at neighbouring taps")
        tap, worst = max(found.items(), key=lambda item: item[1])
        published = worst > PUBLISHED_GROWTH
        said = f"tap {tap} ({facts.taps[tap]}) is {worst:.3g} times the size of the tap before it"
        if worst > limits.growth:
            return self.issue(f"{said}; the limit is {limits.growth:g}", value=worst, published=published)
        unknown = unknown_growths(facts, snapshot)
        if unknown:
            return self.skipped(f"the growth has no finite value at {list_taps(unknown)}")
        low, least = min(found.items(), key=lambda item: item[1])
        if least < 1 / limits.growth:
            said = f"tap {low} shrinks the stream {1 / least:.3g}-fold" if least else f"the stream is zero at tap {low}"
            return self.tip(said, value=worst, published=published)
        return self.passed(f"largest growth over one block {worst:.3g}", value=worst, published=published)
