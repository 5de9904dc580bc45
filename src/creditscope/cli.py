"""The command line. Importing it imports no torch; commands import what they use when they run."""

import inspect
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from creditscope.errors import CreditscopeError
from creditscope.record.spec import Recipe
from creditscope.settings import parse_settings, read_number, split_pair

DataRoot = Annotated[
    Path | None,
    tyro.conf.arg(metavar="DIR", help="Folder of data files; default CREDITSCOPE_DATA or the user's cache."),
]
TimeLimit = Annotated[
    float | None, tyro.conf.arg(metavar="SECONDS", help="Stop cleanly after this long; the same command goes on.")
]
Device = Annotated[
    str, tyro.conf.arg(metavar="NAME", help="Where to train: auto (CUDA where there is one), cpu, cuda.")
]
Engine = Annotated[
    Literal["auto", "loop", "stacked"],
    tyro.conf.arg(help="Seeds one by one or all at once; auto takes the faster for the case."),
]
Jobs = Annotated[int | None, tyro.conf.arg(metavar="N", help="Worker processes on the CPU; default one per core.")]


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


@dataclass(frozen=True, kw_only=True)
class Run(Recipe):
    """Train one rule over seeds, measure it, and judge it.

    Example: creditscope run --task mnist1d --rule dfa --epochs 60 --baselines
    """

    task: str = "mnist1d"
    """Data to learn (creditscope list tasks)."""
    net: str = "resmlp"
    """Network (creditscope list nets)."""
    rule: str = "bp"
    """Learning rule (creditscope list rules), or your own: path/to/file.py:Class."""
    seeds: tuple[int, ...] = (42, 123, 456)
    """The seeds themselves, each once (not their number)."""
    depth: int | None = None
    """Blocks of the net; default: the net's own."""
    width: int | None = None
    """Width of the net; default: the net's own."""
    set: tuple[str, ...] = ()
    """Further options, as net.NAME=VALUE, rule.NAME=VALUE or task.NAME=VALUE."""
    baselines: bool = False
    """Also train what use of depth is judged against: frozen blocks, BP, frozen BP."""
    ladder: bool = False
    """Also train the depth ladder: the rule and BP with only the last k blocks trained, k = 0 to all."""
    controls: tuple[str, ...] = ()
    """Also train controls: "random targets", sgd, norms (tap rules under each credit normalisation)."""
    out: Path = Path("out")
    """Where records go; runs that are there are reused."""
    data_root: DataRoot = None
    time_limit: TimeLimit = None
    device: Device = "auto"
    engine: Engine = "auto"
    jobs: Jobs = None
    quiet: bool = False
    """No progress."""
    json: bool = False
    """Print the audit as JSON."""

    def run(self) -> None:
        """Plan, train what is missing, audit."""
        from creditscope.auditing.methods import is_baseline
        from creditscope.runs import run

        asked: dict[str, Any] = dict(vars(self)) | parse_settings(self.set)
        for name in ("depth", "width"):
            size = asked.pop(name)
            if size is not None:
                if name in asked["net_options"]:
                    raise CreditscopeError(f"Expected --{name} or --set net.{name}=…, but got both.")
                asked["net_options"][name] = size
        if (self.baselines or self.ladder) and self.frozen:
            added = "--baselines" if self.baselines else "--ladder"
            raise CreditscopeError(f"Expected --frozen or {added}, which adds the frozen runs itself, but got both.")
        for name in ("set", "json", "data_root", *(["frozen"] if self.baselines or self.ladder else [])):
            asked.pop(name)
        if len(self.seeds) == 1 and self.seeds[0] < 20:
            print(f"one seed, the number {self.seeds[0]}; several are written --seeds 42 123 456", file=sys.stderr)
        runs = run(**asked)
        if not all(map(is_baseline, runs.records)):
            show_audit(runs.audit(), as_json=self.json)  # which names the problems too
            return
        accuracies = {r.path.name: r.last.accuracy for r in runs.records if r.path}
        if self.json:
            print(json.dumps(accuracies, indent=1))
        else:
            say([f"{name}: accuracy {accuracy:.3f}" for name, accuracy in accuracies.items() if accuracy is not None])
            say([f"note: {problem}" for problem in runs.problems])


@dataclass(frozen=True)
class Audit:
    """Judge stored records; needs no torch, so thresholds can be tried in a second.

    Example: creditscope audit out/records --set growth=20 --table
    """

    records: tyro.conf.Positional[Path] = Path("out/records")
    """A folder of records."""
    set: tuple[str, ...] = ()
    """Other thresholds, as NAME=VALUE (creditscope list thresholds)."""
    mute: tuple[str, ...] = ()
    """Codes to leave out of the verdict; they are named beside it."""
    interval: Literal["t", "bootstrap"] = "t"
    """How per-tap intervals over seeds are made."""
    table: bool = False
    """Print the decision table instead: what each way of judging concludes, and when it first fired."""
    sensitivity: bool = False
    """Print instead how far each threshold could move before a verdict changes."""
    card: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Write a reporting card per method (Markdown and JSON) into this folder."""
    strict: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[METHOD ...]")] = None
    """Exit with 1 if a method is not trustworthy: those named, or all."""
    json: bool = False
    """Print JSON: methods, per-tap intervals and decisions; with --sensitivity the ranges too."""

    def run(self) -> None:
        """Load, judge, print."""
        from creditscope.auditing import Thresholds, audit
        from creditscope.auditing.strict import expect_trust

        changed = {name: read_number(name, value) for name, value in map(split_pair, self.set)}
        limits = Thresholds().changed(**changed)
        found = audit(self.records, limits=limits, mute=self.mute, interval=self.interval)
        failures = [] if self.strict is None else expect_trust(found, self.strict)
        self._print(found)
        if self.card:
            from creditscope.auditing.card import write_cards

            for path in write_cards(found.cards(), self.card):
                print(f"wrote {path}", file=sys.stderr if self.json else sys.stdout)
        for failure in failures:
            print(f"creditscope: {failure}", file=sys.stderr)
        if failures:
            raise SystemExit(1)

    def _print(self, found: Any) -> None:
        if self.json:
            ranges = {"sensitivity": found.sensitivity().to_dicts()} if self.sensitivity else {}
            print(json.dumps(found.to_dict() | ranges, indent=1, ensure_ascii=False))
            return
        asked = [found.decisions] * self.table + [found.sensitivity] * self.sensitivity
        for shown in [one() for one in asked] or [found]:
            shown.show()


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
        from creditscope.registry import FIGURES, STUDIES
        from creditscope.studies import collect

        plot, study, problems = FIGURES.get(self.name), STUDIES.get(self.name), []
        study = resolve_study(study, self.scale)
        how = {name: getattr(self, name) for name in ("quiet", "jobs", "time_limit", "device", "engine")}
        records = collect(study, self.records, train=self.train, problems=problems, **how)
        say(describe_figure(plot, records).splitlines())
        say([f"wrote {path}" for path in save_figure(plot(records), self.out, self.name)])
        say([f"note: {problem}" for problem in problems])


@dataclass(frozen=True)
class Export:
    """Write result files in the shapes that other people's figure scripts read; needs no torch.

    Example: creditscope export --records out/records --out out/export
    """

    records: Path = Path("out/records")
    out: Path = Path("out/export")
    only: tuple[str, ...] = ()
    """Families of results (creditscope list exports); default all."""
    scale: str = "paper"
    """Scale of the studies whose runs are exported."""

    def run(self) -> None:
        """Load, write, and say what is missing; an error if that is everything."""
        from creditscope.exports import write_exports
        from creditscope.record import load_records

        problems: list[str] = []
        records = load_records(self.records, problems=problems)
        written, missing = write_exports(records, self.out, scale=self.scale, names=self.only)
        say([f"wrote {path}" for path in written])
        say([f"missing: {what}" for what in missing])
        say([f"note: {problem}" for problem in problems])
        if not written:
            raise CreditscopeError(f"Expected records of a whole study under {self.records}, but nothing was written.")


@dataclass(frozen=True)
class List:
    """List what there is: rules, nets, tasks, checks, figures, exports, thresholds.

    Example: creditscope list rules
    """

    kind: tyro.conf.Positional[
        Literal["all", "rules", "nets", "tasks", "checks", "figures", "exports", "thresholds"]
    ] = "all"
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        """Names and first docstring lines, read without importing the files."""
        from creditscope.listing import list_everything

        found = {kind: rows for kind, rows in list_everything().items() if self.kind in ("all", kind)}
        if self.json:
            print(json.dumps(found, indent=1, ensure_ascii=False))
            return
        for kind, rows in found.items():
            print(kind)
            width = max(len(name) for name in rows)
            say([f"  {name:<{width}}  {summary}" for name, summary in rows.items()])


@dataclass(frozen=True)
class Doctor:
    """Versions, devices, threads, and where data would be looked for.

    Example: creditscope doctor
    """

    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        """Look and say."""
        from creditscope.doctor import examine_machine

        found = examine_machine()
        if self.json:
            print(json.dumps(found, indent=1))
        else:
            say([f"{name:<14} {value}" for name, value in found.items()])


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Audit, tyro.conf.subcommand("audit")]
    | Annotated[Figure, tyro.conf.subcommand("figure")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
)


def resolve_study(make: Any, scale: str) -> Any:
    """The study at its own scale, or at the one asked for."""
    if not scale:
        return make()
    if "scale" not in inspect.signature(make).parameters:
        raise CreditscopeError(f"Expected a study with several scales, but got --scale {scale} for one that has one.")
    return make(scale)


def say(lines: list[str]) -> None:
    """Plain lines on standard output."""
    for line in lines:
        print(line)


def show_audit(found: Any, *, as_json: bool) -> None:
    """Print an audit for a person or for a machine."""
    if as_json:
        print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False))
    else:
        found.show()


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, and turn errors into one clear line."""
    command: Any = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="creditscope",
        description="An instrument for credit assignment in deep networks.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    if getattr(command, "data_root", None):
        os.environ["CREDITSCOPE_DATA"] = str(command.data_root.resolve())
    try:
        command.run()
    except CreditscopeError as error:
        print(f"creditscope: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(
            "creditscope: stopped. Finished runs are on record; the same command goes on from there.",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    except OSError as error:
        print(f"creditscope: Expected files and folders that can be read and written, but {error}.", file=sys.stderr)
        raise SystemExit(2) from None
