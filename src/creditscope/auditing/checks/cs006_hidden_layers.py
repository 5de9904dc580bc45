"""CS006, the mean hides the layers: Γ is above its null but at most half of the taps in it carry credit."""

from collections.abc import Sequence

from creditscope.auditing.checks import Finding, Moment, SeedsCheck, Thresholds, register_check
from creditscope.auditing.stats import z_limit
from creditscope.auditing.tap_credit import asked_taps, judge_taps, not_about_gradients, null_of_mean
from creditscope.text import name_all, number


@register_check("cs006_hidden_layers")
class HiddenLayers(SeedsCheck):
    """A positive Γ can come from one tap, or from the tap that is handed the gradient."""

    code, title, line = "CS006", "the mean cosine hides the layers", "credit"
    value_is = "share of block taps that carry credit"
    value_limit = "hidden_share"
    when = "Γ is above chance, but at most half of its taps carry credit"
    why = "One aligned layer, or the layer that is handed the gradient, makes a mean look informative."
    remedy = "Report cosines per layer, and Γ over the taps without exact credit."
    sufficient = False

    def judge(self, moments: Sequence[Moment], limits: Thresholds) -> Finding:
        """Counts what CS005 finds of the taps of Γ without exact credit."""
        if reason := not_about_gradients(moments):
            return self.not_applicable(reason)
        taps = asked_taps(moments[0].facts)
        of_taps, needed = f"{len(taps)} block taps without exact credit", limits.hidden_taps
        if len(taps) < max(needed, 1):
            return self.not_applicable(f"{of_taps}, the question needs {needed:g}")
        snapshots = [m.snapshot for m in moments]
        known = [(s.gamma, s.gamma_null_sd) for s in snapshots if s.gamma is not None and s.gamma_null_sd]
        if len(known) < len(snapshots):
            return self.skipped("Γ has no null: no usable rows at some tap")
        answers = judge_taps(moments, taps, limits)
        if isinstance(answers, str):
            return self.skipped(answers)
        mean = sum(gamma for gamma, _ in known) / len(known)
        null = null_of_mean([sd for _, sd in known])
        carrying, below, unclear = (
            [a.tap for a in answers if a.answer == answer] for answer in ("carries", "below", "open")
        )
        share, gamma = len(carrying) / len(taps), f"Γ = {number(mean, '+.3f')}"
        if mean <= z_limit(limits.orientation) * null or mean < limits.alignment:
            return self.passed(f"{gamma} does not look informative itself, so it hides nothing", value=share)
        if (len(carrying) + len(unclear)) / len(taps) <= limits.hidden_share:
            said = f"{name_all('tap', below)} of {of_taps} carry too little"
            return self.issue(f"{gamma} looks informative, but {said}", value=share)
        if share <= limits.hidden_share:
            said = f"of {of_taps} {len(carrying)} certainly carry it; {name_all('tap', unclear)} may"
            return self.undecided(f"{gamma} looks informative, but {said}", value=share)
        return self.passed(f"{len(carrying)} of {len(taps)} block taps carry credit", value=share)
