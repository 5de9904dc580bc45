"""`creditscope export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import DEFAULT_RECORDS as RECORDS
from creditscope.commands._options import Name, Unsealed, option, say, with_problems
from creditscope.errors import CreditscopeError


@register_command("export")
@dataclass(frozen=True)
class Export:
    """Write records as files for other tools: one table of all of them (parquet), or what extensions bring; no torch.

    Example: creditscope export parquet --records out/records --out runs.parquet
    """

    names: Annotated[tyro.conf.Positional[tuple[str, ...]], option("[NAME ...]", "those of extensions")] = ()
    """Exports (creditscope list exports)."""
    records: Annotated[Path, tyro.conf.arg(metavar="DIR")] = RECORDS
    """Folder of records, or a bundle of them."""
    out: Annotated[Path, tyro.conf.arg(metavar="PATH")] = Path("out/export")
    """A folder, or the file of an export that writes one."""
    scale: Name = "paper"
    """Scale of the studies whose runs are exported, of exports that go by studies: demo or paper."""
    unsealed: Unsealed = False

    def run(self) -> None:
        from creditscope.record import load_records, open_records
        from creditscope.registry import EXPORTS

        names = self.names or tuple(name for name in EXPORTS.names() if not EXPORTS.is_built_in(name))
        exports, problems = {name: EXPORTS.get(name) for name in names}, []
        load = open_records if all(map(EXPORTS.is_built_in, names)) else load_records
        records = load(self.records, problems=problems, unsealed=self.unsealed)
        found = (
            {name: export(records, self.out, scale=self.scale) for name, export in exports.items()} if records else {}
        )
        say([f"wrote {path}" for written in found.values() for path in written.files])
        say([f"missing: {name}: {what}" for name, written in found.items() for what in written.missing])
        if not any(written.files for written in found.values()):
            message = f"Expected records under {self.records} of which files can be made, but got none."
            raise CreditscopeError(with_problems(f"{message} Train runs first (creditscope run).", problems))
        say([f"note: {problem}" for problem in problems])
