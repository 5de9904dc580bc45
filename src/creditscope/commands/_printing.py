"""How commands speak."""

import json
from collections.abc import Sequence
from typing import Any


def say(lines: list[str]) -> None:
    """Plain lines on standard output, at once."""
    for line in lines:
        print(line, flush=True)


def with_problems(message: str, problems: Sequence[str]) -> str:
    """What is lacking, and what could not be read, which may be why."""
    return " ".join([message, *problems])


def show_audit(found: Any, *, as_json: bool) -> None:
    """Print an audit for a person or for a machine."""
    if as_json:
        print(json.dumps(found.to_dict(), indent=1, ensure_ascii=False))
    else:
        found.show()
