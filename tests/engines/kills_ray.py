"""Kill drivers, workers and nodes of Ray at random moments, go on, and count what is lost, doubled or left over.

`python tests/engines/kills_ray.py [--out FILE]`: a few minutes; the table is printed, and written as JSON on wish.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import runs
from ray_nodes import ray_nodes
from runs import differing, train, twelve_runs

EPOCHS = 200
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
DRIVERS, DRIVES, WORKERS, NODES = 6, 3, 4, 2  # kills of drivers by each signal; drives, and kills in each
PATIENCE = 15.0  # seconds after which nothing may be left of a driver


def alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def heed_interrupts() -> None:
    """A process that a shell started in the background ignores Ctrl-C; here it is taken as at a prompt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def kill_driver(number: int, root: Path, moment: float) -> tuple[bool, int]:
    """End a driver with a cluster of its own, so long after its start; whether it ran, and processes that are left."""
    command = [sys.executable, runs.__file__, str(root), "ray", str(EPOCHS)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    driver = subprocess.Popen(command, preexec_fn=heed_interrupts, **quiet)
    seen: dict[int, psutil.Process] = {}
    end = time.monotonic() + moment
    while time.monotonic() < end and driver.poll() is None:
        with suppress(psutil.Error):
            seen |= {child.pid: child for child in psutil.Process(driver.pid).children(recursive=True)}
        time.sleep(0.1)
    ran = driver.poll() is None
    driver.send_signal(number)
    begun = time.monotonic()
    with suppress(subprocess.TimeoutExpired):
        driver.wait(PATIENCE)
    while any(map(alive, seen.values())) and time.monotonic() - begun < PATIENCE:
        time.sleep(0.2)
    return ran, sum(map(alive, seen.values())) + (driver.poll() is None)


def workers_of(cluster: Any) -> list[psutil.Process]:
    """Processes that train, on all nodes."""
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    found = [child for raylet in raylets for child in psutil.Process(raylet).children()]
    return [child for child in found if child.name().startswith("ray::call")]


def kill_while(root: Path, address: str, moments: list[float], kill: Callable[[], bool]) -> int:
    """Train while something is killed now and then; how often it was."""
    done, over = [0], threading.Event()

    def work() -> None:
        for moment in moments:
            if over.wait(moment):
                return
            done[0] += kill()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        train(twelve_runs(EPOCHS), root, on=f"ray:{address}", tries=50)
    finally:
        over.set()
        thread.join()
    return done[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--what", nargs="+", default=["driver", "worker", "node"])
    given = parser.parse_args()
    draw, specs, rows = random.Random(given.seed), twelve_runs(EPOCHS), []

    def judge(what: str, by: str, kills: int, root: Path, left: int) -> None:
        """What is missing, differs or was not expected in the folder."""
        names = sorted(path.parent.name for path in root.glob("*/provenance.json"))
        wrong = sorted(spec.name() for spec in specs) != names
        rows.append({"what": what, "by": by, "kills": kills, "runs": len(names), "wrong": int(wrong), "left": left})
        rows[-1]["differ"] = len(differing(specs, whole, root))
        print(rows[-1], flush=True)

    with tempfile.TemporaryDirectory() as folder:
        whole, count = Path(folder, "whole"), 0
        train(specs, whole, on="here", slots=2)

        def fresh() -> Path:
            nonlocal count
            count += 1
            return Path(folder, str(count))

        for number in SIGNALS if "driver" in given.what else ():
            for _ in range(DRIVERS):
                root = fresh()
                ran, left = kill_driver(number, root, draw.uniform(1, 14))
                train(specs, root, on="here", slots=2)
                judge("driver", number.name, int(ran), root, left)
        for by in [what for what in given.what if what != "driver"]:
            for drive in range(DRIVES):
                with ray_nodes(*[1] * (1 + NODES + 1)) as cluster:

                    def kill_worker(number=SIGNALS[drive % 3], cluster=cluster) -> bool:
                        busy = workers_of(cluster)
                        for child in draw.sample(busy, min(1, len(busy))):
                            child.send_signal(number)
                        return bool(busy)

                    def kill_node(cluster=cluster) -> bool:
                        lost = draw.choice(cluster.list_all_nodes()[1:])  # not the head, which holds the cluster
                        cluster.remove_node(lost, allow_graceful=False)
                        return True

                    root, times = fresh(), WORKERS if by == "worker" else NODES
                    moments = [draw.uniform(0.5, 3) for _ in range(times)]
                    kills = kill_while(root, cluster.address, moments, kill_worker if by == "worker" else kill_node)
                    end = time.monotonic() + PATIENCE
                    while (left := len(workers_of(cluster))) and time.monotonic() < end:
                        time.sleep(0.2)
                judge(by, SIGNALS[drive % 3].name if by == "worker" else "SIGKILL", kills, root, left)
    table: dict[str, dict[str, int]] = {}
    for row in rows:
        sums = table.setdefault(f"{row['what']} {row['by']}", dict.fromkeys(("kills", "wrong", "differ", "left"), 0))
        for name in sums:
            sums[name] += row[name]
    print(f"{'killed':16} {'kills':>5} {'wrong':>5} {'differ':>6} {'left':>4}")
    for name, sums in table.items():
        print(f"{name:16} {sums['kills']:5} {sums['wrong']:5} {sums['differ']:6} {sums['left']:4}")
    print(f"{sum(sums['kills'] for sums in table.values())} kills")
    if given.out:
        given.out.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
