"""What the checks of a network share: its modules and weights at a moment, by name, in the order of the forward."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import ClassVar

from creditscope.auditing.checks._check import Finding, RunCheck
from creditscope.auditing.methods import Moment
from creditscope.auditing.thresholds import Thresholds
from creditscope.record import ModuleFact, Snapshot, WeightFact

NOT_MEASURED = "modules were not measured (take the snapshot with this version)"
LEARNT, STUCK = 0.5, 0.9
"""Loss, as a share of the best constant's, under which a net has learnt much, and over which hardly anything."""
BEGAN = 15
"""What is taken off the rank of an issue that an untrained net had."""
FEWEST_STEPS = 10
"""Between snapshots, to speak of a step: the first ones of Adam go far, all one way."""
FEWEST_ROWS = 32
"""Rows that tell a dead unit from one that is seldom active."""


class NetworkCheck(RunCheck):
    """Judges a network that was watched under backprop, over the snapshots up to a moment."""

    network = True
    advisory = False
    order: ClassVar[int]
    """Rank of its issues, where nothing else is said."""
    persists: ClassVar[bool] = False
    """Whether what it finds in an untrained net is told of the trained one, too."""

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        if moment.snapshot.modules is None or moment.snapshot.output is None:
            return self.skipped(NOT_MEASURED)
        net = NetworkMoment(moment)
        return self.judge_start(self.look(net, limits), net, limits)

    def judge_start(self, found: Finding, net: "NetworkMoment", limits: Thresholds) -> Finding:
        """What was wrong before training comes first, and stays a finding as long as the loss has hardly fallen."""
        start = net.start
        if not self.persists or start is net.snapshot or not start.untrained:
            return found
        before = self.look(NetworkMoment(replace(net.moment, snapshot=start, history=(start,))), limits)
        if not before.is_issue or not (found.is_issue or net.is_stuck):
            return found
        rank = before.rank - BEGAN
        if found.is_issue:
            return replace(found, rank=rank)
        return replace(before, rank=rank, message=f"{before.message}, at {start.when}")

    def look(self, net: "NetworkMoment", limits: Thresholds) -> Finding:
        """The finding for a network that was measured."""
        raise NotImplementedError

    def issue(self, message: str, **others) -> Finding:
        return super().issue(message, **{"rank": self.order, **others})


@dataclass(frozen=True)
class SeenModule:
    """One call of a module: what is known of it and what was measured."""

    place: int
    fact: ModuleFact
    rms: float | None
    dispersion: float | None
    token_dispersion: float | None
    rank: float | None
    dead: float | None
    saturated: float | None
    dropped: float | None
    finite: float | None

    @property
    def name(self) -> str:
        return self.fact.name

    @property
    def owner(self) -> str:
        """The layer whose units these are."""
        return self.fact.owner or self.fact.name


@dataclass(frozen=True)
class SeenWeight:
    """One trained weight: what is known of it and what was measured."""

    fact: WeightFact
    module: str
    """The module that it belongs to, or the nearest around it that ran; empty if none did."""
    gradient: float | None
    size: float | None
    reached: bool
    zero: bool
    unit_spread: float | None
    update: float | None
    changed: bool | None

    @property
    def is_matrix(self) -> bool:
        return len(self.fact.shape) >= 2

    @property
    def relative(self) -> float | None:
        """‖∇W‖·‖W‖, which no rescaling of the stream changes; None for a weight that is zero, or is not finite."""
        return None if self.gradient is None or not self.size else self.gradient * self.size


class NetworkMoment:
    """A moment of a watched network."""

    def __init__(self, moment: Moment):
        self.moment, self.facts, self.snapshot = moment, moment.facts, moment.snapshot
        self.history = moment.history or (moment.snapshot,)

    @property
    def start(self) -> Snapshot:
        """The first snapshot there is."""
        return self.history[0]

    @property
    def loss(self) -> float | None:
        return self.snapshot.loss

    @property
    def best(self) -> float | None:
        """The best constant's loss."""
        return best_constant(self.snapshot)

    @property
    def has_learnt(self) -> bool:
        """Whether the loss is far under the best constant's."""
        return self.loss is not None and bool(self.best) and 0 <= self.loss < LEARNT * (self.best or 0)

    @property
    def is_stuck(self) -> bool:
        """Whether the loss is hardly under the best constant's, or is no number."""
        return self.loss is None or not self.best or self.loss > STUCK * self.best

    @property
    def is_fitted(self) -> bool:
        """Whether most rows have no error left to send down."""
        return 2 * self.snapshot.rows_fitted >= self.snapshot.rows_covered

    @cached_property
    def modules(self) -> list[SeenModule]:
        return list(_modules(self.moment, self.snapshot))

    @cached_property
    def weights(self) -> list[SeenWeight]:
        return list(_weights(self.moment, self.snapshot))

    def weights_at(self, snapshot: Snapshot) -> list[SeenWeight]:
        """The same of another snapshot."""
        return list(_weights(self.moment, snapshot))

    def modules_at(self, snapshot: Snapshot) -> list[SeenModule]:
        return list(_modules(self.moment, snapshot))

    def starts_at_zero(self, name: str) -> bool:
        """Whether, before training, a weight at or after this module is zero: nothing comes down by design."""
        places = {m.name: m.place for m in self.modules}
        after = [w for w in self.weights if places.get(w.module, 0) >= places.get(name, 0)]
        return (self.snapshot.untrained or len(self.history) == 1) and any(w.size == 0 for w in after if _scales(w))

    @cached_property
    def layers(self) -> list[tuple[str, float]]:
        """Modules with matrices that a gradient reaches, in order of the forward, and its relative size in each."""
        order = list(dict.fromkeys(m.name for m in self.facts.modules))
        found: dict[str, float] = {}
        for weight in self.weights:
            if weight.is_matrix and weight.reached and weight.relative is not None and weight.module in order:
                found[weight.module] = max(found.get(weight.module, 0.0), weight.relative)
        return [(name, found[name]) for name in order if name in found]


def travelled(net: NetworkMoment) -> float | None:
    """Over all snapshots, the sum of the median relative update of matrices; None if none was measured."""
    found = []
    for snapshot in net.history[1:]:
        moves = [w.update for w in net.weights_at(snapshot) if w.is_matrix and w.update is not None]
        found += [median(moves)] if moves else []
    return sum(found) if found else None


def largest_step(net: NetworkMoment) -> float:
    """The largest median update of matrices per step, between two snapshots; 0 where steps are few, or not told."""
    found = [0.0]
    for before, snapshot in pairwise(net.history):
        moves = [w.update for w in net.weights_at(snapshot) if w.is_matrix and w.update is not None]
        if moves and snapshot.step >= before.step + FEWEST_STEPS:
            found.append(median(moves) / (snapshot.step - before.step))
    return max(found)


def last_step(net: NetworkMoment) -> float:
    """The same, of the last two snapshots."""
    return largest_step(NetworkMoment(replace(net.moment, history=net.history[-2:])))


def shrinking(net: NetworkMoment) -> float | None:
    """Median over matrices of ‖W‖ over what it was at the first snapshot."""
    pairs = zip(net.weights, net.weights_at(net.start), strict=True)
    found = [new.size / old.size for new, old in pairs if new.is_matrix and old.size and new.size is not None]
    return median(found) if found else None


def _scales(weight: SeenWeight) -> bool:
    """Whether states are multiplied by it: a matrix or a scale, no bias."""
    return weight.is_matrix or not weight.fact.name.endswith("bias")


def best_constant(snapshot: Snapshot) -> float | None:
    return snapshot.output.best_constant_loss if snapshot.output else None


def _modules(moment: Moment, snapshot: Snapshot) -> Iterator[SeenModule]:
    if snapshot.modules is None:
        return
    columns = vars(snapshot.modules)
    for place, fact in enumerate(moment.facts.modules):
        yield SeenModule(place, fact, **{name: values[place] for name, values in columns.items()})


def _weights(moment: Moment, snapshot: Snapshot) -> Iterator[SeenWeight]:
    weights = snapshot.weights
    if weights is None:
        return
    ran = {m.name for m in moment.facts.modules}
    for i, fact in enumerate(moment.facts.weights):
        changed = weights.changed[i] if weights.changed else None
        yield SeenWeight(
            fact,
            _nearest(fact.name, ran),
            weights.exact_norm[i],
            weights.w_norm[i],
            bool(weights.reached[i]) if weights.reached else True,
            bool(weights.exact_all_zero[i]),
            weights.unit_spread[i] if weights.unit_spread else None,
            weights.update[i] if weights.update else None,
            None if changed is None else bool(changed),
        )


def _nearest(weight: str, ran: set[str]) -> str:
    name = weight.rpartition(".")[0]
    while name and name not in ran:
        name = name.rpartition(".")[0]
    return name


def quoted(name: str) -> str:
    """A module in a message."""
    return f"`{name}`" if name else "the model's own forward"
