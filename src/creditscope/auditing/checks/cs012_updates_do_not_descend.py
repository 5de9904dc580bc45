"""CS012, updates do not descend: of a rule that does not aim at the gradient, what each stage's own update does."""

from collections.abc import Sequence

from creditscope.auditing.checks import MOST, Finding, Moment, SeedsCheck, Thresholds, register_check
from creditscope.auditing.tap_credit import descent_estimate
from creditscope.text import first_few, name_all, number


@register_check("cs012_updates_do_not_descend")
class UpdatesDoNotDescend(SeedsCheck):
    """Alignment must not be asked of a rule with another aim, but its updates must still lower the loss."""

    code, title, line = "CS012", "updates do not lower the loss", "credit"
    value_is = "smallest share of the gradient's decrease over the trained stages"
    value_limit = "descent_share"
    when = (
        "of a rule with another aim, no stage's own update lowers the loss by {alignment:g} of "
        "what the gradient's would"
    )
    why = (
        "A rule that approximates something else than the gradient is not judged by cosines; without this, nothing "
        "would be asked of its credit, and label-blind noise would pass."
    )
    remedy = "Report which stages lower the loss by their own update and which do not. Undecided: more seeds."

    def judge(self, moments: Sequence[Moment], limits: Thresholds) -> Finding:
        """Passed if every trained stage descends, an issue if none does, undecided where only some do."""
        facts = moments[0].facts
        if facts.rule.approximates == "gradient":
            return self.not_applicable("the rule aims at the gradient, and is judged by alignment with it")
        taps = [t for t in range(len(facts.taps)) if any(w.stage == t and w.role != "unused" for w in facts.weights)]
        if not taps:
            return self.not_applicable("no stage is trained")
        name, share_level, null_level = "descent_stage", limits.alignment_confidence, 1 - limits.orientation
        own = {t: descent_estimate(moments, t, name, over_null=False, confidence=share_level) for t in taps}
        beyond = {t: descent_estimate(moments, t, name, over_null=True, confidence=null_level) for t in taps}
        known = {tap: (a, b) for tap in taps if (a := own[tap]) and (b := beyond[tap])}
        if len(known) < len(taps):
            where = name_all("stage", [tap for tap in taps if tap not in known])
            return self.skipped(f"descent of {where} was not measured ({moments[0].remedy('full')})")
        holds = [t for t, (share, more) in known.items() if share.low >= limits.descent_share and more.low > 0]
        fails = [t for t, (share, _) in known.items() if share.high < limits.descent_share]
        lowest = min(share.mean for share, _ in known.values())
        aim = f"the rule approximates {facts.rule.approximates}"
        said = first_few([f"{tap} ({share})" for tap, (share, _) in known.items()], MOST)
        if len(holds) == len(taps):
            return self.passed(f"{aim}; every stage's own update lowers the loss: stage {said}", value=lowest)
        if len(fails) == len(taps) and len(moments) > 1:
            what = f"lowers the loss by {number(limits.descent_share, 'g')} of what the gradient's would"
            return self.issue(f"{aim}; no stage's own update {what}: stage {said}", value=lowest)
        rest = f"{name_all('stage', [tap for tap in taps if tap not in holds])} of {len(taps)}"
        return self.undecided(f"{aim}; {rest} not shown to lower the loss: stage {said}", value=lowest)
