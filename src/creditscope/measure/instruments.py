"""What a snapshot measures beyond the observation, by instruments that say what they need.

Cheap instruments are made of the observation alone, and are taken of all seeds of a stack at once; dear ones run the
net again, and are taken seed by seed. The tier says when: quick the cheap ones after training, standard the cheap ones
always, the dear ones before and after training and the late ones after it, full all of them always. What costs "last"
compares the trained net with the untrained one, and is taken after training at every tier.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.measure.alignment import measure_reading
from creditscope.measure.common_direction import batch_drift, common_share
from creditscope.measure.descent import measure_descent, measure_stage_descent
from creditscope.measure.draws import measure_draws
from creditscope.measure.fresh_feedback import measure_fresh
from creditscope.measure.instrument_inputs import Needs
from creditscope.measure.numerics import UnitRows
from creditscope.measure.observation import (
    Observation,
    observation_of_seed,
    random_state,
    stacked_tensors,
    with_tensors,
)
from creditscope.measure.permuted import permuted_cosine
from creditscope.measure.probe import measure_probe
from creditscope.measure.rewind import measure_rewind
from creditscope.measure.rho import measure_rho
from creditscope.measure.skip import measure_skips
from creditscope.measure.snapshot import to_host
from creditscope.measure.subject import Subject, feedback_names
from creditscope.measure.weights import Products, stage_alignment, weight_angle
from creditscope.record.schema import Facts, Snapshot
from creditscope.record.spec import Tier
from creditscope.rng import generator
from creditscope.stack import Net, StackedNet
from creditscope.taps import leave_untouched

Cost = Literal["cheap", "dear", "late", "last"]
Measured = dict[str, Tensor]


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

    def take(self, needs: Needs) -> Measured:
        """The measurement; what it needs is computed if it was not yet."""
        return self.measure(*(getattr(needs, name) for name in self.needs))


def _common(gradients: list[UnitRows], credits: list[UnitRows]) -> Measured:
    return {
        "common": torch.stack([common_share(g) for g in gradients]),
        "common_a": torch.stack([common_share(a) for a in credits]),
    }


def _drift(gradients: list[UnitRows], facts: Facts) -> Measured:
    if facts.rows_interact:  # a graph is one batch
        return {"drift": torch.full_like(torch.stack([g.size[0] for g in gradients]), torch.nan)}
    return {"drift": torch.stack([batch_drift(g) for g in gradients])}


def _permuted(gradients: list[UnitRows], credits: list[UnitRows], keys: Tensor) -> Measured:
    pairs = zip(credits, gradients, strict=True)
    return {"permuted_cos": torch.stack([permuted_cosine(a, g, keys) for a, g in pairs])}


def _weight_z(products: list[Products]) -> Measured:
    return {"z": torch.stack([p.z for p in products])} if products else {}


def _stages(products: list[Products], facts: Facts) -> Measured:
    """Of the weights of each stage that ends at a tap; NaN where none is trained."""
    if not products:
        return {}
    nothing = torch.full_like(products[0].inner, torch.nan, dtype=torch.float64)
    by_stage = [
        [p for p, weight in zip(products, facts.weights, strict=True) if weight.stage == tap]
        for tap in range(len(facts.taps))
    ]
    found = [stage_alignment(own) if own else (nothing, nothing) for own in by_stage]
    cos, sd = zip(*found, strict=True)
    return {"stage_cos": torch.stack(cos), "stage_null_sd": torch.stack(sd)}


def _feedback_angles(pairs: list[tuple[Tensor, Tensor] | None]) -> Measured:
    first = next((w for w, _ in filter(None, pairs)), None)
    if first is None:
        return {}
    nothing = torch.full_like(first.flatten()[0], torch.nan)
    return {"feedback_angle": torch.stack([weight_angle(*pair) if pair else nothing for pair in pairs])}


DESCENT_FIELDS = ("descent", "descent_null", "descent_null_sd", "fresh_descent", "fresh_descent_sd")
DRAW_FIELDS = ("beta", "beta_se", "beta_null_sd", "draw_noise")
STAGE_FIELDS = ("descent_stage", "descent_stage_null", "descent_stage_null_sd")
INSTRUMENTS = (
    Instrument("common", "cheap", ("gradient_rows", "credit_rows"), _common, ("common", "common_a")),
    Instrument("drift", "cheap", ("gradient_rows", "facts"), _drift, ("drift",)),
    Instrument("permuted_cos", "cheap", ("gradient_rows", "credit_rows", "keys"), _permuted, ("permuted_cos",)),
    Instrument("cos_input", "cheap", ("credit_rows", "gradient_rows"), measure_reading, ("cos_input",)),
    Instrument("weight z", "cheap", ("weight_products",), _weight_z, ("z",), of="weights"),
    Instrument("stage_cos", "cheap", ("weight_products", "facts"), _stages, ("stage_cos", "stage_null_sd")),
    Instrument("feedback_angle", "cheap", ("feedback_pairs",), _feedback_angles, ("feedback_angle",), of="weights"),
    Instrument("fresh_cos", "dear", ("subject", "seen", "gradient_rows"), measure_fresh, ("fresh_cos", "fresh_sd")),
    Instrument("own draws", "dear", ("subject", "seen"), measure_draws, DRAW_FIELDS),
    Instrument("rho", "dear", ("twin",), measure_rho, ("rho", "rho_exact", "fresh_rho", "fresh_rho_sd")),
    Instrument("descent", "late", ("small_twin",), measure_descent, DESCENT_FIELDS),
    Instrument("descent_stage", "late", ("twin",), measure_stage_descent, STAGE_FIELDS),
    Instrument("probe", "dear", ("subject", "facts"), measure_probe, ("probe",)),
    Instrument("rewind", "last", ("subject",), measure_rewind, ("rewind", "rewind_refit")),
    Instrument("skip_one", "dear", ("subject",), lambda subject: {"skip_one": measure_skips(subject)}, ("skip_one",)),
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
    due = instruments_due(tier, ends=ends, last=last)
    if taken[0].tap_probe:  # measured layer by layer already
        due = [instrument for instrument in due if instrument.name != "probe"]
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
