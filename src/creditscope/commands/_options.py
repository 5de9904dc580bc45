"""What several commands share: options, how typed words are read, and how a command speaks."""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from creditscope.errors import CreditscopeError
from creditscope.text import cells, visible, wrap

if TYPE_CHECKING:
    from creditscope.auditing import Thresholds

DEFAULT_RECORDS = Path("out/records")
FEWEST, INDENT = 20, 4
"""Letters that a text needs beside a name; and where it begins under one."""


def option(metavar: str, default: object, help: str | None = None) -> Any:
    """How help names a value, and what it says of its default."""
    return tyro.conf.arg(metavar=metavar, help=help, help_behavior_hint=f"(default: {default})")


Folder = Annotated[Path, tyro.conf.arg(metavar="DIR")]
File = Annotated[Path, tyro.conf.arg(metavar="FILE")]
Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
Records = Annotated[
    tyro.conf.Positional[Path | None], option("[DIR]", DEFAULT_RECORDS, "Folder of records, or a bundle of them.")
]
RecordsByName = Annotated[
    Path | None, tyro.conf.arg(name="records"), option("DIR", DEFAULT_RECORDS, "The same as DIR, by name.")
]
Unsealed = Annotated[bool, tyro.conf.arg(help="Read records, too, that were altered since they were written.")]
Verbose = Annotated[
    bool, tyro.conf.arg(aliases=["-v"], help="Print all that was found, the numbers behind it, and tips, too.")
]
Limits = Annotated[
    tuple[str, ...], option("[NAME=VALUE ...]", "as listed", "Other thresholds (creditscope list thresholds).")
]
DataRoot = Annotated[
    Path | None,
    option("DIR", "CREDITSCOPE_DATA, or the user's cache", "Folder of data files (creditscope doctor: which)."),
]


def choose_records(records: Path | None, by_name: Path | None) -> Path:
    """The folder that was given, in its place or by --records, or the usual one."""
    if records and by_name:
        raise CreditscopeError(f"Expected one folder of records, but got {records} and {by_name}. Leave one out.")
    return records or by_name or DEFAULT_RECORDS


def read_limits(settings: tuple[str, ...]) -> "Thresholds":
    """The thresholds, with those changed that are given as NAME=VALUE; a whole number stays whole."""
    from creditscope.auditing import Thresholds

    found: dict[str, float] = {}
    for name, value in map(split_pair, settings):
        try:
            number = float(value)
            found[name] = int(number) if number == int(number) else number
        except (ValueError, OverflowError):
            raise CreditscopeError(f"Expected a number for threshold {name!r}, but got {value!r}.") from None
    return Thresholds().changed(**found)


def split_pair(setting: str) -> tuple[str, str]:
    """NAME=VALUE in two."""
    name, equals, value = setting.partition("=")
    if not equals:
        raise CreditscopeError(f"Expected --set NAME=VALUE, but got {setting!r}.")
    return name, value


def say(lines: Iterable[str], *, on_error: bool = False) -> None:
    """Plain lines on standard output, or standard error, at once."""
    for line in lines:
        print(visible(line), file=sys.stderr if on_error else sys.stdout, flush=True)


def hang(first: str, text: str) -> list[str]:
    """Text beside what it belongs to, in as many lines as the terminal, or COLUMNS, asks for; in one for a pipe."""
    width = shutil.get_terminal_size((0, 24)).columns
    if not width:
        return [f"{first}{text}"]
    beside = width - cells(first) >= FEWEST
    under = " " * (cells(first) if beside else INDENT)
    lines = [f"{under}{line}" for line in wrap(text, max(width - len(under), FEWEST))]
    return [f"{first}{lines[0].strip()}", *lines[1:]] if beside else [first.rstrip(), *lines]


def print_json(data: Any) -> None:
    """Data for a machine on standard output; in ASCII where that cannot hold all characters."""
    whole = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    print(json.dumps(data, indent=1, ensure_ascii=not whole))


def with_problems(message: str, problems: Sequence[str]) -> str:
    """What is lacking, and what could not be read, which may be why."""
    return " ".join([message, *problems])


@dataclass(frozen=True, kw_only=True)
class HowToTrain:
    """Where runs are trained, and how many at a time."""

    device: Name = "auto"
    """Where to train: cpu, cuda, or auto (CUDA where there is one)."""
    engine: Literal["auto", "loop", "stacked"] = "auto"
    """Seeds one by one (loop), many at once (stacked), or by what is faster (auto)."""
    on: Annotated[str, option("PLACE", "here")] = "here"
    """Where workers are: here, or a cluster's engine: slurm, ray, ray:ADDRESS."""
    slots: Annotated[int | None, option("N", "one per core, on CUDA at most 16")] = None
    """Workers at a time."""
    tries: Annotated[int, option("N", "3")] = 3
    """How many workers a run may cost that kills them."""
    time_limit: Annotated[float | None, option("SECONDS", "none")] = None
    """Stop cleanly after this long; the same command goes on from there."""
    quiet: bool = False
    """Show no progress."""

    def options(self) -> dict[str, Any]:
        return dict(vars(self))
