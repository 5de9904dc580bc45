"""`creditscope figure`."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from creditscope.commands._options import DataRoot, Device, Engine, Jobs, TimeLimit
from creditscope.commands._printing import say


@dataclass(frozen=True)
class Figure:
    """Draw a figure from records; runs that it needs and that are missing are trained first.

    Example: creditscope figure audit_hero --records out/records --out out/figures
    """

    name: tyro.conf.Positional[str]
    """Which figure (creditscope list figures)."""
    records: Path = Path("out/records")
    out: Path = Path("out/figures")
    scale: str = ""
    """Scale of the study, where it has several (docs/studies.md); default: its own."""
    train: bool = True
    """Train what is missing; with --no-train it is left as a marked gap."""
    data_root: DataRoot = None
    time_limit: TimeLimit = None
    device: Device = "auto"
    engine: Engine = "auto"
    jobs: Jobs = None
    quiet: bool = False
    """No progress."""

    def run(self) -> None:
        """Collect the study of that name, draw, save."""
        from creditscope.figures import describe_figure, save_figure
        from creditscope.registry import FIGURES
        from creditscope.studies import collect, resolve_study

        plot, problems = FIGURES.get(self.name), []
        study = resolve_study(self.name, self.scale)
        how = {name: getattr(self, name) for name in ("quiet", "jobs", "time_limit", "device", "engine")}
        records = collect(study, self.records, train=self.train, problems=problems, **how)
        say(describe_figure(plot, records).splitlines())
        say([f"wrote {path}" for path in save_figure(plot(records), self.out, self.name)])
        say([f"note: {problem}" for problem in problems])
