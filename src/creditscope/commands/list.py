"""`creditscope list`."""

from dataclasses import dataclass
from typing import Literal

import tyro

from creditscope.commands import register_command
from creditscope.commands._options import hang, print_json, say
from creditscope.errors import CreditscopeError
from creditscope.registry import CHECKS, EXPORTS, FIGURES, NETS, RULES, STUDIES, TASKS, Registry


@register_command("list")
@dataclass(frozen=True)
class List:
    """List what there is to choose from and what each is; needs no torch.

    Example: creditscope list rules
    """

    kind: tyro.conf.Positional[
        Literal["all", "rules", "nets", "tasks", "checks", "figures", "studies", "exports", "thresholds"]
    ] = "all"
    """What to list."""
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        found = {kind: rows for kind, rows in list_everything().items() if self.kind in ("all", kind)}
        if self.json:
            print_json(found)
            return
        for kind, rows in found.items():
            width = max(map(len, rows), default=0)
            lines = [line for name, about in rows.items() for line in hang(f"  {name:<{width}}  ", about)]
            say([kind, *(lines or ["  none"])])


def _summary(registry: Registry, name: str) -> str:
    """One line; of an entry of somebody else's that cannot be imported, why."""
    try:
        return registry.summary(name)
    except CreditscopeError as error:
        return str(error)


def list_everything() -> dict[str, dict[str, str]]:
    """Kind → name → one line: first lines of docstrings, read without importing the files."""
    from creditscope.auditing.thresholds import table

    registries = {
        "rules": RULES,
        "nets": NETS,
        "tasks": TASKS,
        "checks": CHECKS,
        "figures": FIGURES,
        "studies": STUDIES,
        "exports": EXPORTS,
    }
    found = {kind: {name: _summary(r, name) for name in r.names()} for kind, r in registries.items()}
    found["thresholds"] = {
        row["name"]: f"{row['value']:g} ({', '.join(row['checks'])}): {row['meaning']}"
        + (f"; published: {row['published']}" if row["published"] else "")
        for row in table()
    }
    return found
