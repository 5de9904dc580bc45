"""`creditscope demo`."""

from dataclasses import dataclass
from pathlib import Path

from creditscope.commands._options import Device, Engine, Jobs, TimeLimit


@dataclass(frozen=True)
class Demo:
    """Train BP, FA, block FA and DFA on embedded data, print the verdicts, draw the figure (a few minutes).

    Example: creditscope demo --out out
    """

    out: Path = Path("out")
    """Where records and figures go; records that are there are reused."""
    time_limit: TimeLimit = None
    device: Device = "auto"
    engine: Engine = "auto"
    jobs: Jobs = None
    quiet: bool = False
    """No progress."""

    def run(self) -> None:
        """Collect, audit, draw."""
        from creditscope.auditing import audit
        from creditscope.auditing.show import make_console, print_audit
        from creditscope.figures import save_figure
        from creditscope.figures.audit_hero import plot_audit_hero
        from creditscope.studies import collect
        from creditscope.studies.demo import demo

        problems: list[str] = []
        how = {name: getattr(self, name) for name in ("quiet", "jobs", "time_limit", "device", "engine")}
        records = collect(demo(), self.out / "records", train=True, problems=problems, **how)
        console = make_console()
        print_audit(audit(records), console)
        main_task = [r for r in records if r.spec and r.spec.task == "mnist1d"]
        for path in save_figure(plot_audit_hero(main_task), self.out / "figures", "audit_hero"):
            console.print(f"wrote {path}")
        console.print(f"records in {self.out / 'records'}; judge them again: creditscope audit {self.out / 'records'}")
        for problem in problems:
            console.print(f"note: {problem}")
