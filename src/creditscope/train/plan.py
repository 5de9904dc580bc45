"""From what a user asks to a complete, checked run spec."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from typing import Any, NoReturn, get_args

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.options import declared_options, resolve_options, written_options
from creditscope.record.spec import Recipe, RunSpec, listed_epochs
from creditscope.registry import NETS, RULES, TASKS
from creditscope.rules import Rule
from creditscope.tasks import declared_kinds
from creditscope.train.comparisons import add_controls, depth_ladder, plain_bp, with_frozen
from creditscope.train.data import check_kind

WHOLE = ("epochs", "batch", "eval_rows", "snapshot_every", "train_last")
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
        rule_options=written_options(RULES.get(rule), rule_options or {}, owner=f"rule {rule!r}"),
        rule_source=RULES.source(rule),
        **fields,
    )
    check_kind(spec, declared_kinds(factory))  # before data are fetched
    return check_spec(spec)


def check_spec(spec: RunSpec) -> RunSpec:
    """Refuse numbers no run should start with."""
    for name, value, least in (
        ("epochs", spec.epochs, 1),
        ("batch", spec.batch, 1),
        ("eval_rows", spec.eval_rows, 2),
        ("snapshot_every", spec.snapshot_every, 0),
        ("train_last", spec.train_last, -1),
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
    for name, choices in ((f.name, get_args(f.type)) for f in dataclass_fields(Recipe)):
        if choices and getattr(spec, name) not in choices:
            raise CreditscopeError(
                f"Expected {name} to be one of {', '.join(choices)}, but got {getattr(spec, name)!r}."
            )
    if spec.snapshot_at and spec.snapshot_at != "log":
        listed_epochs(spec.snapshot_at)
    if spec.frozen and spec.train_last != -1:
        raise CreditscopeError(
            f"Expected frozen blocks or a number of last blocks to train, but got train_last {spec.train_last} beside "
            "frozen. Leave one out."
        )
    return spec


def plan_runs(
    *,
    rules: Sequence[str | type[Rule]],
    seeds: Sequence[int],
    baselines: bool = False,
    ladder: bool = False,
    controls: str | Sequence[str] = (),
    sgd_lr: float | None = None,
    **fields: Any,
) -> list[RunSpec]:
    """Specs of every rule and seed, and on wish of what they are compared with, each run once.

    A rule, and the `net`, is a name, `path/to/file.py:Class`, or a class.

    `baselines`: each rule's frozen twin, BP, and frozen BP. `ladder`: each rule and BP with the last k = 0..L blocks
    trained. `controls`: "random targets", "sgd" (at the same learning rate, or `sgd_lr`), "norms" (tap rules with
    credit normalisation none, batch and sample). A keyword that is no field of the run spec is taken as an option of
    the net: `depth=6`.
    """
    known = {f.name for f in dataclass_fields(RunSpec)}
    for name in ("seed", "frozen") if baselines or ladder else ("seed",):
        if name in fields:
            raise CreditscopeError(f"Expected {name!r} to be chosen by the plan, but got one. Leave it out.")
    if (baselines or ladder) and fields.get("train_last", -1) != -1:
        raise CreditscopeError(
            f"Expected all blocks to be trained beside baselines or a ladder, but got train_last "
            f"{fields['train_last']}. Leave one out."
        )
    rule_names = _name_rules(rules)
    fields["net"] = NETS.name_of(fields.get("net", "resmlp"))
    extra = {name: fields.pop(name) for name in list(fields) if name not in known}
    options = declared_options(NETS.get(fields["net"]))
    for name in extra:
        if name not in options:
            _refuse_option(name, {*known, *options}, task=fields.get("task", "mnist1d"), rules=rule_names)
    if extra:
        fields["net_options"] = {**fields.get("net_options", {}), **extra}
    asked = [{**fields, "rule": rule} for rule in rule_names]
    wanted = []
    for one in asked:
        wanted.append(one)
        wanted += with_frozen([one, plain_bp(one)]) if baselines else []
        wanted += depth_ladder(one) if ladder else []
    names = [controls] if isinstance(controls, str) else list(controls)
    wanted += add_controls(asked, names, baselines=baselines, sgd_lr=sgd_lr)
    specs = [plan_run(**one, seed=seed) for one in wanted for seed in seeds]
    return list({spec.digest(): spec for spec in specs}.values())


def _name_rules(rules: Sequence[str | type[Rule]]) -> list[str]:
    names = [RULES.name_of(rule) for rule in rules]
    for name, rule in zip(names, rules, strict=True):
        if isinstance(rule, type) and RULES.get(name) is not rule:
            raise CreditscopeError(
                f"Expected rule classes of different names, but got two called {name!r}. Rename one, or register both."
            )
    return names


def _refuse_option(name: str, choices: set[str], *, task: str, rules: Sequence[str]) -> NoReturn:
    """Tell an option of the task or of a rule, which has a dictionary of its own, from an unknown one."""
    owners = [("task", task, TASKS.get(task)), *(("rule", rule, RULES.get(rule)) for rule in rules)]
    for kind, owner, factory in owners:
        if name in declared_options(factory):
            raise CreditscopeError(
                f"Expected options of {kind} {owner!r} in {kind}_options, but got {name!r} beside it. "
                f"Pass {kind}_options={{{name!r}: …}}."
            )
    raise UnknownNameError("run's field or net's option", name, choices)
