"""CS008, alignment and descent disagree: cosine and `descent` fall on different sides of their nulls at a tap."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.checks._orientation import (
    descending_taps,
    descent_z,
    informed_taps,
    not_about_gradients,
)
from creditscope.auditing.findings import Finding
from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import z_limit
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import Facts, Snapshot
from creditscope.words import name_all, number

NO_MORE = "no more than a random orientation"


@register_check("cs008_descent_disagrees")
class DescentDisagrees(RunCheck):
    """Descent is the independent witness: what a step along the credit does to the loss, not where it points."""

    code = "CS008"
    title = "alignment and descent disagree"
    line = "credit"
    value_is = "taps at which cosine and descent disagree"
    why = (
        "A cosine says where credit points, not what it does. ρ, the published functional metric, converges to "
        "cos_F, so it is no second witness; descent is one."
    )
    remedy = (
        "Aligned without descent: the direction is right where the gradient is small and wrong where it matters; "
        "look at cos_F, the class token, single classes. Descent against the cosine: a few rows carry it; look at "
        "cos_F again. Undecided: more rows (`--eval-rows`)."
    )

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        """One tap is enough."""
        return "0 taps"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Both nulls at one level, Holm over the taps for what is above; then the weighting.

        Aligned, and descent not above its null even uncorrected: an issue. Descending, and the cosine not positive: an
        issue; positive but not above its null: undecided, since weak alignment explains both.
        """
        facts, snapshot = moment.facts, moment.snapshot
        reason = not_about_gradients(facts, snapshot)
        if reason:
            return self.not_applicable(reason + _descent_alone(facts, snapshot, limits))
        if not snapshot.taps.descent:
            return self.skipped(f"descent was not measured ({moment.remedy('full')})")
        aligned, descending = informed_taps(facts, snapshot, limits), descending_taps(facts, snapshot, limits)
        unknown = [tap for tap in facts.inexact_taps if tap not in aligned or tap not in descending]
        if unknown:
            return self.skipped(f"no cosine or no descent with a null at {name_all('tap', unknown)}")
        limit = z_limit(limits.orientation)
        idle = [tap for tap in aligned if aligned[tap] and _known(descent_z(snapshot, tap)) <= limit]
        loose = [tap for tap in aligned if descending[tap] and _known(snapshot.taps.z[tap]) <= limit]
        opposed = [tap for tap in loose if _known(snapshot.taps.z[tap]) <= 0]
        said = [f"{_credit(tap)} is aligned but lowers the loss {NO_MORE} {_numbers(snapshot, tap)}" for tap in idle]
        said += [f"{_credit(tap)} lowers the loss without alignment {_numbers(snapshot, tap)}" for tap in opposed]
        if said:
            return self.issue("; ".join(said), value=float(len(said)))
        if loose:
            said = [
                f"{_credit(tap)} lowers the loss, yet its cosine is {NO_MORE} {_numbers(snapshot, tap)}"
                for tap in loose
            ]
            return self.undecided(f"{'; '.join(said)}: weak alignment may explain both", value=float(len(loose)))
        return self._weighting(snapshot, aligned, descending, limits)

    def _weighting(
        self, snapshot: Snapshot, aligned: dict[int, bool], descending: dict[int, bool], limits: Thresholds
    ) -> Finding:
        taps = snapshot.taps
        weighted = [tap for tap in aligned if _weighting_matters(snapshot, tap, limits)]
        if weighted:
            pairs = [(number(taps.cos[t], "+.2f"), number(taps.cos_F[t], "+.2f")) for t in weighted]
            effects = ", ".join(f"cos {cos}, cos_F {cos_F}" for cos, cos_F in pairs)
            said = f"{name_all('tap', weighted)} ({effects}): a few high-loss rows dominate the norm-weighted cosine"
            return self.tip(said, value=0.0)
        both = sum(aligned[tap] and descending[tap] for tap in aligned)
        return self.passed(
            f"cosine and descent do not contradict each other; {both} of {len(aligned)} taps are above both nulls",
            value=0.0,
        )


def _descent_alone(facts: Facts, snapshot: Snapshot, limits: Thresholds) -> str:
    """For a rule with another aim: what descent says of it by itself."""
    found = descending_taps(facts, snapshot, limits)
    return f"; descent alone is above its null at {sum(found.values())} of {len(found)} taps" if found else ""


def _known(z: float | None) -> float:
    """A number that was found to be there."""
    assert z is not None
    return z


def _credit(tap: int) -> str:
    return f"credit at tap {tap}"


def _numbers(snapshot: Snapshot, tap: int) -> str:
    taps = snapshot.taps
    return (
        f"(cos {number(taps.cos[tap], '+.3f')}, z {number(taps.z[tap], '+.1f')}; descent "
        f"{number(taps.descent[tap], '.3f')}, null {number(taps.descent_null[tap], '.3f')} ± "
        f"{number(taps.descent_null_sd[tap], '.3f')})"
    )


def _weighting_matters(snapshot: Snapshot, tap: int, limits: Thresholds) -> bool:
    """cos and cos_F far apart, or of opposite sign beyond the null of the cosine."""
    cos, weighted, sd = snapshot.taps.cos[tap], snapshot.taps.cos_F[tap], snapshot.taps.null_sd[tap]
    if cos is None or weighted is None:
        return False
    opposed = cos * weighted < 0 and sd is not None and min(abs(cos), abs(weighted)) > z_limit(limits.orientation) * sd
    return abs(cos - weighted) > limits.weighting or opposed
