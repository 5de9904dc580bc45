"""`creditscope doctor`."""

import platform
import re
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

import creditscope
from creditscope.commands import register_command
from creditscope.commands._options import print_json, say


@register_command("doctor")
@dataclass(frozen=True)
class Doctor:
    """Versions, devices, threads, and where data would be looked for.

    Example: creditscope doctor
    """

    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        found = examine_machine()
        if self.json:
            print_json(found)
        else:
            say([f"{name:<14} {value}" for name, value in found.items()])


def examine_machine() -> dict[str, str]:
    """Versions, devices, threads and folders, as text."""
    import torch

    from creditscope.tasks._files import data_root
    from creditscope.train.device import available_cores

    root, gpus = data_root(), [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "creditscope": creditscope.__version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "platform": platform.platform(),
        **{name: find_version(name) for name in list_libraries()},
        "devices": ", ".join(["cpu", *gpus]),
        "cores": str(available_cores()),
        "torch threads": f"{torch.get_num_threads()} (workers use 1 each)",
        "data folder": f"{root} ({'found' if root.is_dir() else 'not there; embedded tasks need none'})",
    }


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
