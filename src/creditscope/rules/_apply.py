"""Put a rule to work on a net: feedback drawn, layers converted, every parameter accounted for."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.anatomy import Anatomy, examine
from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.record.spec import CreditNorm
from creditscope.rules._feedback_linear import transport_of
from creditscope.rules._graph import graph_of
from creditscope.rules._report import ConversionReport, below_feedback, report_roles
from creditscope.rules._rule import Rule
from creditscope.rules._tap_rule import AppliedTapRule, TapRule
from creditscope.rules._weight_rule import AppliedWeightRule, WeightRule

AppliedRule = AppliedTapRule | AppliedWeightRule


@dataclass
class Application:
    """A rule at work on a net, and what that means for each parameter."""

    applied: AppliedRule
    exact_taps: tuple[int, ...]
    """Taps that are handed the true gradient."""
    report: ConversionReport

    @property
    def anatomy(self) -> Anatomy:
        """The net's own."""
        return self.applied.anatomy


def _try_learning(applied: AppliedTapRule, inputs: Any) -> None:
    """Refuse a net that feedback cannot be learned on."""
    try:
        applied.learned(inputs)
    except (RuntimeError, NotImplementedError) as error:
        raise_out_of_memory(error)
        raise CreditscopeError(
            f"Expected a net that forward-mode differentiation can go through for rule {applied.rule.name!r}, which "
            f"learns its feedback by it, but got: {' '.join(str(error).split())[:200]} Batch norm and nn.Dropout in "
            "training mode and modules that work in place cannot be gone through."
        ) from error


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
) -> Application:
    """Bind `rule` to `net` (converted in place where the rule needs it); a few rows of `inputs` are enough.

    Only the last `train_last` blocks are trained (-1: all), beside the stem and the head. `batch` is how many rows the
    loss of a training step is over.
    """
    anatomy = examine(net, taps, inputs)
    _check_penalty(penalty, anatomy)
    if isinstance(rule, TapRule):
        if rule.needs_graph:
            graph_of(inputs)
        weight = next(net.parameters())
        drawn = rule.draw_feedback(anatomy.shapes, anatomy.classes, generator)
        feedback = [b.to(weight.device, weight.dtype if b.is_floating_point() else None) for b in drawn]
        applied = AppliedTapRule(rule, net, anatomy, feedback, credit_norm, penalty, batch)
        if rule.learns_feedback:
            _try_learning(applied, inputs)
    elif isinstance(rule, WeightRule):
        if credit_norm != "none":
            raise CreditscopeError(
                f"Expected credit normalisation 'none' for rule {rule.name!r}, which has no tap credit to "
                f"normalise, but got {credit_norm!r}."
            )
        transport = transport_of(net)
        if transport is None or transport.rule is not rule:  # a net that was converted before keeps its feedback
            rule.convert(net, anatomy, generator)
        applied = AppliedWeightRule(rule, net, anatomy, penalty)
    else:
        raise CreditscopeError(f"Expected a rule that is a TapRule or a WeightRule, but got {type(rule).__name__}.")
    for name in frozen_parameters(anatomy, train_last):
        net.get_parameter(name).requires_grad_(False)
    if isinstance(rule, TapRule):
        exact_taps = rule.exact_taps(len(anatomy.taps))
        by_rule = {n for i, stage in enumerate(anatomy.stages[:-1]) if i not in exact_taps for n in stage}
    else:
        below = below_feedback(net, anatomy, inputs)
        exact_taps = tuple(i for i in range(len(anatomy.taps)) if i not in below.taps)
        by_rule = below.parameters
    return Application(applied, exact_taps, report_roles(rule, net, anatomy, by_rule))


def _check_penalty(penalty: float, anatomy: Anatomy) -> None:
    """Refuse a penalty λ‖f_l‖² (sum over features, mean over rows) that has no meaning on this net."""
    if penalty < 0:
        raise CreditscopeError(f"Expected a penalty λ >= 0, but got {penalty}.")
    if penalty and not any(anatomy.residual):
        raise CreditscopeError(
            f"Expected a net with residual blocks for a penalty of {penalty}, but no block of this net adds "
            "to the state before it. Use penalty 0."
        )


def block_parameters(anatomy: Anatomy) -> frozenset[str]:
    """Parameters of stages 1..L that neither the stem nor the head uses."""
    return frozen_parameters(anatomy, 0)


def frozen_parameters(anatomy: Anatomy, train_last: int) -> frozenset[str]:
    """Parameters of the blocks below the last `train_last` that no stage uses that is trained; none for -1."""
    blocks = len(anatomy.stages) - 2
    if train_last > blocks:
        raise CreditscopeError(f"Expected train_last of at most the {blocks} blocks of this net, but got {train_last}.")
    kept = blocks if train_last < 0 else train_last
    frozen = {name for stage in anatomy.stages[1 : 1 + blocks - kept] for name in stage}
    trained = [anatomy.stages[0], *anatomy.stages[1 + blocks - kept :]]
    return frozenset(frozen.difference(*trained))


def feedback_state(application: Application) -> dict[str, Tensor]:
    """A tap rule's feedback by name, to be saved beside the weights (a weight rule's sits in the net's buffers)."""
    if isinstance(application.applied, AppliedTapRule):
        return {f"feedback.{i}": b for i, b in enumerate(application.applied.feedback)}
    return {}
