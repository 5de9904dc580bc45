"""Descent: how far the loss falls along −credit, over how far it falls along −gradient.

The functional measurement that does not depend on angles: credit may be nearly orthogonal to the gradient and still
take the loss down, or close to it and not.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from creditscope.measure.fresh import fresh_credits, fresh_streams, has_feedback
from creditscope.measure.nulls import turned_rows
from creditscope.measure.numerics import flat_rows
from creditscope.measure.twin import Twin
from creditscope.measure.weights import Direction
from creditscope.record.schema import DESCENT_TURNS, FRESH_MOVES
from creditscope.rng import generator

SIZES = tuple(10 ** (-4 + 4 * i / 11) for i in range(12))
"""Steps tried: length of the move over that of what is moved, all rows (or all weights of a stage) together."""


def measure_descent(twin: Twin) -> dict[str, Tensor]:
    """Best decrease of the mean loss along −a_l at every tap over that along −g_l; and for nulls of credit.

    All rows move at once, by t·(‖H‖/‖A‖)·a_i for t in `SIZES`, so that they keep their proportions. 1 for a = g; 0 if
    no step helps. One null turns all credit by one Haar rotation; mean and sd (ddof 1) are over 8 of them. The other,
    for a rule with feedback, is the credit of fresh draws of it.
    """
    base, stream = twin.mean_of(twin.losses()).detach(), generator(twin.subject.seed, "rotations")
    own, null, drawn_anew = [], [], []
    redrawn = has_feedback(twin.subject)
    streams = fresh_streams(twin.subject, FRESH_MOVES if redrawn else 0)
    fresh = fresh_credits(twin.subject, twin.seen, streams) if redrawn else [()] * len(twin.seen.states)
    for tap, (h, a, g) in enumerate(zip(twin.seen.states, twin.seen.credits, twin.seen.exact, strict=True)):
        losses = twin.from_tap(tap)

        def best(direction: Tensor, h: Tensor = h, losses: Callable = losses) -> Tensor:
            move = _of_length(direction, h)
            return _best_decrease(twin, base, lambda t: losses(h - t * move), h.numel())

        reference = best(g)
        own.append(_share(reference if a is g else best(a), reference))
        turned = [best(turned_rows(flat_rows(a), stream).view_as(a)) for _ in range(DESCENT_TURNS)]
        null.append(_share(torch.stack(turned), reference))
        drawn_anew += [_share(torch.stack([best(one) for one in fresh[tap]]), reference)] if redrawn else []
    found = {"descent": torch.stack(own), **_mean_and_sd("descent_null", null)}
    return found | (_mean_and_sd("fresh_descent", drawn_anew) if redrawn else {})


def _mean_and_sd(name: str, values: list[Tensor]) -> dict[str, Tensor]:
    """Over what was drawn, at every tap; ddof 1."""
    stacked = torch.stack(values)
    return {name: stacked.mean(1), f"{name}_sd": stacked.std(1)}


def measure_stage_descent(twin: Twin) -> Tensor:
    """The same along the rule's gradient of the trained weights of each stage (stage l ends at tap l) over BP's.

    A step is t·‖θ‖ long, with θ all trained weights of the stage; NaN if there is none.
    """
    base, seen = twin.mean_of(twin.losses()).detach(), twin.seen
    found = []
    entries = max(h.numel() for h in seen.states)
    for tap, stage in enumerate(twin.subject.applied.anatomy.stages[:-1]):
        weights = {name: twin.subject.tensors[name] for name in stage if name in seen.exact_weights}
        if not weights:
            found.append(torch.full_like(base, torch.nan))
            continue
        losses = twin.from_stage(tap)

        def best(gradients: Mapping[str, Tensor], weights: dict = weights, losses: Callable = losses) -> Tensor:
            flat = torch.cat([gradients[name].flatten() for name in weights])
            move = _of_length(flat, torch.cat([w.flatten() for w in weights.values()]))
            parts = move.split([w.numel() for w in weights.values()])
            moves = {name: part.view_as(w) for (name, w), part in zip(weights.items(), parts, strict=True)}
            return _best_decrease(
                twin, base, lambda t: losses({name: w - t * moves[name] for name, w in weights.items()}), entries
            )

        reference = best(seen.exact_weights)
        told = best({**seen.exact_weights, **seen.rule_weights}) if weights.keys() & seen.rule_weights else reference
        found.append(_share(told, reference))
    return torch.stack(found)


def _of_length(direction: Tensor, state: Tensor) -> Tensor:
    """The direction as long as the state; entries that are not finite do not move. NaN if it is zero."""
    finite = direction.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    unit = Direction.of(finite)
    return (unit.scaled / unit.length * Direction.of(state).norm).view_as(direction)


def _best_decrease(twin: Twin, base: Tensor, losses_at: Callable[[Tensor], Tensor], entries: int) -> Tensor:
    """The largest decrease of the mean loss over all step sizes, 0 if none helps; NaN if there is no direction."""
    sizes = torch.tensor(SIZES, dtype=base.dtype, device=base.device)
    means = twin.over(lambda t: twin.mean_of(losses_at(t)), sizes, entries=entries)
    decrease = base - means
    best = torch.where(decrease.isnan(), -torch.inf, decrease).amax().clamp(min=0)
    return torch.where(decrease.isnan().all(), torch.nan, best)


def _share(decrease: Tensor, reference: Tensor) -> Tensor:
    """A decrease over that of the reference; NaN if the reference itself cannot go down."""
    return torch.where(reference > 0, decrease / reference, torch.nan)
