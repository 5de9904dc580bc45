"""Which parameters a rule trains, which get exact gradients, which are frozen."""

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from creditscope.rules._feedback_linear import transport_of
from creditscope.rules._rule import Rule
from creditscope.rules._tap_rule import TapRule
from creditscope.taps import Anatomy, leave_untouched, leaves_below, watch_forward

Role = Literal["rule", "exact", "frozen", "unused"]
TITLES: dict[Role, str] = {
    "rule": "rule-trained",
    "exact": "exact gradient",
    "frozen": "frozen",
    "unused": "not used in the forward",
}


@dataclass(frozen=True)
class ConversionReport:
    """Every parameter of a net with its role under a rule."""

    rule: str
    roles: dict[str, Role]

    def names(self, role: Role) -> list[str]:
        """Parameters of that role."""
        return [name for name, r in self.roles.items() if r == role]

    def __str__(self) -> str:
        lines = [f"{self.rule}: {len(self.roles)} parameters"]
        for role, title in TITLES.items():
            names = self.names(role)
            if names:
                lines.append(f"  {title} ({len(names)}): {', '.join(names)}")
        return "\n".join(lines)


def report_roles(rule: Rule, net: nn.Module, anatomy: Anatomy, inputs: Any) -> ConversionReport:
    """The role of every parameter, read off the graph of the converted net."""
    if isinstance(rule, TapRule):
        exact_taps = rule.exact_taps(len(anatomy.taps))
        stages = [stage for i, stage in enumerate(anatomy.stages[:-1]) if i not in exact_taps]
        by_rule = {name for stage in stages for name in stage}
    else:
        by_rule = _below_feedback(net, anatomy, inputs)
    in_use = {name for stage in anatomy.stages for name in stage}
    roles: dict[str, Role] = {}
    for name, parameter in net.named_parameters():
        if not parameter.requires_grad:
            roles[name] = "frozen"
        elif name not in in_use:
            roles[name] = "unused"
        else:
            roles[name] = "rule" if name in by_rule else "exact"
    return ConversionReport(rule.label or rule.name or type(rule).__name__, roles)


def _below_feedback(net: nn.Module, anatomy: Anatomy, inputs: Any) -> set[str]:
    """Parameters whose credit passed at least one feedback matrix."""
    if transport_of(net) is None:
        return set()
    name_of = {id(p): name for name, p in net.named_parameters()}
    with leave_untouched(net) as buffers:
        output = watch_forward(net, anatomy.taps, inputs, buffers).output
        nodes, todo, edges = set(), [output.grad_fn], []
        while todo:
            node = todo.pop()
            if node is None or node in nodes:
                continue
            nodes.add(node)
            if type(node).__name__ == "LinearWithFeedbackBackward":
                edges.append(node.next_functions[0][0])
            todo.extend(child for child, _ in node.next_functions)
        return {name_of[id(p)] for p in leaves_below(edges) if id(p) in name_of}
