"""Every module of a watched model, seen in the one forward: sizes, dead and saturated units, rows that become alike.

Hooks keep a few reductions on the device; nothing is run again, and nothing waits for it. A module that only hands on
what one inside it gave is passed by, unless it is a tap. Where a function stands between two modules (`F.relu` in a
block), its result is what the next module with a weight reads, and is told of the module whose units these are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn
from torch.utils.weak import TensorWeakRef

from creditscope.measure.cuts import CutFinder, Cuts
from creditscope.measure.samples import Bounds, Sample, few_entries, measure_bounds, measure_samples, spread
from creditscope.record.schema import CutFacts, Facts, ModuleFact
from creditscope.taps import split_state

if TYPE_CHECKING:
    from creditscope.measure.observation import Observation

ROWS = 256
"""Rows that dead units are looked for in, at most."""
CALLS = 4
"""Calls of one module that are kept: a shared ReLU is called twice, a cell of a loop a thousand times."""
PASSED_BY = ("Identity", "Dropout", "Flatten", "Unflatten", "DropPath", "StochasticDepth")
"""Leaves that do nothing to a state which is worth a line, by how their names begin."""
RECTIFIERS = ("ReLU", "ReLU6", "GELU", "SiLU", "Mish", "Hardswish", "LeakyReLU", "ELU", "CELU", "Threshold")
BOUNDED = {"Tanh": -1.0, "Hardtanh": -1.0, "Softsign": -1.0, "Sigmoid": 0.0, "Hardsigmoid": 0.0}
"""Their lower bounds; the upper one is 1."""
LOWEST = -0.3
"""No usual rectifier (GELU, SiLU) gives less."""
SILENT = 1e-7
"""Largest entry of a unit, over that of its layer, at which it is dead."""
NAMES = ("rms", "dispersion", "token_dispersion", "rank", "dead", "saturated", "dropped", "finite")
MOST_DROPPED = 0.8
"""Probability of a dropout above which it is looked at."""


@dataclass
class ModuleWatch:
    """What was seen of the modules, one entry a call, in the order in which the calls ended."""

    facts: list[ModuleFact] = field(default_factory=list)
    measured: list[dict[str, Tensor]] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    bounds: list[tuple[int, Bounds]] = field(default_factory=list)
    """Of which call."""
    cuts: Cuts = field(default_factory=Cuts)
    cut: CutFacts | None = None
    """What the cuts come to, once it is known which weights no gradient reaches."""

    def measure(self) -> None:
        """What samples of the states tell, many at once."""
        bounds = measure_bounds([sample for _, sample in self.bounds])
        for place, found in zip([place for place, _ in self.bounds], bounds, strict=True):
            self.measured[place] = found | self.measured[place]
        for own, found in zip(self.measured, measure_samples(self.samples), strict=True):
            own |= found
        self.samples, self.bounds = [], []

    def results(self, known: Sequence[ModuleFact]) -> dict[str, Tensor]:
        """The fields of `ModuleMeasures` for these calls, one value each; NaN for what was not measured."""
        places = {(fact.name, fact.call): place for place, fact in enumerate(self.facts)}
        found = [self.measured[places[key]] if (key := (m.name, m.call)) in places else {} for m in known]
        if not any(found):
            return {}
        nothing = next(value for one in found for value in one.values()).new_full((), torch.nan)
        return {name: torch.stack([one.get(name, nothing) for one in found]) for name in NAMES}


@contextmanager
def watch_modules(model: nn.Module, taps: Sequence[str], rows: int, *, find_cuts: bool = True) -> Iterator[ModuleWatch]:
    """Inside, one forward of `model` is seen by its modules; `rows` is the number of rows of its batch."""
    seen, hands = ModuleWatch(), []
    hooks = _Hooks(seen, rows, frozenset(taps))
    try:
        for name, module in model.named_modules():
            if name and (name in taps or _counts(module)):
                hands.append(module.register_forward_hook(partial(hooks.look, name)))
        with CutFinder(model, seen.cuts) if find_cuts else nullcontext():
            yield seen
    finally:
        for hand in hands:
            hand.remove()


def _counts(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.dropout._DropoutNd):
        return module.training and module.p > MOST_DROPPED
    return not type(module).__name__.startswith(PASSED_BY)


class _Hooks:
    """Looks at what a module gives, and at what one with a weight reads."""

    def __init__(self, seen: ModuleWatch, rows: int, taps: frozenset[str]):
        self.seen, self.rows, self.taps = seen, rows, taps
        self.calls: dict[str, int] = {}
        self.sources = _States()
        """Every state that some module read."""
        self.looked_at = _States()
        """States that were measured as some module's output, or as what another one reads."""
        self.axis = -1
        """Where the last module with a weight has its units."""
        self.axes: dict[int, int] = {}
        """The same of states of so many dimensions, by the last layer that gave one: images may have them last."""
        self.owner: dict[int, int] = {}
        """Number of units → place of the last module with parameters that has so many."""

    @torch.no_grad()
    def look(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        with torch._C.DisableTorchFunction():  # what is done here is none of the model's
            self._look(name, module, args, output)

    def _look(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        state, _ = split_state(output)
        call = self.calls[name] = self.calls.get(name, -1) + 1
        if not _is_dense(state) or not state.is_floating_point() or state.ndim < 2 or call >= CALLS:
            return
        own = next(module.parameters(recurse=False), None) is not None
        hands_on = next(module.children(), None) is not None and state in self.looked_at
        if state.numel() == 0 or (hands_on and not own and name not in self.taps):
            return
        if _has_matrix(module):
            self.axis = self.axes[state.ndim] = _unit_axis(module) if state.ndim > 2 else -1
            self._look_at_input(args)
        kind = type(module).__name__
        axis = self.axes.get(state.ndim, 1 if state.ndim > 3 else -1)
        units = state.shape[axis]
        owner = name if own else self._owner(units, name)
        fact = ModuleFact(name=name, kind=kind, call=call, units=units, owner=owner, source=self._source(args))
        if own:
            self.owner[units] = len(self.seen.facts)
        self.looked_at.add(state)
        sample, found = Sample.of(state, by_rows=state.shape[0] == self.rows), {}
        if kind in RECTIFIERS:
            found["dead"] = _dead(state, axis)
        elif kind in BOUNDED:
            self.seen.bounds.append((len(self.seen.facts), Bounds(sample.few, BOUNDED[kind])))
        elif isinstance(module, nn.modules.dropout._DropoutNd):
            found["dropped"] = (sample.few == 0).float().mean()
        self.seen.facts.append(fact)
        self.seen.samples.append(sample)
        self.seen.measured.append(found)

    def _owner(self, units: int, otherwise: str) -> str:
        place = self.owner.get(units)
        return otherwise if place is None else self.seen.facts[place].name

    def _source(self, args: Any) -> int:
        state = next(filter(_is_dense, args), None)
        return 0 if state is None else self.sources.add(state)

    def _look_at_input(self, args: Any) -> None:
        """What a function made of the units of a module before; data carry no gradient and are left alone."""
        state = next(filter(_is_dense, args), None)
        if state is None or not state.requires_grad or not state.is_floating_point() or state.ndim < 2:
            return
        place = self.owner.get(state.shape[self.axis])
        if place is None or state in self.looked_at:
            return
        self.looked_at.add(state)
        if place not in [known for known, _ in self.seen.bounds]:
            few = few_entries(state).clone()
            self.seen.bounds.append((place, Bounds(few, None, dead=_dead(state, self.axis), lowest=LOWEST)))


class _States:
    """States by where they lie, as long as they do: what is gone gives its address to another."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], tuple[TensorWeakRef, int]] = {}
        self.count = 0

    def __contains__(self, state: Tensor) -> bool:
        known = self.held.get(self._address(state))
        return known is not None and known[0]() is not None

    def add(self, state: Tensor) -> int:
        """Its number, from 1 on."""
        if state not in self:
            self.count += 1
            self.held[self._address(state)] = TensorWeakRef(state), self.count
        return self.held[self._address(state)][1]

    @staticmethod
    def _address(state: Tensor) -> tuple[int, int]:
        """Of what it holds now: another after a change in place."""
        return state.data_ptr(), state._version


def _is_dense(value: Any) -> TypeGuard[Tensor]:
    """Whether it is a tensor with a place in memory, as a sparse one has not."""
    return isinstance(value, Tensor) and value.layout is torch.strided


def _has_matrix(module: nn.Module) -> bool:
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim >= 2 and not isinstance(module, nn.Embedding)


def _unit_axis(module: nn.Module) -> int:
    return 1 if isinstance(module, nn.modules.conv._ConvNd) else -1


def _dead(state: Tensor, axis: int) -> Tensor:
    """Share of units that give nothing in any row."""
    rows = spread(state, ROWS)
    others = [d for d in range(rows.ndim) if d != axis % rows.ndim]
    largest = torch.maximum(rows.amax(others), -rows.amin(others))
    return (largest <= SILENT * largest.amax()).float().mean()


def with_modules(facts: Facts, seen: "Observation", known: Facts | None) -> Facts:
    """Facts with the modules of a forward, those of the first snapshot if there was one, and shapes of weights."""
    if seen.modules is None:
        return facts
    weights = tuple(replace(w, shape=tuple(seen.weights[w.name].shape)) for w in facts.weights)
    modules = known.modules if known is not None and known.modules else tuple(seen.modules.facts)
    cuts = known.cuts if seen.modules.cut is None and known is not None else seen.modules.cut
    return replace(facts, weights=weights, modules=modules, cuts=cuts)
