"""What every rule states of itself; checks and figures read these facts, never a rule's name."""

from typing import Any, ClassVar


class Rule:
    """How credit reaches taps and weights, with its facts. Options are the keyword arguments of the constructor.

    >>> from creditscope.rules import rule_class
    >>> rule_class("dfa").label, rule_class("dfa").needs_feedback
    ('DFA', True)
    """

    name: ClassVar[str] = ""
    """The class's own, unless `register_rule` gives another."""
    label: ClassVar[str] = ""
    """What tables and figures call it."""
    formula: ClassVar[str] = ""
    """The credit a_l, in the symbols of the manual."""
    approximates: ClassVar[str] = "gradient"
    """What the credit stands for; rules that do not aim at the gradient are not judged by alignment."""
    local: ClassVar[bool] = False
    """Whether each stage learns from its own credit alone."""
    needs_feedback: ClassVar[bool] = False
    """Whether it owns feedback matrices."""
    draws_noise: ClassVar[bool] = False
    """Whether its credit is another at every step, on the same rows and weights: judged by the mean of its draws."""
    later_options: ClassVar[tuple[str, ...]] = ()
    """Options that came after the first records; at their defaults they are no part of a spec, nor of its name."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Name the class."""
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__
