"""Put a rule to work on a net: feedback drawn, layers converted, every parameter accounted for."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.anatomy import Anatomy, examine, node_of, nodes_below
from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.losses import row_errors
from creditscope.record.spec import CreditNorm
from creditscope.rules._applied import AppliedRule
from creditscope.rules._layers import transport_of
from creditscope.rules._pass import Forward as Again
from creditscope.rules._rule import Feedback, Rule, TapRule, WeightRule
from creditscope.rules._spread import graph_of
from creditscope.stack import pattern_of
from creditscope.taps import Forward, leave_untouched, watch_forward

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
        listed = [(title, names) for role, title in TITLES.items() if (names := self.names(role))]
        lines = [f"  {title} ({len(names)}): {', '.join(names)}" for title, names in listed]
        return "\n".join([f"{self.rule}: {len(self.roles)} parameters", *lines])


@dataclass
class Application:
    """A rule at work on a net, and what that means for each parameter."""

    applied: AppliedRule
    exact_taps: tuple[int, ...]
    """Taps that are handed the true gradient."""
    report: ConversionReport

    @property
    def anatomy(self) -> Anatomy:
        return self.applied.anatomy


def apply_rule(
    rule: Rule,
    net: nn.Module,
    taps: tuple[str, ...],
    inputs: Any,
    generator: torch.Generator,
    *,
    credit_norm: CreditNorm = "none",
    penalty: float = 0.0,
    train_last: int = -1,
    batch: int = 1,
    feedback: Feedback = None,
) -> Application:
    """Bind `rule` to `net` (converted in place where the rule needs it); a few rows of `inputs` are enough.

    Only the last `train_last` blocks are trained (-1: all), beside the stem and the head. `batch` is how many rows the
    loss of a training step is over; `feedback` a tap rule's own tensors, if they were drawn before.
    """
    anatomy = examine(net, taps, inputs)
    _check_penalty(penalty, anatomy)
    applied = AppliedRule(rule, net, anatomy, credit_norm=credit_norm, penalty=penalty, batch=batch)
    if isinstance(rule, TapRule):
        if rule.needs_graph:
            graph_of(inputs)
        _refuse_second_passes(rule, net)
        weight = next(net.parameters())
        drawn = rule.draw_feedback(anatomy.shapes, anatomy.classes, generator) if feedback is None else feedback
        applied.feedback = tree_map(
            lambda b: b.to(weight.device, weight.dtype if b.is_floating_point() else None), drawn
        )
        _try_rule(applied, inputs)
    elif isinstance(rule, WeightRule):
        if credit_norm != "none":
            raise CreditscopeError(
                f"Expected credit normalisation 'none' for rule {rule.name!r}, which has no tap credit to "
                f"normalise, but got {credit_norm!r}."
            )
        transport = transport_of(net)
        if transport is None or transport.rule is not rule:  # a net that was converted before keeps its feedback
            rule.convert(net, anatomy, generator)
    else:
        raise CreditscopeError(f"Expected a rule that is a TapRule or a WeightRule, but got {type(rule).__name__}.")
    for name in _frozen_parameters(anatomy, train_last):
        net.get_parameter(name).requires_grad_(False)
    if isinstance(rule, TapRule):
        exact_taps = rule.exact_taps(len(anatomy.taps))
        by_rule = {n for i, stage in enumerate(anatomy.stages[:-1]) if i not in exact_taps for n in stage}
    else:
        by_rule, told = _below_feedback(net, anatomy, inputs)
        exact_taps = tuple(i for i in range(len(anatomy.taps)) if i not in told)
    return Application(applied, exact_taps, _report_roles(rule, net, anatomy, by_rule))


def _check_penalty(penalty: float, anatomy: Anatomy) -> None:
    """Refuse a penalty λ‖f_l‖² (sum over features, mean over rows) that has no meaning on this net."""
    if penalty < 0:
        raise CreditscopeError(f"Expected a penalty λ >= 0, but got {penalty}.")
    if penalty and not any(anatomy.residual):
        raise CreditscopeError(
            f"Expected a net with residual blocks for a penalty of {penalty}, but no block of this net adds "
            "to the state before it. Use penalty 0."
        )


def _refuse_second_passes(rule: TapRule, net: nn.Module) -> None:
    """Refuse layers that do not compute the same twice, for a rule that runs the net again within a step."""
    if not rule.passes and not rule.hands_on:
        return
    batch_norm, dropout = nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd
    other = [
        name
        for name, module in net.named_modules()
        if isinstance(module, batch_norm) or (isinstance(module, dropout) and module.p > 0)
    ]
    if other:
        raise CreditscopeError(
            f"Expected a net that computes the same twice for rule {rule.name!r}, which runs it again within a step, "
            f"but batch norm or nn.Dropout does not: {', '.join(other)}. Use group or layer norm, and dropout that "
            "hashes (creditscope.nets._layers.HashDropout)."
        )


def _try_rule(applied: AppliedRule, inputs: Any) -> None:
    """Refuse a net that a rule cannot run again, or learn on, before anything is trained."""
    if not applied.rule.passes and not applied.rule.learns_feedback:
        return
    shape: tuple[int, ...] = ()
    try:
        with leave_untouched(applied.net) as buffers:
            forward = watch_forward(applied.net, applied.anatomy.taps, inputs, buffers)
            shape = tuple(forward.output.shape)
            target = torch.zeros(len(forward.output), dtype=torch.int64, device=forward.output.device)
            errors = row_errors(forward.output, target, lambda output, _: output.flatten(1).square().mean(1))
            top = torch.zeros_like(forward.states[-1])
            if applied.rule.passes:
                _refuse_another_output(applied, forward, buffers)
            if applied.rule.learns_feedback:
                applied.learned(forward, errors, top)
            applied.credits(forward, errors, top, "none")
    except (RuntimeError, NotImplementedError) as error:
        raise_out_of_memory(error)
        said = " ".join(str(error).split())[:200]
        if len(shape) > 2:
            raise CreditscopeError(
                f"Expected a net with one error per row, (rows, classes), for rule {applied.rule.name!r}, but got "
                f"outputs of shape {shape}: {said} Use a rule that goes by tokens (dfa, local, fa)."
            ) from error
        raise CreditscopeError(
            f"Expected a net that rule {applied.rule.name!r} can run again and differentiate, but got: {said} Modules "
            "that work in place, and batch norm and nn.Dropout in training mode, cannot be gone through."
        ) from error


def _refuse_another_output(applied: AppliedRule, forward: Forward, buffers: dict[str, Tensor]) -> None:
    """Refuse a net whose second pass gives another output: dropout that is no module has no name to be refused by."""
    weights = {name: p.detach() for name, p in applied.net.named_parameters()}
    again = Again(pattern_of(applied.net), applied.anatomy.taps, forward.inputs, weights | buffers)
    first, second = forward.output.detach(), again().output
    if (second - first).abs().max() > 1e-2 * first.abs().max():
        raise CreditscopeError(
            f"Expected a net that computes the same twice for rule {applied.rule.name!r}, which runs it again within a "
            "step, but its output is another the second time. Is there functional dropout in it? Leave it out, or use "
            "dropout that hashes (creditscope.nets._layers.HashDropout)."
        )


def _below_feedback(net: nn.Module, anatomy: Anatomy, inputs: Any) -> tuple[set[str], set[int]]:
    """Parameters and taps whose credit passed at least one feedback matrix, read off the graph of the converted net."""
    if transport_of(net) is None:
        return set(), set()
    with leave_untouched(net) as buffers:
        forward = watch_forward(net, anatomy.taps, inputs, buffers)
        layers = [
            n for n in nodes_below([node_of(forward.output)]) if type(n).__name__.endswith("WithFeedbackBackward")
        ]
        below = nodes_below([layer.next_functions[0][0] for layer in layers])
        leaves = {id(node.variable) for node in below if hasattr(node, "variable")}
        taps = {i for i, h in enumerate(forward.states) if node_of(h) in below}
        return {name for name, p in net.named_parameters() if id(p) in leaves}, taps


def _report_roles(rule: Rule, net: nn.Module, anatomy: Anatomy, by_rule: set[str]) -> ConversionReport:
    """The role of every parameter, given those that learn from the rule's credit."""
    in_use = {name for stage in anatomy.stages for name in stage}

    def role(name: str, parameter: nn.Parameter) -> Role:
        if not parameter.requires_grad:
            return "frozen"
        if name not in in_use:
            return "unused"
        return "rule" if name in by_rule else "exact"

    return ConversionReport(rule.label or rule.name, {name: role(name, p) for name, p in net.named_parameters()})


def _frozen_parameters(anatomy: Anatomy, train_last: int) -> frozenset[str]:
    """Parameters of the blocks below the last `train_last` that no stage uses that is trained; none for -1."""
    blocks = len(anatomy.stages) - 2
    if train_last > blocks:
        raise CreditscopeError(f"Expected train_last of at most the {blocks} blocks of this net, but got {train_last}.")
    kept = blocks if train_last < 0 else train_last
    frozen = {name for stage in anatomy.stages[1 : 1 + blocks - kept] for name in stage}
    return frozenset(frozen.difference(anatomy.stages[0], *anatomy.stages[1 + blocks - kept :]))
