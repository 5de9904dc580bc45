"""`creditscope doctor`."""

import os
import platform
import re
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import creditscope
from creditscope.commands import register_command
from creditscope.commands._options import DEFAULT_RECORDS, Records, hang, print_json, say


class Sign(NamedTuple):
    """What was found, and what to do about it if it is not well."""

    value: str
    remedy: str = ""


@register_command("doctor")
@dataclass(frozen=True)
class Doctor:
    """Whether libraries, devices and folders are as they should be (✓), or not (✗), and what to do then.

    Example: creditscope doctor
    """

    dir: Records = None
    json: bool = False
    """Print JSON."""

    def run(self) -> None:
        found = examine_machine(self.dir or DEFAULT_RECORDS)
        if self.json:
            remedies = {name: sign.remedy for name, sign in found.items() if sign.remedy}
            print_json({name: sign.value for name, sign in found.items()} | {"to do": remedies})
            return
        for name, sign in found.items():
            remedy = f". {sign.remedy}" if sign.remedy else ""
            say(hang(f"{'✗' if sign.remedy else '✓'} {name:<17} ", f"{sign.value}{remedy}"))


def examine_machine(records: Path) -> dict[str, Sign]:
    """Versions, devices, threads and folders."""
    from creditscope.tasks._files import data_root

    return {
        "creditscope": Sign(creditscope.__version__),
        "python": Sign(f"{platform.python_version()} ({sys.executable})"),
        "platform": Sign(platform.platform()),
        **dict(map(examine_library, list_libraries())),
        **examine_torch(),
        "locks": examine_locks(records),
        "data folder": examine_data(data_root()),
    }


def examine_torch() -> dict[str, Sign]:
    """Devices and threads, if torch can be imported."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"devices": Sign(f"torch cannot be imported: {error}", "Install it again: pip install torch.")}
    from creditscope.train.device import available_cores, cpu_capability

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "devices": Sign(", ".join(["cpu", *gpus])),
        "cores": Sign(str(available_cores())),
        "torch threads": Sign(f"{torch.get_num_threads()} (workers use 1 each)"),
        "cpu": Sign(cpu_capability()),
    }


def examine_locks(records: Path) -> Sign:
    """Whether records can be written into a folder, and its file system keeps two drivers apart."""
    from creditscope.record.locks import has_locks

    if fault := find_fault(records):
        return Sign(fault, "Choose a folder for records that can be written (run --out DIR).")
    with tempfile.TemporaryFile("w", dir=next_above(records)) as file:
        if has_locks(file):
            return Sign(f"flock ({records})")
    unseen = f"no flock here: two drivers on one folder would not see each other ({records})"
    return Sign(unseen, "Start one at a time, or choose a folder on another file system.")


def examine_data(root: Path) -> Sign:
    """Whether data files that are missing can be put where they are looked for."""
    if fault := find_fault(root):
        remedy = "Choose a folder that can be written (CREDITSCOPE_DATA, --data-root); embedded tasks need none."
        return Sign(f"{fault}: no data can be fetched", remedy)
    return Sign(f"{root} ({'found' if root.is_dir() else 'not there; embedded tasks need none'})")


def find_fault(folder: Path) -> str:
    """Why nothing can be written into a folder that is there or would be made; empty if it can."""
    there = next_above(folder)
    if not there.is_dir():
        return f"{there} is a file"
    try:
        with tempfile.TemporaryFile(dir=there):
            return ""
    except OSError as error:
        return f"{there} cannot be written ({error.strerror})"


def next_above(path: Path) -> Path:
    """It, or the next one above that exists."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if os.path.exists(one))


def list_libraries() -> list[str]:
    """What the installed package says it needs, extras aside; torch alone, if it is not installed."""
    try:
        needed = requires("creditscope") or []
    except PackageNotFoundError:
        needed = ["torch"]
    return [need for need in needed if "extra ==" not in need]


def examine_library(need: str) -> tuple[str, Sign]:
    """Whether what is needed, as in "numpy>=1.26", is installed.

    >>> examine_library("numpy>=999")[1].remedy
    "Run pip install 'numpy>=999'."
    """
    name, least = re.split(r"[^\w.-]", need)[0], re.search(r">=([\d.]+)", need)
    remedy = f"Run pip install {need!r}."
    try:
        found = version(name)
    except PackageNotFoundError:
        return name, Sign("not installed", remedy)
    numbers = zip_longest(*(map(int, re.findall(r"\d+", v)) for v in (found, least[1] if least else "0")), fillvalue=0)
    older = next((have < want for have, want in numbers if have != want), False)
    return name, Sign(f"{found}, older than {least[1]}" if older and least else found, remedy if older else "")
