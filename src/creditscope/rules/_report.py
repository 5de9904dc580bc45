"""Which parameters a rule trains, which get exact gradients, which are frozen."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from creditscope.anatomy import Anatomy, node_of, nodes_below
from creditscope.rules._feedback_linear import transport_of
from creditscope.rules._rule import Rule
from creditscope.taps import leave_untouched, watch_forward

Role = Literal["rule", "exact", "frozen", "unused"]
TITLES: dict[Role, str] = {
    "rule": "rule-trained",
    "exact": "exact gradient",
    "frozen": "frozen",
    "unused": "not on the way to the output",
}


@dataclass(frozen=True)
class ConversionReport:
    """Every parameter of a net with its role under a rule.

    >>> import creditscope as cs
    >>> print(cs.ConversionReport("FA", {"stem.weight": "rule", "head.weight": "exact"}))
    FA: 2 parameters
      rule-trained (1): stem.weight
      exact gradient (1): head.weight
    """

    rule: str
    roles: dict[str, Role]

    def names(self, role: Role) -> list[str]:
        """Parameters of that role: rule, exact, frozen or unused."""
        return [name for name, r in self.roles.items() if r == role]

    def __str__(self) -> str:
        lines = [f"{self.rule}: {len(self.roles)} parameters"]
        for role, title in TITLES.items():
            names = self.names(role)
            if names:
                lines.append(f"  {title} ({len(names)}): {', '.join(names)}")
        return "\n".join(lines)


def report_roles(rule: Rule, net: nn.Module, anatomy: Anatomy, by_rule: set[str]) -> ConversionReport:
    """The role of every parameter, given those that learn from the rule's credit."""
    in_use = {name for stage in anatomy.stages for name in stage}
    roles: dict[str, Role] = {}
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            roles[name] = "frozen"
        elif name not in in_use:
            roles[name] = "unused"
        else:
            roles[name] = "rule" if name in by_rule else "exact"
    return ConversionReport(rule.label or rule.name, roles)


@dataclass(frozen=True)
class BelowFeedback:
    """Parameters and taps whose credit passed at least one feedback matrix."""

    parameters: set[str]
    taps: set[int]


def below_feedback(net: nn.Module, anatomy: Anatomy, inputs: Any) -> BelowFeedback:
    """Read off the graph of the converted net; nothing for a net without feedback."""
    if transport_of(net) is None:
        return BelowFeedback(set(), set())
    name_of = {id(p): name for name, p in net.named_parameters()}
    with leave_untouched(net) as buffers:
        forward = watch_forward(net, anatomy.taps, inputs, buffers)
        layers = [n for n in nodes_below([node_of(forward.output)]) if type(n).__name__ == "LinearWithFeedbackBackward"]
        below = nodes_below([layer.next_functions[0][0] for layer in layers])
        leaves = {id(node.variable) for node in below if hasattr(node, "variable")}
        taps = {i for i, h in enumerate(forward.states) if node_of(h) in below}
        return BelowFeedback({name for key, name in name_of.items() if key in leaves}, taps)
