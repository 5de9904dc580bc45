"""Fresh feedback: what credit would be worth if all of a rule's feedback were drawn anew.

The rule's own cosine less this one is the alignment that training acquired; the rest, any feedback would have had.
"""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from creditscope.measure.common import BatchRows
from creditscope.measure.functional import mapped, together
from creditscope.measure.numerics import flat_rows, mean_where
from creditscope.measure.observation import Observation
from creditscope.measure.subject import Subject, feedback_names
from creditscope.measure.weights import Direction
from creditscope.rng import generator
from creditscope.rules import AppliedTapRule, CreditContext, FeedbackLinear, WeightRule
from creditscope.stack import StackedNet
from creditscope.taps import Anatomy, watch_forward

FRESH_DRAWS = 20
"""Draws of all feedback."""


def measure_fresh(subject: Subject, seen: Observation, gradients: Sequence[BatchRows]) -> dict[str, Tensor]:
    """Mean and sd (ddof 1) over draws of the cosine per tap; nothing for a rule without feedback."""
    applied = subject.applied
    if not (applied.feedback if isinstance(applied, AppliedTapRule) else feedback_names(subject.net)):
        return {}
    streams = [generator(subject.seed, "fresh feedback", draw) for draw in range(FRESH_DRAWS)]
    cos = fresh_cosines(subject, seen, gradients, streams)
    return {"fresh_cos": cos.mean(0), "fresh_sd": cos.std(0), "fresh_draws": torch.tensor(FRESH_DRAWS).to(cos.device)}


def fresh_cosines(
    subject: Subject, seen: Observation, gradients: Sequence[BatchRows], streams: Sequence[torch.Generator]
) -> Tensor:
    """Cosine at every tap with the feedback that each stream gives, (draws, taps); the gradients are the given ones."""
    entries = sum(h.numel() for h in seen.states)
    chunk = together(seen.output.device, entries)
    if isinstance(subject.applied, AppliedTapRule):
        return _tap_rule_cosines(subject, subject.applied, seen, gradients, streams, chunk)
    drawn = _redrawn_weights(subject, streams)
    parts = [drawn[i : i + chunk] for i in range(0, len(drawn), chunk)]
    return torch.cat([_weight_rule_cosines(subject, seen, gradients, part) for part in parts])


def _tap_rule_cosines(
    subject: Subject,
    applied: AppliedTapRule,
    seen: Observation,
    gradients: Sequence[BatchRows],
    streams: Sequence[torch.Generator],
    chunk: int,
) -> Tensor:
    """No forward is needed: only the feedback is another."""
    rule, anatomy = applied.rule, applied.anatomy
    drawn = [rule.draw_feedback(anatomy.shapes, anatomy.classes, stream) for stream in streams]
    stacked = [torch.stack(b).to(own) for b, own in zip(zip(*drawn, strict=True), applied.feedback, strict=True)]

    def cosines(*feedback: Tensor) -> Tensor:
        context = CreditContext(
            error=seen.errors.error,
            output=seen.errors.output,
            target=seen.errors.target,
            states=seen.states,
            feedback=feedback,
            top_gradient=seen.exact[-1] if rule.needs_top_gradient else None,
            inputs=subject.inputs,
            mask=subject.mask,
            class_token=anatomy.class_token,
        )
        return mean_cosines(rule.credit(context), gradients)

    return mapped(cosines, *stacked, chunk=chunk)


def _weight_rule_cosines(
    subject: Subject, seen: Observation, gradients: Sequence[BatchRows], drawn: Sequence[dict[str, Tensor]]
) -> Tensor:
    """One backward per draw, all of them at once as seeds of a stack, where the net can be stacked."""
    error, draws = seen.errors.error, len(drawn)
    if draws == 1:
        forward = watch_forward(subject.net, subject.taps, subject.inputs, {**subject.tensors, **drawn[0]})
        credits = torch.autograd.grad(forward.output, forward.states, error, allow_unused=True)
        found = [torch.zeros_like(h) if a is None else a for h, a in zip(forward.states, credits, strict=True)]
        return mean_cosines(found, gradients).unsqueeze(0)
    buffers = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    shared = {name: t.expand(draws, *t.shape) for name, t in subject.tensors.items() if name not in buffers}
    stack = StackedNet(subject.net, shared, buffers)  # pyright: ignore[reportArgumentType]
    try:
        forward = watch_forward(stack, subject.taps, subject.inputs)
    except (RuntimeError, NotImplementedError, ValueError):  # they cannot be mapped, or do not fit together
        return torch.cat([_weight_rule_cosines(subject, seen, gradients, [one]) for one in drawn])
    credits = torch.autograd.grad(forward.output, forward.states, error.expand(draws, *error.shape), allow_unused=True)
    found = [torch.zeros_like(h) if a is None else a for h, a in zip(forward.states, credits, strict=True)]
    return torch.stack([mean_cosines([a[i] for a in found], gradients) for i in range(draws)])


def mean_cosines(credits: Sequence[Tensor], gradients: Sequence[BatchRows]) -> Tensor:
    """`cos` of every tap: the mean over rows that have both credit and gradient."""
    found = []
    for a, g in zip(credits, gradients, strict=True):
        own = BatchRows.of(flat_rows(a))
        found.append(mean_where((own.unit * g.unit).sum(-1), own.keep & g.keep))
    return torch.stack(found)


def _redrawn_weights(subject: Subject, streams: Sequence[torch.Generator]) -> list[dict[str, Tensor]]:
    """The feedback of all converted layers by buffer name, once for each stream.

    The rule converts a copy of the net as it is now. A matrix keeps the size it has: only its entries are new, even if
    the rule scales feedback by weights that have grown since.
    """
    applied = subject.applied
    rule = copy.deepcopy(applied.rule)
    assert isinstance(rule, WeightRule)
    scratch = copy.deepcopy(subject.net)
    with torch.no_grad():
        for name, parameter in scratch.named_parameters():
            parameter.copy_(subject.tensors[name])
    return [_resized(_converted_anew(scratch, rule, applied.anatomy, stream), subject) for stream in streams]


def _converted_anew(net: nn.Module, rule: WeightRule, anatomy: Anatomy, stream: torch.Generator) -> dict[str, Tensor]:
    plain: dict[nn.Module, nn.Linear] = {}
    for name, layer in list(net.named_modules(remove_duplicate=False)):
        if isinstance(layer, FeedbackLinear):
            parent, _, child = name.rpartition(".")
            setattr(net.get_submodule(parent), child, plain.setdefault(layer, _plain_linear(layer)))
    rule.convert(net, anatomy, stream)
    return {name: net.get_buffer(name) for name in feedback_names(net).values()}


def _plain_linear(layer: FeedbackLinear) -> nn.Linear:
    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
    linear.weight, linear.bias = layer.weight, layer.bias
    return linear


def _resized(drawn: dict[str, Tensor], subject: Subject) -> dict[str, Tensor]:
    resized = {}
    for name, fresh in drawn.items():
        unit, size = Direction.of(fresh), Direction.of(subject.tensors[name]).norm
        resized[name] = (unit.scaled * (size / unit.length)).view_as(fresh)
    return resized
