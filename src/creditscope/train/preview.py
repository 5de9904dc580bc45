"""What would be trained, in which groups, by which engine, and how long, as far as records of other seeds tell."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from creditscope.record import RunSpec
from creditscope.record.store import finished, ran_for
from creditscope.text import count
from creditscope.train.groups import RunGroup, group_runs, longest_first
from creditscope.train.places import find_place
from creditscope.train.progress import duration


def preview_runs(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    on: Any = "here",
    slots: int | None = None,
    device: str = "auto",
    engine: str = "auto",
    settings: Mapping[str, Mapping[str, str]] | None = None,
    **_: Any,
) -> list[str]:
    """Lines to read; arguments are those of `execute`."""
    place = find_place(on, device=device, slots=slots, settings=settings or {})
    done = {spec.digest() for spec in specs if finished(root, spec) not in ("", "lacking")}
    missing = [spec for spec in specs if spec.digest() not in done]
    groups = longest_first(group_runs(missing, root, device=place.device, engine=engine, workers=place.count))
    workers = min(place.count, len(groups))
    where = f"at {place.name}, {count(workers, 'worker')}, on {place.device}"
    lines = [f"runs on record: {len(done)}, to train: {len(missing)} in {count(len(groups), 'group')}, {where}"]
    times: list[float | None] = []
    known: dict[str, list[float]] = {}
    for spec in specs:
        if spec.digest() in done and (spent := ran_for(root, spec)):
            known.setdefault(spec.stack_key(), []).append(spent)
    for group in groups:
        like = known.get(group.specs[0].stack_key())
        times.append(median(like) if like else None)
        lines.append(
            f"  {_name(group)}: {f'about {duration(times[-1])}' if times[-1] is not None else 'time not known'}"
        )
    if groups:
        unknown, spent = times.count(None), sum(filter(None, times)) / workers
        said = f"about {duration(spent)} by other seeds on record" if unknown < len(times) else "not known"
        lines.append(
            f"time: {said}" + f", and {count(unknown, 'group')} of unknown length" * (0 < unknown < len(times))
        )
    place.open(0)
    return lines


def _name(group: RunGroup) -> str:
    spec, seeds = group.specs[0], Counter(spec.seed for spec in group.specs)
    named = ", ".join(str(seed) for seed in list(seeds)[:8]) + ", …" * (len(seeds) > 8)
    frozen = ", frozen" if spec.frozen else f", last {spec.train_last} blocks" if spec.train_last >= 0 else ""
    kind = "alone" if group.engine == "loop" else f"stack of {len(group.specs)}"
    return f"{spec.task} {spec.net} {spec.rule}{frozen}, {spec.epochs} epochs, {kind}, seeds {named}"
