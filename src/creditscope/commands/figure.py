"""`creditscope figure`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from creditscope.commands._options import DataRoot, Device, Engine, Jobs, TimeLimit
from creditscope.commands._printing import say
from creditscope.errors import CreditscopeError


@dataclass(frozen=True)
class Figure:
    """Draw a figure, or all, from records; runs that it needs and that are missing are trained first.

    Example: creditscope figure audit_hero --records out/records --out out/figures
    """

    name: tyro.conf.Positional[str]
    """Which figure (creditscope list figures), or all: every figure that has records."""
    records: Path = Path("out/records")
    out: Path = Path("out/figures")
    scale: str = ""
    """Scale of the study, where it has several (docs/studies.md); default: demo, with --no-train the largest that has
    records."""
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
        """Collect the study of that name, draw, save; or do so for all."""
        if self.name == "all":
            self._draw_all()
            return
        from creditscope.figures import describe_figure, save_figure
        from creditscope.record import load_records
        from creditscope.registry import FIGURES
        from creditscope.studies import collect, resolve_study, study_on_record

        plot, problems = FIGURES.get(self.name), []
        records = load_records(self.records, problems=problems) if self.records.is_dir() else []
        by_record = not self.train and not self.scale
        study = study_on_record(self.name, records) if by_record else resolve_study(self.name, self.scale)
        found = collect(study, self.records, records=records, train=self.train, problems=problems, **self._how())
        say(describe_figure(plot, found).splitlines())
        say([f"wrote {path}" for path in save_figure(plot(found), self.out, self.name)])
        say([f"note: {problem}" for problem in problems])

    def _how(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("quiet", "jobs", "time_limit", "device", "engine")}

    def _draw_all(self) -> None:
        from creditscope.commands._drawing import draw_figures, drawable
        from creditscope.record import load_records
        from creditscope.studies import resolve_study, study_on_record

        problems, names = [], drawable()
        scale = "demo" if self.train and not self.scale else self.scale
        found = self.records.is_dir() or not self.train
        records = load_records(self.records, problems=problems) if found else []
        if self.train:
            from creditscope.studies._union import plan_union, train_union

            specs = plan_union([resolve_study(name, scale) for name in names], records)
            records += train_union(specs, self.records, problems=problems, **self._how())
        drawn = draw_figures(
            names,
            records,
            self.records,
            self.out,
            find_study=lambda name: resolve_study(name, scale) if scale else study_on_record(name, records),
            measure=self.train,
            device=self.device,
        )
        say([f"note: {problem}" for problem in problems])
        if not drawn:
            raise CreditscopeError(f"Expected records of at least one study under {self.records}, but drew no figure.")
