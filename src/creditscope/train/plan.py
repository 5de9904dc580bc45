"""From what a user asks to complete, checked run specs: of every rule, and of what it is compared with.

Baselines, the depth ladder and controls keep the seed, and with it initialisation, feedback and the order of the data.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields as dataclass_fields
from typing import Any, NoReturn

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.nets import accepted_kinds
from creditscope.options import declared_options, resolve_options, written_options
from creditscope.record.spec import COMPARED_NORMS, RunSpec, check_numbers
from creditscope.registry import NETS, RULES, TASKS
from creditscope.rules import Rule, rule_class
from creditscope.tasks import declared_kinds
from creditscope.train.data import check_kind

Fields = dict[str, Any]
"""Some fields of a run spec; the others are its defaults."""
READ_AT_END: Fields = {"tier": "quick"}  # only the accuracy of a baseline is asked for
DEFAULT_SEEDS = (42, 123, 456)
MOST_SEEDS = 100_000


def choose_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """A number of seeds (42, 123, 456, then 1, 2, …) or the seeds themselves, checked.

    >>> choose_seeds(4)
    (42, 123, 456, 1)
    """
    if isinstance(seeds, int):
        if seeds < 1:
            raise CreditscopeError(f"Expected at least one seed, but got {seeds}.")
        if seeds > MOST_SEEDS:
            raise CreditscopeError(
                f"Expected a number of seeds up to {MOST_SEEDS}, but got {seeds}. Seeds themselves are a list, "
                "or with a comma (7,)."
            )
        further = (s for s in itertools.count(1) if s not in DEFAULT_SEEDS)
        return tuple(itertools.islice(itertools.chain(DEFAULT_SEEDS, further), seeds))
    chosen = tuple(int(s) for s in seeds)
    if not chosen:
        raise CreditscopeError("Expected at least one seed, but got none.")
    if twice := sorted(seed for seed, times in Counter(chosen).items() if times > 1):
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
    check_numbers(spec)
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
    if not rules:
        raise CreditscopeError("Expected at least one rule, but got none.")
    names = [RULES.name_of(rule) for rule in rules]
    for name, rule in zip(names, rules, strict=True):
        if isinstance(rule, type) and RULES.get(name) is not rule:
            raise CreditscopeError(
                f"Expected rule classes of different names, but got two called {name!r}. Rename one, or register both."
            )
    fields["net"] = NETS.name_of(fields.get("net", "resmlp"))
    extra = {name: fields.pop(name) for name in list(fields) if name not in known}
    options = declared_options(NETS.get(fields["net"]))
    for name in extra:
        if name not in options:
            _refuse_option(name, {*known, *options}, task=fields.get("task", "mnist1d"), rules=names)
    if extra:
        fields["net_options"] = {**fields.get("net_options", {}), **extra}
    asked = [{**fields, "rule": rule} for rule in names]
    wanted = []
    for one in asked:
        wanted.append(one)
        wanted += _with_frozen(_with_bp([one])) if baselines else []
        wanted += _depth_ladder(one) if ladder else []
    controls = [controls] if isinstance(controls, str) else controls
    wanted += _add_controls(asked, controls, baselines=baselines, sgd_lr=sgd_lr)
    specs = [plan_run(**one, seed=seed) for one in wanted for seed in seeds]
    return list({spec.digest(): spec for spec in specs}.values())


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


def _with_bp(runs: Sequence[Fields]) -> list[Fields]:
    """Each run, and the same by backprop, without what only other rules have."""
    plain = {"rule": "bp", "rule_options": {}, "credit_norm": "none", "penalty": 0.0}
    return [twin for one in runs for twin in (one, {**one, **plain})]


def _with_frozen(runs: Sequence[Fields]) -> list[Fields]:
    """Each run with its blocks trained, and with only the stem and the head trained."""
    return [twin for one in runs for twin in ({**one, "frozen": False}, {**one, **READ_AT_END, "frozen": True})]


def _depth_ladder(fields: Fields) -> list[Fields]:
    """The run and BP with the last k = 0..L blocks trained; k = 0 is the frozen run, k = L the full one."""
    name, runs = fields["net"], _with_bp([fields])
    net = NETS.get(name)
    lacking = "stem" if net.stem_tap is None else "`depth` option" if "depth" not in declared_options(net) else ""
    if lacking:
        raise CreditscopeError(
            f"Expected a net with a stem and a `depth` option, its number of blocks, for the depth ladder, but "
            f"{name!r} has no {lacking}. Train single rungs by train_last."
        )
    blocks = int(resolve_options(net, fields.get("net_options") or {}, owner=f"net {name!r}")["depth"])
    return _with_frozen(runs) + [{**one, **READ_AT_END, "train_last": k} for one in runs for k in range(1, blocks)]


def _add_controls(
    runs: Sequence[Fields], controls: Sequence[str], *, baselines: bool, sgd_lr: float | None
) -> list[Fields]:
    """The runs of `controls`, for all `runs` (one per rule).

    SGD takes the learning rate of the run unless it is given its own. With `baselines`, controls under which use of
    depth can be judged, all but random targets, have frozen twins too.
    """
    made = {"random targets": _random_targets, "sgd": lambda runs: _plain_sgd(runs, sgd_lr), "norms": _credit_norms}
    for name in controls:
        if name not in made:
            raise UnknownNameError("control", name, made)
    if sgd_lr is not None and "sgd" not in controls:
        raise CreditscopeError(f"Expected sgd_lr beside the control 'sgd', but got {sgd_lr} without it. Leave it out.")
    found: list[Fields] = []
    for name in controls:
        added = made[name](runs)
        found += _with_frozen(added) if baselines and name != "random targets" else added
    return found


def _random_targets(runs: Sequence[Fields]) -> list[Fields]:
    """Every rule, and BP, on labels drawn once per seed: what happens although there is nothing to learn."""
    for fields in runs:
        if fields.get("targets", "true") != "true":
            raise CreditscopeError(
                "Expected true targets beside the control 'random targets', but got random ones. Leave one out."
            )
        if accepted_kinds(NETS.get(fields["net"])) == ("graph",):
            raise CreditscopeError(
                f"Expected a net for vectors or images for the control 'random targets', but {fields['net']!r} takes "
                "graphs, whose few labelled nodes anything fits. Leave the control out."
            )
    return [{**one, "targets": "random"} for one in _with_bp(runs)]


def _plain_sgd(runs: Sequence[Fields], lr: float | None) -> list[Fields]:
    """Every rule, and BP, under plain SGD: whether Adam's own normalisation of gradients makes the result."""
    if any(fields.get("optimiser", "adamw") == "sgd" for fields in runs):
        raise CreditscopeError(
            "Expected another optimiser beside the control 'sgd', but got SGD. Leave the control out."
        )
    change: Fields = {"optimiser": "sgd"} if lr is None else {"optimiser": "sgd", "lr": lr}
    return [{**one, **change} for one in _with_bp(runs)]


def _credit_norms(runs: Sequence[Fields]) -> list[Fields]:
    """Every tap rule with its credit as it is, and normalised per batch and per sample."""
    taps = [fields for fields in runs if rule_class(fields["rule"]).local]
    if not taps:
        names = ", ".join(repr(fields["rule"]) for fields in runs)
        raise CreditscopeError(
            f"Expected a tap rule (dfa, block_fa) for the control 'norms', but {names} has no tap credit to normalise. "
            "Leave the control out."
        )
    return [{**fields, "credit_norm": norm} for fields in taps for norm in COMPARED_NORMS]
