"""`creditscope figure`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import (
    DataRoot,
    Folder,
    HowToTrain,
    Records,
    RecordsByName,
    choose_records,
    say,
    with_problems,
)
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from creditscope.record import Record

LACKING = {
    "all": ("at least one study", "creditscope reproduce trains"),
    "own": ("trained runs", "creditscope run trains"),
}
"""What is drawn as it is, what that needs, and what makes it."""


@register_command("figure")
@dataclass(frozen=True)
class Figure:
    """Draw a figure from records; runs that its study needs and that are missing are trained first.

    Example: creditscope figure audit_hero out/records --out out/figures
    """

    name: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="NAME")]
    """Which figure (creditscope list figures); all: each that has records; own: your runs. These two train nothing."""
    records: Records = None
    by_name: RecordsByName = None
    out: Folder = Path("out/figures")
    """NAME.png and NAME.pdf go here, and the caption as NAME.md and NAME.tex."""
    scale: Annotated[
        str, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the largest that has records, else demo)")
    ] = ""
    """Scale of the study, where it has several (docs/studies.md)."""
    train: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: it is trained)")] = True
    """Leave what is missing as a marked gap."""
    data_root: DataRoot = None
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        """Collect the study of that name, draw, save; or draw what there is."""
        source = choose_records(self.records, self.by_name)
        if self.name in LACKING:
            self._draw_what_is_there(source)
            return
        from creditscope.paper.figures import describe_figure, save_figure
        from creditscope.paper.studies import collect, resolve_study
        from creditscope.record import load_records
        from creditscope.registry import FIGURES

        plot, problems = FIGURES.get(self.name), []
        records = load_records(source, problems=problems) if source.exists() else []
        study = resolve_study(self.name, self._choose_scales([self.name], records)[self.name])
        found = collect(study, source, records=records, train=self.train, problems=problems, **self.training.options())
        caption = describe_figure(plot, found)
        say(caption.text().splitlines() if caption else [])
        say([f"wrote {path}" for path in save_figure(plot(found), self.out, self.name, caption=caption)])
        say([f"note: {problem}" for problem in problems])

    def _choose_scales(self, names: list[str], records: Sequence["Record"]) -> dict[str, str]:
        """By study, the scale asked for, or else the largest on record, which is said; "": it has none."""
        from creditscope.paper.studies import scale_on_record

        if self.scale:
            return dict.fromkeys(names, self.scale)
        found = {name: scale_on_record(name, records) for name in names}
        for scale, there in dict.fromkeys(found.values()):
            if scale:
                why = "the largest on record" if there else "none is on record"
                say([f"scale {scale} ({why}): {', '.join(n for n in names if found[n] == (scale, there))}"])
        return {name: scale for name, (scale, _) in found.items()}

    def _draw_what_is_there(self, source: Path) -> None:
        from creditscope.paper.commands._drawing import draw_own
        from creditscope.record import load_records

        if self.name == "all" and self.scale:
            from creditscope.paper.studies import studies_at

            studies_at(self.scale)  # an unknown scale is refused once, not by every figure
        problems: list[str] = []
        records = load_records(source, problems=problems)
        drawn = draw_own(records, self.out) if self.name == "own" else self._draw_studies(records, source)
        if not drawn:
            wanted, trains = LACKING[self.name]
            message = f"Expected records of {wanted} under {source}, but got none that can be drawn. {trains} them."
            raise CreditscopeError(with_problems(message, problems))
        say([f"note: {problem}" for problem in problems])

    def _draw_studies(self, records: Sequence["Record"], source: Path) -> int:
        from creditscope.paper.commands._drawing import draw_figures, drawable
        from creditscope.paper.studies import resolve_study

        names = drawable()
        scales = self._choose_scales(names, records)
        return draw_figures(names, records, source, self.out, find_study=lambda name: resolve_study(name, scales[name]))
