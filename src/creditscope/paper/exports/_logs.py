"""What the exports of training share: the shape of a log, which run is behind it, its finite part, shared epochs."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from creditscope.auditing.thresholds import TRAJECTORY_ROWS
from creditscope.paper.exports import Export
from creditscope.paper.studies import RunIndex, Study
from creditscope.record import Record, Snapshot

Whole = Annotated[int, Field(ge=0)]
Size = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Cosine = Annotated[float, Field(ge=-1.001, le=1.001, allow_inf_nan=False)]
Config = Annotated[dict[str, str], Field(description="only where a log was cut: which, where and why")]
Logs = Mapping[str, dict[str, Any]]
"""The run wanted for every log of a file."""


@dataclass(frozen=True)
class Layout:
    """What the entries of a net's log are called, and whether they are read on the class token."""

    net: str
    hidden: str
    gradient: str
    class_token: bool = False

    def entry(self, snapshot: Snapshot, *, gamma: bool) -> dict[str, Any] | None:
        """A snapshot as an entry, or None if one of its numbers does not exist or is not finite."""
        taps = snapshot.class_token if self.class_token else snapshot.taps
        if taps is None:
            return None
        found: dict[str, Any] = {"epoch": snapshot.epoch, "acc_eval": snapshot.accuracy, self.hidden: list(taps.h_norm)}
        found |= {self.gradient: divided(taps.g_norm)} | ({"gamma_dfa": snapshot.gamma} if gamma else {})
        return found if is_finite(found.values()) else None


@cache
def log_shape(layout: Layout, *, alone: bool = True) -> TypeAdapter[Any]:
    """What a file holds: BP and DFA, or FA alone, if that is exported; `schemas/FAMILY.json` is its JSON schema."""

    def per_tap(description: str) -> Any:
        return Annotated[list[Size], Field(min_length=3, description=description)]

    def shape(name: str, fields: dict[str, Any]) -> Any:
        return TypedDict(f"{layout.net}{name}", fields)  # pyright: ignore

    of, over = (" of the class token", ", all tokens of a sample") if layout.class_token else ("", "")
    fields: dict[str, Any] = {
        "epoch": Whole,
        "acc_eval": Annotated[Share, Field(description="on the whole test set")],
        layout.hidden: per_tap(f"median ‖h_l‖{of} at taps 0..L"),
        layout.gradient: per_tap(f"median ‖g_l‖{of} at taps 0..L, divided by N = {TRAJECTORY_ROWS:,}"),
    }
    gamma = Annotated[Cosine, Field(description=f"mean cosine of credit and gradient over taps 1..L{over}")]
    entry, of_dfa = shape("Entry", fields), shape("GammaEntry", {**fields, "gamma_dfa": gamma})
    config = {"config": NotRequired[Config]}
    pair = shape("Pair", {"bp_log": list[entry], "dfa_log": list[of_dfa], **config})
    return TypeAdapter(pair | shape("Alone", {"fa_log": list[entry], **config}) if alone else pair)


RESMLP = Layout("ResMLP", "hidden_norms", "bp_grad_norms_per_sample_med")


@dataclass(frozen=True)
class Log:
    """The entries of one run up to its last finite snapshot; `cut` says why they end before the run was to end."""

    entries: list[dict[str, Any]]
    cut: str = ""


def divided(norms: Iterable[float | None]) -> list[float | None]:
    """Per-sample norms as those of a loss that is a mean over `TRAJECTORY_ROWS` rows."""
    return [None if norm is None else norm / TRAJECTORY_ROWS for norm in norms]


def is_finite(values: Iterable[Any]) -> bool:
    """Whether every number, in lists too, exists and is finite."""
    flat = [v for value in values for v in (value if isinstance(value, list) else [value])]
    return all(v is not None and math.isfinite(v) for v in flat)


def find_run(records: Iterable[Record], wanted: dict[str, Any]) -> Record | None:
    """The finished record of a wanted run."""
    found = RunIndex(records).best(wanted)
    return found if found and found.finished else None


def choose_runs(study: Study, *rules: str, seed: int, **fields: Any) -> Logs:
    """The study's run of a seed for the log of every rule; `fields` narrow the choice."""
    asked = {"seed": seed, **fields}
    return {
        f"{rule}_log": next(w for w in study.runs if {**asked, "rule": rule}.items() <= w.items()) for rule in rules
    }


def read_log(record: Record, entries: Sequence[dict[str, Any] | None]) -> Log:
    """Entries (one per snapshot of the record) up to the first that is not finite."""
    length = next((i for i, entry in enumerate(entries) if entry is None), len(entries))
    kept = [entry for entry in entries[:length] if entry is not None]
    why = ""
    if record.provenance.status == "diverged":
        why = f"diverged at epoch {record.provenance.diverged_epoch}"
    elif length < len(entries):
        why = f"not finite at epoch {record.snapshots[length].epoch}"
    last = f"; up to its last finite snapshot, epoch {kept[-1]['epoch']}" if why and kept else ""
    return Log(kept, why + last)


def export_logs(records: Sequence[Record], files: Mapping[str, Logs], layout: Layout) -> Export:
    """One file per path, its logs by the runs wanted for them.

    Files with the same logs are of one kind and get the epochs that all of these share.
    """
    kinds: dict[tuple[str, ...], dict[str, dict[str, Log]]] = {}
    missing = []
    for path, wanted in files.items():
        logs, lacking = {}, []
        for name, run in wanted.items():
            record, who = find_run(records, run), f"{run['rule']}, seed {run['seed']}"
            if record is None:
                lacking.append(f"{who} is not on record")
                continue
            logs[name] = read_log(record, [layout.entry(s, gamma=name == "dfa_log") for s in record.snapshots])
            if not logs[name].entries:
                lacking.append(f"{who} has no snapshot in which everything is finite")
        if lacking:
            missing.append(f"{path} is not written: {', '.join(lacking)}.")
        else:
            kinds.setdefault(tuple(wanted), {})[path] = logs
    content = {path: found for kind in kinds.values() for path, found in _share_epochs(kind).items()}
    shape = log_shape(layout, alone=any("fa_log" in wanted for wanted in files.values()))
    return Export({p: shape.dump_python(shape.validate_python(content[p])) for p in files if p in content}, (*missing,))


def _share_epochs(files: dict[str, dict[str, Log]]) -> dict[str, dict[str, Any]]:
    """Every log at the epochs that all have; a file says where one of its logs was cut."""
    epochs = [{entry["epoch"] for entry in log.entries} for logs in files.values() for log in logs.values()]
    shared = set.intersection(*epochs)
    cut = any(log.cut for logs in files.values() for log in logs.values())
    found: dict[str, dict[str, Any]] = {}
    for path, logs in files.items():
        found[path] = {name: [entry for entry in log.entries if entry["epoch"] in shared] for name, log in logs.items()}
        notes = {name: log.cut for name, log in logs.items() if log.cut}
        if cut:
            notes["epochs"] = f"those that every log of this kind has, the last is {max(shared)}"
        found[path] |= {"config": notes} if notes else {}
    return found
