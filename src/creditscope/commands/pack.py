"""`creditscope pack`."""

from dataclasses import dataclass
from pathlib import Path

from creditscope.commands._printing import say
from creditscope.errors import CreditscopeError


@dataclass(frozen=True)
class Pack:
    """Pack records into bundles, one compressed file a study: rounded, thinned, without weights; needs no torch.

    Example: creditscope pack --records out/records --out results/paper
    """

    records: Path = Path("out/records")
    out: Path = Path("results/paper")
    """Where STUDY.jsonl.xz go; every command that reads records reads them, too."""
    scale: str = "paper"
    """Scale of the studies whose runs are packed."""

    def run(self) -> None:
        """Load, write, and say what was left out."""
        from creditscope.record import load_records
        from creditscope.studies._packing import pack_studies

        problems: list[str] = []
        records = load_records(self.records, problems=problems)
        packed = pack_studies(records, self.records, self.out, scale=self.scale)
        if not packed.files:
            raise CreditscopeError(
                f"Expected records of a study at scale {self.scale!r} under {self.records}, but got none."
            )
        runs = len(records) - len(packed.unwanted)
        say([f"wrote {path} ({count} runs, {size:,} bytes)" for path, count, size in packed.files])
        say([f"{runs} runs, {packed.size:,} bytes together"])
        if packed.unwanted:
            names = ", ".join(r.name for r in packed.unwanted[:3]) + " …" * (len(packed.unwanted) > 3)
            say([f"left out: {len(packed.unwanted)} runs of no study at scale {self.scale!r}: {names}"])
        say([f"note: {problem}" for problem in problems])
