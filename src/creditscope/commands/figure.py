"""`creditscope figure`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from creditscope.commands._options import DataRoot, Folder, HowToTrain, RecordsToAdd
from creditscope.commands._printing import say, with_problems
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.record import Record


@dataclass(frozen=True)
class Figure:
    """Draw a figure, or all, from records; runs that it needs and that are missing are trained first.

    Example: creditscope figure audit_hero --records out/records --out out/figures
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Which figure (creditscope list figures), or all: every figure that has records."""
    records: RecordsToAdd = Path("out/records")
    out: Folder = Path("out/figures")
    """NAME.png and NAME.pdf go here."""
    scale: Annotated[
        str, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the largest that has records, else demo)")
    ] = ""
    """Scale of the study, where it has several (docs/studies.md)."""
    train: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: it is trained)")] = True
    """Leave what is missing as a marked gap."""
    data_root: DataRoot = None
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        """Collect the study of that name, draw, save; or do so for all."""
        if self.name == "all":
            self._draw_all()
            return
        from creditscope.figures import describe_figure, save_figure
        from creditscope.record import load_records
        from creditscope.registry import FIGURES
        from creditscope.studies import collect, resolve_study

        plot, problems = FIGURES.get(self.name), []
        records = load_records(self.records, problems=problems) if self.records.is_dir() else []
        study = resolve_study(self.name, self._choose_scales([self.name], records)[self.name])
        found = collect(
            study, self.records, records=records, train=self.train, problems=problems, **self.training.options()
        )
        say(describe_figure(plot, found).splitlines())
        say([f"wrote {path}" for path in save_figure(plot(found), self.out, self.name)])
        say([f"note: {problem}" for problem in problems])

    def _choose_scales(self, names: list[str], records: Sequence["Record"]) -> dict[str, str]:
        """By study, the scale asked for, or else the largest on record, which is said; "": it has none."""
        from creditscope.studies import scale_on_record

        if self.scale:
            return dict.fromkeys(names, self.scale)
        found = {name: scale_on_record(name, records) for name in names}
        for scale, there in dict.fromkeys(found.values()):
            if scale:
                why = "the largest on record" if there else "none is on record"
                say([f"scale {scale} ({why}): {', '.join(n for n in names if found[n] == (scale, there))}"])
        return {name: scale for name, (scale, _) in found.items()}

    def _draw_all(self) -> None:
        from creditscope.commands._drawing import draw_figures, drawable
        from creditscope.record import load_records
        from creditscope.studies import resolve_study, studies_at

        problems, names = [], drawable()
        if self.scale:
            studies_at(self.scale)  # an unknown scale is refused once, not by every figure
        found = self.records.is_dir() or not self.train
        records = load_records(self.records, problems=problems) if found else []
        scales = self._choose_scales(names, records)
        if self.train:
            from creditscope.studies._union import plan_union, train_union

            specs = plan_union([resolve_study(name, scales[name]) for name in names], records)
            records += train_union(specs, self.records, problems=problems, **self.training.options())
        drawn = draw_figures(
            names,
            records,
            self.records,
            self.out,
            find_study=lambda name: resolve_study(name, scales[name]),
            measure=self.train,
            device=self.training.device,
        )
        if not drawn:
            message = (
                f"Expected records of at least one study under {self.records}, but got none that can be drawn. Without "
                "--no-train runs are trained."
            )
            raise CreditscopeError(with_problems(message, problems))
        say([f"note: {problem}" for problem in problems])
