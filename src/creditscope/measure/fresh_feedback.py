"""Fresh feedback: what credit would be worth if all of a rule's feedback were drawn anew.

The rule's own cosine less this one is the alignment that training acquired; the rest, any feedback would have had.
"""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from creditscope.anatomy import Anatomy
from creditscope.measure.functional_net import Subject, feedback_names, mapped, together
from creditscope.measure.numerics import UnitRows, flat_rows, mean_where
from creditscope.measure.observation import Observation
from creditscope.measure.weights import Direction
from creditscope.rng import generator
from creditscope.rules import AppliedTapRule, CreditContext, FeedbackLinear, WeightRule
from creditscope.stack import StackedNet
from creditscope.taps import gradients_at, watch_forward

FRESH_DRAWS = 20
"""Draws of all feedback."""
Take = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""What is wanted of the credits at all taps."""


def measure_fresh(subject: Subject, seen: Observation, gradients: Sequence[UnitRows]) -> dict[str, Tensor]:
    """Mean and sd (ddof 1) over draws of the cosine per tap; nothing for a rule without feedback."""
    if not has_feedback(subject):
        return {}
    cos = fresh_cosines(subject, seen, gradients, fresh_streams(subject, FRESH_DRAWS))
    return {"fresh_cos": cos.mean(0), "fresh_sd": cos.std(0), "fresh_draws": torch.tensor(FRESH_DRAWS).to(cos.device)}


def has_feedback(subject: Subject) -> bool:
    """Whether there is anything to draw anew."""
    applied = subject.applied
    return bool(applied.feedback if isinstance(applied, AppliedTapRule) else feedback_names(subject.net))


def fresh_streams(subject: Subject, draws: int) -> list[torch.Generator]:
    """Where the first so many draws come from."""
    return [generator(subject.seed, "fresh feedback", draw) for draw in range(draws)]


def fresh_cosines(
    subject: Subject, seen: Observation, gradients: Sequence[UnitRows], streams: Sequence[torch.Generator]
) -> Tensor:
    """Cosine at every tap with the feedback that each stream gives, (draws, taps); the gradients are the given ones."""
    (found,) = _of_fresh(subject, seen, streams, lambda credits: [mean_cosines(credits, gradients)])
    return found


def fresh_credits(subject: Subject, seen: Observation, streams: Sequence[torch.Generator]) -> list[Tensor]:
    """The credit that the feedback of each stream gives at every tap, each (draws, *state)."""
    return _of_fresh(subject, seen, streams, list)


def _of_fresh(subject: Subject, seen: Observation, streams: Sequence[torch.Generator], take: Take) -> list[Tensor]:
    """What `take` makes of the credits at all taps, for each draw, stacked over draws."""
    entries = sum(h.numel() for h in seen.states)
    chunk = together(seen.output.device, entries)
    applied, anatomy = subject.applied, subject.applied.anatomy
    if isinstance(applied, AppliedTapRule):
        drawn = [applied.rule.draw_feedback(anatomy.shapes, anatomy.classes, stream) for stream in streams]
        return of_feedback(subject, applied, seen, drawn, take, chunk)
    drawn = _redrawn_weights(subject, streams)
    parts = [_weight_rule(subject, seen, drawn[i : i + chunk], take) for i in range(0, len(drawn), chunk)]
    return [torch.cat(found) for found in zip(*parts, strict=True)]


def of_feedback(
    subject: Subject,
    applied: AppliedTapRule,
    seen: Observation,
    drawn: Sequence[Sequence[Tensor]],
    take: Take,
    chunk: int = 1,
) -> list[Tensor]:
    """What `take` makes of the credit that each of the `drawn` feedbacks gives on what was seen, stacked over them.

    No forward is needed: only the feedback is another.
    """
    rule, anatomy = applied.rule, applied.anatomy
    stacked = [torch.stack(b).to(own) for b, own in zip(zip(*drawn, strict=True), applied.feedback, strict=True)]

    def taken(*feedback: Tensor) -> tuple[Tensor, ...]:
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
        return tuple(take(rule.credit(context)))

    return list(mapped(taken, *stacked, chunk=chunk))


def _weight_rule(subject: Subject, seen: Observation, drawn: Sequence[dict[str, Tensor]], take: Take) -> list[Tensor]:
    """One backward per draw, all of them at once as seeds of a stack, where the net can be stacked."""
    error, draws = seen.errors.error, len(drawn)
    if draws == 1:
        forward = watch_forward(subject.net, subject.taps, subject.inputs, {**subject.tensors, **drawn[0]})
        return [one.unsqueeze(0) for one in take(gradients_at(forward.states, forward.output, error))]
    buffers = {name: torch.stack([one[name] for one in drawn]) for name in drawn[0]}
    shared = {name: t.expand(draws, *t.shape) for name, t in subject.tensors.items() if name not in buffers}
    stack = StackedNet(subject.net, shared, buffers)  # pyright: ignore[reportArgumentType]
    try:
        forward = watch_forward(stack, subject.taps, subject.inputs)
    except (RuntimeError, NotImplementedError, ValueError):  # they cannot be mapped, or do not fit together
        parts = [_weight_rule(subject, seen, [one], take) for one in drawn]
        return [torch.cat(found) for found in zip(*parts, strict=True)]
    credits = gradients_at(forward.states, forward.output, error.expand(draws, *error.shape))
    taken = [take([a[i] for a in credits]) for i in range(draws)]
    return [torch.stack(one) for one in zip(*taken, strict=True)]


def mean_cosines(credits: Sequence[Tensor], gradients: Sequence[UnitRows]) -> Tensor:
    """`cos` of every tap: the mean over rows that have both credit and gradient."""
    found = []
    for a, g in zip(credits, gradients, strict=True):
        own = UnitRows.of(flat_rows(a))
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
        own = subject.tensors[name]
        unit, size = Direction.of(fresh.to(own)), Direction.of(own).norm
        resized[name] = (unit.scaled * (size / unit.length)).view_as(fresh)
    return resized
