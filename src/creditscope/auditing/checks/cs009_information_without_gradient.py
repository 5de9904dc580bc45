"""CS009, information without gradient: weight gradients vanish, yet a probe reads the classes off a middle layer."""

from creditscope.auditing.checks import Finding, Moment, RunCheck, Thresholds, register_check
from creditscope.auditing.checks.cs007_vanishing_weight_gradients import VanishingWeightGradients
from creditscope.auditing.stats import share_bounds
from creditscope.record import Facts
from creditscope.text import name_all


@register_check("cs009_information_without_gradient")
class InformationWithoutGradient(RunCheck):
    """Asked only where CS007 fires: is the forward pass dead too, or only the way back?"""

    code, title, line = "CS009", "information without gradient", "depth"
    value_is = "best probe at a middle tap"
    when = "weight gradients vanish, yet a probe reads the classes off a middle layer"
    why = (
        "It tells a net whose forward pass is dead from one that holds the answer and is not told: then the way "
        "back is what is broken, and a rule with another way back can train it."
    )
    remedy = (
        "Look at the way back: weight decay against gradient, initial gain, saturation. Try a rule that reaches "
        "the layers directly (`dfa`). If the untrained net has the same probe accuracy, the layers have learnt "
        "nothing: that is no evidence for training."
    )
    sufficient = False

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        return f"{(facts.best_constant or 0.0) + limits.probe_gain:.3f}, untrained probe"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """The bound of a middle tap's probe against the best constant guess and against the untrained net's probe."""
        facts, snapshot = moment.facts, moment.snapshot
        if not VanishingWeightGradients().judge(moment, limits).is_issue:
            return self.not_applicable("CS007 does not fire: the weights get a gradient")
        if facts.best_constant is None:
            return self.not_applicable("the targets are not classes")
        taps = list(facts.gamma_taps[:-1])  # the last the head reads itself
        if not taps:
            return self.not_applicable("no tap lies between the first block and the head")
        if not snapshot.tap_probe:
            return self.skipped(f"no probe was fitted ({moment.remedy('full')})")
        if moment.untrained is None or not moment.untrained.tap_probe:
            return self.skipped("no probe of the untrained net to compare with")
        taps = [tap for tap in taps if tap not in snapshot.constant_taps]
        if not taps:
            return self.passed("every middle layer is the same for all rows: the forward pass is dead, too")
        of_layers = snapshot.layers.probe_rows if snapshot.layers else 0
        rows = snapshot.probe_rows or of_layers or facts.test_rows or snapshot.rows_covered
        after, before = snapshot.tap_probe, moment.untrained.tap_probe
        probes = {tap: probe for tap in taps if (probe := after[tap]) is not None and before[tap] is not None}
        lost = [tap for tap in taps if tap not in probes]
        missing = self.skipped(f"no probe, trained or untrained, at {name_all('tap', lost)}")
        if not probes:
            return missing
        lows = {
            tap: share_bounds(round(probe * rows), rows, confidence=limits.chance_confidence)[0]
            for tap, probe in probes.items()
        }
        bars = {tap: max(facts.best_constant + limits.probe_gain, before[tap] or 0.0) for tap in probes}
        tap = max(probes, key=lambda tap: lows[tap] - bars[tap])
        said = (
            f"a probe at tap {tap} reads {probes[tap]:.3f} (lower bound {lows[tap]:.3f} over {rows:,} rows; best "
            f"constant {facts.best_constant:.3f}, untrained net {before[tap]:.3f})"
        )
        if lows[tap] > bars[tap]:
            return self.issue(f"{said}, although weight gradients vanish", value=probes[tap])
        if lost:
            return missing
        return self.passed(f"{said}: no more than chance or the untrained net has", value=probes[tap])
