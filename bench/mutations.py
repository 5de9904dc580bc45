"""Whether the tests notice faults: each mutation of mutations.toml is applied, alone, to a copy of the tree, and the
tests named beside it are run there.

*Noticed* means that one of them fails; a mutation that *survived* lacks a test. Before the first, all these tests must
pass without one. Refused is a text that is not found exactly once: the code has changed, and so must the list.

`python bench/mutations.py` runs all of them, `--only WORD …` those whose file or words contain one of the words.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/creditscope")
NOT_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "out")
FAILED = 1
"""How pytest ends if a test failed; other codes say that none was run."""


class Mutation(NamedTuple):
    """One fault: a text of a file and what stands there instead; and the tests that should fail."""

    fault: str
    file: str
    """In the package."""
    old: str
    new: str
    tests: Sequence[str]
    """Below tests/, as pytest names them."""


LIST = Path(__file__).with_suffix(".toml")
MUTATIONS = tuple(Mutation(**entry) for entry in tomllib.loads(LIST.read_text(encoding="utf-8"))["mutation"])


def main() -> None:
    """Print a row for each mutation; the exit code says whether one survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="those whose file or words contain one of these")
    words = parser.parse_args().only
    chosen = [m for m in MUTATIONS if any(word in f"{m.file} {m.fault}" for word in words)]
    for mutation in chosen:
        mutated(mutation, ROOT)
    with copied() as tree:
        code, said = run_tests(tree, dict.fromkeys(test for m in chosen for test in m.tests))
        if code:
            sys.exit(f"{said}\nExpected these tests to pass without a mutation, but pytest ended with {code}.")
        noticed = [is_noticed(mutation, tree) for mutation in chosen]
    print(f"{sum(noticed)} of {len(noticed)} noticed")
    sys.exit(not all(noticed))


@contextmanager
def copied() -> Iterator[Path]:
    """The tree in a folder of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copytree(ROOT, Path(folder) / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))


def mutated(mutation: Mutation, tree: Path) -> str:
    """The file with the fault in it."""
    text = (tree / PACKAGE / mutation.file).read_text(encoding="utf-8")
    if (found := text.count(mutation.old)) != 1 or mutation.old == mutation.new:
        raise ValueError(
            f"Expected {mutation.old!r} once in {mutation.file}, to be changed, but got it {found} times. "
            "Mend the list, bench/mutations.toml."
        )
    return text.replace(mutation.old, mutation.new)


def is_noticed(mutation: Mutation, tree: Path) -> bool:
    """Whether one of its tests fails; prints its row, with the first that does."""
    file = tree / PACKAGE / mutation.file
    before = file.read_bytes()
    file.write_text(mutated(mutation, tree), encoding="utf-8")
    try:
        code, said = run_tests(tree, mutation.tests)
    finally:
        file.write_bytes(before)
    failures = [line.removeprefix("FAILED tests/") for line in said.splitlines() if line.startswith("FAILED ")]
    by = failures[0] if failures else " ".join(mutation.tests)
    word = {FAILED: "noticed", 0: "SURVIVED"}.get(code, f"pytest ended with {code}")
    print(f"{word:9} {mutation.file:28} {mutation.fault:52} {by}", flush=True)
    return code == FAILED


def run_tests(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """How pytest ends in that tree, whose package comes before any that is installed, and what it prints."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "250"}
    wanted = [f"tests/{test}" for test in tests]
    done = subprocess.run([*command, *wanted], cwd=tree, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    main()
