"""Train runs from Python and look at them: `creditscope.run`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.auditing import Audit, audit
from creditscope.errors import CreditscopeError
from creditscope.record import Record
from creditscope.record.table import to_frame, to_xarray

if TYPE_CHECKING:
    from creditscope.record import RunSpec
    from creditscope.rules import Rule


@dataclass(frozen=True)
class Runs:
    """Finished runs, as `run` gives them; every view is made from their records.

    >>> import creditscope as cs
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> dict(runs.to_xarray().sizes)
    {'rule': 1, 'seed': 1, 'epoch': 2, 'tap': 2}
    >>> runs.frame().columns[:4].tolist()
    ['rule', 'seed', 'epoch', 'tap']
    """

    records: list[Record]
    """One for each rule and seed, baselines and controls included."""
    problems: tuple[str, ...] = ()
    """What could not be read or used, in words."""

    def __repr__(self) -> str:
        names = ", ".join(r.name for r in self.records[:3])
        return f"Runs({len(self.records)}: {names}{', …' * (len(self.records) > 3)})"

    def _repr_html_(self) -> str:
        from creditscope.report.notebook import show_records

        return show_records(self.records, repr(self), self.problems)

    def audit(self, **options: Any) -> Audit:
        """Judge them; options are those of `creditscope.audit`."""
        return audit(self, **options)

    def to_xarray(self):
        """Named axes: rule, seed, epoch, tap."""
        return to_xarray(self.records)

    def frame(self):
        """A long pandas table, one row per rule, seed, epoch and tap."""
        return to_frame(self.records)

    def plot(self):
        """Accuracy, credit, sizes and verdicts of these runs, of one setting, as a matplotlib Figure."""
        from creditscope.plots import overview

        if self.records and not any(r.spec for r in self.records):
            raise CreditscopeError(
                "Expected runs of creditscope.run to draw, but got watched models only, which have no baselines. Call "
                "scope.plot(), or scope.save(folder) and then: creditscope report --records folder."
            )
        return overview(self.records)


def run(
    *,
    rule: "str | type[Rule] | Sequence[str | type[Rule]]" = "bp",
    seeds: int | Sequence[int] = 3,
    baselines: bool = False,
    ladder: bool = False,
    controls: str | Sequence[str] = (),
    out: str | Path = "out",
    on: Any = "here",
    slots: int | None = None,
    tries: int = 3,
    settings: dict[str, dict[str, str]] | None = None,
    quiet: bool = True,
    time_limit: float | None = None,
    device: str = "auto",
    engine: str = "auto",
    **fields: Any,
) -> Runs:
    """Train and measure a rule (or several) over seeds; runs that are on record under `out` are reused.

    `rule` is a name, `path/to/file.py:Class`, a class, or a list of them; `net` likewise; `seeds` how many, or which.
    `baselines` adds what use of depth is judged against: frozen blocks under the same rule, BP, and frozen BP; `ladder`
    adds runs with only the last k blocks trained; `controls` are among "random targets", "sgd" and "norms". Other
    arguments are those of the run spec (task, epochs, lr, penalty, …; `creditscope run --help` tells them) and options
    of the net (depth, width); those of rule and task go into `rule_options` and `task_options`.

    `device` is auto (CUDA where there is one), cpu or cuda; `engine` trains seeds one by one (loop), all at once
    (stacked), or by what is faster (auto). `on` says where workers are: here, slurm, ray, ray:ADDRESS, or an executor
    that has `submit`; `slots` how many at a time, by default one per core; `tries` how many of them a run may cost that
    kills its worker; `settings` are those of places by their names. A run that was stopped, by Ctrl-C, `time_limit`
    (seconds) or a crash, goes on from its last checkpoint.

    >>> import creditscope as cs
    >>> cs.run(rule="dfa", task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    Runs(1: digits-resmlp-dfa-s42-...)
    """
    from creditscope.train.execute import run_all
    from creditscope.train.progress import choose_progress

    problems: list[str] = []
    specs = _plan(rule, seeds, baselines=baselines, ladder=ladder, controls=controls, **fields)
    with choose_progress(quiet=quiet) as progress:
        where = {"on": on, "slots": slots, "tries": tries, "settings": settings, "device": device, "engine": engine}
        asked = {"readers": [progress.read], "problems": problems, "time_limit": time_limit}
        records = run_all(specs, Path(out) / "records", **asked, **where)
    return Runs(records, tuple(problems))


def preview(*, out: str | Path = "out", quiet: bool = True, time_limit: float | None = None, **asked: Any) -> list[str]:
    """What `run` would train, in words: runs, groups, engines, and how long as far as records tell; trains nothing."""
    from creditscope.train.preview import preview_runs

    names = ("on", "slots", "tries", "settings", "device", "engine")
    how = {name: asked.pop(name) for name in names if name in asked}
    return preview_runs(_plan(asked.pop("rule", "bp"), asked.pop("seeds", 3), **asked), Path(out) / "records", **how)


def _plan(rule: Any, seeds: int | Sequence[int], **asked: Any) -> "list[RunSpec]":
    from creditscope.train.plan import choose_seeds, plan_runs

    rules = [rule] if isinstance(rule, str | type) or not isinstance(rule, Iterable) else list(rule)
    return plan_runs(rules=rules, seeds=choose_seeds(seeds), **asked)
