"""`creditscope status`."""

from dataclasses import asdict, dataclass

from creditscope.commands import register_command
from creditscope.commands._options import Records, RecordsByName, choose_records, print_json, say


@register_command("status")
@dataclass(frozen=True)
class Status:
    """How far runs are that are trained into a folder of records, here or elsewhere.

    Example: creditscope status out/records
    """

    dir: Records = None
    records: RecordsByName = None
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        from creditscope.train.progress import duration
        from creditscope.train.status import read_status

        found = read_status(choose_records(self.dir, self.records))
        if self.json:
            return print_json(asdict(found))
        left = f"waiting: {found.waiting}, failed: {len(found.failed)}"
        say([f"runs done: {found.done}, training: {len(found.training)}, {left}"])
        for run in found.training:
            age = f"last word {duration(run.age)} ago"
            say([f"  {run.run}: epoch {run.epoch}/{run.epochs}, at {run.place}, host {run.host}, {age}"])
        say([f"  {name}: failed: {why}" for name, why in found.failed.items()])
        return None
