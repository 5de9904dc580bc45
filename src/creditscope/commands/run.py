"""`creditscope run`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.commands._options import DataRoot, Device, Engine, Jobs, TimeLimit
from creditscope.commands._printing import say, show_audit
from creditscope.errors import CreditscopeError
from creditscope.record.spec import Recipe
from creditscope.settings import parse_settings


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
        accuracies = {r.name: r.last.accuracy for r in runs.records}
        if self.json:
            print(json.dumps(accuracies, indent=1))
        else:
            say([f"{name}: accuracy {accuracy:.3f}" for name, accuracy in accuracies.items() if accuracy is not None])
            say([f"note: {problem}" for problem in runs.problems])
