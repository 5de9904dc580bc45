"""Seconds and memory that many small runs take to be loaded, judged, reported and exported, and the size of the page.

Four tiny runs are trained (BP and DFA, each with its frozen twin); copies of them with other seeds, learning rates and
slightly other numbers, sealed as theirs, fill a temporary folder: 20 seeds of each, so 80 runs a setting. Every command
is a process of its own, so that its peak memory is its own. Then all runs are bundled, and all is done again.
`--runs` are the sizes of the folder, `--seeds` those of a method, `--json` writes the table.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import date
from itertools import count, islice
from pathlib import Path
from typing import Any

from creditscope.record import Record, RecordWriter, load_records
from creditscope.record.store import SNAPSHOTS, SPEC

SPREAD = 0.05
"""Copies differ by so much of each number at most."""
TRAIN = (
    "import sys, creditscope as cs; "
    "cs.run(rule='dfa', task='digits', depth=3, width=16, epochs=4, seeds=1, baselines=True, out=sys.argv[1])"
)
MEASURED = """
import contextlib, json, resource, sys, time
from pathlib import Path
from creditscope.cli import main
from creditscope.record import load_records
begun = time.perf_counter()
with contextlib.redirect_stdout(open("/dev/null", "w")):
    main(sys.argv[1:]) if sys.argv[1] != "load" else load_records(sys.argv[2], problems=[])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": round(time.perf_counter() - begun, 1), "peak_mib": round(peak)}))
"""


def originals() -> list[Record]:
    """One run of each kind, trained in a process of its own: torch would count among the memory of all that follow."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", TRAIN, folder], check=True)
        return load_records(Path(folder, "records"))


def varied(value: Any, factor: float) -> Any:
    """Numbers that are no counts, a little smaller."""
    if isinstance(value, float):
        return value * factor
    if isinstance(value, dict):
        return {name: varied(part, factor) for name, part in value.items()}
    return [varied(part, factor) for part in value] if isinstance(value, list | tuple) else value


def copies(kinds: list[Record], seeds: int) -> Iterator[tuple[Record, str]]:
    """Records of ever more settings, and their snapshots as text."""
    rng, plain = random.Random(0), [[asdict(s) for s in record.snapshots] for record in kinds]
    for setting in count():
        for seed in range(1, seeds + 1):
            for record, snapshots in zip(kinds, plain, strict=True):
                assert record.spec is not None
                spec = replace(record.spec, seed=seed, lr=round(1e-3 * (1 + setting / 1000), 6))
                made = varied(snapshots, 1 - SPREAD * rng.random())
                lines = [json.dumps(s, separators=(",", ":")) + "\n" for s in made]
                yield replace(record, spec=spec), "".join(lines)


def fill(root: Path, kinds: list[Record], runs: int, seeds: int) -> None:
    """Write so many finished runs, without waiting for the disk at every line."""
    for record, text in islice(copies(kinds, seeds), runs):
        assert record.spec is not None
        writer = RecordWriter(root, record.spec)
        writer.folder.mkdir(parents=True)
        (writer.folder / SPEC).write_text(json.dumps(asdict(record.spec)) + "\n")
        (writer.folder / SNAPSHOTS).write_text(text)
        writer.write_provenance(record.provenance)


def measure(*words: str | Path) -> dict[str, Any]:
    """Seconds and peak of a command, or of loading all records."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, words)], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def rows(root: Path, runs: int, stored: str) -> Iterator[dict[str, Any]]:
    """One for each thing that is done with the folder."""
    found = list(root.rglob("*"))
    about = {"runs": runs, "stored": stored, "inodes": len(found)}
    about["megabytes"] = round(sum(path.stat().st_size for path in found if path.is_file()) / 1e6, 1)
    page, table = root.parent / "page.html", root.parent / "runs.parquet"
    commands = {
        "load": ["load", root],
        "audit": ["audit", root],
        "report": ["report", root, "--out", page],
        "export": ["export", "parquet", "--records", root, "--out", table],
    }
    for what, words in commands.items():
        row = about | {"what": what} | measure(*words)
        made = {"report": page, "export": table}.get(what)
        yield row | ({"made_megabytes": round(made.stat().st_size / 1e6, 2)} if made else {})
    if stored == "folders":
        yield about | {"what": "bundle"} | measure("bundle", root)


def show(row: dict[str, Any]) -> str:
    """A line of the table in docs/records.md."""
    cells = [f"{row[name]:,}" for name in ("runs", "inodes", "megabytes")]
    cells[0] += " bundled" * (row["stored"] == "bundles")
    return " | ".join(
        [*cells, row["what"], f"{row['seconds']}", f"{row['peak_mib']}", f"{row.get('made_megabytes', '')}"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--seeds", type=int, default=20, help="of each method of a setting")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    kinds, table = originals(), []
    for runs in given.runs:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder, "records")
            fill(root, kinds, runs, given.seeds)
            for stored in ("folders", "bundles"):
                for row in rows(root, runs, stored):
                    print(show(row), flush=True)
                    table.append(row)
    if given.json:
        about = {"machine": platform.machine(), "cores": os.cpu_count(), "python": platform.python_version()}
        content = {"about": about | {"seeds": given.seeds, "date": date.today().isoformat()}, "rows": table}
        given.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
