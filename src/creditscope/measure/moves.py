"""What moves do to the loss: ρ, of small random moves of the state; descent, of moves along −credit and −gradient.

ρ: does the credit predict what they do? For isotropic v the products ⟨a, v⟩ and ⟨g, v⟩ correlate as a and g do, so ρ
converges to `cos_F` (with rows weighted by ‖h‖², because ε is relative to it). It is a check of that number by finite
differences, not a second witness.

Descent is the functional measurement that does not depend on angles: credit may be nearly orthogonal to the gradient
and still take the loss down, or close to it and not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.measure.fresh_feedback import fresh_credits, fresh_streams
from creditscope.measure.functional_net import Twin, mapped
from creditscope.measure.nulls import turned_rows
from creditscope.measure.numerics import flat_rows, row_norms
from creditscope.measure.weights import Direction, turned_weights
from creditscope.record.schema import DESCENT_TURNS, FRESH_MOVES
from creditscope.rng import generator

DIRECTIONS, JOINT_DIRECTIONS = 32, 1024
"""Unit directions per sample; where rows interact, all rows are one sample, so there have to be more."""
STEP = 1e-3
"""ε over ‖h‖."""
SIZES = tuple(10 ** (-4 + 4 * i / 11) for i in range(12))
"""Steps tried: length of the move over that of what is moved, all rows (or all weights of a stage) together."""


def measure_rho(twin: Twin) -> dict[str, Tensor]:
    """Pearson over samples × directions v of ⟨a_l, εv⟩ with ℓ(h_l + εv) − ℓ(h_l), at every tap; ε_i = 1e-3 ‖h_{l,i}‖.

    Directions are drawn per sample on the CPU; taps of one shape share them. Where rows interact a direction is one of
    the whole state, and ℓ the total loss. The same moves judge the exact gradient (the positive control) and, for a
    rule with feedback, the credit of fresh draws of it, of which mean and sd (ddof 1) are given.
    """
    states = twin.seen.states
    judged = [torch.stack(pair) for pair in zip(twin.seen.credits, twin.seen.exact, strict=True)]
    if streams := fresh_streams(twin.subject, FRESH_MOVES):
        fresh = fresh_credits(twin.subject, twin.seen, streams)
        judged = [torch.cat(both) for both in zip(judged, fresh, strict=True)]
    found = {}
    with torch.no_grad():
        base = twin.losses()
        for shape in dict.fromkeys(h.shape for h in states):
            found |= _correlations(twin, [tap for tap, h in enumerate(states) if h.shape == shape], judged, base)
    own, exact, *fresh = torch.stack([found[tap] for tap in range(len(states))]).unbind(-1)
    measured = {"rho": own, "rho_exact": exact}
    if fresh:
        measured |= {"fresh_rho": torch.stack(fresh).mean(0), "fresh_rho_sd": torch.stack(fresh).std(0)}
    return measured


def _correlations(twin: Twin, taps: list[int], judged: list[Tensor], base: Tensor) -> dict[int, Tensor]:
    """ρ at taps of one shape, of every credit that is judged there."""
    first, parts = twin.seen.states[taps[0]], {tap: [] for tap in taps}
    joint = twin.subject.applied.anatomy.rows_interact
    count, product = (JOINT_DIRECTIONS, "kn,mn->km") if joint else (DIRECTIONS, "krd,mrd->kmr")
    chunk, stream = twin.together(first.numel()), generator(twin.subject.seed, "directions")
    losses = {tap: twin.from_tap(tap) for tap in taps}

    def flat(many: Tensor) -> Tensor:
        """Many states with one vector per row, or one for all where rows interact."""
        return many.flatten(1 if joint else 2)

    for start in range(0, count, chunk):
        drawn = [torch.randn(first.shape, generator=stream) for _ in range(min(chunk, count - start))]
        v = flat(torch.stack(drawn).to(first.device).to(first.dtype))
        v = (v / v.norm(dim=-1, keepdim=True)).view(-1, *first.shape)
        for tap in taps:
            h = twin.seen.states[tap]
            norms = row_norms(flat_rows(h))
            moves = v * (STEP * (row_norms(norms) if joint else norms.view(-1, *[1] * (h.ndim - 1))))
            change = mapped(lambda move, h=h, tap=tap: losses[tap](h + move), moves, chunk=chunk) - base
            told = torch.einsum(product, flat(judged[tap]), flat(moves))
            parts[tap].append((told, change.sum(-1) if joint else change))
    found = {}
    for tap in taps:
        told, change = zip(*parts[tap], strict=True)
        done = torch.cat(change)
        found[tap] = torch.stack([_correlation(one, done, twin, joint) for one in torch.cat(told, dim=1)])
    return found


def _correlation(told: Tensor, done: Tensor, twin: Twin, joint: bool) -> Tensor:
    """Over all directions, and the rows that have a loss and did not overflow."""
    if not joint:
        keep = twin.seen.errors.covered & (told + done).isfinite().all(0)
        told, done = told[:, keep], done[:, keep]
    return pearson(told, done) if told.numel() else told.new_tensor(torch.nan)


def pearson(x: Tensor, y: Tensor) -> Tensor:
    """Correlation of all entries; NaN if one of the two does not vary.

    >>> round(float(pearson(torch.tensor([1e-30, 2e-30, 4e-30]), torch.tensor([1e8, 2e8, 4e8]))), 4)
    1.0
    """
    x, y = (t - t.mean() for t in (x.double().flatten(), y.double().flatten()))
    x, y = x / x.abs().amax(), y / y.abs().amax()
    return (x * y).sum() / (x.norm() * y.norm())


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
        moves = _of_length(torch.stack(list(directions)), self.start)
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
        turned = [rows.view_as(a) for rows in turned_rows(flat_rows(a), stream, 0 if a is g else DESCENT_TURNS)]
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
        turned = turned_weights({name: told[name] for name in weights}, stream, turns)
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


def _of_length(directions: Tensor, state: Tensor) -> Tensor:
    """Each direction as long as the state; entries that are not finite do not move. NaN if it is zero."""
    flat = directions.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).flatten(1)
    largest = flat.abs().amax(1, keepdim=True)
    scaled = flat / torch.where(largest == 0, 1.0, largest)
    length = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    return (scaled / length * Direction.of(state).norm).view_as(directions)
