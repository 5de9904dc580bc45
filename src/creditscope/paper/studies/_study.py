"""A study states its runs as partial specs; records are matched against them without planning a run."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Any

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.options import declared_options
from creditscope.record import Record, RunSpec, load_records
from creditscope.record.spec import MEASURING_FIELDS
from creditscope.record.table import richness
from creditscope.record.validate import lacks
from creditscope.registry import TASKS

NOT_ASKED = ("data_version", "net_source", "rule_source", *MEASURING_FIELDS)
DEFAULTS = {f.name: f.default for f in fields(RunSpec) if f.default is not MISSING}
ASKED = tuple(name for name in DEFAULTS if name not in NOT_ASKED)
VARIED = re.compile(r"(?:^|, )([^\W\d]\w*)(?= )")
"""Names of the options in a rule's variant, "head exact, scale unit"."""


@dataclass(frozen=True)
class Study:
    """Wanted runs: fields of the run spec and options of the task; what is left out is the default.

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
    """Further records made from those of the runs: derive(records, root, measure=, problems=, device=); see `_derived`.
    """


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


def find_missing(study: Study, records: Sequence[Record], *, whole: bool = False) -> list[dict[str, Any]]:
    """Wanted runs that are not on record; `whole`: with all that is measured by now."""
    known = _sorted_in((r.spec and vars(r.spec), r) for r in records if not (whole and lacks(r)))
    return [w for w in study.runs if not any(fits(record, w, whole=whole) for record in known.get(_kind(w), ()))]


def find_serving(study: Study, specs: Sequence[RunSpec]) -> list[RunSpec]:
    """Those of the specs whose records the study may choose from."""
    wanted = _sorted_in((w, w) for w in study.runs)
    return [spec for spec in specs if any(matches(spec, w) for w in wanted.get(_kind(vars(spec)), ()))]


def find_wanted(study: Study, records: Sequence[Record]) -> list[Record]:
    """One record for each of the study's runs that has any: of several, the one measured just as asked, or the richest.

    They come in the order of the study.
    """
    known = _sorted_in((r.spec and vars(r.spec), r) for r in records)
    found: dict[int, Record] = {}
    for wanted in study.runs:
        fitting = [r for r in known.get(_kind(wanted), ()) if fits(r, wanted)]
        if fitting:
            best = max(fitting, key=lambda r: (_measuring(vars(r.spec)) == _measuring(wanted), richness(r)))
            found.setdefault(id(best), best)
    return list(found.values())


def _kind(given: Mapping[str, Any]) -> tuple:
    """All that is asked of a run but options; it tells most runs apart, so that few are compared further."""
    return given["task"], given["net"], given["rule"], *[given.get(name, DEFAULTS[name]) for name in ASKED]


def _sorted_in(items: Iterable[tuple[Mapping[str, Any] | None, Any]]) -> dict[tuple, list]:
    drawers: dict[tuple, list] = {}
    for given, item in items:
        if given:
            drawers.setdefault(_kind(given), []).append(item)
    return drawers


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
    reused = len(study.runs) - len(missing)
    if missing and train:
        from creditscope.train.execute import run_all
        from creditscope.train.plan import plan_run
        from creditscope.train.progress import choose_progress

        specs = [plan_run(**wanted) for wanted in missing]
        with choose_progress(quiet=quiet, reused=reused) as progress:
            records = [*records, *run_all(specs, root, readers=[progress.read], problems=problems, **how)]
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


def choose_scale(scales: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    """The fields that all runs of a study share at the scale called `name`.

    >>> from creditscope.paper.studies import choose_scale
    >>> choose_scale({"demo": {"epochs": 60}, "paper": {"epochs": 100}}, "demo")
    {'epochs': 60}
    """
    if name not in scales:
        raise UnknownNameError("scale of the study", name, scales)
    return scales[name]


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
