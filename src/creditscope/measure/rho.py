"""ρ: does the credit predict what small random moves of the state do to the loss?

For isotropic v the products ⟨a, v⟩ and ⟨g, v⟩ correlate as a and g do, so ρ converges to `cos_F` (with rows weighted by
‖h‖², because ε is relative to it). It is a check of that number by finite differences, not a second witness.
"""

import torch
from torch import Tensor

from creditscope.measure.fresh_feedback import fresh_credits, fresh_streams
from creditscope.measure.functional_net import Twin, mapped
from creditscope.measure.numerics import flat_rows, row_norms
from creditscope.record.schema import FRESH_MOVES
from creditscope.rng import generator

DIRECTIONS = 32
"""Unit directions per sample."""
JOINT_DIRECTIONS = 1024
"""Where rows interact, all rows are one sample, so there have to be more."""
STEP = 1e-3
"""ε over ‖h‖."""


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
    first = twin.seen.states[taps[0]]
    joint = twin.subject.applied.anatomy.rows_interact
    count = JOINT_DIRECTIONS if joint else DIRECTIONS
    chunk = twin.together(first.numel())
    losses = {tap: twin.from_tap(tap) for tap in taps}
    stream = generator(twin.subject.seed, "directions")
    told: dict[int, list[Tensor]] = {tap: [] for tap in taps}
    done: dict[int, list[Tensor]] = {tap: [] for tap in taps}
    for start in range(0, count, chunk):
        drawn = [torch.randn(first.shape, generator=stream) for _ in range(min(chunk, count - start))]
        v = _unit(torch.stack(drawn).to(first.device).to(first.dtype), joint)
        for tap in taps:
            h = twin.seen.states[tap]
            moves = v * _sizes(h, joint)
            change = mapped(lambda move, h=h, tap=tap: losses[tap](h + move), moves, chunk=chunk) - base
            told[tap].append(_products(judged[tap], moves, joint))
            done[tap].append(change.sum(-1) if joint else change)
    found = {}
    for tap in taps:
        change, products = torch.cat(done[tap]), torch.cat(told[tap], dim=1)
        found[tap] = torch.stack([_correlation(product, change, twin, joint) for product in products])
    return found


def _products(judged: Tensor, moves: Tensor, joint: bool) -> Tensor:
    """⟨a, εv⟩ of every credit with every move, (credits, moves), and by row where rows are apart."""
    if joint:
        return torch.einsum("kn,mn->km", judged.flatten(1), moves.flatten(1))
    return torch.einsum("krd,mrd->kmr", judged.flatten(2), moves.flatten(2))


def _correlation(told: Tensor, done: Tensor, twin: Twin, joint: bool) -> Tensor:
    """Over all directions, and the rows that have a loss and did not overflow."""
    if not joint:
        keep = twin.seen.errors.covered & (told + done).isfinite().all(0)
        told, done = told[:, keep], done[:, keep]
    return pearson(told, done) if told.numel() else told.new_tensor(torch.nan)


def _unit(v: Tensor, joint: bool) -> Tensor:
    """Directions (count, rows, …) of length 1 per row, or as a whole."""
    flat = v.flatten(1) if joint else v.flatten(2)
    return (flat / flat.norm(dim=-1, keepdim=True)).view(v.shape)


def _sizes(h: Tensor, joint: bool) -> Tensor:
    """ε of every row, (rows, 1, …), or of the whole state."""
    norms = row_norms(flat_rows(h))
    return STEP * (row_norms(norms) if joint else norms.view(-1, *[1] * (h.ndim - 1)))


def pearson(x: Tensor, y: Tensor) -> Tensor:
    """Correlation of all entries; NaN if one of the two does not vary.

    >>> round(float(pearson(torch.tensor([1e-30, 2e-30, 4e-30]), torch.tensor([1e8, 2e8, 4e8]))), 4)
    1.0
    """
    x, y = (t - t.mean() for t in (x.double().flatten(), y.double().flatten()))
    x, y = x / x.abs().amax(), y / y.abs().amax()
    return (x * y).sum() / (x.norm() * y.norm())
