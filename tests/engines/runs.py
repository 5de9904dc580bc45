"""What tests of engines share: twelve tiny runs, the same trained here, and whether two folders hold the same bytes."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from creditscope.record import RunSpec, run_folder
from creditscope.train.events import Ended, Event
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

COMPARED = ("spec.json", "snapshots.jsonl", "weights.safetensors")
SIZES = {"net_options": {"depth": 1, "width": 8}, "tier": "quick", "batch": 700, "eval_rows": 32, "snapshot_every": 0}


def twelve_runs(epochs: int = 400) -> list[RunSpec]:
    """Three rules, four seeds; a second or so each."""
    rules = ("bp", "fa", "dfa")
    return [
        plan_run(task="digits", rule=rule, seed=seed, epochs=epochs, **SIZES) for rule in rules for seed in range(4)
    ]


def train(specs: list[RunSpec], root: Path, **how) -> list:
    return run_all(specs, root, engine="loop", device="cpu", **how)


def differing(specs: list[RunSpec], one: Path, other: Path) -> list[str]:
    """Files of these runs that are not the same, byte by byte, in both folders."""
    files = [(run_folder(Path(), spec) / name) for spec in specs for name in COMPARED]
    return [str(file) for file in files if (one / file).read_bytes() != (other / file).read_bytes()]


class OnceEnded:
    """A reader of events that does something, in a thread, when so many runs have ended."""

    def __init__(self, count: int, do: Callable[[], object]):
        self.left, self.do, self.ended = count, do, 0
        self.thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        self.ended += isinstance(event, Ended)
        if self.ended >= self.left and self.thread is None:
            self.thread = threading.Thread(target=self.do)
            self.thread.start()


def main() -> None:
    """`runs.py ROOT PLACE EPOCHS`: a driver to be killed."""
    root, place, epochs = sys.argv[1:]
    print(os.getpid(), flush=True)
    begun = time.monotonic()
    train(twelve_runs(int(epochs)), Path(root), on=place, slots=3)
    print(f"{time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
