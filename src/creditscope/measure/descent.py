"""Descent: how far the loss falls along −credit, over how far it falls along −gradient.

The functional measurement that does not depend on angles: credit may be nearly orthogonal to the gradient and still
take the loss down, or close to it and not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.measure.fresh_feedback import fresh_credits, fresh_streams
from creditscope.measure.functional_net import Twin, mapped
from creditscope.measure.nulls import turned_rows
from creditscope.measure.numerics import flat_rows
from creditscope.measure.weights import Direction, turned_weight
from creditscope.record.schema import DESCENT_TURNS, FRESH_MOVES
from creditscope.rng import generator

SIZES = tuple(10 ** (-4 + 4 * i / 11) for i in range(12))
"""Steps tried: length of the move over that of what is moved, all rows (or all weights of a stage) together."""


@dataclass(frozen=True)
class Slope:
    """The mean loss around a point, a state or weights, as a function of where one moves to."""

    twin: Twin
    base: Tensor
    """The mean loss at the point itself."""
    start: Tensor
    losses: Callable[[Tensor], Tensor]
    """ℓ_i of every row at another point."""
    entries: int
    """Size of the largest state that a move changes."""

    def best(self, directions: Sequence[Tensor]) -> Tensor:
        """The largest decrease over all step sizes along minus each direction; 0 if none helps, NaN for none."""
        chunk = max(1, self.twin.together(self.entries) // len(SIZES))
        parts = [directions[i : i + chunk] for i in range(0, len(directions), chunk)]
        return torch.cat([self._best_of_few(part) for part in parts])

    def _best_of_few(self, directions: Sequence[Tensor]) -> Tensor:
        sizes = torch.tensor(SIZES, dtype=self.base.dtype, device=self.base.device)
        moves = torch.stack([_of_length(direction, self.start) for direction in directions])
        means = mapped(
            lambda move, t: self.twin.mean_of(self.losses(self.start - t * move)),
            moves.repeat_interleave(len(sizes), 0),
            sizes.repeat(len(moves)),
            chunk=self.twin.together(self.entries),
        )
        decrease = self.base - means.view(len(moves), len(sizes))
        best = torch.where(decrease.isnan(), -torch.inf, decrease).amax(-1).clamp(min=0)
        return torch.where(decrease.isnan().all(-1), torch.nan, best)

    def shares(self, exact: Tensor, *groups: Sequence[Tensor]) -> list[Tensor]:
        """Of every group of directions, their decreases over that of the gradient; NaN if it cannot go down itself."""
        reference = self.best([exact])

        def share(directions: Sequence[Tensor]) -> Tensor:
            if not directions:
                return _unknown(self.base)
            decrease = reference if directions[0] is exact else self.best(directions)
            return torch.where(reference > 0, decrease / reference, torch.nan)

        return [share(directions) for directions in groups]


def measure_descent(twin: Twin) -> dict[str, Tensor]:
    """Best decrease of the mean loss along −a_l at every tap over that along −g_l; and for nulls of credit.

    All rows move at once, by t·(‖H‖/‖A‖)·a_i for t in `SIZES`, so that they keep their proportions. 1 for a = g; 0 if
    no step helps. One null turns all credit by one Haar rotation; mean and sd (ddof 1) are over `DESCENT_TURNS` of
    them; credit that is the gradient has none. The other, for a rule with feedback, is the credit of fresh draws of it.
    """
    base, stream = twin.mean_of(twin.losses()).detach(), generator(twin.subject.seed, "rotations")
    streams = fresh_streams(twin.subject, FRESH_MOVES)
    fresh = fresh_credits(twin.subject, twin.seen, streams) if streams else [()] * len(twin.seen.states)
    found = []
    for tap, (h, a, g) in enumerate(zip(twin.seen.states, twin.seen.credits, twin.seen.exact, strict=True)):
        turned = [turned_rows(flat_rows(a), stream).view_as(a) for _ in range(0 if a is g else DESCENT_TURNS)]
        slope = Slope(twin, base, h, twin.from_tap(tap), h.numel())
        found.append(slope.shares(g, [a], turned, list(fresh[tap])))
    own, null, drawn_anew = zip(*found, strict=True)
    measured = {"descent": torch.cat(own), **_mean_and_sd("descent_null", null)}
    measured["descent_turns"] = torch.tensor(DESCENT_TURNS).to(base.device)
    return measured | (_mean_and_sd("fresh_descent", drawn_anew) if streams else {})


def measure_stage_descent(twin: Twin) -> dict[str, Tensor]:
    """The same along the rule's gradient of the trained weights of each stage (stage l ends at tap l) over BP's.

    A step is t·‖θ‖ long, with θ all trained weights of the stage; NaN if there is none. For a rule that does not aim at
    the gradient there is a null, too: the gradient of every weight turned on its output side.
    """
    base, seen, subject = twin.mean_of(twin.losses()).detach(), twin.seen, twin.subject
    turns = 0 if subject.applied.rule.approximates == "gradient" else DESCENT_TURNS
    stream = generator(subject.seed, "turned weights")
    told, found = {**seen.exact_weights, **seen.rule_weights}, []
    for tap, stage in enumerate(subject.applied.anatomy.stages[:-1]):
        weights = {name: subject.tensors[name] for name in stage if name in seen.exact_weights}
        if not weights:
            found.append((_unknown(base)[:1], _unknown(base)))
            continue
        exact = _joined(seen.exact_weights, weights)
        own = _joined(told, weights) if weights.keys() & seen.rule_weights else exact
        turned = [{name: turned_weight(told[name], stream) for name in weights} for _ in range(turns)]
        slope = _weight_slope(twin, base, tap, weights)
        found.append(slope.shares(exact, [own], [_joined(one, weights) for one in turned]))
    own, null = zip(*found, strict=True)
    return {"descent_stage": torch.cat(own)} | (_mean_and_sd("descent_stage_null", null) if turns else {})


def _weight_slope(twin: Twin, base: Tensor, stage: int, weights: Mapping[str, Tensor]) -> Slope:
    losses = twin.from_stage(stage)

    def at(moved: Tensor) -> Tensor:
        parts = moved.split([w.numel() for w in weights.values()])
        return losses({name: part.view_as(w) for (name, w), part in zip(weights.items(), parts, strict=True)})

    return Slope(twin, base, _joined(weights, weights), at, max(h.numel() for h in twin.seen.states))


def _joined(tensors: Mapping[str, Tensor], names: Iterable[str]) -> Tensor:
    """Those named as one vector."""
    return torch.cat([tensors[name].flatten() for name in names])


def _unknown(like: Tensor) -> Tensor:
    """What stands for numbers that were not drawn."""
    return torch.full((2,), torch.nan, dtype=like.dtype, device=like.device)


def _mean_and_sd(name: str, values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Over what was drawn, at every tap; ddof 1."""
    return {name: torch.stack([x.mean() for x in values]), f"{name}_sd": torch.stack([x.std() for x in values])}


def _of_length(direction: Tensor, state: Tensor) -> Tensor:
    """The direction as long as the state; entries that are not finite do not move. NaN if it is zero."""
    unit = Direction.of(direction.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    return (unit.scaled / unit.length * Direction.of(state).norm).view_as(direction)
