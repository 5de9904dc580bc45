"""Credit drawn anew: by fresh feedback, or by a rule's own next draws, where it draws noise in every step.

The rule's own cosine less that of fresh feedback is the alignment that training acquired; the rest, any feedback would
have had. The weights have not learnt from the draws of the next steps either: they know nothing of them.
"""

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from creditscope.measure.alignment import measure_alignment
from creditscope.measure.functional_net import Subject, feedback_names, mapped, together
from creditscope.measure.numerics import UnitRows, flat_rows, mean_cosine
from creditscope.measure.observation import Observation
from creditscope.measure.weights import Direction
from creditscope.record.schema import OWN_DRAWS
from creditscope.rng import generator
from creditscope.rules import Feedback, restore
from creditscope.stack import StackedNet
from creditscope.taps import Forward, Gate, gradients_at, watch_forward

FRESH_DRAWS = 20
Take = Callable[[Sequence[Tensor]], Sequence[Tensor]]
"""What is wanted of the credits at all taps."""


def measure_fresh(subject: Subject, seen: Observation, gradients: Sequence[UnitRows]) -> dict[str, Tensor]:
    """Mean and sd (ddof 1) over draws of the cosine per tap; nothing for a rule without feedback."""
    streams = fresh_streams(subject, FRESH_DRAWS)
    if not streams:
        return {}
    cos = fresh_cosines(subject, seen, gradients, streams)
    return {"fresh_cos": cos.mean(0), "fresh_sd": cos.std(0), "fresh_draws": torch.tensor(FRESH_DRAWS).to(cos.device)}


def fresh_streams(subject: Subject, draws: int) -> list[torch.Generator]:
    """Where the first so many draws come from; none for a rule without feedback."""
    return [generator(subject.seed, "fresh feedback", draw) for draw in range(draws if has_memory(subject) else 0)]


def has_memory(subject: Subject) -> bool:
    """Whether the rule has tensors of its own that are drawn."""
    applied = subject.applied
    if applied.rule.local:
        return bool(tree_flatten(applied.feedback)[0])
    return applied.rule.remembers and bool(feedback_names(subject.net))


def fresh_cosines(
    subject: Subject, seen: Observation, gradients: Sequence[UnitRows], streams: Sequence[torch.Generator]
) -> Tensor:
    """Cosine at every tap with the feedback that each stream gives, (draws, taps); the gradients are the given ones."""

    def cosines(credits: Sequence[Tensor]) -> list[Tensor]:
        pairs = zip(credits, gradients, strict=True)
        return [torch.stack([mean_cosine(UnitRows.of(flat_rows(a)), g) for a, g in pairs])]

    return fresh_credits(subject, seen, streams, cosines)[0]


def fresh_credits(
    subject: Subject, seen: Observation, streams: Sequence[torch.Generator], take: Take = list
) -> list[Tensor]:
    """The credit that the feedback of each stream gives at every tap, (draws, *state); or what `take` makes of it."""
    chunk = together(seen.output.device, sum(h.numel() for h in seen.states))
    applied, anatomy = subject.applied, subject.applied.anatomy
    if applied.rule.local:
        drawn = [applied.rule.draw_feedback(anatomy.shapes, anatomy.classes, stream) for stream in streams]
        return _of_feedback(subject, seen, drawn, take, chunk)
    drawn = _redrawn_weights(subject, streams)
    parts = [_weight_rule(subject, seen, drawn[i : i + chunk], take) for i in range(0, len(drawn), chunk)]
    return [torch.cat(found) for found in zip(*parts, strict=True)]


def _of_feedback(
    subject: Subject, seen: Observation, drawn: Sequence[Feedback], take: Take, chunk: int = 1
) -> list[Tensor]:
    """What `take` makes of the credit that each of the `drawn` feedbacks gives on what was seen, stacked over them.

    The forward is that which was seen: only the feedback is another.
    """
    applied = subject.applied
    forward = Forward(subject.inputs, seen.output, seen.states, [], (), Gate(), subject.tensors)
    own, shape = tree_flatten(applied.feedback)
    each = zip(*(tree_flatten(one)[0] for one in drawn), strict=True)
    stacked = [torch.stack(b).to(mine) for b, mine in zip(each, own, strict=True)]

    def taken(*feedback: Tensor) -> tuple[Tensor, ...]:
        given = tree_unflatten(feedback, shape)
        return tuple(take(applied.credits(forward, seen.errors, seen.exact[-1], "none", given)[0]))

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


def _redrawn_weights(subject: Subject, streams: Sequence[torch.Generator]) -> list[dict[str, Tensor]]:
    """The feedback of all converted layers by buffer name, once for each stream.

    The rule converts a copy of the net as it is now. A matrix keeps the size it has: only its entries are new, even if
    the rule scales feedback by weights that have grown since.
    """
    rule, scratch = copy.deepcopy(subject.applied.rule), copy.deepcopy(subject.net)
    with torch.no_grad():
        for name, parameter in scratch.named_parameters():
            parameter.copy_(subject.tensors[name])
    found = []
    for stream in streams:
        rule.convert(restore(scratch), subject.applied.anatomy, stream)
        names = feedback_names(scratch)
        found.append({name: _resized(scratch.get_buffer(name), subject.tensors[name]) for name in names})
    return found


def _resized(fresh: Tensor, own: Tensor) -> Tensor:
    unit = Direction.of(fresh.to(own))
    return (unit.scaled * (Direction.of(own).norm / unit.length)).view_as(fresh)


def measure_draws(subject: Subject, seen: Observation) -> dict[str, Tensor]:
    """β of a rule's own draws, its standard error and null, and their share of noise; nothing if it draws none."""
    applied = subject.applied
    if not applied.rule.draws_noise:
        return {}
    taps = [Draws(g) for g in seen.exact]
    for credits in own_credits(subject, seen):
        for tap, a in zip(taps, credits, strict=True):
            tap.add(a)
    beta = torch.stack([torch.stack(tap.betas) for tap in taps], 1)
    return {
        "beta": beta.mean(0),
        "beta_se": beta.std(0) / len(beta) ** 0.5,
        "beta_null_sd": torch.stack([tap.null_sd for tap in taps]),
        "draw_noise": torch.stack([tap.noise for tap in taps]),
        "draw_cos": torch.stack([tap.cosine for tap in taps]),
    }


def own_credits(subject: Subject, seen: Observation) -> Iterator[list[Tensor]]:
    """The credit at every tap by each of the next draws, on what was seen."""
    applied = subject.applied
    for draw in range(1, OWN_DRAWS + 1):
        if applied.rule.local:
            found = _of_feedback(subject, seen, [applied.rule.redraw(applied.feedback, draw)], list)
        else:
            found = _weight_rule(subject, seen, [applied.next_memories(draw, subject.tensors)], list)
        yield [one.squeeze(0) for one in found]


class Draws:
    """Draws of the credit at one tap, one after the other, in float64 and in units of the gradient's largest entry.

    Only their running mean is kept. Their spread is summed with it, so that none of it is lost where it is small.
    """

    def __init__(self, gradient: Tensor):
        gradient = gradient.double()
        largest = gradient.abs().amax()
        self.unit = torch.where(largest == 0, 1.0, largest)
        self.gradient = gradient / self.unit
        self.betas: list[Tensor] = []
        """⟨a, g⟩/‖g‖² over all rows, of every draw; NaN without a gradient."""
        self.mean = torch.zeros_like(gradient)
        self.spread = self.square = gradient.new_zeros(())

    def add(self, credit: Tensor) -> None:
        a = credit.double() / self.unit
        self.betas.append((a * self.gradient).sum() / self.gradient.square().sum())
        before = a - self.mean
        self.mean = self.mean + before / len(self.betas)
        self.spread = self.spread + (before * (a - self.mean)).sum()
        self.square = self.square + a.square().sum()

    @property
    def null_sd(self) -> Tensor:
        """Of ⟨ā, g⟩/‖g‖² under a random rotation of ā: that of their cosine, times ‖ā‖/‖g‖."""
        mean, gradient = flat_rows(self.mean), flat_rows(self.gradient)
        null = measure_alignment(mean, gradient, tuple(self.gradient.shape[1:]))["null_sd_F"]
        return null * mean.norm() / gradient.norm()

    @property
    def noise(self) -> Tensor:
        """Σ_k ‖a_k − ā‖²/(K − 1) over the mean of ‖a_k‖²; NaN without credit."""
        draws = len(self.betas)
        return self.spread / (draws - 1) / (self.square / draws)

    @property
    def cosine(self) -> Tensor:
        """`cos` of the mean of the draws: what is left of the angle when noise is averaged out, which is bias."""
        return mean_cosine(UnitRows.of(flat_rows(self.mean)), UnitRows.of(flat_rows(self.gradient)))
