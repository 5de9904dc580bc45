"""Which versions of Python and torch it runs with: install each pair in an environment of its own, run tests there.

Pairs are those of the floor (pyproject.toml), the pin (constraints.txt) and the newest torch there is. Everything else
is as in constraints.txt. A torch for CUDA takes gigabytes, which are deleted afterwards; with `uv` it is a minute a
pair, with pip several.

Example: python bench/versions.py --python 3.13 --torch 2.6.0 newest
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
TESTS = (
    "test_scope*.py",
    "test_attach.py",
    "test_taps.py",
    "test_stack.py",
    "test_stacked_taps.py",
    "rules",
    "measure",
)
"""What touches torch most, without what is slow: about 1,300 tests."""
NEEDED = ("pytest", "hypothesis", "jsonschema", "transformers")
NEWEST = "newest"


def known_torches() -> list[str]:
    """The lowest that is allowed, that of the other tests, and the newest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (floor,) = (line.partition(">=")[2] for line in project["dependencies"] if line.startswith("torch>="))
    (pin,) = re.findall(r"^torch==(.*)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return [f"{floor}.0" if floor.count(".") == 1 else floor, pin, NEWEST]


def find_python(version: str) -> str | None:
    """An interpreter of that version: on the path, or one of pyenv's."""
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    others = [str(path) for path in sorted(kept.glob(f"{version}.*/bin/python"))]
    for command in [*others, f"python{version}"]:
        asked = [command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        if shutil.which(command) and subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
            return command
    return None


def try_pair(python: str, torch: str, folder: Path) -> tuple[str, str]:
    """The torch that was installed, and what became of the tests, in words."""
    subprocess.run([python, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    others = folder / "constraints.txt"
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    others.write_text("\n".join(line for line in pinned if not line.startswith("torch==")), encoding="utf-8")
    pip = ["uv", "pip", "install", "-q", "--python", own] if shutil.which("uv") else [own, "-m", "pip", "install", "-q"]
    wanted = "torch" if torch == NEWEST else f"torch=={torch}"
    done = subprocess.run([*pip, "-c", others, wanted, ROOT, *NEEDED], capture_output=True, text=True)
    if done.returncode:
        return torch, f"does not install: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
    asked = subprocess.run([own, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True)
    if asked.returncode:
        return torch, f"does not import: {asked.stderr.strip().splitlines()[-1]}"
    paths = [path for pattern in TESTS for path in sorted((ROOT / "tests").glob(pattern))]
    words = [own, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not engine", *paths]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    print(*failed, sep="\n", file=sys.stderr)
    last = (run.stdout.strip().splitlines() or ["no tests ran"])[-1].strip("= ")
    return asked.stdout.strip(), re.sub(r" in [\d.]+s.*| \d+ deselected,?|,(?= in)", "", last).strip(", ")


def try_all(pythons: Sequence[str], torches: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Python, torch and outcome of each pair, one environment at a time."""
    for version in pythons:
        python = find_python(version)
        for torch in torches:
            if python is None:
                yield version, torch, "no such Python here"
                continue
            with tempfile.TemporaryDirectory() as folder:
                yield version, *try_pair(python, torch, Path(folder) / "env")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=PYTHONS)
    parser.add_argument("--torch", nargs="+", default=known_torches())
    asked = parser.parse_args()
    print("| Python | torch | tests |\n| --- | --- | --- |")
    for row in try_all(asked.python, asked.torch):
        print("| " + " | ".join(row) + " |", flush=True)
