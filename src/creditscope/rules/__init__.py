"""Rules: how credit reaches taps and weights; one file each, and users' own by decorator, file or entry point."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from creditscope.errors import CreditscopeError
from creditscope.options import resolve_options
from creditscope.registry import RULES
from creditscope.rules._applied import AppliedRule, Told
from creditscope.rules._apply import Application, ConversionReport, apply_rule
from creditscope.rules._layers import (
    BY_TAP_RULE,
    FeedbackConv2d,
    FeedbackLinear,
    LinearWithFeedback,
    WithFeedback,
    layers_with_feedback,
    register_feedback,
    restore,
    transport_of,
    weight_names,
    weights_and_feedback,
)
from creditscope.rules._pass import Pass
from creditscope.rules._rule import (
    Credit,
    CreditContext,
    Feedback,
    Layer,
    Rule,
    TapRule,
    TapShapes,
    WeightRule,
)

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
    "ConversionReport",
    "Credit",
    "CreditContext",
    "Feedback",
    "FeedbackConv2d",
    "FeedbackLinear",
    "Layer",
    "LinearWithFeedback",
    "Pass",
    "Rule",
    "TapRule",
    "TapShapes",
    "Told",
    "WeightRule",
    "WithFeedback",
    "apply_rule",
    "check_rule",
    "layers_with_feedback",
    "make_rule",
    "register_feedback",
    "register_rule",
    "restore",
    "rule_class",
    "transport_of",
    "weight_names",
    "weights_and_feedback",
]
