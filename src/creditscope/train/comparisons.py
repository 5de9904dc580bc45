"""What a run is compared with: baselines, the depth ladder, controls. From the fields of a run to those of all.

Everything here keeps the seed, and with it initialisation, feedback and the order of the data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.nets import accepted_kinds
from creditscope.options import declared_options, resolve_options
from creditscope.record.spec import COMPARED_NORMS
from creditscope.registry import NETS
from creditscope.rules import TapRule, rule_class

Fields = dict[str, Any]
"""Some fields of a run spec; the others are its defaults."""
READ_AT_END: Fields = {"tier": "quick"}
"""Only the accuracy of a baseline is asked for, so it is measured no further."""


def plain_bp(fields: Mapping[str, Any]) -> Fields:
    """The same run by backprop, without what only other rules have."""
    return {**fields, "rule": "bp", "rule_options": {}, "credit_norm": "none", "penalty": 0.0}


def with_frozen(runs: Sequence[Fields]) -> list[Fields]:
    """Each run with its blocks trained, and with only the stem and the head trained."""
    return [twin for one in runs for twin in ({**one, "frozen": False}, {**one, **READ_AT_END, "frozen": True})]


def depth_ladder(fields: Fields) -> list[Fields]:
    """The run and BP with the last k = 0..L blocks trained; k = 0 is the frozen run, k = L the full one."""
    runs = [fields, plain_bp(fields)]
    rungs = [{**one, **READ_AT_END, "train_last": k} for one in runs for k in range(1, count_blocks(fields))]
    return [*with_frozen(runs), *rungs]


def count_blocks(fields: Mapping[str, Any]) -> int:
    """L, the `depth` option of the net.

    >>> count_blocks({"net": "resmlp", "net_options": {"depth": "6"}}), count_blocks({})
    (6, 4)
    """
    name = fields.get("net", "resmlp")
    net = NETS.get(name)
    lacking = "stem" if net.stem_tap is None else "`depth` option" if "depth" not in declared_options(net) else ""
    if lacking:
        raise CreditscopeError(
            f"Expected a net with a stem and a `depth` option, its number of blocks, for the depth ladder, but "
            f"{name!r} has no {lacking}. Train single rungs by train_last."
        )
    return int(resolve_options(net, fields.get("net_options") or {}, owner=f"net {name!r}")["depth"])


def add_controls(
    runs: Sequence[Fields], controls: Sequence[str], *, baselines: bool = False, sgd_lr: float | None = None
) -> list[Fields]:
    """The runs of `controls`, for all `runs` (one per rule); see `CONTROLS` for what each is.

    SGD takes the learning rate of the run unless it is given its own. With `baselines`, controls under which use of
    depth can be judged have frozen twins too.
    """
    for name in controls:
        if name not in CONTROLS:
            raise UnknownNameError("control", name, CONTROLS)
    if sgd_lr is not None and "sgd" not in controls:
        raise CreditscopeError(f"Expected sgd_lr beside the control 'sgd', but got {sgd_lr} without it. Leave it out.")
    found: list[Fields] = []
    for name in controls:
        added = CONTROLS[name].runs(runs, sgd_lr)
        found += with_frozen(added) if baselines and CONTROLS[name].frozen_twins else added
    return found


def random_targets(runs: Sequence[Fields], _: float | None) -> list[Fields]:
    """Every rule, and BP, on labels drawn once per seed: what happens although there is nothing to learn."""
    for fields in runs:
        name = fields.get("net", "resmlp")
        if fields.get("targets", "true") != "true":
            raise CreditscopeError(
                "Expected true targets beside the control 'random targets', but got random ones. Leave one out."
            )
        if accepted_kinds(NETS.get(name)) == ("graph",):
            raise CreditscopeError(
                f"Expected a net for vectors or images for the control 'random targets', but {name!r} takes graphs, "
                "whose few labelled nodes anything fits. Leave the control out."
            )
    return [{**one, "targets": "random"} for fields in runs for one in (fields, plain_bp(fields))]


def plain_sgd(runs: Sequence[Fields], lr: float | None) -> list[Fields]:
    """Every rule, and BP, under plain SGD: whether Adam's own normalisation of gradients makes the result."""
    if any(fields.get("optimiser", "adamw") == "sgd" for fields in runs):
        raise CreditscopeError(
            "Expected another optimiser beside the control 'sgd', but got SGD. Leave the control out."
        )
    change: Fields = {"optimiser": "sgd"} | ({} if lr is None else {"lr": lr})
    return [{**one, **change} for fields in runs for one in (fields, plain_bp(fields))]


def credit_norms(runs: Sequence[Fields], _: float | None) -> list[Fields]:
    """Every tap rule with its credit as it is, and normalised per batch and per sample."""
    taps = [fields for fields in runs if issubclass(rule_class(fields.get("rule", "bp")), TapRule)]
    if not taps:
        names = ", ".join(repr(fields.get("rule", "bp")) for fields in runs)
        raise CreditscopeError(
            f"Expected a tap rule (dfa, block_fa) for the control 'norms', but {names} has no tap credit to normalise. "
            "Leave the control out."
        )
    return [{**fields, "credit_norm": norm} for fields in taps for norm in COMPARED_NORMS]


@dataclass(frozen=True)
class Control:
    """The runs it adds to those of all rules, given a learning rate for SGD."""

    runs: Callable[[Sequence[Fields], float | None], list[Fields]]
    frozen_twins: bool = True
    """Whether use of depth can be judged under it."""


CONTROLS = {
    "random targets": Control(random_targets, frozen_twins=False),
    "sgd": Control(plain_sgd),
    "norms": Control(credit_norms),
}
