"""`creditscope reproduction`."""

from dataclasses import dataclass
from pathlib import Path

from creditscope.commands._options import File, Folder
from creditscope.commands._printing import say, with_problems
from creditscope.errors import CreditscopeError


@dataclass(frozen=True)
class Reproduction:
    """Write the page of published numbers beside measured ones; needs no torch.

    Example: creditscope reproduction --records results/paper --out docs/reproduction.md
    """

    records: Folder = Path("out/records")
    """Folder of records of the studies at scale paper."""
    out: File = Path("out/reproduction.md")
    """The page, in Markdown."""

    def run(self) -> None:
        """Load, compare, write, and say how many numbers are inside."""
        from creditscope.record import load_records
        from creditscope.reproduction import write_reproduction
        from creditscope.reproduction.page import count_line

        problems: list[str] = []
        records = load_records(self.records, problems=problems)
        if not records:
            message = (
                f"Expected records under {self.records}, but got none. creditscope reproduce --scale paper trains them."
            )
            raise CreditscopeError(with_problems(message, problems))
        path = write_reproduction(records, self.out, root=self.records)
        say([count_line(records), f"wrote {path}"])
        say([f"note: {problem}" for problem in problems])
