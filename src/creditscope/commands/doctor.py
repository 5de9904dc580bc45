"""`creditscope doctor`."""

import platform
import re
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import creditscope
from creditscope.commands import register_command
from creditscope.commands._options import DEFAULT_RECORDS, Records, print_json, say


@register_command("doctor")
@dataclass(frozen=True)
class Doctor:
    """Versions, devices, threads, where data would be looked for, and whether a folder for records has locks.

    Example: creditscope doctor
    """

    dir: Records = None
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        found = examine_machine(self.dir or DEFAULT_RECORDS)
        if self.json:
            print_json(found)
        else:
            say([f"{name:<14} {value}" for name, value in found.items()])


def examine_machine(records: Path) -> dict[str, str]:
    """Versions, devices, threads and folders, as text."""
    import torch

    from creditscope.tasks._files import data_root
    from creditscope.train.device import available_cores, cpu_capability

    root, gpus = data_root(), [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "creditscope": creditscope.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        **{name: find_version(name) for name in list_libraries()},
        "devices": ", ".join(["cpu", *gpus]),
        "cores": str(available_cores()),
        "torch threads": f"{torch.get_num_threads()} (workers use 1 each)",
        "cpu": cpu_capability(),
        "locks": f"{examine_locks(records)} ({records})",
        "data folder": f"{root} ({'found' if root.is_dir() else 'not there; embedded tasks need none'})",
    }


def examine_locks(records: Path) -> str:
    """Whether the file system of a folder, or of the next one above that exists, keeps two drivers apart."""
    from creditscope.record.store import has_locks

    folder = next(path for path in (records.absolute(), *records.absolute().parents) if path.is_dir())
    try:
        with tempfile.TemporaryFile("w", dir=folder) as file:
            return "flock" if has_locks(file) else "no flock here: two drivers on one folder would not see each other"
    except OSError as error:
        return f"not known: {error}"


def list_libraries() -> list[str]:
    """What the installed package says it needs, extras aside; torch alone, if it is not installed."""
    try:
        needed = requires("creditscope") or []
    except PackageNotFoundError:
        needed = ["torch"]
    return [re.split(r"[^\w.-]", need)[0] for need in needed if "extra ==" not in need]


def find_version(name: str) -> str:
    """The version of an installed library."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
