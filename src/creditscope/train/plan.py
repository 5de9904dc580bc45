"""From what a user asks to a complete, checked run spec."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.options import declared_options, resolve_options
from creditscope.record.schema import RunSpec
from creditscope.registry import NETS, TASKS
from creditscope.rules import rule_class, rule_source

WHOLE = ("epochs", "batch", "eval_rows", "snapshot_every")
DEFAULT_SEEDS = (42, 123, 456)


def choose_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """A number of seeds (42, 123, 456, then 1, 2, …) or the seeds themselves, checked.

    >>> choose_seeds(4)
    (42, 123, 456, 1)
    """
    if isinstance(seeds, int):
        if seeds < 1:
            raise CreditscopeError(f"Expected at least one seed, but got {seeds}.")
        further = (s for s in itertools.count(1) if s not in DEFAULT_SEEDS)
        return tuple(itertools.islice(itertools.chain(DEFAULT_SEEDS, further), seeds))
    chosen = tuple(int(s) for s in seeds)
    if not chosen:
        raise CreditscopeError("Expected at least one seed, but got none.")
    twice = sorted({s for s in chosen if chosen.count(s) > 1})
    if twice:
        raise CreditscopeError(f"Expected every seed once, but got {', '.join(map(str, twice))} more than once.")
    return chosen


def plan_run(
    *,
    task: str = "mnist1d",
    net: str = "resmlp",
    rule: str = "bp",
    task_options: dict[str, Any] | None = None,
    net_options: dict[str, Any] | None = None,
    rule_options: dict[str, Any] | None = None,
    **fields: Any,
) -> RunSpec:
    """A run spec with every option written out, so that a default and the same value typed are one run."""
    factory = TASKS.get(task)
    spec = RunSpec(
        task=task,
        task_options=resolve_options(factory, task_options or {}, owner=f"task {task!r}"),
        data_version=getattr(factory, "data_version", ""),
        net=net,
        net_options=resolve_options(NETS.get(net), net_options or {}, owner=f"net {net!r}"),
        net_source=NETS.source(net),
        rule=rule,
        rule_options=resolve_options(rule_class(rule), rule_options or {}, owner=f"rule {rule!r}"),
        rule_source=rule_source(rule),
        **fields,
    )
    return check_spec(spec)


def check_spec(spec: RunSpec) -> RunSpec:
    """Refuse numbers no run should start with."""
    for name, value, least in (
        ("epochs", spec.epochs, 1),
        ("batch", spec.batch, 1),
        ("eval_rows", spec.eval_rows, 2),
        ("snapshot_every", spec.snapshot_every, 0),
        ("penalty", spec.penalty, 0),
        ("weight_decay", spec.weight_decay, 0),
    ):
        if isinstance(value, str) or not value >= least:
            raise CreditscopeError(f"Expected {name} >= {least}, but got {value}.")
        if not math.isfinite(value) or (name in WHOLE and value != int(value)):
            kind = "whole" if name in WHOLE else "finite"
            raise CreditscopeError(f"Expected {name} to be a {kind} number, but got {value}.")
    if not 0 < spec.lr < math.inf:
        raise CreditscopeError(f"Expected a learning rate lr > 0, but got {spec.lr}.")
    for name, value, choices in (
        ("credit_norm", spec.credit_norm, ("none", "batch", "sample")),
        ("optimiser", spec.optimiser, ("adamw", "adam", "sgd")),
        ("schedule", spec.schedule, ("cosine", "constant")),
        ("precision", spec.precision, ("float32", "tf32", "float64")),
    ):
        if value not in choices:
            raise CreditscopeError(f"Expected {name} to be one of {', '.join(choices)}, but got {value!r}.")
    return spec


def plan_runs(*, rules: Sequence[str], seeds: Sequence[int], baselines: bool = False, **fields: Any) -> list[RunSpec]:
    """Specs of every rule and seed, and on wish of what use of depth is judged against.

    A keyword that is no field of the run spec is taken as an option of the net: `depth=6`.
    """
    known = {f.name for f in dataclass_fields(RunSpec)}
    for name in ("seed", "frozen") if baselines else ("seed",):
        if name in fields:
            raise CreditscopeError(f"Expected {name!r} to be chosen by the plan, but it was given.")
    extra = {name: fields.pop(name) for name in list(fields) if name not in known}
    options = declared_options(NETS.get(fields.get("net", "resmlp")))
    for name in extra:
        if name not in options:
            raise UnknownNameError("run's field or net's option", name, {*known, *options})
    if extra:
        fields["net_options"] = {**fields.get("net_options", {}), **extra}
    wanted = []
    for rule in rules:
        asked = {**fields, "rule": rule}
        wanted += _with_baselines(asked) if baselines else [asked]
    specs = [plan_run(**one, seed=seed) for one in wanted for seed in seeds]
    return list({spec.digest(): spec for spec in specs}.values())


def _with_baselines(fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The run and what use of depth is judged against: its own frozen twin, BP, and frozen BP."""
    plain = {**fields, "rule": "bp", "rule_options": {}, "credit_norm": "none", "penalty": 0.0}
    return [{**one, "frozen": frozen} for one in (fields, plain) for frozen in (False, True)]
