"""Studies: which runs a figure or a table needs, at which scale; one file each. No torch until a run is missing.

A study states its runs as partial specs; records are matched against them without planning a run.
"""

import inspect
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.options import declared_options
from creditscope.record import Record, RunSpec, load_records
from creditscope.record.spec import MEASURING_FIELDS
from creditscope.record.stored import lacks
from creditscope.record.table import richness
from creditscope.registry import STUDIES, TASKS

if TYPE_CHECKING:
    from creditscope.train.events import Event

Chosen = TypeVar("Chosen")

register_study = STUDIES.register
NOT_ASKED = ("data_version", "net_source", "rule_source", *MEASURING_FIELDS)
DEFAULTS = {f.name: f.default for f in fields(RunSpec) if f.default is not MISSING}
ASKED = tuple(name for name in DEFAULTS if name not in NOT_ASKED)
VARIED = re.compile(r"(?:^|, )([^\W\d]\w*)(?= )")
"""Names of the options in a rule's variant, "head exact, scale unit"."""
LARGEST_FIRST = ("paper", "league", "demo")
FEWEST_SHARE = 0.05
"""Of the runs of a study, to say that they are on record."""


@dataclass(frozen=True)
class Study:
    """Wanted runs: task, net, rule and other fields of the run spec; of these what is left out is the default.

    Defaults of nets cannot be read without torch, so the runs name every option of their net.

    >>> from creditscope.paper.studies import Study, find_missing
    >>> net = {"net": "resmlp", "net_options": {"depth": 2, "width": 16, "terminal_norm": True}}
    >>> study = Study("mine", tuple({**net, "task": "digits", "rule": "bp", "seed": seed} for seed in (42, 123)))
    >>> len(find_missing(study, []))
    2
    """

    name: str
    runs: tuple[dict[str, Any], ...]
    derive: Callable[..., list[Record]] | None = None
    """Further records made from those of the runs: derive(records, root, measure=, problems=, device=)."""
    ship: Callable[[Record, Path, Path], Path | None] | None = None
    """Copies what was derived from a run to another root: ship(record, root, out)."""


def matches(spec: RunSpec, wanted: dict[str, Any], *, whole: bool = False) -> bool:
    """Whether a stored spec is the wanted run, measured at least as richly.

    Earlier records have no noise at tier quick, and are drawn without; `whole`: they do not count.
    """
    if _kind(vars(spec)) != _kind(wanted):
        return False
    asked_of_others = all(
        getattr(spec, options).get(name) == value
        for options in ("net_options", "rule_options")
        for name, value in wanted.get(options, {}).items()
    )
    measuring = _measuring(wanted)
    if not whole and measuring["tier"] == "quick":
        measuring["noise"] = False
    return (
        asked_of_others
        and spec.data_version == getattr(TASKS.get(spec.task), "data_version", "")
        and _same_data(spec, wanted.get("task_options", {}))
        and spec.measures(replace(spec, **measuring))
    )


def _measuring(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: wanted.get(name, DEFAULTS[name]) for name in MEASURING_FIELDS}


def _same_data(spec: RunSpec, asked: Mapping[str, Any]) -> bool:
    """Whether the task's options are those asked for, the others being what the task declares."""
    defaults = declared_options(TASKS.get(spec.task))
    return {**defaults, **spec.task_options} == {**defaults, **asked}


def fits(record: Record, wanted: dict[str, Any], *, whole: bool = False) -> bool:
    """Whether a record is the wanted run; a variant of the rule only if each of its options was asked for."""
    unusual = set(VARIED.findall(record.facts.rule.variant))
    asked = unusual <= wanted.get("rule_options", {}).keys()
    return record.spec is not None and asked and matches(record.spec, wanted, whole=whole)


class RunIndex:
    """Records by all that is asked of a run but options; that tells most runs apart, so that few are compared."""

    def __init__(self, records: Iterable[Record]):
        self._by_kind: dict[tuple, list[Record]] = {}
        for record in records:
            if record.spec:
                self._by_kind.setdefault(_kind(vars(record.spec)), []).append(record)

    def fitting(self, wanted: dict[str, Any], *, whole: bool = False) -> list[Record]:
        """Those that are the wanted run."""
        return [r for r in self._by_kind.get(_kind(wanted), ()) if fits(r, wanted, whole=whole)]

    def best(self, wanted: dict[str, Any]) -> Record | None:
        """The one measured just as asked, or the richest."""
        asked = _measuring(wanted)
        fitting = self.fitting(wanted)
        return max(fitting, key=lambda r: (_measuring(vars(r.spec)) == asked, richness(r)), default=None)


def find_missing(study: Study, records: Iterable[Record], *, whole: bool = False) -> list[dict[str, Any]]:
    """Wanted runs that are not on record; `whole`: with all that is measured by now."""
    index = RunIndex(r for r in records if not (whole and lacks(r)))
    return [wanted for wanted in study.runs if not index.fitting(wanted, whole=whole)]


def find_wanted(study: Study, records: Iterable[Record]) -> list[Record]:
    """One record for each of the study's runs that has any, in the order of the study."""
    index = RunIndex(records)
    found = (index.best(wanted) for wanted in study.runs)
    return list({id(record): record for record in found if record}.values())


def find_serving(study: Study, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those of the specs whose records the study may choose from."""
    by_kind: dict[tuple, list[dict[str, Any]]] = {}
    for wanted in study.runs:
        by_kind.setdefault(_kind(wanted), []).append(wanted)
    return [spec for spec in specs if any(matches(spec, w) for w in by_kind.get(_kind(vars(spec)), ()))]


def _kind(given: Mapping[str, Any]) -> tuple:
    lacking = [name for name in ("task", "net", "rule") if name not in given]
    if lacking:
        raise CreditscopeError(
            f"Expected every run of a study to name its task, net and rule, but got one without {', '.join(lacking)}: "
            f"{dict(given)}. Add it."
        )
    return given["task"], given["net"], given["rule"], *[given.get(name, DEFAULTS[name]) for name in ASKED]


def collect(
    study: Study,
    root: Path,
    *,
    train: bool,
    problems: list[str],
    records: Sequence[Record] | None = None,
    measure: bool = False,
    quiet: bool = True,
    **how: Any,
) -> list[Record]:
    """The study's records under `root` (or of `records`, if they were loaded), then what it derives from them.

    With `train`, runs that are missing or lack what is measured by now are trained (`how`: see `run_all`), and then or
    with `measure` missing measurements are made; otherwise both are named in `problems`.
    """
    if records is None:
        records = load_records(root, problems=problems) if root.is_dir() else []
    missing, unread = find_missing(study, records, whole=train), list(problems)
    if missing and train:
        from creditscope.train.plan import plan_run

        specs = [plan_run(**wanted) for wanted in missing]
        records = [
            *records,
            *train_runs(specs, root, problems=problems, reused=len(study.runs) - len(missing), quiet=quiet, **how),
        ]
    elif missing:
        problems.append(f"{len(missing)} of {len(study.runs)} runs are not on record: {_words(missing)}.")
    found = find_wanted(study, records)
    if not found:
        message = (
            f"Expected records of study {study.name!r} under {root}, but got none. It needs "
            f"{_words(study.runs)}; creditscope figure {study.name} trains them. Runs of your own are drawn by "
            "creditscope figure own."
        )
        raise CreditscopeError(" ".join([message, *unread]))
    if study.derive is not None:
        found += study.derive(
            found, root, measure=train or measure, problems=problems, device=how.get("device", "auto")
        )
    return found


def train_runs(
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


def plan_union(studies: Sequence[Study], records: Sequence[Record]) -> list[RunSpec]:
    """What is not whole on record of any study's runs, each once; a richer one serves all who want it plainer."""
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
    for together in alike.values():
        for spec in list(together):
            if any(other.measures(spec) for other in together if other is not spec):
                together.remove(spec)
    return [spec for together in alike.values() for spec in together]


def choose_scale(scales: Mapping[str, Chosen], name: str) -> Chosen:
    """The fields that all runs of a study share at the scale called `name`.

    >>> from creditscope.paper.studies import choose_scale
    >>> choose_scale({"demo": {"epochs": 60}, "paper": {"epochs": 100}}, "demo")
    {'epochs': 60}
    """
    if name not in scales:
        raise UnknownNameError("scale of the study", name, scales)
    return scales[name]


def over_seeds(conditions: Iterable[Mapping[str, Any]], seeds: Sequence[int]) -> tuple[dict[str, Any], ...]:
    """Every condition on every seed."""
    return tuple({**condition, "seed": seed} for condition in conditions for seed in seeds)


def drop_repeated(runs: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Every wanted run once, where it first comes; a field that is left out is its default."""
    known: dict[str, dict[str, Any]] = {}
    for wanted in runs:
        known.setdefault(json.dumps({**DEFAULTS, **wanted}, sort_keys=True), dict(wanted))
    return tuple(known.values())


def _words(missing: Sequence[Mapping[str, Any]]) -> str:
    """Rules and seeds, each once, with the number of runs that have both."""
    counts = Counter(f"{w['rule']} seed {w.get('seed', DEFAULTS['seed'])}" for w in missing)
    names = [name + (f" ({count} runs)" if count > 1 else "") for name, count in counts.items()]
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")


def resolve_study(name: str, scale: str = "") -> Study:
    """The study at its own scale, or at the one asked for; one without scales is at "demo"."""
    make = STUDIES.get(name)
    if _has_scales(make):
        return make(scale) if scale else make()
    if scale not in ("", "demo"):
        raise CreditscopeError(
            f"Expected a study with several scales, but got scale {scale!r} for {name!r}, which has one. Leave it out."
        )
    return make()


def shipped_scale(name: str) -> str:
    """The scale at which a study's records ship, which is the name of their folder."""
    for scale in ("paper", "league"):
        with suppress(UnknownNameError):
            resolve_study(name, scale)
            return scale
    raise CreditscopeError(f"Expected a study whose records ship, but got {name!r}. Train it: creditscope reproduce.")


def studies_at(scale: str) -> list[Study]:
    """Every study that has scales and this one among them, by name."""
    found = []
    for name in STUDIES.names():
        if _has_scales(STUDIES.get(name)):
            try:
                found.append(resolve_study(name, scale))
            except UnknownNameError:
                continue
    if not found:
        raise CreditscopeError(f"Expected a scale that studies have, such as demo or paper, but got {scale!r}.")
    return found


def scale_on_record(name: str, records: Sequence[Record]) -> tuple[str, bool]:
    """The largest scale of a study that has records, and True; if none has, its own and False ("": has no scales).

    A few runs that it shares with other studies are no records of it.
    """
    make = STUDIES.get(name)
    if not _has_scales(make):
        return "", bool(find_wanted(make(), records))
    for scale in LARGEST_FIRST:
        try:
            study = resolve_study(name, scale)
        except UnknownNameError:
            continue
        if len(find_missing(study, records)) <= (1 - FEWEST_SHARE) * len(study.runs):
            return scale, True
    own = inspect.signature(make).parameters["scale"].default
    return ("" if own is inspect.Parameter.empty else own), False


def _has_scales(make: Any) -> bool:
    return "scale" in inspect.signature(make).parameters
