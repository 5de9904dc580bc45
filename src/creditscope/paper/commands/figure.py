"""`creditscope figure`."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import (
    DataRoot,
    Folder,
    HowToTrain,
    Records,
    RecordsByName,
    Unsealed,
    choose_records,
    option,
    say,
    with_problems,
)
from creditscope.errors import CreditscopeError
from creditscope.plots import MOVING, check_formats

if TYPE_CHECKING:
    from creditscope.paper.figures._layout import Page
    from creditscope.paper.studies import Study
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
    """The pictures go here, and the caption as NAME.md and NAME.tex."""
    width: Annotated[float, option("INCHES", "5.5")] = 0.0
    """As wide as it will be printed, so that letters keep their size: 5.5 is the text of most papers, 3.25 a column."""
    format: Annotated[str, tyro.conf.arg(metavar="KIND[,KIND]")] = "png,pdf"
    """What pictures are written as: png, pdf, svg; gif of a figure that moves."""
    panels: Annotated[str, option("A[,B]", "all")] = ""
    """Only these, by their letters."""
    captions: bool = False
    """Write the words of the caption into the picture, too."""
    scale: Annotated[
        str, tyro.conf.arg(metavar="NAME", help_behavior_hint="(default: the largest that has records, else demo)")
    ] = ""
    """Scale of the study, where it has several: demo or paper."""
    train: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: it is trained)")] = True
    """Leave what is missing as a marked gap."""
    unsealed: Unsealed = False
    data_root: DataRoot = None
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        source, page = choose_records(self.records, self.by_name), self._page()
        check_formats(split_names(self.format))
        if self.name in LACKING:
            self._draw_what_is_there(source)
            return
        from creditscope.paper.figures import draw_figure, film_figure, moves, save_figure
        from creditscope.paper.studies import collect, resolve_study
        from creditscope.record import load_records
        from creditscope.registry import FIGURES, STUDIES

        plot, problems = FIGURES.get(self.name), []
        if MOVING in split_names(self.format) and not moves(plot):
            raise CreditscopeError(
                f"Expected a figure that moves for a {MOVING}, but {self.name} does not. Ask for png or svg."
            )
        found = records = load_records(source, problems=problems, unsealed=self.unsealed) if source.exists() else []
        if self.name in STUDIES.names():
            study, how = resolve_study(self.name, self._choose_scales([self.name], records)[self.name]), self.training
            found = collect(study, source, records=records, train=self.train, problems=problems, **how.options())
        fig, caption = draw_figure(plot, found, page=page, caption=self.captions)
        say(caption.text().splitlines() if caption else [])
        kinds = split_names(self.format)
        film = film_figure(plot, found, page=page) if MOVING in kinds else None
        paths = save_figure(fig, self.out, self.name, caption=caption, formats=kinds, film=film)
        say([f"wrote {path}" for path in paths])
        say([f"note: {problem}" for problem in problems])

    def _page(self) -> "Page | None":
        """What was asked of the page; None if nothing."""
        from creditscope.paper.figures._layout import WIDTH, Page

        return Page(self.width or WIDTH, split_names(self.panels.upper())) if self.width or self.panels else None

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
        from creditscope.paper.studies import resolve_study, studies_at
        from creditscope.record import load_records

        if self.panels or (self.name == "own" and (self.width or self.captions or self.format != "png,pdf")):
            raise CreditscopeError(
                f"Expected no --panels of {self.name}, and no --width, --format or --captions of own, but got some. "
                "Name one figure."
            )
        if self.name == "all" and self.scale:
            studies_at(self.scale)  # an unknown scale is refused once, not by every figure
        problems: list[str] = []
        records = load_records(source, problems=problems, unsealed=self.unsealed)
        if self.name == "own":
            drawn = draw_own(records, self.out)
        else:
            scales = self._choose_scales(drawable(), records)
            page = {"page": self._page(), "caption": self.captions, "formats": split_names(self.format)}
            drawn = draw_figures(
                scales, records, source, self.out, lambda name: resolve_study(name, scales[name]), **page
            )
        if not drawn:
            wanted, trains = LACKING[self.name]
            message = f"Expected records of {wanted} under {source}, but got none that can be drawn. {trains} them."
            raise CreditscopeError(with_problems(message, problems))
        say([f"note: {problem}" for problem in problems])


def split_names(typed: str) -> tuple[str, ...]:
    """Names between commas.

    >>> split_names("A, C"), split_names("")
    (('A', 'C'), ())
    """
    return tuple(name for part in typed.split(",") if (name := part.strip()))


def draw_own(records: Sequence["Record"], out: Path) -> int:
    """Draw the overview of whatever runs there are, one for each setting; returns how many were drawn."""
    from creditscope.plots._overview import save_overviews

    drawn = 0
    for title, paths, note in save_overviews(records, out):
        drawn += bool(paths)
        say([f"{title}: wrote {', '.join(map(str, paths))}" if paths else f"{title}: not drawn. {note}"])
        say([f"  note: {note}"] if paths and note else [])
    return drawn


def drawable(names: Sequence[str] | None = None) -> list[str]:
    """Figures that have a study of the same name; of those named, or all."""
    from creditscope.registry import FIGURES, STUDIES

    studies = STUDIES.names()
    return [name for name in FIGURES.names() if name in (studies if names is None else names)]


def draw_figures(
    names: Iterable[str],
    records: Sequence["Record"],
    root: Path,
    out: Path,
    find_study: Callable[[str], "Study"],
    *,
    measure: bool = False,
    page: "Page | None" = None,
    caption: bool = False,
    formats: Sequence[str] = ("png", "pdf"),
    **how: Any,
) -> list[Path]:
    """Draw each figure from those of the records that its study wants; what cannot be drawn is said.

    Nothing is trained; with `measure`, what a study derives from its runs is measured where it is missing. Returns the
    files that were written.
    """
    from creditscope.paper.figures import draw_figure, film_figure, save_figure
    from creditscope.paper.studies import collect, find_missing
    from creditscope.registry import FIGURES

    drawn: list[Path] = []
    for name in names:
        notes: list[str] = []
        try:
            study, plot = find_study(name), FIGURES.get(name)
            missing = len(find_missing(study, records))
            found = collect(
                study, root, records=records, train=False, measure=measure and not missing, problems=notes, **how
            )
            fig, said = draw_figure(plot, found, page=page, caption=caption)
            film = film_figure(plot, found, page=page) if MOVING in formats else None
            paths = save_figure(fig, out, name, caption=said, formats=formats, film=film)
        except CreditscopeError as error:
            say([f"{name}: not drawn. {error}"])
            continue
        drawn += paths
        say([f"{name}: {len(study.runs) - missing} of {len(study.runs)} runs, wrote {', '.join(map(str, paths))}"])
        say([f"  note: {note}" for note in notes])
    return drawn
