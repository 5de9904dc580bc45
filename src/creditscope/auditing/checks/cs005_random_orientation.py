"""CS005, credit not aligned: the mean cosine of every tap over seeds against the smallest alignment of interest."""

from collections.abc import Sequence

from creditscope.auditing.checks import MOST, Finding, Moment, SeedsCheck, Thresholds, register_check
from creditscope.auditing.stats import known_mean
from creditscope.auditing.tap_credit import (
    TapAnswer,
    asked_taps,
    cut_off_taps,
    judge_taps,
    not_about_gradients,
    seen_above,
    stem_taps,
    what_would_decide,
)
from creditscope.text import first_few, name_all, number


@register_check("cs005_random_orientation")
class RandomOrientation(SeedsCheck):
    """Three answers: every tap carries credit, some tap decidedly does not, or the seeds do not tell."""

    code, title, line = "CS005", "credit is not aligned with the gradient", "credit"
    value_is = "lowest mean cosine over the block taps without exact credit"
    value_limit = "alignment"
    when = "the upper bound of a tap's mean cosine over seeds is below δ = {alignment:g} (Holm)"
    why = (
        "Rows of a batch share directions, so a small positive mean cosine is easily had by chance, and a test that "
        "does not reject is no evidence that there is nothing: an interval over seeds says how large it can be."
    )
    remedy = (
        "Report that layer as untrained by credit, or as trained by something else than alignment. Look at "
        "`acquired` (cos minus that of fresh feedback): alignment that was there at the draw is not learnt. "
        "Undecided: more seeds."
    )

    def judge(self, moments: Sequence[Moment], limits: Thresholds) -> Finding:
        facts = moments[0].facts
        if lost := cut_off_taps(moments):
            return self.skipped(f"no gradient arrives at {name_all('tap', lost)}")
        wrong = {tap: cos for tap in facts.exact_taps if (cos := _least_cos(moments, tap)) < limits.exact_cos}
        if wrong:
            said = _taps([f"{tap} ({number(cos, '+.3f')})" for tap, cos in wrong.items()])
            return self.issue(f"declared exact, but measured otherwise: {said}", value=0.0)
        if facts.rule.approximates != "gradient":
            return self.not_applicable(not_about_gradients(moments) or "")
        taps, stem = asked_taps(facts), _about_stem(moments, limits)
        if not taps:
            return self.passed(f"credit is the gradient at every block tap (cosine at least {limits.exact_cos}){stem}")
        answers = judge_taps(moments, taps, limits)
        if isinstance(answers, str):
            return self.skipped(answers)
        lowest = min(a.cos.mean for a in answers)
        below, open_taps = ([a for a in answers if a.answer == answer] for answer in ("below", "open"))
        delta = f"δ = {limits.alignment:g}"
        if below:
            return self.issue(f"under {delta} at {_taps(below)}{stem}", value=lowest)
        if open_taps:
            what = what_would_decide(open_taps, moments, limits)
            return self.undecided(f"neither under nor above {delta} at {_taps(open_taps)}; {what}{stem}", value=lowest)
        sees = seen_above(max(a.cos.null for a in answers), limits)
        power = f"; {number(sees, '.3f')} would be seen above chance with 80 % power" if sees else ""
        named = f"at least {delta} at all {len(answers)} block taps without exact credit"
        return self.passed(f"{named}: {_taps(answers)}{power}{stem}", value=lowest)


def _taps(answers: Sequence[TapAnswer | str]) -> str:
    return f"{'tap' if len(answers) == 1 else 'taps'} {first_few([str(a) for a in answers], MOST)}"


def _about_stem(moments: Sequence[Moment], limits: Thresholds) -> str:
    """What the stem is told, which decides nothing."""
    taps = stem_taps(moments[0].facts)
    answers = judge_taps(moments, taps, limits) if taps else ""
    if isinstance(answers, str):
        return ""
    words = {"carries": "is told", "below": "is not told", "open": "may be told"}
    return f"; the stem {words[answers[0].answer]}: tap {answers[0]}"


def _least_cos(moments: Sequence[Moment], tap: int) -> float:
    """The lower of cos and cos_F, each a mean over the runs; 1 where there is none."""
    means = [known_mean(getattr(m.snapshot.taps, name)[tap] for m in moments) for name in ("cos", "cos_F")]
    return min((mean for mean in means if mean is not None), default=1.0)
