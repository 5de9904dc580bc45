"""Runs over training whose stream and gradient follow given laws, for the figures of trajectories."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from builders import make_facts, make_record, make_snapshot, make_taps

from creditscope.record import Record, RuleFacts

SEEDS = (1, 2, 3)
EPOCHS = (0, 1, 2, 4, 8)
Law = Callable[[int], float]
"""A value by epoch."""


def grow(start: float, orders: float) -> Law:
    """So many orders of magnitude over the epochs, at a constant rate."""
    return lambda epoch: start * 10 ** (orders * epoch / EPOCHS[-1])


SLOW_GROWTH, SLOW_FALL = grow(10, 0.5), grow(1, -1)


def make_run(
    rule: str,
    seed: int,
    *,
    net: str = "resmlp",
    terminal: bool = True,
    h: Law = SLOW_GROWTH,
    g: Law = SLOW_FALL,
    accuracy: float = 0.6,
    block_growth: Law = lambda epoch: 1.0,
    noise: float | tuple[float, ...] | None = 1e-7,
    epochs: Sequence[int] = EPOCHS,
    rule_facts: RuleFacts | None = None,
    **others: Any,
) -> Record:
    """A run of depth 4: at tap 2 g is what is asked, at the top twice as large; seeds differ by a factor of 2 in h."""
    facts: dict[str, Any] = {"class_token": 0} if net == "vit" else {}
    facts |= {"rule": rule_facts} if rule_facts else {}
    known = make_facts(**{"rule": rule, **facts})
    snapshots = []
    for epoch in epochs:
        size, gradient = 2**seed * h(epoch), g(epoch)
        drawn = {"h_norm": (1, 1, 1, 1, size), "g_norm": (1, 1, gradient, 1, 2 * gradient)}
        drawn |= {"g_noise": noise, "h_rms": (1, 1, 1, 1, block_growth(epoch))}
        if net == "vit":  # the whole sample is not what is drawn, but what audits judge
            whole = {**drawn, "h_norm": 77.0, "g_norm": (1, 1, 77.0, 1, 2 * gradient)}
            own: dict[str, Any] = {"taps": whole, "class_token": make_taps(5, **drawn)}
        else:
            own = {"taps": drawn}
        snapshots.append(make_snapshot(known, epoch=epoch, accuracy=accuracy + 0.01 * seed, **own))
    options = {} if net == "student" else {"net_options": {"depth": 4, "width": 8, "terminal_norm": terminal}}
    spec = {"net": net, "epochs": EPOCHS[-1], **options, **others}
    return make_record(rule=rule, seed=seed, facts=facts, snapshots=snapshots, **spec)


def make_resmlp(*, seeds: Sequence[int] = SEEDS, rules: Sequence[str] = ("bp", "dfa"), **dfa: Any) -> list[Record]:
    """Both nets; with a norm DFA's stream grows by 4 orders and its gradient falls by 6, but for what is given."""
    found = []
    for rule in rules:
        for seed in seeds:
            law = {"h": grow(10, 4), "g": grow(1, -6), **dfa} if rule == "dfa" else {}
            found.append(make_run(rule, seed, **law))
            plain = {"h": grow(10, 2), "g": grow(1, 0)} if rule == "dfa" else {}
            found.append(make_run(rule, seed, terminal=False, **plain))
    return found


def make_cross(*, seeds: Sequence[int] = SEEDS, accuracy: dict[str, float] | None = None) -> list[Record]:
    ends = {"bp": 0.6, "fa": 0.5, "dfa": 0.3} | (accuracy or {})
    kinds: list[dict[str, Any]] = [{"net": "vit"}, {"terminal": False}, {"net": "student", "task": "teacher"}]
    return [make_run(rule, seed, accuracy=ends[rule], **kind) for kind in kinds for rule in ends for seed in seeds]


def with_growth(record: Record, *, whole: tuple[float, float], token: tuple[float, float]) -> Record:
    """A ViT run whose top block grows so much at the first epochs of training and at the last one."""
    found = []
    for snapshot in record.snapshots:
        at_end = snapshot.epoch == EPOCHS[-1]
        grown = {name: {"h_rms": (1, 1, 1, 1, sizes[at_end])} for name, sizes in (("all", whole), ("own", token))}
        own = replace(snapshot.head_taps, **grown["own"])
        found.append(replace(snapshot, taps=replace(snapshot.taps, **grown["all"]), class_token=own))
    return replace(record, snapshots=tuple(found))
