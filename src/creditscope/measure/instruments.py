"""What a snapshot measures beyond the observation, by instruments that say what they need.

Cheap instruments are made of the observation alone, and are taken of all seeds of a stack at once; dear ones run the
net again, and are taken seed by seed. The tier says when: quick the cheap ones after training, standard the cheap ones
always, the dear ones before and after training and the late ones after it, full all of them always. What costs "last"
compares the trained net with the untrained one, and is taken after training at every tier.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.measure.ablation import measure_rewind, measure_skips
from creditscope.measure.alignment import (
    measure_common,
    measure_drift,
    measure_handed_on,
    measure_permuted,
    measure_reading,
    measure_skip_credit,
)
from creditscope.measure.fresh_feedback import measure_draws, measure_fresh
from creditscope.measure.functional_net import Subject, Twin, first_rows, make_twin
from creditscope.measure.moves import measure_descent, measure_rho, measure_stage_descent
from creditscope.measure.numerics import UnitRows, flat_rows
from creditscope.measure.observation import Observation, fitted_rows, map_seeds, observation_of_seed, random_state
from creditscope.measure.probe import measure_probe
from creditscope.measure.snapshot import to_host
from creditscope.measure.weights import Products, find_rounding, measure_angles, measure_stages, measure_weight_z
from creditscope.record.schema import DESCENT_ROWS, Facts, Snapshot
from creditscope.record.spec import Tier
from creditscope.rng import generator
from creditscope.rules import weights_and_feedback
from creditscope.stack import Net, StackedNet
from creditscope.taps import leave_untouched

Cost = Literal["cheap", "dear", "late", "last"]
Measured = dict[str, Tensor]


@dataclass
class Needs:
    """What instruments are made from: of one net, or, inside `vmap` and without a subject, of one seed of a stack.

    Each is computed when it is first asked for, and once.
    """

    seen: Observation
    facts: Facts
    keys: Tensor
    """One random number per row: the order in which rows hand on their credit when it is permuted."""
    feedback: Mapping[str, tuple[Tensor, Tensor]]
    """Weight and feedback of every converted layer, by the name of the weight."""
    subject: Any = None
    """The net, to be run again: a `Subject`."""

    @cached_property
    def gradient_rows(self) -> list[UnitRows]:
        """g at every tap, without rows that are fitted."""
        _, fitted = fitted_rows(self.seen.errors)
        return [UnitRows.of(flat_rows(g), ~fitted) for g in self.seen.exact]

    @cached_property
    def credit_rows(self) -> list[UnitRows]:
        return [UnitRows.of(flat_rows(a)) for a in self.seen.credits]

    @cached_property
    def weight_products(self) -> list[Products]:
        """What the cosines of weight gradients are made of: BP's, and the rule's where it is not the same."""
        exact, ruled = self.seen.exact_weights, self.seen.rule_weights
        told = {w.name: ruled.get(w.name) if w.role == "rule" else None for w in self.facts.weights}
        return [Products.exact(exact[name]) if a is None else Products.of(a, exact[name]) for name, a in told.items()]

    @property
    def weight_rounding(self) -> Tensor | None:
        """Which of them are rounding; None if none can be."""
        names = [w.name for w in self.facts.weights]
        return find_rounding({name: self.seen.exact_weights[name] for name in names}, self.seen.exact64_weights)

    @cached_property
    def feedback_pairs(self) -> list[tuple[Tensor, Tensor] | None]:
        """W and B of every trained weight that has feedback; nothing at all if none has."""
        return [self.feedback.get(w.name) for w in self.facts.weights] if self.feedback else []

    @cached_property
    def twin(self) -> Twin:
        """The net as a function in float64, on all rows."""
        return make_twin(self.subject)

    @cached_property
    def small_twin(self) -> Twin:
        """The same on as many rows as descent takes."""
        small = first_rows(self.subject, DESCENT_ROWS)
        return self.twin if small is self.subject else make_twin(small)

    @property
    def notes(self) -> list[str]:
        """What is to be said of needs that were not met as they should be."""
        twins = [vars(self)[name] for name in ("twin", "small_twin") if name in vars(self)]
        return list(dict.fromkeys(twin.note for twin in twins if twin.note))


@dataclass(frozen=True)
class Instrument:
    """A measurement: a function of what it `needs` (names in `Needs`) that gives its `fields`, one entry per tap.

    What it gives without an axis is a field of the snapshot; nothing at all, if it has no meaning here.

    >>> from creditscope.measure.instruments import INSTRUMENTS
    >>> {instrument.name: instrument.needs for instrument in INSTRUMENTS}["drift"]
    ('gradient_rows', 'facts')
    """

    name: str
    cost: Cost
    needs: tuple[str, ...]
    measure: Callable[..., Measured]
    fields: tuple[str, ...]
    of: Literal["taps", "weights"] = "taps"
    held: Callable[[Snapshot], Any] = lambda snapshot: None
    """What of a snapshot holds the measurement already, if something does."""

    def take(self, needs: Needs) -> Measured:
        """The measurement; what it needs is computed if it was not yet."""
        return self.measure(*(getattr(needs, name) for name in self.needs))


DESCENT_FIELDS = ("descent", "descent_null", "descent_null_sd", "fresh_descent", "fresh_descent_sd")
DRAW_FIELDS = ("beta", "beta_se", "beta_null_sd", "draw_noise", "draw_cos")
SKIP_FIELDS = ("skip_cos", "skip_alone")
FEEDBACK_FIELDS = ("feedback_angle", "feedback_gap")
STAGE_FIELDS = ("descent_stage", "descent_stage_null", "descent_stage_null_sd")
INSTRUMENTS = (
    Instrument("common", "cheap", ("gradient_rows", "credit_rows"), measure_common, ("common", "common_a")),
    Instrument("drift", "cheap", ("gradient_rows", "facts"), measure_drift, ("drift",)),
    Instrument("permuted_cos", "cheap", ("gradient_rows", "credit_rows", "keys"), measure_permuted, ("permuted_cos",)),
    Instrument("cos_input", "cheap", ("credit_rows", "gradient_rows"), measure_reading, ("cos_input",)),
    Instrument("weight z", "cheap", ("weight_products", "weight_rounding"), measure_weight_z, ("z",), of="weights"),
    Instrument("stage_cos", "cheap", ("weight_products", "facts"), measure_stages, ("stage_cos", "stage_null_sd")),
    Instrument("feedback_angle", "cheap", ("feedback_pairs",), measure_angles, FEEDBACK_FIELDS, of="weights"),
    Instrument("handed_on", "cheap", ("seen",), measure_handed_on, ("handed_on",)),
    Instrument("skip_cos", "cheap", ("credit_rows", "gradient_rows", "facts"), measure_skip_credit, SKIP_FIELDS),
    Instrument("fresh_cos", "dear", ("subject", "seen", "gradient_rows"), measure_fresh, ("fresh_cos", "fresh_sd")),
    Instrument("own draws", "dear", ("subject", "seen"), measure_draws, DRAW_FIELDS),
    Instrument("rho", "dear", ("twin",), measure_rho, ("rho", "rho_exact", "fresh_rho", "fresh_rho_sd")),
    Instrument("descent", "late", ("small_twin",), measure_descent, DESCENT_FIELDS),
    Instrument("descent_stage", "late", ("twin",), measure_stage_descent, STAGE_FIELDS),
    Instrument("probe", "dear", ("subject", "facts"), measure_probe, ("probe",), held=lambda s: s.tap_probe),
    Instrument("rewind", "last", ("subject",), measure_rewind, ("rewind", "rewind_refit")),
    Instrument("skip_one", "dear", ("subject",), measure_skips, ("skip_one",)),
)


def instruments_due(tier: Tier, *, ends: bool, last: bool) -> list[Instrument]:
    """Those that a snapshot takes; `ends` is true before the first and after the `last` training step."""
    due: dict[Cost, bool] = {
        "cheap": tier != "quick" or last,
        "dear": tier == "full" or (tier == "standard" and ends),
        "late": tier == "full" or (tier == "standard" and ends and last),
        "last": last,
    }
    return [instrument for instrument in INSTRUMENTS if due[instrument.cost]]


def _added(snapshot: Snapshot, instrument: Instrument, found: Mapping[str, Any]) -> Snapshot:
    """The snapshot with an instrument's numbers: a series is one of taps or weights, a single number its own."""
    single, series = ({k: v for k, v in found.items() if isinstance(v, tuple) is many} for many in (False, True))
    group = getattr(snapshot, instrument.of)
    return replace(snapshot, **single, **{instrument.of: group and replace(group, **series)})


def measure_battery(snapshot: Snapshot, needs: Needs, due: Sequence[Instrument]) -> Snapshot:
    """The snapshot of one net completed; an instrument that cannot be used on it gives None, and a note says why."""
    notes, measured = list(snapshot.notes), []
    for instrument in due:
        try:
            measured.append((instrument, _take(instrument, needs)))
        except (RuntimeError, TypeError, ValueError, NotImplementedError, CreditscopeError) as error:
            raise_out_of_memory(error)
            notes.append(f"{instrument.name} not measured: {error}"[:300])
            count = len(needs.facts.taps if instrument.of == "taps" else needs.facts.weights)
            snapshot = _added(snapshot, instrument, dict.fromkeys(instrument.fields, (None,) * count))
    (host,) = to_host([found for _, found in measured])
    for (instrument, _), found in zip(measured, host, strict=True):
        snapshot = _added(snapshot, instrument, found)
    return replace(snapshot, notes=(*notes, *needs.notes))


def _take(instrument: Instrument, needs: Needs) -> Measured:
    if instrument.cost == "cheap":
        return instrument.take(needs)
    stream = random_state(needs.subject.net)
    found = instrument.take(needs)
    if any(not torch.equal(*pair) for pair in zip(stream, random_state(needs.subject.net), strict=True)):
        raise CreditscopeError(
            "Expected a model that draws no random numbers in its forward, but it does. Put it in eval mode."
        )
    return found


@torch.no_grad()
def _measure_stack(
    taken: Sequence[Snapshot], due: Sequence[Instrument], seen: Observation, facts: Facts, *stacked: Any
) -> list[Snapshot]:
    """The cheap instruments of all seeds of a stack at once; `stacked` are their keys and feedback."""

    def one_seed(seen: Observation, *own: Any) -> list[Measured]:
        needs = Needs(seen, facts, *own)
        return [instrument.take(needs) for instrument in due]

    found = list(taken)
    for place, host in enumerate(to_host(map_seeds(one_seed, seen, *stacked), seeds=len(taken))):
        for instrument, values in zip(due, host, strict=True):
            found[place] = _added(found[place], instrument, values)
    return found


def complete_snapshots(
    taken: Sequence[Snapshot],
    seen: Observation,
    facts: Facts,
    net: Net,
    *,
    seeds: Sequence[int],
    subjects: Callable[[], Sequence[Subject]],
    tier: Tier,
    ends: bool,
    last: bool,
    before_seed: Callable[[], None] = lambda: None,
) -> list[Snapshot]:
    """The snapshots of all seeds with what their tier asks for; the net is left as it was.

    `seen` is the observation that the snapshots were made of; `subjects` gives one subject per seed. `before_seed` is
    called before each seed of a stack is measured on its own, and may raise to end all.
    """
    due = [instrument for instrument in instruments_due(tier, ends=ends, last=last) if not instrument.held(taken[0])]
    if not due:
        return list(taken)
    rows, found, left = seen.errors.loss.shape[-1], list(taken), due
    drawn = [torch.rand(rows, generator=generator(seed, "permutation"), dtype=torch.float64) for seed in seeds]
    keys = torch.stack(drawn).to(seen.output.device)
    cheap, dear = ([i for i in due if (i.cost == "cheap") is wanted] for wanted in (True, False))
    with leave_untouched(net):
        nets = subjects() if dear else [None] * len(seeds)
        feedback = weights_and_feedback(net)
        if not isinstance(net, StackedNet):
            return [measure_battery(taken[0], Needs(seen, facts, keys[0], feedback, nets[0]), due)]
        try:
            found, left = _measure_stack(taken, cheap, seen, facts, keys, feedback), dear
        except (RuntimeError, NotImplementedError) as error:  # an instrument that cannot be mapped: seed by seed
            raise_out_of_memory(error)
        for place, subject in enumerate(nets):
            before_seed()
            held = {name: (w[place], b[place]) for name, (w, b) in feedback.items()}
            needs = Needs(observation_of_seed(seen, place), facts, keys[place], held, subject)
            found[place] = measure_battery(found[place], needs, left)
    return found
