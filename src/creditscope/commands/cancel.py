"""`creditscope cancel`."""

from dataclasses import dataclass

from creditscope.commands import register_command
from creditscope.commands._options import Records, RecordsByName, choose_records, say
from creditscope.text import count


@register_command("cancel")
@dataclass(frozen=True)
class Cancel:
    """Ask whoever trains into a folder of records to stop, here or elsewhere; the same command as before goes on.

    Example: creditscope cancel out/records
    """

    dir: Records = None
    records: RecordsByName = None

    def run(self) -> None:
        from creditscope.train.work import find_work

        root = choose_records(self.dir, self.records)
        found = find_work(root)
        for work in found:
            work.cancel()
        told = [f"  {work.place}, driven from host {work.host}, process {work.process}" for work in found]
        say([f"asked to stop: {count(len(found), 'driver')} in {root}", *told])
