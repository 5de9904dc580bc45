"""`creditscope demo`."""

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from creditscope.commands import register_command
from creditscope.commands._options import Folder, HowToTrain, Verbose, say
from creditscope.errors import CreditscopeError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from creditscope.paper.made import Made
    from creditscope.record import Record


@register_command("demo")
@dataclass(frozen=True)
class Demo:
    """Train BP, FA, block FA and DFA on embedded data, print verdicts, draw the figure and a report (a few minutes).

    Then draw all figures of the records that ship with the repository, if they are here (creditscope fetch paper
    league).

    Example: creditscope demo --out out
    """

    out: Folder = Path("out")
    """Records, figures and the report go here; records that are there are reused, and what would not change is left."""
    shipped: Folder = Path("results")
    """Of folders of records as they ship (paper, league), those that are there are drawn, too, into OUT/figures."""
    verbose: Verbose = False
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        from creditscope.auditing import audit
        from creditscope.paper.made import Made, digest_code, digest_records
        from creditscope.paper.studies import collect
        from creditscope.paper.studies.demo import demo

        problems, root = list[str](), self.out / "records"
        records = collect(demo(), root, train=True, problems=problems, **self.training.options())
        audit(records).show(verbose=self.verbose)
        made, code = Made(self.out), digest_code()
        source = f"{code} {self.out} {digest_records(root)}"
        if not tell_unchanged(made, "demo", source):
            made.keep("demo", source, self._draw(records, problems))
        say([f"records in {root}; judge them again: {called()} audit {root}"])
        say([f"note: {problem}" for problem in problems])
        for folder, names in group_by_folder().items():
            if (root := self.shipped / folder).is_dir():
                self._draw_shipped(made, root, names, f"{code} {root} {digest_records(root)}")

    def _draw(self, records: "list[Record]", problems: list[str]) -> list[Path]:
        """The figure and the report."""
        from creditscope.auditing import Thresholds
        from creditscope.paper.figures import save_figure
        from creditscope.report import judge_records, write_report

        paths = save_figure(plot_demo(records), self.out / "figures", "audit_hero")
        say([f"wrote {path}" for path in paths])
        page = self.out / "report.html"
        write_report(judge_records(records, str(self.out / "records"), Thresholds(), problems), page)
        say([f"wrote {page}, which opens in a browser"])
        return [*paths, page]

    def _draw_shipped(self, made: "Made", root: Path, names: Sequence[str], source: str) -> None:
        """What fails here is said, costs the demo nothing, and is tried and said again the next time."""
        from creditscope.paper.commands.figure import draw_figures
        from creditscope.paper.studies import resolve_study, scale_on_record
        from creditscope.record import load_records

        names = [name for name in names if not tell_unchanged(made, f"shipped {name}", source)]
        if not names:
            return
        problems: list[str] = []
        records = load_records(root, problems=problems)
        say([f"figures of the {len(records)} runs in {root}:"])
        find_study = lambda name: resolve_study(name, scale_on_record(name, records)[0])  # noqa: E731
        for name in names:
            if paths := draw_figures([name], records, root, self.out / "figures" / root.name, find_study):
                made.keep(f"shipped {name}", source, paths)
        say([f"note: {problem}" for problem in problems])


def group_by_folder() -> dict[str, list[str]]:
    """Figures by the folder that the records of their study ship in; others are left out."""
    from creditscope.paper.commands.figure import drawable
    from creditscope.paper.studies import shipped_scale

    found: dict[str, list[str]] = {}
    for name in drawable():
        with suppress(CreditscopeError):
            found.setdefault(shipped_scale(name), []).append(name)
    return found


def called() -> str:
    """This program, as a shell finds it here."""
    return "creditscope" if shutil.which("creditscope") else sys.argv[0]


def tell_unchanged(made: "Made", name: str, source: str) -> bool:
    """Whether what is there would be the same again; then it is left as it is."""
    paths = made.unchanged(name, source)
    say([f"unchanged: {path}" for path in paths if path.suffix in (".html", ".png")])
    return bool(paths)


def plot_demo(records: "Sequence[Record]") -> "Figure":
    """The audit figure of the main task, with every rule that the demo trains."""
    from creditscope.paper.figures.audit_hero import plot_audit_hero
    from creditscope.paper.studies.demo import RULES

    return plot_audit_hero([r for r in records if r.spec and r.spec.task == "mnist1d"], rules=RULES)
