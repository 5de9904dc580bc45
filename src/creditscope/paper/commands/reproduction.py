"""`creditscope reproduction`."""

from dataclasses import dataclass
from pathlib import Path

from creditscope.commands import register_command
from creditscope.commands._options import File, Records, RecordsByName, Unsealed, choose_records, say, with_problems
from creditscope.errors import CreditscopeError


@register_command("reproduction")
@dataclass(frozen=True)
class Reproduction:
    """Write the page of published numbers beside those measured by the studies at scale paper; needs no torch.

    Example: creditscope reproduction results/paper
    """

    records: Records = None
    by_name: RecordsByName = None
    out: File = Path("out/reproduction.md")
    """The page, in Markdown."""
    unsealed: Unsealed = False

    def run(self) -> None:
        from creditscope.paper.published.page import write_reproduction
        from creditscope.record import load_records

        source, problems = choose_records(self.records, self.by_name), []
        records = load_records(source, problems=problems, unsealed=self.unsealed)
        if not records:
            message = f"Expected records under {source}, but got none. creditscope fetch paper gets them."
            raise CreditscopeError(with_problems(message, problems))
        say([*write_reproduction(records, self.out, root=source), f"wrote {self.out}"])
        say([f"note: {problem}" for problem in problems])
