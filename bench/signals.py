"""Signals at random times while a pool of workers trains: does every call end, and is nothing left computing?

`python bench/signals.py --rounds 500`. The workers are fakes that sleep instead of training, so that a call is short;
what starts, feeds, asks and ends them is the real thing. A call that has not ended after `--patience` seconds hangs.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from common import Table, arguments

from creditscope.train import pool
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

FAKE = """
import json, os, signal, sys, time

stop = []
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
for line in sys.stdin:
    for epoch in range(1, 100_000):
        for digest in os.environ["FAKE_RUNS"].split():
            print(json.dumps({"event": "Epoch", "run": digest, "done": epoch, "loss": 0.5}), flush=True)
        time.sleep(0.001)
        if stop:
            time.sleep(0.1)  # the end of the epoch, for a second signal to come in
            break
    print(json.dumps({"event": "Done"}), flush=True)
    if stop:
        break
"""
"""A worker that says what a worker says, of epochs that take no time, until it is asked to stop."""
SOON = 0.15  # seconds within which the signals come: workers start, train, are asked and end in that time
ENDS = {130: "Ctrl-C", 143: "terminated", 7: "error"}


def train(root: Path) -> None:
    """Two runs in two fake workers, which only a signal ends; the exit code says how.

    What waits does so in very short turns: where one ends and the next begins is where a signal could do harm.
    """
    specs = [plan_run(task="digits", seed=seed, epochs=100_000, tier="quick") for seed in (1, 2)]
    os.environ["FAKE_RUNS"] = " ".join(spec.digest() for spec in specs)
    pool.WORKER, pool.LOOK = ("-c", FAKE), 1e-4
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 7
    try:
        run_all(specs, root, jobs=2, device="cpu")
    except KeyboardInterrupt:
        code = 130
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        os._exit(code)


def interrupt(root: Path, draw: random.Random, kinds: list[signal.Signals], patience: float) -> tuple[str, int]:
    """How a call ended to which these signals came, and how many of its workers were left."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        train(root)
    deadline = time.monotonic() + patience
    while not (workers := children_of(child)) and time.monotonic() < deadline:
        time.sleep(0.001)  # from when there is something to be left behind
    for wait, kind in sorted((draw.random() * SOON, kind) for kind in kinds):
        time.sleep(wait)
        os.kill(child, kind)
        workers |= children_of(child)
    while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline:
        time.sleep(0.005)
        workers |= children_of(child)
    if not done[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    left = [worker for worker in workers if is_computing(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(done[1])
    return ENDS.get(code, str(code)) if done[0] else "hangs", len(left)


def children_of(process: int) -> set[int]:
    try:
        threads = list(Path(f"/proc/{process}/task").iterdir())
        return {int(child) for thread in threads for child in (thread / "children").read_text().split()}
    except OSError:
        return set()


def is_computing(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main() -> None:
    given = arguments(__doc__, rounds=100, patience=20.0, seed=0)
    table, draw = Table("Signals at random times to a call with two workers", "cpu"), random.Random(given.seed)
    ctrl_c, term = signal.SIGINT, signal.SIGTERM
    wrong = 0
    for kinds in ([ctrl_c], [ctrl_c] * 2, [ctrl_c] * 5, [term], [ctrl_c, term, term]):
        ends, left = Counter[str](), 0
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory() as root:
                how, remaining = interrupt(Path(root), draw, kinds, given.patience)
            ends[how] += 1
            left += remaining
        wrong += left + sum(n for how, n in ends.items() if how not in ("Ctrl-C", "terminated"))
        table.add(signals=" ".join(kind.name for kind in kinds), calls=given.rounds, **ends, workers_left=left)
    table.save(given.json)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
