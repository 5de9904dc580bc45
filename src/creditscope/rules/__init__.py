"""Rules: how credit reaches taps and weights; one file each, and users' own by decorator, file or entry point."""

import hashlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from creditscope.errors import CreditscopeError
from creditscope.registry import RULES
from creditscope.rules._apply import Application, AppliedRule, apply_rule, block_parameters, feedback_state
from creditscope.rules._convert import convert_linears
from creditscope.rules._feedback_linear import FeedbackLinear, transport_of
from creditscope.rules._report import ConversionReport
from creditscope.rules._rule import CreditNorm, Rule
from creditscope.rules._tap_rule import AppliedTapRule, CreditContext, TapRule
from creditscope.rules._weight_rule import AppliedWeightRule, WeightRule

R = TypeVar("R", bound=type[Rule])


def register_rule(name: str) -> Callable[[R], R]:
    """Class decorator that makes a rule known by `name`."""

    def keep(cls: R) -> R:
        if not (isinstance(cls, type) and issubclass(cls, Rule)):
            raise CreditscopeError(
                f"Expected a class derived from TapRule or WeightRule for rule {name!r}, but got {cls!r}."
            )
        cls.name = name
        return RULES.register(name)(cls)

    return keep


def rule_class(name: str) -> type[Rule]:
    """The rule called `name`, or the class in `path/to/file.py:Class`."""
    path, colon, attribute = name.rpartition(":")
    if not colon:
        return RULES.get(name)
    file = Path(path)
    if not file.is_file():
        raise CreditscopeError(f"Expected a Python file with the rule {attribute!r}, but {path!r} does not exist.")
    module_spec = importlib.util.spec_from_file_location(f"creditscope_user_{file.stem}", file)
    if module_spec is None or module_spec.loader is None:
        raise CreditscopeError(f"Expected a Python file with the rule {attribute!r}, but got {path!r}.")
    module = importlib.util.module_from_spec(module_spec)
    exec(compile(file.read_bytes(), str(file), "exec"), vars(module))  # never stale bytecode
    cls = getattr(module, attribute, None)
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        found = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Rule) and v.name != ""]
        raise CreditscopeError(
            f"Expected {path} to define a rule class {attribute!r}, but got "
            f"{type(cls).__name__ if cls is not None else 'nothing'} of that name. "
            f"Rule classes there: {', '.join(found) or 'none'}."
        )
    if not vars(cls).get("name"):
        cls.name = attribute
    return cls


def rule_source(name: str) -> str:
    """A digest of a user's rule, so that an edited rule is another run; empty for the built-in ones."""
    if RULES.is_built_in(name):
        return ""
    try:
        source = inspect.getsource(rule_class(name)) if ":" not in name else Path(name.rpartition(":")[0]).read_text()
    except (OSError, TypeError):
        return "unknown"
    return hashlib.sha256(source.encode()).hexdigest()[:16]


__all__ = [
    "Application",
    "AppliedRule",
    "AppliedTapRule",
    "AppliedWeightRule",
    "ConversionReport",
    "CreditContext",
    "CreditNorm",
    "FeedbackLinear",
    "Rule",
    "TapRule",
    "WeightRule",
    "apply_rule",
    "block_parameters",
    "convert_linears",
    "feedback_state",
    "register_rule",
    "rule_class",
    "rule_source",
    "transport_of",
]
