"""What the benchmarks share: interleaved timing in one process, medians with quartiles, tables, JSON, provenance."""

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from creditscope.tasks import GraphTask, Task
from creditscope.tasks.cifar10 import PIXELS
from creditscope.train.device import now, source_commit

Work = Callable[[], object]


def arguments(description: str | None, rounds: int, **own: Any) -> argparse.Namespace:
    """Options of every benchmark, and `own` ones of this one by name and default."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the table there too")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    for name, default in own.items():
        kind: dict[str, Any] = {"action": "store_true"} if default is False else {"type": type(default)}
        parser.add_argument(f"--{name}", default=default, **kind)
    given = parser.parse_args()
    torch.set_num_threads(1)
    return given


def machine(device: str) -> dict[str, Any]:
    """Where the numbers come from."""
    name = torch.cuda.get_device_name() if device.startswith("cuda") else f"{platform.machine()}, one thread"
    return {"device": name, "torch": torch.__version__, "python": platform.python_version(), "commit": source_commit(),
            "date": now()[:10]}  # fmt: skip


@dataclass
class Table:
    """A title and rows of named cells; printed as it stands, saved as JSON."""

    title: str
    device: str
    rows: list[dict[str, Any]] = field(default_factory=list)

    def add(self, **cells: Any) -> None:
        """One more row, printed at once."""
        if not self.rows:
            where = machine(self.device)
            print(f"\n{self.title}\n{where['device']}, torch {where['torch']}, {where['date']}", flush=True)
        if not self.rows or self.rows[-1].keys() != cells.keys():
            print("  " + "  ".join(_cell(name, value, name) for name, value in cells.items()), flush=True)
        self.rows.append(cells)
        print("  " + "  ".join(_cell(name, value, value) for name, value in cells.items()), flush=True)

    def save(self, path: Path | None) -> None:
        """As JSON, with its provenance."""
        if path is not None:
            plain = [{k: vars(v) if isinstance(v, Spread) else v for k, v in row.items()} for row in self.rows]
            content = {"title": self.title, "machine": machine(self.device), "rows": plain}
            write_json(path, content)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _cell(name: str, kind: Any, content: Any) -> str:
    """One cell in the width that its column needs."""
    least = 50 if name == "net" else 24 if isinstance(kind, Spread) else 14 if isinstance(kind, str) else 0
    return str(content).ljust(max(least, len(name), len(str(kind)) if not isinstance(kind, Spread) else 0))


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles."""

    median: float
    q25: float
    q75: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        low, middle, high = statistics.quantiles(values, n=4)
        return cls(middle, low, high)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.q25:.3g}–{self.q75:.3g})"


def interleaved(works: dict[str, Work], rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds of each work in every round, all works taking turns in an order that differs from round to round.

    Process time on a CPU, waited-for time on CUDA.
    """
    for work in works.values():
        for _ in range(2):
            work()
    times: dict[str, list[float]] = {name: [] for name in works}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(works), len(works)):
            times[name].append(timed(works[name], device))
    return times


def timed(work: Work, device: str) -> float:
    """Seconds one call takes."""
    if not device.startswith("cuda"):
        start = time.process_time()
        work()
        return time.process_time() - start
    torch.cuda.synchronize()
    start = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def over(times: dict[str, list[float]], name: str, reference: str) -> Spread:
    """Time of one work over that of the reference, round by round."""
    return Spread.of([a / b for a, b in zip(times[name], times[reference], strict=True)])


def random_rows(inputs: int, rows: int, classes: int = 10) -> Task:
    """Random vectors with random labels, the same for training and testing."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, inputs)).astype(np.float32), rng.integers(classes, size=rows)
    return Task("random", x, y, x, y, classes)


def random_images(rows: int) -> Task:
    """Random bytes in the shape of CIFAR-10."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(rows, 3, 32, 32), dtype=np.uint8), rng.integers(10, size=rows)
    return Task("random", x, y, x[:1024], y[:1024], 10, PIXELS)


def random_graph() -> GraphTask:
    """Random edges and features in the numbers of Cora."""
    import scipy.sparse as sp

    nodes, features, edges, classes = 2708, 1433, 5278, 7
    rng = np.random.default_rng(0)
    ends = rng.integers(nodes, size=(2, edges))
    half = sp.coo_array((np.ones(edges), (ends[0], ends[1])), shape=(nodes, nodes)).tocsr()
    adjacency = ((half + half.T) > 0).astype(np.float64).tolil()
    adjacency.setdiag(0)
    train, test = np.arange(nodes) < 20 * classes, np.arange(nodes) >= nodes - 1000
    x = (rng.random((nodes, features)) < 18 / features).astype(np.float32)
    y = rng.integers(classes, size=nodes)
    return GraphTask("random", x, y, adjacency.tocsr(), train, ~train & ~test, test, classes)
