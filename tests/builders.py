"""Records made in memory: a healthy run by default, any field overridden by keyword. Python in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from creditscope.options import declared_options
from creditscope.record import (
    Facts,
    Provenance,
    Record,
    RecordWriter,
    RuleFacts,
    RunSpec,
    Snapshot,
    TapMeasures,
    WeightFact,
    WeightMeasures,
)
from creditscope.record.schema import DESCENT_TURNS, OF_WATCHED
from creditscope.registry import TASKS

LABELS = {"bp": "BP", "fa": "FA", "block_fa": "block FA", "dfa": "DFA"}
HEALTHY = {
    "h_norm": 11.0,
    "h_norm_q25": 10.0,
    "h_norm_q75": 12.0,
    "h_rms": 1.0,
    "g_norm": 0.01,
    "g_norm_q25": 0.005,
    "g_norm_q75": 0.02,
    "g_rel": 1.0,
    "g_noise": 1e-7,
    "cos": 0.5,
    "cos_F": 0.45,
    "angle": 60.0,
    "null_sd": 0.05,
    "null_sd_F": 0.05,
    "null_q99": 0.13,
    "z": 10.0,
    "ratio": 2.0,
    "rank_a": 5.0,
    "rank_g": 4.0,
    "rows_used": 1000,
    "rows_no_gradient": 0,
    "rows_no_credit": 0,
    "stage_cos": 0.5,
    "stage_null_sd": 0.05,
    "common": 0.05,
    "common_a": 0.05,
    "drift": 0.4,
    "fresh_cos": 0.1,
    "fresh_sd": 0.05,
    "permuted_cos": 0.0,
    "rho": 0.45,
    "descent": 0.4,
    "descent_null": 0.02,
    "descent_null_sd": 0.01,
    "descent_stage": 0.4,
    "descent_stage_null": 0.02,
    "descent_stage_null_sd": 0.01,
    "probe": 0.6,
    "skip_one": 0.65,
}
"""Per-tap values of a run with nothing wrong in it."""
NULLS = ("null_sd_F", "null_q99")
"""Per-tap fields that every snapshot has, and records of an earlier schema lack."""
QUICK = {f.name: () for f in fields(TapMeasures) if f.default == () and f.name not in NULLS}
"""Per-tap overrides of a snapshot at tier quick during training: what it does not measure is empty."""
WEIGHTS = (WeightFact(name="stem.weight", stage=0, role="rule"), WeightFact(name="head.weight", stage=5, role="exact"))


def make_facts(*, rule: str | RuleFacts = "dfa", depth: int = 4, **others: Any) -> Facts:
    """A residual net of `depth` blocks behind a stem; BP is exact everywhere, block FA at the top, others nowhere."""
    count = depth + 1
    rule = RuleFacts(name=rule, label=LABELS.get(rule, rule)) if isinstance(rule, str) else rule
    exact = {"bp": tuple(range(count)), "block_fa": (depth,)}.get(rule.name, ())
    given: dict[str, Any] = {
        "rule": rule,
        "taps": ("stem", *(f"blocks.{i}" for i in range(depth))),
        "tap_shapes": ((8,),) * count,
        "stem_tap": True,
        "exact_taps": exact,
        "residual": (False, *[True] * depth),
        "weights": tuple(replace(w, stage=min(w.stage, count)) for w in WEIGHTS),
        "classes": 10,
        "chance": 0.1,
        "best_constant": 0.106,
        "test_rows": 1000,
    }
    return Facts(**given | others)


def spread(count: int, values: Mapping[str, Any]) -> dict[str, tuple]:
    """One value for each of so many, where one is given for all."""
    return {name: tuple(v) if isinstance(v, Sequence) else (v,) * count for name, v in values.items()}


def make_taps(count: int = 5, **others: Any) -> TapMeasures:
    """Per-tap values; an override is one number for all taps or one per tap."""
    return TapMeasures(**spread(count, HEALTHY | others))


def make_weights(count: int = len(WEIGHTS), **others: Any) -> WeightMeasures:
    """Per-weight values after a training step; an override is one number for all weights or one per weight."""
    names = [f.name for f in fields(WeightMeasures) if f.name not in OF_WATCHED]
    flags = {name: 0 if "zero" in name or "underflow" in name else 0.5 for name in names}
    return WeightMeasures(**spread(count, flags | others))


def make_snapshot(facts: Facts | None = None, *, taps: Mapping[str, Any] | None = None, **others: Any) -> Snapshot:
    """One healthy moment; `taps` overrides per-tap values. Exact taps have cosine 1, blocks are worth 5 pp."""
    facts = facts or make_facts()
    own = {"cos": 0.5, "cos_F": 0.45, "descent": 0.4, "stage_cos": 0.5, "descent_stage": 0.4}
    exact = {name: [1.0 if i in facts.exact_taps else v for i in range(len(facts.taps))] for name, v in own.items()}
    accuracy = others.get("accuracy", 0.7)
    back = None if accuracy is None else accuracy - 0.05
    rewind = [None if i == 0 and facts.stem_tap else back for i in range(len(facts.taps))]
    given: dict[str, Any] = {
        "epoch": 1,
        "step": 10,
        "rows": 1000,
        "rows_covered": 1000,
        "rows_fitted": 0,
        "loss": 0.9,
        "accuracy": 0.7,
        "train_loss": 0.8,
        "step_error": 0.4,
        "gamma": 0.5,
        "gamma_inexact": 0.5 if facts.inexact_taps else None,
        "gamma_null_sd": 0.025,
        "fresh_draws": 8,
        "descent_turns": DESCENT_TURNS,
        "probe_rows": 1000,
        "weights": make_weights(len(facts.weights)),
        "taps": make_taps(len(facts.taps), **{**exact, "rewind": rewind, **(taps or {})}),
    }
    return Snapshot(**given | others)


def make_spec(**others: Any) -> RunSpec:
    """A spec of the embedded task and net."""
    given: dict[str, Any] = {"task": "mnist1d", "data_version": "mnist1d-0.0.2-seed42", "net": "resmlp"}
    given |= {"rule": "dfa", "epochs": 1}
    return RunSpec(**given | others)


def make_record(
    *,
    rule: str = "dfa",
    seed: int = 42,
    accuracy: float | None = 0.7,
    frozen: bool = False,
    facts: Mapping[str, Any] | None = None,
    snapshots: Sequence[Snapshot] | None = None,
    taps: Mapping[str, Any] | None = None,
    diverged: int | None = None,
    status: str | None = None,
    **spec: Any,
) -> Record:
    """A finished record; further keywords are fields of its spec."""
    known = make_facts(**{"rule": rule, **(facts or {})})
    if snapshots is None:
        first = make_snapshot(known, epoch=0, accuracy=accuracy, taps=taps)
        snapshots = [replace(first, epoch=epoch) for epoch in make_spec(**spec).due_epochs()]
    status = status or ("complete" if diverged is None else "diverged")
    provenance = Provenance(facts=known, status=status, diverged_epoch=diverged)  # pyright: ignore[reportArgumentType]
    return Record(make_spec(rule=rule, seed=seed, frozen=frozen, **spec), provenance, tuple(snapshots))


def make_wanted(wanted: Mapping[str, Any], *, accuracy: float = 0.7, **others: Any) -> Record:
    """A finished record of a run that a study wants, with every snapshot that its spec asks for."""
    task = TASKS.get(wanted["task"])
    options = {**declared_options(task), **wanted.get("task_options", {})}
    facts = make_facts(rule=wanted["rule"], depth=wanted["net_options"]["depth"])
    record = make_record(**{**wanted, "task_options": options, "data_version": task.data_version})
    assert record.spec is not None
    due = [e for e in range(record.spec.epochs + 1) if record.spec.snapshot_due(e)]
    snapshots = [make_snapshot(facts, epoch=e, accuracy=accuracy, **others) for e in due]
    return replace(record, provenance=replace(record.provenance, facts=facts), snapshots=tuple(snapshots))


def make_family(
    rule: str = "dfa", *, accuracy: float = 0.7, seeds: Sequence[int] = (1, 2, 3), **own: Any
) -> list[Record]:
    """A method over seeds with all its baselines: frozen at 0.40, BP at 0.70, all a little different by seed."""

    def runs(rule: str, accuracy: float, **others: Any) -> list[Record]:
        return [make_record(rule=rule, seed=s, accuracy=accuracy + 0.002 * s, **others) for s in seeds]

    found = runs(rule, accuracy, **own) + runs(rule, 0.4, frozen=True)
    return found if rule == "bp" else found + runs("bp", 0.7) + runs("bp", 0.4, frozen=True)


def write_record(root: Path, record: Record) -> Path:
    """Store a record under `root` by the writer that runs use; returns its folder."""
    assert record.spec is not None
    writer = RecordWriter(root, record.spec)
    with writer.open():
        writer.begin()
        for snapshot in record.snapshots:
            writer.append(snapshot)
        writer.write_provenance(record.provenance)
    return writer.folder


def write_records(root: Path, records: Iterable[Record]) -> Path:
    """Store records under `root`, which is returned."""
    for record in records:
        write_record(root, record)
    return root


def unseal(folder: Path) -> Path:
    """Make a record one of an earlier version, without digests."""
    path = folder / "provenance.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in raw.items() if name != "seal"}))
    return folder


def run_python(*arguments: str | Path, **options: Any) -> str:
    """What Python prints in a process of its own, which must end well."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    done = subprocess.run([sys.executable, *arguments], text=True, **options)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout
