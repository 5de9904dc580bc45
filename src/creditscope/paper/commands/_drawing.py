"""Draw many figures from records that were loaded once."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.commands._options import say
from creditscope.errors import CreditscopeError
from creditscope.text import count

if TYPE_CHECKING:
    from creditscope.paper.studies import Study
    from creditscope.record import Record, RunSpec
    from creditscope.train.events import Event


def drawable(names: Sequence[str] | None = None) -> list[str]:
    """Figures that have a study of the same name; of those named, or all."""
    from creditscope.registry import FIGURES, STUDIES

    studies = STUDIES.names()
    return [name for name in FIGURES.names() if name in (studies if names is None else names)]


def draw_figures(
    names: Sequence[str],
    records: Sequence["Record"],
    root: Path,
    out: Path,
    *,
    find_study: Callable[[str], "Study"],
    measure: bool = False,
    **how: Any,
) -> int:
    """Draw each figure from those of the records that its study wants; what cannot be drawn is said.

    Nothing is trained; with `measure`, what a study derives from its runs is measured where it is missing. Returns how
    many were drawn.
    """
    from creditscope.paper.figures import describe_figure, save_figure
    from creditscope.paper.studies import collect, find_missing
    from creditscope.registry import FIGURES

    drawn = 0
    for name in names:
        notes: list[str] = []
        try:
            study, plot = find_study(name), FIGURES.get(name)
            missing = len(find_missing(study, records))
            found = collect(
                study, root, records=records, train=False, measure=measure and not missing, problems=notes, **how
            )
            paths = save_figure(plot(found), out, name, caption=describe_figure(plot, found))
        except CreditscopeError as error:
            say([f"{name}: not drawn. {error}"])
            continue
        drawn += 1
        say([f"{name}: {len(study.runs) - missing} of {len(study.runs)} runs, wrote {', '.join(map(str, paths))}"])
        say([f"  note: {note}" for note in notes])
    return drawn


class Gallery:
    """The figures of several studies, which are drawn from `records` and those that `specs` will give.

    Each is drawn once all that its study may choose from is there, and what is left at the end. `how` is handed on to
    `draw_figures`.
    """

    def __init__(
        self,
        studies: Sequence["Study"],
        records: Sequence["Record"],
        specs: Sequence["RunSpec"],
        root: Path,
        out: Path,
        **how: Any,
    ):
        from creditscope.paper.studies._study import find_serving

        self.studies = {study.name: study for study in studies}
        self.records, self.root, self.out, self.how = list(records), root, out, how
        self._left = drawable(list(self.studies))
        self._awaited = {
            name: {spec.digest() for spec in find_serving(self.studies[name], specs)}
            for name in self._left
            if self.studies[name].derive is None  # what must be measured first would take the device from training
        }

    def read(self, event: "Event") -> None:
        """What is told while runs are trained: of their records, see `add`."""
        from creditscope.train.events import Recorded

        if isinstance(event, Recorded):
            self.add([event.record])

    def add(self, records: Sequence["Record"]) -> None:
        """Further records, while others are made: draw what is whole now; what fails is tried again at the end."""
        self.records += records
        came = {record.spec.digest() for record in records if record.spec}
        for awaited in self._awaited.values():
            awaited -= came
        for name in [name for name, awaited in self._awaited.items() if not awaited]:
            del self._awaited[name]
            with suppress(Exception):
                self._draw(name)

    def finish(self, records: Sequence["Record"]) -> None:
        """Draw what was not, from all records there are."""
        self.records = list(records)
        for name in list(self._left):
            self._draw(name)

    def _draw(self, name: str) -> None:
        draw_figures([name], self.records, self.root, self.out, find_study=self.studies.__getitem__, **self.how)
        self._left.remove(name)


def draw_own(records: Sequence["Record"], out: Path) -> int:
    """Draw the overview of whatever runs there are, one for each setting; returns how many were drawn."""
    from creditscope import plots
    from creditscope.auditing.methods import is_baseline, setting_key

    settings: dict[str, list[Record]] = {}
    for record in records:
        if record.spec:
            settings.setdefault(setting_key(record), []).append(record)
    settings = {key: runs for key, runs in settings.items() if not all(map(is_baseline, runs))}
    drawn = 0
    for number, runs in enumerate(settings.values(), start=1):
        name = f"own_{number}" if len(settings) > 1 else "own"
        latest = _latest_texts(runs)
        rules = dict.fromkeys(record.facts.rule.label for record in latest if not is_baseline(record))
        title = f"{name}: {runs[0].spec.task}, {runs[0].spec.net}, {', '.join(rules)}"  # pyright: ignore[reportOptionalMemberAccess]
        try:
            paths = plots.save_figure(plots.overview(latest), out, name)
        except CreditscopeError as error:
            say([f"{title}: not drawn. {error}"])
            continue
        drawn += 1
        say([f"{title}: wrote {', '.join(map(str, paths))}"])
        if len(latest) < len(runs):
            say([f"  note: left out, as their rule was edited since: {count(len(runs) - len(latest), 'run')}"])
    return drawn


def _latest_texts(runs: Sequence["Record"]) -> list["Record"]:
    """Of a rule whose text was edited between runs, those of the text that was trained last."""
    from creditscope.auditing.methods import is_baseline

    last: dict[str, tuple[str, str]] = {}
    for spec, started in ((r.spec, r.provenance.started) for r in runs if not is_baseline(r)):
        assert spec is not None
        last[spec.rule] = max(last.get(spec.rule, ("", "")), (started, spec.rule_source))
    return [r for r in runs if r.spec and r.spec.rule_source == last.get(r.spec.rule, ("", r.spec.rule_source))[1]]
