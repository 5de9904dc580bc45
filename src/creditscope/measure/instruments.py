"""What a snapshot measures beyond the observation, by instruments that say what they need.

Cheap instruments are made of the observation alone, and are taken of all seeds of a stack at once; dear ones run the
net again, and are taken seed by seed. The tier says when: quick the cheap ones after training, standard the cheap ones
always, the dear ones before and after training and the late ones after it, full all of them always. What costs "last"
compares the trained net with the untrained one, and is taken after training at every tier.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.measure.ablation import measure_rewind, measure_skips
from creditscope.measure.alignment import measure_reading
from creditscope.measure.controls import measure_common, measure_drift, measure_permuted
from creditscope.measure.descent import measure_descent, measure_stage_descent
from creditscope.measure.fresh_feedback import measure_fresh
from creditscope.measure.functional_net import Subject, Twin, feedback_names, first_rows, make_twin
from creditscope.measure.numerics import UnitRows, flat_rows
from creditscope.measure.observation import (
    Observation,
    fitted_rows,
    observation_of_seed,
    random_state,
    stacked_tensors,
    with_tensors,
)
from creditscope.measure.own_draws import measure_draws
from creditscope.measure.probe import measure_probe
from creditscope.measure.rho import measure_rho
from creditscope.measure.snapshot import to_host
from creditscope.measure.weights import Products, measure_feedback_angles, measure_stages, measure_weight_z
from creditscope.record.schema import DESCENT_ROWS, Facts, Snapshot
from creditscope.record.spec import Tier
from creditscope.rng import generator
from creditscope.stack import Net, StackedNet
from creditscope.taps import leave_untouched

Cost = Literal["cheap", "dear", "late", "last"]
Measured = dict[str, Tensor]


class Needs:
    """What instruments are made from: of one net, or, inside `vmap` and without a subject, of one seed of a stack.

    Each is computed when it is first asked for, and once.
    """

    def __init__(
        self,
        seen: Observation,
        facts: Facts,
        *,
        keys: Tensor,
        feedback: Mapping[str, tuple[Tensor, Tensor]],
        subject: Subject | None = None,
    ):
        self.seen, self.facts, self._subject = seen, facts, subject
        self.keys = keys
        """One random number per row: the order in which rows hand on their credit when it is permuted."""
        self.feedback = feedback
        """Weight and feedback of every converted layer, by the name of the weight."""

    @property
    def subject(self) -> Subject:
        """The net, to be run again."""
        assert self._subject is not None
        return self._subject

    @cached_property
    def gradient_rows(self) -> list[UnitRows]:
        """g at every tap, without rows that are fitted."""
        _, fitted = fitted_rows(self.seen.errors)
        return [UnitRows.of(flat_rows(g), ~fitted) for g in self.seen.exact]

    @cached_property
    def credit_rows(self) -> list[UnitRows]:
        """a at every tap."""
        return [UnitRows.of(flat_rows(a)) for a in self.seen.credits]

    @cached_property
    def rule_gradients(self) -> list[tuple[Tensor, Tensor | None]]:
        """BP's gradient of every trained weight, and the rule's where it is not the same."""
        seen = self.seen
        told = {w.name: seen.rule_weights.get(w.name) if w.role == "rule" else None for w in self.facts.weights}
        return [(seen.exact_weights[name], a) for name, a in told.items()]

    @cached_property
    def weight_products(self) -> list[Products]:
        """What the cosines of weight gradients are made of."""
        return [Products.exact(g) if a is None else Products.of(a, g) for g, a in self.rule_gradients]

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
DRAW_FIELDS = ("beta", "beta_se", "beta_null_sd", "draw_noise")
STAGE_FIELDS = ("descent_stage", "descent_stage_null", "descent_stage_null_sd")
INSTRUMENTS = (
    Instrument("common", "cheap", ("gradient_rows", "credit_rows"), measure_common, ("common", "common_a")),
    Instrument("drift", "cheap", ("gradient_rows", "facts"), measure_drift, ("drift",)),
    Instrument("permuted_cos", "cheap", ("gradient_rows", "credit_rows", "keys"), measure_permuted, ("permuted_cos",)),
    Instrument("cos_input", "cheap", ("credit_rows", "gradient_rows"), measure_reading, ("cos_input",)),
    Instrument("weight z", "cheap", ("weight_products",), measure_weight_z, ("z",), of="weights"),
    Instrument("stage_cos", "cheap", ("weight_products", "facts"), measure_stages, ("stage_cos", "stage_null_sd")),
    Instrument(
        "feedback_angle", "cheap", ("feedback_pairs",), measure_feedback_angles, ("feedback_angle",), of="weights"
    ),
    Instrument("fresh_cos", "dear", ("subject", "seen", "gradient_rows"), measure_fresh, ("fresh_cos", "fresh_sd")),
    Instrument("own draws", "dear", ("subject", "seen"), measure_draws, DRAW_FIELDS),
    Instrument("rho", "dear", ("twin",), measure_rho, ("rho", "rho_exact", "fresh_rho", "fresh_rho_sd")),
    Instrument("descent", "late", ("small_twin",), measure_descent, DESCENT_FIELDS),
    Instrument("descent_stage", "late", ("twin",), measure_stage_descent, STAGE_FIELDS),
    Instrument("probe", "dear", ("subject", "facts"), measure_probe, ("probe",), held=lambda s: s.tap_probe),
    Instrument("rewind", "last", ("subject",), measure_rewind, ("rewind", "rewind_refit")),
    Instrument("skip_one", "dear", ("subject",), measure_skips, ("skip_one",)),
)


@dataclass
class Fields:
    """What instruments add to a snapshot."""

    taps: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    snapshot: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, instrument: Instrument, found: dict[str, Any]) -> None:
        """One instrument's numbers, on the host: a series is one of taps or weights, a single number the snapshot's."""
        for name, value in found.items():
            group = getattr(self, instrument.of) if isinstance(value, tuple) else self.snapshot
            group[name] = value

    def added_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with these fields filled."""
        weights = snapshot.weights and replace(snapshot.weights, **self.weights)
        taps = replace(snapshot.taps, **self.taps)
        return replace(snapshot, taps=taps, weights=weights, notes=(*snapshot.notes, *self.notes), **self.snapshot)


def instruments_due(tier: Tier, *, ends: bool, last: bool) -> list[Instrument]:
    """Those that a snapshot takes; `ends` is true before the first and after the `last` training step."""
    late: tuple[Cost, ...] = ("late",) if last else ()
    costs: dict[Tier, tuple[Cost, ...]] = {
        "quick": ("cheap",) if last else (),
        "standard": ("cheap", "dear", *late) if ends else ("cheap",),
        "full": ("cheap", "dear", "late"),
    }
    due = (*costs[tier], *(("last",) if last else ()))
    return [instrument for instrument in INSTRUMENTS if instrument.cost in due]


def measure_battery(needs: Needs, due: Sequence[Instrument], fields: Fields) -> None:
    """Fill the fields of one net; an instrument that cannot be used on it gives None, and a note says why."""
    measured: list[tuple[Instrument, Measured]] = []
    for instrument in due:
        try:
            measured.append((instrument, _take(instrument, needs)))
        except (RuntimeError, TypeError, ValueError, NotImplementedError, CreditscopeError) as error:
            raise_out_of_memory(error)
            fields.notes.append(f"{instrument.name} not measured: {error}"[:300])
            count = len(needs.facts.taps if instrument.of == "taps" else needs.facts.weights)
            fields.add(instrument, dict.fromkeys(instrument.fields, (None,) * count))
    if measured:
        (host,) = to_host([found for _, found in measured])
        for (instrument, _), found in zip(measured, host, strict=True):
            fields.add(instrument, found)
    fields.notes += needs.notes


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


def _measure_stack(
    seen: Observation, facts: Facts, keys: Tensor, feedback: dict[str, tuple[Tensor, Tensor]], due: Sequence[Instrument]
) -> list[Fields]:
    """The cheap fields of all seeds of a stack at once."""

    def one_seed(tensors: dict[str, Any], keys: Tensor, feedback: dict[str, tuple[Tensor, Tensor]]) -> list[Measured]:
        needs = Needs(with_tensors(seen, tensors), facts, keys=keys, feedback=feedback)
        return [instrument.take(needs) for instrument in due]

    with torch.no_grad():
        measured = torch.vmap(one_seed)(stacked_tensors(seen), keys, feedback)
    found = [Fields() for _ in keys]
    for fields, host in zip(found, to_host(measured, seeds=len(keys)), strict=True):
        for instrument, values in zip(due, host, strict=True):
            fields.add(instrument, values)
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
    keys = torch.stack([_keys(seed, seen) for seed in seeds]).to(seen.output.device)
    cheap, dear = ([i for i in due if i.cost in costs] for costs in (("cheap",), ("dear", "late", "last")))
    with leave_untouched(net):
        nets = subjects() if dear else [None] * len(seeds)
        if isinstance(net, StackedNet):
            feedback = _feedback(net)
            try:
                found, left = _measure_stack(seen, facts, keys, feedback, cheap), dear
            except (RuntimeError, NotImplementedError) as error:  # an instrument that cannot be mapped: seed by seed
                raise_out_of_memory(error)
                found, left = [Fields() for _ in keys], due
            for place, (subject, fields) in enumerate(zip(nets, found, strict=True)):
                before_seed()
                own = observation_of_seed(seen, place)
                held = {name: (w[place], b[place]) for name, (w, b) in feedback.items()}
                needs = Needs(own, facts, keys=keys[place], feedback=held, subject=subject)
                measure_battery(needs, left, fields)
        else:
            found = [Fields()]
            needs = Needs(seen, facts, keys=keys[0], feedback=_feedback(net), subject=nets[0])
            measure_battery(needs, due, found[0])
    return [fields.added_to(snapshot) for fields, snapshot in zip(found, taken, strict=True)]


def _keys(seed: int, seen: Observation) -> Tensor:
    rows = seen.errors.loss.shape[-1]
    return torch.rand(rows, generator=generator(seed, "permutation"), dtype=torch.float64)


def _feedback(net: Net) -> dict[str, tuple[Tensor, Tensor]]:
    """Weight and feedback of every converted layer, by the weight's name; with a seed axis in a stack."""
    named = {name: t.detach() for name, t in (*net.named_parameters(), *net.named_buffers())}
    return {weight: (named[weight], named[buffer]) for weight, buffer in feedback_names(net).items()}
