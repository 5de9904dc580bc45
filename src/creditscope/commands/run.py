"""`creditscope run`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import DataRoot, Folder, HowToTrain, Verbose, option, print_json, say, split_pair
from creditscope.errors import CreditscopeError
from creditscope.record import spec

Size = Annotated[int | None, option("INT", "the net's own")]


@dataclass(frozen=True, kw_only=True)
class Recipe(spec.Recipe):
    """How a run is trained and measured."""

    noise: Annotated[bool, tyro.conf.arg(help_behavior_hint="(default: they are)")] = True
    """Do not compute gradients again in float64, which tells whether they are resolved."""


@register_command("run")
@dataclass(frozen=True, kw_only=True)
class Run:
    """Train rules over seeds, measure them, and judge them.

    Example: creditscope run --task mnist1d --rule dfa --epochs 60 --baselines
    """

    task: str = "mnist1d"
    """Data to learn (creditscope list tasks)."""
    net: str = "resmlp"
    """Network (creditscope list nets), or your own: path/to/file.py:Class."""
    rule: Annotated[tuple[str, ...], option("NAME [NAME ...]", "bp")] = ("bp",)
    """Learning rules (creditscope list rules), or your own: path/to/file.py:Class."""
    seeds: Annotated[tuple[str, ...], option("N | SEED SEED ...", "3")] = ("3",)
    """How many (the first three are 42, 123, 456), or which: several numbers, or one with a comma (7,)."""
    depth: Size = None
    """Blocks of the net."""
    width: Size = None
    """Features of the net's states."""
    set: Annotated[tuple[str, ...], option("[NAME=VALUE ...]", "their own defaults")] = ()
    """Options of net, rule and task, as net.NAME=VALUE, rule.NAME=VALUE or task.NAME=VALUE; of Slurm slurm.NAME=…."""
    baselines: bool = False
    """Also train what use of depth is judged against: frozen blocks, BP, frozen BP."""
    ladder: bool = False
    """Also train the depth ladder: the rule and BP with only the last k blocks trained, k = 0 to all."""
    controls: Annotated[tuple[str, ...], option("[NAME ...]", "none")] = ()
    """Also train controls: "random targets", sgd, norms (tap rules under credit norm none, batch, sample)."""
    out: Folder = Path("out")
    """Records go to OUT/records; runs that are there are reused."""
    data_root: DataRoot = None
    dry_run: bool = False
    """Train nothing; say which runs would be, in which groups, and how long as far as records tell."""
    verbose: Verbose = False
    json: bool = False
    """Print the audit as JSON."""
    recipe: Recipe = field(default_factory=Recipe)
    training: HowToTrain = field(default_factory=HowToTrain)

    def run(self) -> None:
        from creditscope.auditing.methods import is_baseline
        from creditscope.runs import preview, run

        if self.dry_run:
            return say(preview(**self._asked(), **self.training.options()))
        runs = run(**self._asked(), **self.training.options())
        if not all(map(is_baseline, runs.records)):
            found = runs.audit()  # which names the problems too
            return print_json(found.to_dict()) if self.json else found.show(verbose=self.verbose)
        accuracies = {r.name: r.last.accuracy for r in runs.records}
        if self.json:
            return print_json(accuracies)
        said = [f"{name}: accuracy {value:.3f}" for name, value in accuracies.items() if value is not None]
        return say([*said, *(f"note: {problem}" for problem in runs.problems)])

    def _asked(self) -> dict[str, Any]:
        """As `creditscope.run` takes it."""
        recipe, options = dict(vars(self.recipe)), parse_settings(self.set, place=self.training.on.partition(":")[0])
        for name, size in (("depth", self.depth), ("width", self.width)):
            if size is not None and name in options["net_options"]:
                raise CreditscopeError(f"Expected --{name} or --set net.{name}=…, but got both. Leave one out.")
            if size is not None:
                options["net_options"][name] = size
        # the plan chooses which runs are frozen
        if (self.baselines or self.ladder) and recipe.pop("frozen"):
            added = "--baselines" if self.baselines else "--ladder"
            raise CreditscopeError(
                f"Expected --frozen or {added}, which adds the frozen runs itself, but got both. Leave one out."
            )
        asked = {n: getattr(self, n) for n in ("task", "net", "rule", "baselines", "ladder", "controls", "out")}
        return {**asked, "seeds": read_seeds(self.seeds), **recipe, **options}


def parse_settings(settings: tuple[str, ...], *, place: str = "here") -> dict[str, dict[str, Any]]:
    """`net.depth=6` and the like, by owner; those of the place where runs are trained are `settings`.

    >>> parse_settings(("net.depth=6",))["net_options"]
    {'depth': '6'}
    """
    options: dict[str, dict[str, Any]] = {"task_options": {}, "net_options": {}, "rule_options": {}}
    for setting in settings:
        name, value = split_pair(setting)
        owner, dot, option = name.partition(".")
        if dot and owner == place:
            options.setdefault("settings", {}).setdefault(place, {})[option] = value
            continue
        if not dot or f"{owner}_options" not in options:
            raise CreditscopeError(
                f"Expected --set net.NAME=VALUE, rule.NAME=VALUE, task.NAME=VALUE or, of where runs are trained, "
                f"{place}.NAME=VALUE, but got {setting!r}."
            )
        options[f"{owner}_options"][option] = value
    return options


def read_seeds(words: Sequence[str]) -> int | list[int]:
    """As `creditscope.run` takes them: a number alone is how many; several, or one with a comma, are the seeds.

    >>> read_seeds(["3"]), read_seeds(["42", "7"]), read_seeds(["42,"])
    (3, [42, 7], [42])
    """
    parts = [part for word in words for part in word.split(",") if part]
    try:
        seeds = [int(part) for part in parts]
    except ValueError:
        raise CreditscopeError(f"Expected --seeds to be whole numbers, but got {' '.join(words)!r}.") from None
    return seeds[0] if list(words) == parts and len(parts) == 1 else seeds
