"""`creditscope export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import (
    Folder,
    Name,
    Records,
    RecordsByName,
    Unsealed,
    choose_records,
    say,
    with_problems,
)
from creditscope.errors import CreditscopeError


@register_command("export")
@dataclass(frozen=True)
class Export:
    """Write result files in the shapes that other people's figure scripts read; needs no torch.

    Example: creditscope export out/records --out out/export
    """

    records: Records = None
    by_name: RecordsByName = None
    out: Folder = Path("out/export")
    """The files go here, under the paths that the scripts expect."""
    only: Annotated[tuple[str, ...], tyro.conf.arg(metavar="[NAME ...]", help_behavior_hint="(default: all)")] = ()
    """Families of results (creditscope list exports)."""
    scale: Name = "paper"
    """Scale of the studies whose runs are exported (docs/studies.md)."""
    unsealed: Unsealed = False

    def run(self) -> None:
        from creditscope.paper.exports import write_exports
        from creditscope.record import load_records

        source, problems = choose_records(self.records, self.by_name), []
        records = load_records(source, problems=problems, unsealed=self.unsealed)
        written, missing = write_exports(records, self.out, scale=self.scale, names=self.only)
        say([f"wrote {path}" for path in written])
        say([f"missing: {what}" for what in missing])
        if not written:
            message = f"Expected records of a whole study under {source}, but got none."
            raise CreditscopeError(with_problems(f"{message} creditscope reproduce trains them.", problems))
        say([f"note: {problem}" for problem in problems])
