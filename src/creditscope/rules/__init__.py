"""Rules: how credit reaches taps and weights; one file each, and users' own by decorator, file or entry point."""

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from creditscope.errors import CreditscopeError
from creditscope.registry import RULES, text_digest
from creditscope.rules._apply import Application, AppliedRule, apply_rule, block_parameters, feedback_state
from creditscope.rules._convert import convert_linears
from creditscope.rules._feedback_linear import FeedbackLinear, transport_of
from creditscope.rules._learning import LearningContext
from creditscope.rules._report import ConversionReport
from creditscope.rules._rule import Rule
from creditscope.rules._tap_rule import AppliedTapRule, CreditContext, TapRule
from creditscope.rules._weight_rule import AppliedWeightRule, WeightRule

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
    if name.endswith(".py"):
        raise CreditscopeError(f"Expected the class too, as in {name}:MyRule, but got {name!r}.")
    if not colon:
        return RULES.get(name)
    file = Path(path)
    if not file.is_file():
        raise CreditscopeError(
            f"Expected a Python file with the rule {attribute!r}, but {path!r} does not exist. Is the path right?"
        )
    return _rule_from_file(file.resolve(), file.read_bytes(), attribute)


@cache
def _rule_from_file(file: Path, source: bytes, attribute: str) -> type[Rule]:
    """The class in a file, which is run once for each content; it may import from its own folder."""
    module = ModuleType(f"creditscope_user_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module
    sys.path.insert(0, str(file.parent))
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    except Exception as error:
        raise CreditscopeError(
            f"Expected {file} to be a Python file that can be imported, but it failed: {type(error).__name__}: {error}."
        ) from error
    finally:
        sys.path.remove(str(file.parent))
    cls = getattr(module, attribute, None)
    if not (isinstance(cls, type) and issubclass(cls, Rule)):
        found = [n for n, v in vars(module).items() if isinstance(v, type) and issubclass(v, Rule)]
        raise CreditscopeError(
            f"Expected {file} to define a rule class {attribute!r}, but got "
            f"{type(cls).__name__ if cls is not None else 'nothing'} of that name. "
            f"Rule classes there: {', '.join(found) or 'none'}."
        )
    if not vars(cls).get("name"):
        cls.name = attribute
    return cls


def rule_source(name: str) -> str:
    """A digest of a user's rule, so that an edited rule is another run; empty for the built-in ones."""
    if ":" in name:
        return text_digest(Path(name.rpartition(":")[0]).read_text(encoding="utf-8"))
    return RULES.source(name)


__all__ = [
    "Application",
    "AppliedRule",
    "AppliedTapRule",
    "AppliedWeightRule",
    "ConversionReport",
    "CreditContext",
    "FeedbackLinear",
    "LearningContext",
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
