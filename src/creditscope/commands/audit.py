"""`creditscope audit`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from creditscope.commands import register_command
from creditscope.commands._options import (
    Limits,
    Records,
    RecordsByName,
    Unsealed,
    Verbose,
    choose_records,
    option,
    print_json,
    read_limits,
    say,
)


@register_command("audit")
@dataclass(frozen=True)
class Audit:
    """Judge stored records; needs no torch, so thresholds can be tried in a second.

    Example: creditscope audit out/records --set growth=20 --table
    """

    records: Records = None
    by_name: RecordsByName = None
    only: Annotated[str, option("TEXT", "all")] = ""
    """Keep settings whose title, methods or verdicts hold every part of a list such as "cora, depth 6, walk back"."""
    set: Limits = ()
    mute: Annotated[tuple[str, ...], option("[CODE ...]", "none")] = ()
    """Checks to leave out of the verdict, such as CS005; they are named beside it."""
    interval: Literal["t", "bootstrap"] = "t"
    """How per-tap intervals over seeds are made."""
    table: bool = False
    """Print the decision table instead: what each way of judging concludes, and when it first fired."""
    sensitivity: bool = False
    """Print instead how far each threshold could move before a verdict changes."""
    card: Annotated[Path | None, option("DIR", "none")] = None
    """Write a reporting card per method (Markdown and JSON) into this folder."""
    strict: Annotated[tuple[str, ...] | None, option("[METHOD ...]", "exit with 0")] = None
    """Exit with 1 if a method is not trustworthy: those named, or all."""
    explain: Annotated[tuple[str, ...] | None, option("[CODE ...]", "judge")] = None
    """Judge nothing; print how these checks, or all, decide, why they matter and what to do."""
    unsealed: Unsealed = False
    verbose: Verbose = False
    json: bool = False
    """Print JSON: methods, per-tap intervals and decisions; with --sensitivity the ranges too."""

    def run(self) -> None:
        if self.explain is not None:
            from creditscope.auditing.checks import describe_checks

            say(describe_checks(self.explain))
            return
        from creditscope.auditing import audit

        source = choose_records(self.records, self.by_name)
        how = {"mute": self.mute, "interval": self.interval, "unsealed": self.unsealed}
        found = audit(source, limits=read_limits(self.set), **how)
        found = found.only(self.only) if self.only else found
        failures = [] if self.strict is None else found.failures(*self.strict)
        self._print(found)
        if self.card:
            from creditscope.auditing.card import write_cards

            say([f"wrote {path}" for path in write_cards(found.cards(), self.card)], on_error=self.json)
        say([f"creditscope: {failure}" for failure in failures], on_error=True)
        if failures:
            raise SystemExit(1)

    def _print(self, found: Any) -> None:
        if self.json:
            ranges = {"sensitivity": found.sensitivity().to_dicts()} if self.sensitivity else {}
            print_json(found.to_dict() | ranges)
            return
        asked = [found.decisions] * self.table + [found.sensitivity] * self.sensitivity
        for one in asked:
            one().show()
        if not asked:
            found.show(verbose=self.verbose)
