"""CS006, the mean hides the layers: Γ is above its null but at most half of the taps in it are."""

from creditscope.auditing.checks import RunCheck, register_check
from creditscope.auditing.checks._orientation import informed_taps, not_about_gradients
from creditscope.auditing.findings import Finding
from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import z_limit
from creditscope.auditing.thresholds import Thresholds
from creditscope.words import name_all, number


@register_check("cs006_hidden_layers")
class HiddenLayers(RunCheck):
    """A positive Γ can come from one tap, or from the tap that is handed the gradient."""

    code = "CS006"
    title = "the mean cosine hides the layers"
    line = "credit"
    value_is = "share of block taps above chance"
    value_limit = "hidden_share"
    why = "One aligned layer, or the layer that is handed the gradient, makes a mean look informative."
    remedy = "Report cosines per layer, and Γ over the taps without exact credit."

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Counts informed taps among those of Γ without exact credit."""
        facts, snapshot = moment.facts, moment.snapshot
        reason = not_about_gradients(facts, snapshot)
        if reason:
            return self.not_applicable(reason)
        taps = [tap for tap in facts.gamma_taps if tap in facts.inexact_taps]
        if len(taps) < max(limits.hidden_taps, 1):
            return self.not_applicable(
                f"{len(taps)} block taps without exact credit, the question needs {limits.hidden_taps:g}"
            )
        if snapshot.gamma is None or not snapshot.gamma_null_sd:
            return self.skipped("Γ has no null: no usable rows at some tap")
        informed = informed_taps(facts, snapshot, limits)
        unknown = [tap for tap in taps if tap not in informed]
        if unknown:
            return self.skipped(f"no usable rows at {name_all('tap', unknown)}")
        blind = [tap for tap in taps if not informed[tap]]
        share = 1 - len(blind) / len(taps)
        gamma = f"Γ = {number(snapshot.gamma, '+.3f')}"
        if snapshot.gamma / snapshot.gamma_null_sd <= z_limit(limits.orientation):
            return self.passed(f"{gamma} is not above chance itself, so it hides nothing", value=share)
        if share <= limits.hidden_share:
            return self.issue(
                f"{gamma} looks informative, but {name_all('tap', blind)} of {len(taps)} block taps "
                "without exact credit are no better than chance",
                value=share,
            )
        return self.passed(f"{len(taps) - len(blind)} of {len(taps)} block taps are above chance", value=share)
