"""`creditscope report`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.commands._printing import say
from creditscope.settings import read_number, split_pair


@dataclass(frozen=True)
class Report:
    """Write one HTML page about stored records, to look at, mail or print; needs no torch.

    Example: creditscope report --records out/records --out report.html
    """

    records: Path = Path("out/records")
    """A folder of records."""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("report.html")
    """The page; nothing else is needed to read it."""
    against: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Another folder of records, an earlier one say: the page then tells what changed, verdict by verdict."""
    set: tuple[str, ...] = ()
    """Other thresholds, as NAME=VALUE (creditscope list thresholds)."""

    def run(self) -> None:
        """Load, judge, write."""
        from creditscope.auditing import Thresholds
        from creditscope.report import gather, write_report

        changed = {name: read_number(name, value) for name, value in map(split_pair, self.set)}
        limits = Thresholds().changed(**changed)
        material = gather(self.records, limits)
        before = gather(self.against, limits) if self.against else None
        size = write_report(material, self.out, against=before)
        say([f"note: {problem}" for problem in material.problems])
        say([f"note on {self.against}: {problem}" for problem in (before.problems if before else ())])
        say([f"wrote {self.out} ({size / 1e6:.2f} MB)"])
