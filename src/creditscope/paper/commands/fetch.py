"""`creditscope fetch`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import Folder, option, say
from creditscope.text import count


@register_command("fetch")
@dataclass(frozen=True)
class Fetch:
    """Get the records behind figures and manual, which ship with the repository and not with the package.

    Every file is checked before it is kept; called again, it goes on where it was.

    Example: creditscope fetch paper && creditscope audit results/paper
    """

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], option("[NAME ...]", "paper")] = ("paper",)
    """paper: studies at full scale (13 MB); league: every rule alike (11 MB); demo; rules: all of them side by side."""
    out: Folder = Path("results")
    """They go into folders of these names here, which any command takes for records."""
    source: Annotated[str, tyro.conf.arg(name="from"), option("DIR_OR_URL", "the project's repository")] = ""
    """A copy of the repository's folder results/ to get them from: a folder, or an address."""

    def run(self) -> None:
        from creditscope.paper.shipped import fetch

        for name in self.names:
            found = list(fetch(name, self.out, source=self.source))
            new = sum(got for _, got in found)
            files = count(len(found), "file")
            say([f"{self.out / name}: {files}, {new} of them new. creditscope audit {self.out / name} judges them."])
