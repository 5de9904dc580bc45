"""`creditscope report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from creditscope.commands import register_command
from creditscope.commands._options import (
    File,
    Limits,
    Records,
    RecordsByName,
    Unsealed,
    choose_records,
    option,
    read_limits,
    say,
)


@register_command("report")
@dataclass(frozen=True)
class Report:
    """Write one HTML page about stored records, to look at, mail or print; needs no torch.

    Example: creditscope report out/records --out report.html
    """

    records: Records = None
    by_name: RecordsByName = None
    out: File = Path("report.html")
    """The page; nothing else is needed to read it."""
    against: Annotated[Path | None, option("DIR", "none")] = None
    """Another folder of records, an earlier one say: the page then tells what changed, verdict by verdict."""
    only: Annotated[str, option("TEXT", "all")] = ""
    """Keep settings whose title, methods or verdicts hold every part of a list such as "cora, depth 6, walk back"."""
    set: Limits = ()
    unsealed: Unsealed = False

    def run(self) -> None:
        from creditscope.report import gather, write_report

        limits = read_limits(self.set)
        material = gather(choose_records(self.records, self.by_name), limits, only=self.only, unsealed=self.unsealed)
        before = gather(self.against, limits, unsealed=self.unsealed) if self.against else None
        size = write_report(material, self.out, against=before)
        notes = [f"note: {problem}" for problem in material.problems]
        notes += [f"note on {self.against}: {problem}" for problem in (before.problems if before else ())]
        say([*notes, f"wrote {self.out} ({size / 1e6:.2f} MB)"])
