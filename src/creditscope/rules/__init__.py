"""Rules: how credit reaches taps and weights; one file each, and users' own by decorator, file or entry point."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from creditscope.errors import CreditscopeError
from creditscope.options import resolve_options
from creditscope.registry import RULES
from creditscope.rules._apply import Application, AppliedRule, ConversionReport, apply_rule, feedback_state
from creditscope.rules._rule import CreditContext, LearningContext, Rule, TapRule, TapShapes, WeightRule
from creditscope.rules._tap_rule import AppliedTapRule
from creditscope.rules._weight_rule import BY_TAP_RULE, FeedbackLinear, convert_linears, transport_of

R = TypeVar("R", bound=type[Rule])


def register_rule(name: str) -> Callable[[R], R]:
    """Class decorator that makes a rule known by `name`, to `creditscope.run` and the command line.

    >>> import creditscope as cs
    >>> @cs.register_rule("no_credit")
    ... class NoCredit(cs.TapRule):
    ...     def credit(self, ctx):
    ...         return [0 * h for h in ctx.states]
    >>> NoCredit.name
    'no_credit'
    """

    def keep(cls: R) -> R:
        check_rule(name, cls)
        RULES.register(name)(cls)
        cls.name = name
        return cls

    return keep


def check_rule(name: str, cls: Any) -> None:
    """Refuse what is no rule class."""
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        raise CreditscopeError(
            f"Expected a class derived from TapRule or WeightRule for rule {name!r}, but got {cls!r}."
        )


def rule_class(rule: str | type[Rule]) -> type[Rule]:
    """The rule called so, the class in `path/to/file.py:Class`, or the class that it is."""
    if isinstance(rule, str):
        return RULES.get(rule)
    check_rule(getattr(rule, "__name__", type(rule).__name__), rule)
    return rule


def make_rule(rule: str | type[Rule] | Rule, options: Mapping[str, Any] | None = None) -> Rule:
    """A rule by name, file or class, with its options checked; one that is made already stays as it is.

    >>> from creditscope.rules import make_rule
    >>> make_rule("fa", {"head": "exact"}).head
    'exact'
    """
    if isinstance(rule, Rule):
        if options:
            raise CreditscopeError(
                f"Expected no options beside a rule that is made already, but got {', '.join(options)}. Pass its class."
            )
        return rule
    cls = rule_class(rule)
    return cls(**resolve_options(cls, options or {}, owner=f"rule {cls.name!r}"))


__all__ = [
    "BY_TAP_RULE",
    "Application",
    "AppliedRule",
    "AppliedTapRule",
    "ConversionReport",
    "CreditContext",
    "FeedbackLinear",
    "LearningContext",
    "Rule",
    "TapRule",
    "TapShapes",
    "WeightRule",
    "apply_rule",
    "check_rule",
    "convert_linears",
    "feedback_state",
    "make_rule",
    "register_rule",
    "rule_class",
    "transport_of",
]
