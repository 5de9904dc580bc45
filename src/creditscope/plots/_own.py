"""An overview of whatever runs there are, one for each setting."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from creditscope.auditing.methods import is_baseline, setting_key
from creditscope.errors import CreditscopeError
from creditscope.plots import save_figure
from creditscope.plots._overview import overview
from creditscope.record import Record
from creditscope.text import count


def save_overviews(records: Sequence[Record], folder: Path) -> Iterator[tuple[str, list[Path], str]]:
    """Of each setting what it is called, the files, and a note: what was left out, or why there are no files."""
    settings: dict[str, list[Record]] = {}
    for record in records:
        if record.spec:
            settings.setdefault(setting_key(record), []).append(record)
    drawn = [runs for runs in settings.values() if not all(map(is_baseline, runs))]
    for number, runs in enumerate(drawn, start=1):
        name = f"own_{number}" if len(drawn) > 1 else "own"
        latest = latest_texts(runs)
        rules = dict.fromkeys(record.facts.rule.label for record in latest if not is_baseline(record))
        spec, left = runs[0].spec, len(runs) - len(latest)
        assert spec is not None
        title = f"{name}: {spec.task}, {spec.net}, {', '.join(rules)}"
        try:
            paths = save_figure(overview(latest), folder, name)
        except CreditscopeError as error:
            yield title, [], str(error)
        else:
            yield title, paths, f"left out, as their rule was edited since: {count(left, 'run')}" if left else ""


def latest_texts(runs: Sequence[Record]) -> list[Record]:
    """Of a rule whose text was edited between runs, those of the text that was trained last."""
    last: dict[str, tuple[str, str]] = {}
    for spec, started in ((r.spec, r.provenance.started) for r in runs if not is_baseline(r)):
        assert spec is not None
        last[spec.rule] = max(last.get(spec.rule, ("", "")), (started, spec.rule_source))
    return [r for r in runs if r.spec and r.spec.rule_source == last.get(r.spec.rule, ("", r.spec.rule_source))[1]]
