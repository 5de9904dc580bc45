"""Kills at random moments, of the driver or of a worker: is a run lost, doubled or changed, or a process left?

`python bench/kills.py --rounds 17`: so many kills of each kind. Runs are real and tiny; a driver that was killed is
started again until all runs are on record, and their snapshots and weights are compared with those of a driver left in
peace.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from common import Table, arguments

from creditscope.record import load_records

DRIVE = """
import sys
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run
small = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "batch": 700, "eval_rows": 32, "tier": "quick"}
specs = [plan_run(**small, seed=seed, epochs=400, snapshot_every=100) for seed in range(1, 13)]
run_all(specs, sys.argv[1], slots=2, tries=10_000, device="cpu", engine="loop")
"""
RUNS = 12
COMPARED = ("spec.json", "snapshots.jsonl", "weights.safetensors")
PATIENCE = 15.0  # seconds after which what is left is left
LATEST = {"driver": 9.0, "worker": 2.0}  # seconds until the next kill, at most


def start(root: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", DRIVE, str(root)], stderr=subprocess.DEVNULL)


def children(driver: "subprocess.Popen[bytes]") -> set[psutil.Process]:
    try:
        return set(psutil.Process(driver.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return set()


def is_worker(process: psutil.Process) -> bool:
    try:
        return "popen_loky" in " ".join(process.cmdline())
    except psutil.Error:
        return False


def still_there(processes: set[psutil.Process]) -> set[psutil.Process]:
    """Those that have not gone in time."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        processes = {p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE}
        if not processes:
            break
        time.sleep(0.05)
    return processes


class Row:
    """Kills of one kind, by one signal."""

    def __init__(self, target: str, number: signal.Signals, whole: Path, draw: random.Random):
        self.target, self.number, self.whole, self.draw = target, number, whole, draw
        self.kills = self.drivers = self.sets = self.lost = self.doubled = self.differ = self.left = self.hung = 0
        self.slowest = 0.0

    def kill(self, kills: int) -> None:
        while self.kills < kills:
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder, "records")
                while not self.drive(root, kills):
                    pass
                self.compare(root)

    def drive(self, root: Path, kills: int) -> bool:
        """One driver, to its end or until it is killed; whether it brought all runs to theirs."""
        driver, seen = start(root), set[psutil.Process]()
        self.drivers += 1
        next_at, killed_at = time.monotonic() + self.draw.random() * LATEST[self.target], 0.0
        while driver.poll() is None:
            seen |= children(driver)
            if killed_at and time.monotonic() - killed_at > PATIENCE:
                self.hung += 1
                driver.kill()
                driver.wait()
            workers = [process for process in seen if process.is_running() and is_worker(process)]
            if self.kills < kills and not killed_at and time.monotonic() >= next_at:
                next_at = time.monotonic() + self.draw.random() * LATEST[self.target]
                if self.target == "driver":
                    driver.send_signal(self.number)
                    killed_at = time.monotonic()
                    self.kills += 1
                elif workers:
                    self.draw.choice(sorted(workers, key=lambda p: p.pid)).send_signal(self.number)
                    self.kills += 1
            time.sleep(0.02)
        if killed_at:
            self.slowest = max(self.slowest, time.monotonic() - killed_at)
        left = still_there(seen)
        self.left += len(left)
        for process in left:
            process.kill()
        return driver.returncode == 0

    def compare(self, root: Path) -> None:
        self.sets += 1
        names = sorted(record.name for record in load_records(root))
        self.lost += RUNS - len(set(names))
        self.doubled += len(names) - len(set(names)) + sum(path.name.startswith("damaged") for path in root.iterdir())
        for name in names:
            same = [(root / name / file).read_bytes() == (self.whole / name / file).read_bytes() for file in COMPARED]
            self.differ += not all(same)


def main() -> None:
    given = arguments(__doc__, rounds=17, seed=0)
    table, draw = Table("Kills at random moments, two workers", "cpu"), random.Random(given.seed)
    wrong = 0
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, and their children, ignore it
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "records")
        start(whole).wait()
        for target in ("driver", "worker"):
            for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
                row = Row(target, number, whole, draw)
                row.kill(given.rounds)
                counts = {
                    "lost": row.lost,
                    "doubled": row.doubled,
                    "differ": row.differ,
                    "left": row.left,
                    "hung": row.hung,
                }
                wrong += sum(counts.values())
                compared = {"drivers": row.drivers, "compared": RUNS * row.sets}
                seconds = {"slowest_end_s": round(row.slowest, 2)}
                table.add(target=target, signal=number.name, kills=row.kills, **compared, **counts, **seconds)
    table.save(given.json)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
