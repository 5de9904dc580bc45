"""Synthetic records of a study's runs, matched by the study as real ones are."""

from collections.abc import Mapping, Sequence
from typing import Any

from builders import make_facts, make_record, make_snapshot, make_taps

from creditscope.paper.studies import Study
from creditscope.record import Record, RuleFacts
from creditscope.registry import TASKS

LABELS = {"bp": "BP", "fa": "FA", "block_fa": "block FA", "dfa": "DFA"}


def run_of(
    wanted: Mapping[str, Any],
    *,
    epochs: Sequence[int] = (),
    taps: Mapping[str, Any] | None = None,
    moments: Mapping[int, Mapping[str, Any]] | None = None,
    **others: Any,
) -> Record:
    """A record of a wanted run: `taps` in every snapshot, `moments` overrides fields of the snapshot at an epoch."""
    depth = int(wanted["net_options"]["depth"])
    variant = ", ".join(f"{k} {v}" for k, v in wanted.get("rule_options", {}).items())
    rule = RuleFacts(name=wanted["rule"], label=LABELS.get(wanted["rule"], wanted["rule"]), variant=variant)
    facts = make_facts(rule=rule, depth=depth)
    snapshots = []
    for epoch in epochs or (0, wanted["epochs"]):
        given = {"accuracy": 0.5, **others, **(moments or {}).get(epoch, {})}
        values = {**(taps or {}), **given.pop("taps", {})}
        if wanted["net"] == "vit":
            given.setdefault("class_token", make_taps(depth + 1, **given.pop("token", {})))
        snapshots.append(make_snapshot(facts, epoch=epoch, taps=values, **given))
    spec = {k: v for k, v in wanted.items() if k not in ("rule", "seed", "frozen")}
    version = getattr(TASKS.get(wanted["task"]), "data_version", "")
    return make_record(
        rule=wanted["rule"],
        seed=wanted["seed"],
        frozen=wanted.get("frozen", False),
        facts={"rule": rule, "depth": depth},
        snapshots=snapshots,
        data_version=version,
        **spec,
    )


def runs_of(study: Study, **how: Any) -> list[Record]:
    """A record of every run."""
    return [run_of(wanted, **how) for wanted in study.runs]
