"""`creditscope list`."""

import json
from dataclasses import dataclass
from typing import Literal

import tyro

from creditscope.commands import register_command
from creditscope.commands._printing import say


@register_command("list")
@dataclass(frozen=True)
class List:
    """List what there is to choose from, in a line each; needs no torch.

    Example: creditscope list rules
    """

    kind: tyro.conf.Positional[
        Literal["all", "rules", "nets", "tasks", "checks", "figures", "studies", "exports", "thresholds"]
    ] = "all"
    """What to list."""
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
