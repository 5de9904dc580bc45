"""The runs of several studies together: each is trained once, and a richer one serves all who want it plainer."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.paper.studies._study import Study, find_missing
from creditscope.record import Record, RunSpec
from creditscope.record.spec import MEASURING_FIELDS

if TYPE_CHECKING:
    from creditscope.train.events import Event


def plan_union(studies: Sequence[Study], records: Sequence[Record]) -> list[RunSpec]:
    """What is not whole on record of any study's runs, each once."""
    missing = [wanted for study in studies for wanted in find_missing(study, records, whole=True)]
    if not missing:
        return []
    from creditscope.train.plan import plan_run

    specs = {spec.digest(): spec for spec in (plan_run(**wanted) for wanted in missing)}
    return drop_served(list(specs.values()))


def drop_served(specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those that no other of them serves: trained alike, and measured at least as richly."""
    alike: dict[str, list[RunSpec]] = {}
    for spec in specs:
        training = {name: value for name, value in asdict(spec).items() if name not in MEASURING_FIELDS}
        alike.setdefault(str(training), []).append(spec)
    kept: list[RunSpec] = []
    for together in alike.values():
        left = list(together)
        for spec in together:
            if any(other.measures(spec) for other in left if other is not spec):
                left.remove(spec)
        kept += left
    return kept


def train_union(
    specs: Sequence[RunSpec],
    root: Path,
    *,
    problems: list[str],
    readers: Sequence[Callable[["Event"], None]] = (),
    reused: int = 0,
    quiet: bool = True,
    **how: Any,
) -> list[Record]:
    """Train the runs in one go (`how`: see `run_all`); what `problems` says of them as unfinished is taken back."""
    if not specs:
        return []
    from creditscope.train.execute import run_all
    from creditscope.train.progress import choose_progress

    with choose_progress(quiet=quiet, reused=reused) as progress:
        records = run_all(specs, root, readers=[progress.read, *readers], problems=problems, **how)
    finished = tuple(f"Record {record.name} is incomplete" for record in records)
    problems[:] = [problem for problem in problems if not problem.startswith(finished)]
    return records
