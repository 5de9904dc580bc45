"""CS008, alignment and descent disagree: over seeds, cosine and `descent` say opposite things of a tap."""

from collections.abc import Sequence
from itertools import combinations

from creditscope.auditing.checks import Finding, Method, Moment, SeedsCheck, Thresholds, register_check
from creditscope.auditing.depth import paired_interval
from creditscope.auditing.stats import Interval
from creditscope.auditing.tap_credit import (
    Estimate,
    TapAnswer,
    asked_taps,
    descent_estimate,
    judge_taps,
    not_about_gradients,
    say_uncredited,
)
from creditscope.record import Facts
from creditscope.text import name_all, number

NO_MORE = "no more than a random orientation"


@register_check("cs008_descent_disagrees")
class DescentDisagrees(SeedsCheck):
    """Descent is the independent witness: what a step along the credit does to the loss, not where it points."""

    code, title, line = "CS008", "alignment and descent disagree", "credit"
    value_is = "taps at which cosine and descent disagree"
    when = "cosine and descent contradict each other at a tap, by the bounds of both"
    why = (
        "A cosine says where credit points, not what it does. ρ, the published functional metric, converges to "
        "cos_F, so it is no second witness; descent is one."
    )
    remedy = (
        "Look at cos_F beside cos. Rows with a gradient and without credit (on graphs, nodes without a label) are "
        "left out of cos, but not of cos_F and descent: where the message counts such rows, they may be the cause. "
        "Else, aligned without descent: the direction is right where the gradient is small and wrong where it "
        "matters; look at the class token, single classes. Descent against the cosine: a few rows carry it. "
        "Undecided: more seeds."
    )
    sufficient = False

    def compared_with(self, facts: Facts, limits: Thresholds) -> str:
        return "0 taps"

    def judge(self, moments: Sequence[Moment], limits: Thresholds) -> Finding:
        """A tap that carries credit must lower the loss more than its null; one that is opposed must not."""
        if reason := not_about_gradients(moments):
            return self.not_applicable(reason)
        answers = judge_taps(moments, asked_taps(moments[0].facts), limits)
        if isinstance(answers, str):
            return self.skipped(answers)
        answers = [a for a in answers if a.answer == "carries" or a.opposed]
        if not answers:
            return self.not_applicable("no tap is decidedly aligned, so there is nothing that descent could contradict")
        if not all(m.snapshot.taps.descent for m in moments):
            return self.skipped(f"descent was not measured ({moments[0].remedy('full')})")
        level, taps = 1 - limits.orientation, [a.tap for a in answers]
        beyond = {t: descent_estimate(moments, t, "descent", over_null=True, confidence=level) for t in taps}
        unknown = [tap for tap, found in beyond.items() if found is None]
        if unknown:
            return self.skipped(f"no descent with a null at {name_all('tap', unknown)}")
        beyond = {tap: found for tap, found in beyond.items() if found}
        idle = [a for a in answers if a.answer == "carries" and beyond[a.tap].high <= 0]
        opposed = [a for a in answers if a.opposed and beyond[a.tap].low > 0]
        unclear = [a for a in answers if a.answer == "carries" and beyond[a.tap].low <= 0 < beyond[a.tap].high]
        said = [f"credit at {_tap(a, beyond)} is aligned but lowers the loss {NO_MORE}" for a in idle]
        said += [f"credit at {_tap(a, beyond)} lowers the loss against its alignment" for a in opposed]
        if said:
            said += filter(None, (say_uncredited(moments, a.tap) for a in (*idle, *opposed)))
            answer = self.undecided if len(moments) == 1 else self.issue
            return answer("; ".join(said), value=float(len(idle) + len(opposed)))
        if unclear:
            taps = [f"credit at {_tap(a, beyond)} is aligned; whether it lowers the loss is open" for a in unclear]
            return self.undecided("; ".join(taps), value=0.0)
        both = sum(a.answer == "carries" for a in answers)
        return self.passed(
            f"cosine and descent do not contradict each other; {both} of {len(answers)} taps are above both nulls",
            value=0.0,
        )


def _tap(answer: TapAnswer, beyond: dict[int, Estimate]) -> str:
    name = "cos" if answer.weighted else "β"
    return f"tap {answer.tap} ({name} {answer.cos}; descent less its null {beyond[answer.tap]})"


def rank_notes(methods: Sequence[Method]) -> list[str]:
    """One sentence per setting in which cosine and descent rank methods differently, and the seeds resolve it."""
    notes = []
    for setting in dict.fromkeys(m.setting for m in methods):
        scored = [m for m in methods if m.setting == setting and _by_seed(m, "descent")]
        swapped = "; ".join(filter(None, (_swapped(*pair) for pair in combinations(scored, 2))))
        if swapped:
            notes.append(f"{setting}: cosine and descent rank the methods differently (CS008): {swapped}")
    return notes


def _swapped(one: Method, other: Method) -> str:
    """How two methods change places, by intervals that leave out zero."""
    cos, descent = (paired_interval(_by_seed(one, name), _by_seed(other, name)) for name in ("cos", "descent"))
    if cos is None or descent is None or cos.mean * descent.mean >= 0 or not (_resolved(cos) and _resolved(descent)):
        return ""
    higher, lower = (one, other) if cos.mean > 0 else (other, one)
    return (
        f"by cosine {higher.label} is above {lower.label}, by descent below it (n = {cos.n}; "
        f"Δcos {abs(cos.mean):.3f}, Δdescent {number(-abs(descent.mean), '.3f')}, paired)"
    )


def _by_seed(method: Method, name: str) -> dict[int, float]:
    """Mean over the block taps without exact credit, by seed; seeds that lack a value are left out."""
    found, taps = {}, asked_taps(method.facts) if method.facts.rule.approximates == "gradient" else []
    for seed, record in method.runs.items():
        series = getattr(record.last.taps, name) if record.provenance.status != "diverged" else ()
        values = [series[tap] for tap in taps] if series else []
        if values and None not in values:
            found[seed] = sum(values) / len(values)
    return found


def _resolved(gap: Interval) -> bool:
    return gap.low is not None and gap.high is not None and (gap.low > 0 or gap.high < 0)
