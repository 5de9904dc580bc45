"""What checks of the credit share: which taps they ask of, and how far descent lies from its null."""

from collections.abc import Sequence

from creditscope.auditing.moment import Moment
from creditscope.record import Facts
from creditscope.text import name_all


def asked_taps(facts: Facts) -> list[int]:
    """Block taps without exact credit."""
    return [tap for tap in facts.gamma_taps if tap in facts.inexact_taps]


def stem_taps(facts: Facts) -> list[int]:
    """The stem's tap, if it has no exact credit: told of, but it does not decide."""
    return [tap for tap in facts.inexact_taps if tap not in facts.gamma_taps]


def cut_off_taps(moments: Sequence[Moment]) -> list[int]:
    """Taps that would be handed the exact gradient, but no row of any run has one there."""
    facts = moments[0].facts
    about = facts.rule.approximates == "gradient"
    return [tap for tap in facts.exact_taps if about and not any(m.snapshot.taps.rows_used[tap] for m in moments)]


def not_about_gradients(moments: Sequence[Moment]) -> str | None:
    """Why alignment with the gradient is no question here, or None."""
    facts = moments[0].facts
    if facts.rule.approximates != "gradient":
        return f"the rule approximates {facts.rule.approximates}, not the gradient"
    if not asked_taps(facts):
        lost = cut_off_taps(moments)
        if lost:
            return f"no gradient arrives at {name_all('tap', lost)}"
        return "every block tap is handed the exact gradient"
    return None
