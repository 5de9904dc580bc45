"""`creditscope doctor`."""

import json
from dataclasses import dataclass

from creditscope.commands import register_command
from creditscope.commands._printing import say


@register_command("doctor")
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
