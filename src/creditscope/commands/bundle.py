"""`creditscope bundle`."""

from dataclasses import dataclass

from creditscope.commands import register_command
from creditscope.commands._options import Records, RecordsByName, choose_records, say
from creditscope.errors import CreditscopeError


@register_command("bundle")
@dataclass(frozen=True)
class Bundle:
    """Move finished runs that differ only in their seed into one file, byte for byte; needs no torch.

    Every command reads such files as it reads folders; unzip gives the folders back.

    Example: creditscope bundle out/records
    """

    records: Records = None
    by_name: RecordsByName = None

    def run(self) -> None:
        from creditscope.record.finished import bundle_finished, read_runs

        root = choose_records(self.records, self.by_name)
        if not root.is_dir():
            raise CreditscopeError(
                f"Expected a folder of records, but {root} is none. Name the folder that holds them."
            )
        written = bundle_finished(root)
        say([f"wrote {path} ({len(read_runs(path, problems=[], packed=True))} runs)" for path in written])
        if not written:
            say([f"nothing to bundle under {root}"])
