"""`creditscope pack`."""

from dataclasses import dataclass
from pathlib import Path

from creditscope.commands import register_command
from creditscope.commands._options import Folder, Name, Records, RecordsByName, choose_records, say
from creditscope.text import count


@register_command("pack")
@dataclass(frozen=True)
class Pack:
    """Pack records into bundles, one compressed file a study: rounded, thinned, without weights; needs no torch.

    Example: creditscope pack out/records --out results/paper
    """

    records: Records = None
    by_name: RecordsByName = None
    out: Folder = Path("results/paper")
    """STUDY.jsonl.xz go here; every command that reads records reads them, too."""
    scale: Name = "paper"
    """Scale of the studies whose runs are packed (docs/studies.md)."""
    replace: bool = False
    """Replace bundles even if runs that they hold are lost by it."""

    def run(self) -> None:
        """Load, write, and say what was left out."""
        from creditscope.paper.studies._packing import pack_studies
        from creditscope.record import load_records

        source, problems = choose_records(self.records, self.by_name), []
        records = load_records(source, problems=problems)
        packed = pack_studies(records, source, self.out, scale=self.scale, replace=self.replace, problems=problems)
        for share in packed.shares:
            runs = len(share.study.runs)
            say([f"{share.study.name}: {runs - share.missing} of {count(runs, 'wanted run')}"])
        say([f"wrote {path} ({count(runs, 'run')}, {size:,} bytes)" for path, runs, size in packed.files])
        say([f"{count(len(records) - len(packed.unwanted), 'run')}, {packed.size:,} bytes together"])
        if packed.unwanted:
            names = ", ".join(r.name for r in packed.unwanted[:3]) + " …" * (len(packed.unwanted) > 3)
            say([f"left out: {count(len(packed.unwanted), 'run')} of no study at scale {self.scale!r}: {names}"])
        stale = "is of a study that ships no run of its own now; it was left as it was"
        say([f"stale: {path} ({count(runs, 'run')}) {stale}" for path, runs in packed.stale])
        say([f"note: {problem}" for problem in problems])
