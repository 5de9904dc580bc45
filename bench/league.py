"""Train the league block after block, in the order that matters, and pack what is finished.

The same command goes on where it was stopped, also from bundles that lie among the records. Blocks of
`league` and of `league_more` are joined by `+` where their runs share the workers:
`python bench/league.py --blocks A+E2+E6 B+D C "L8+L12+phase, no norm" --time-limit 1500 --out bundles`.
Blocks whose data are not there yet are waited for, until the time is over.
"""

import argparse
import json
import time
from pathlib import Path

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.paper.commands.reproduce import worker_seconds
from creditscope.paper.studies import (
    Study,
    choose_scale,
    drop_repeated,
    find_missing,
    find_wanted,
    plan_union,
    train_runs,
)
from creditscope.paper.studies.league import SCALES
from creditscope.paper.studies.league_more import SCALES as MORE
from creditscope.record import load_records, write_bundle
from creditscope.record.bundle import SUFFIX
from creditscope.record.table import method_name
from creditscope.tasks import load_task

LEFT_FOR_NOTHING = 5.0  # seconds under which a phase is not begun
TOOK = "league_took.json"


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the league block after block.")
    parser.add_argument("--records", type=Path, default=Path("out/league"))
    parser.add_argument("--blocks", nargs="+", default=["A+E2+E6", "B+D", "C"])
    parser.add_argument("--scale", default="league", choices=[*SCALES])
    parser.add_argument(
        "--time-limit", type=float, default=1e9, help="seconds, after which runs stop to be gone on with"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--out", type=Path, help="pack the finished runs into this folder")
    parser.add_argument("--only-pack", action="store_true")
    given = parser.parse_args()
    end = time.monotonic() + given.time_limit
    how = {"device": given.device, "slots": given.slots}
    for phase in () if given.only_pack else given.blocks:
        study = plan(given.scale, phase)
        if not wait_for_data(study, end) or not train(study, phase, given.records, end, how):
            break
    if given.out:
        pack(given.records, given.out, given.scale)


def plan(scale: str, phase: str) -> Study:
    """The runs of blocks that are joined."""
    blocks = SCALES[scale] | MORE.get(scale, {})
    return Study("league", drop_repeated(run for name in phase.split("+") for run in choose_scale(blocks, name).plan()))


def wait_for_data(study: Study, end: float) -> bool:
    """Whether every task of the study can be loaded before the time is over."""
    asked = {(wanted["task"], tuple(wanted.get("task_options", {}).items())) for wanted in study.runs}
    while asked:
        task, options = next(iter(asked))
        try:
            load_task(task, **dict(options))
            asked.remove((task, options))
        except (CreditscopeError, OSError) as error:
            if time.monotonic() > end - LEFT_FOR_NOTHING:
                print(f"{task} cannot be loaded: {error}", flush=True)
                return False
            time.sleep(2)
    return True


def train(study: Study, name: str, root: Path, end: float, how: dict) -> bool:
    """Train what is missing; whether there is time left."""
    began, problems = time.monotonic(), []
    records = load_records(root, problems=problems) if root.is_dir() else []
    specs, state = plan_union([study], records), "done"
    limit = end - began
    print(f"{name}: {len(specs)} of {len(study.runs)} runs to train in {limit:.0f} s", flush=True)
    try:
        if limit > LEFT_FOR_NOTHING:
            train_runs(specs, root, problems=problems, time_limit=limit, **how)
        else:
            state = "not begun"
    except UnfinishedError as error:
        state = f"stopped, {error.left} left"
    except CreditscopeError as error:  # some runs failed; the others are on record
        state = str(error)
    print(
        "\n".join([f"note: {p}" for p in problems[:20]] + [f"{name}: {state}, {time.monotonic() - began:.0f} s"]),
        flush=True,
    )
    return not state.startswith(("stopped", "not begun"))


def pack(root: Path, out: Path, scale: str) -> None:
    """A bundle of each study, no run twice, and what each row of each block took."""
    records, rows, packed = load_records(root, problems=[]), {}, set()
    for name, blocks in (("league", SCALES[scale]), ("league_more", MORE.get(scale, {}))):
        study = Study(name, drop_repeated(run for block in blocks.values() for run in block.plan()))
        own = [r for r in find_wanted(study, records) if r.name not in packed]
        packed |= {record.name for record in own}
        if own:
            size = write_bundle(own, out / f"{name}{SUFFIX}")
            print(f"{name}: {len(own)} runs, {size:,} bytes", flush=True)
    for block in SCALES[scale] | MORE.get(scale, {}):
        study = plan(scale, block)
        found = find_wanted(study, records)
        if not found:
            continue
        by_row: dict[str, list] = {}
        for record in found:
            by_row.setdefault(method_name(record), []).append(record)
        taken = {row: {"runs": len(own), "worker_seconds": worker_seconds(own)} for row, own in by_row.items()}
        missing = len(find_missing(study, records))
        rows[block] = {"runs": len(found), "missing": missing, "worker_seconds": worker_seconds(found), "rows": taken}
        print(
            f"{block}: {len(found)} runs, {missing} missing, {rows[block]['worker_seconds']:.0f} worker seconds",
            flush=True,
        )
    out.mkdir(parents=True, exist_ok=True)
    (out / TOOK).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
