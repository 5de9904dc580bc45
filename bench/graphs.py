"""Time and memory of a GCN's training step and of its snapshots against the nodes and edges of a graph.

Stochastic block models (task `sbm`): first with ten edge ends a node and ever more nodes, then with ever more edges on
the same nodes, so that the bytes of a node and of an edge can be told apart (a least-squares fit, last lines, with the
largest error of the rule of thumb in docs/large-graphs.md beside that of the fit). Each
size runs in a process of its own; its works take turns there. The step is that of the engine the size would be trained
with (the loop on a CPU, a captured stack of one seed on CUDA); a snapshot is that of a run between its first and its
last epoch; "standard" recomputes the gradients in float64. "build" is all that comes before the first step: drawing the
graph, Â, the net, its anatomy. What would need more memory than is free is left out (-).
`--largest` is the number of edges to go to.
"""

import ctypes
import gc
import json
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import Spread, Table, Work, arguments, interleaved, over
from scipy.optimize import nnls

from creditscope.tasks import GraphTask, load_task
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.stacked import stack_runs

DEPTH, WIDTH, FEATURES, CLASSES, DEGREE = 4, 64, 32, 4, 10
EDGES = (10_000, 100_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
DEGREES = (10, 20, 40)
TELL_APART = 1_000_000
"""Edges, at the most, of the graphs with a higher degree."""
LARGEST = {"cpu": 1_000_000, "cuda": 10_000_000}
SPARE = 1.5
"""How much more memory than a size is expected to need has to be free."""
WORKS = ("build", "step", "quick", "standard")
NOTHING = "-"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Of `malloc.h`."""
Row = dict[str, Any]


def main() -> None:
    given = arguments(__doc__, rounds=5, largest=0.0)
    kind = "cuda" if given.device.startswith("cuda") else "cpu"
    largest = int(given.largest) or LARGEST[kind]
    table = Table(
        f"GCN of depth {DEPTH} and width {WIDTH}, {FEATURES} features, on block models, {given.rounds} rounds",
        given.device,
    )
    for nodes, edges in sizes(largest):
        works = [work for work in WORKS if fits(table.rows, work, nodes, edges, given.device)]
        if works[:2] != ["build", "step"]:
            print(f"  {edges} edges on {nodes} nodes: left out for want of memory")
            continue
        command = [sys.executable, __file__, "measure", str(nodes), str(edges), given.device, str(given.rounds), *works]
        row = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        table.add(**{name: Spread(**cell) if isinstance(cell, dict) else cell for name, cell in row.items()})
    add_fits(table)
    table.save(given.json)
    if kind == "cpu":
        print("  (memory is the largest resident size of the process less process_mib, its size after a tiny graph)")


def add_fits(table: Table) -> None:
    """A line for each work: what a node and an edge take."""
    measured = table.rows.copy()
    for work in WORKS:
        rows = larger_rows(measured, work)
        fixed, per_node, per_edge = found = fit_bytes(rows, work)
        thumb = [rule_of_thumb(work, row["nodes"], row["edges"]) for row in rows]
        fitted = [float(found @ [1, row["nodes"], row["edges"]]) for row in rows]
        table.add(
            fit=work, fixed_mib=round(fixed / 2**20), node_bytes=round(per_node), edge_bytes=round(per_edge),
            fit_error=largest_error(fitted, rows, work), thumb_error=largest_error(thumb, rows, work),
        )  # fmt: skip


def sizes(largest: int) -> list[tuple[int, int]]:
    """Nodes and edges: more of both at a fixed degree, then a higher degree on a quarter of the nodes."""
    grown = [(2 * edges // DEGREE, edges) for edges in EDGES if edges <= largest]
    nodes = 2 * min(largest, TELL_APART) // max(DEGREES)
    return grown + [(nodes, nodes * degree // 2) for degree in DEGREES]


def fits(rows: Sequence[Row], work: str, nodes: int, edges: int, device: str) -> bool:
    """Whether a work on that size has room, if memory grows no faster than nodes or edges do."""
    if not rows:
        return True
    known = [row for row in rows if row[f"{work}_mib"] != NOTHING]
    bounds = [row[f"{work}_mib"] * max(nodes / row["nodes"], edges / row["edges"], 1) for row in known]
    return SPARE * min(bounds) * 2**20 < free_bytes(device)


def larger_rows(rows: Sequence[Row], work: str) -> list[Row]:
    """Sizes that were measured and are not so small that a few pages matter."""
    known = [row for row in rows if row[f"{work}_mib"] != NOTHING]
    least = 0.2 * min(TELL_APART, max(row["edges"] for row in known))
    return [row for row in known if row["edges"] >= least]


def fit_bytes(rows: Sequence[Row], work: str) -> np.ndarray:
    """Fixed bytes, bytes a node and bytes an edge: the least sum of squared relative errors, no term below zero."""
    peaks = np.array([row[f"{work}_mib"] * 2**20 for row in rows])
    terms = np.array([[1, row["nodes"], row["edges"]] for row in rows], dtype=float)
    scale = terms.max(axis=0)  # nnls decides what is zero by an absolute tolerance
    return nnls(terms / scale / peaks[:, None] * peaks.max(), np.full(len(rows), peaks.max()))[0] / scale


def rule_of_thumb(work: str, nodes: int, edges: int) -> float:
    """Bytes by counting: features and so many states of float32 a node, Â as CSR and SciPy's copy an edge."""
    states = {"build": 2 * DEPTH + 2, "step": DEPTH + 2, "quick": 3 * DEPTH + 2, "standard": 8 * DEPTH}
    return 4 * nodes * (FEATURES + states[work] * WIDTH) + edges * (80 if work == "standard" else 48)


def largest_error(expected: Sequence[float], rows: Sequence[Row], work: str) -> str:
    """Of expected bytes over measured ones, in per cent with its sign."""
    errors = [e / (row[f"{work}_mib"] * 2**20) - 1 for e, row in zip(expected, rows, strict=True)]
    return f"{100 * max(errors, key=abs):+.1f} %"


def measure(nodes: int, edges: int, device: str, rounds: int, wanted: Sequence[str]) -> None:
    """One size; a line of JSON."""
    run, works, peaks = prepare(nodes, edges, device, wanted)
    keep_freed_memory(True)
    times = interleaved({**works, "again": works["step"]}, rounds, device)
    row: Row = {"nodes": nodes, "edges": run.task.adjacency.nnz // 2, "engine": run.engine}  # pyright: ignore
    row["step_ms"] = vars(Spread.of([1e3 * t for t in times["step"]]))
    for name in ("quick", "standard"):
        row[f"{name}_over_step"] = vars(over(times, name, "step")) if name in works else NOTHING
    row["control"] = vars(over(times, "again", "step"))
    for name in ("process", *WORKS):
        row[f"{name}_mib"] = round(peaks[name] / 2**20, 1) if name in peaks else NOTHING
    print(json.dumps(row))


def prepare(nodes: int, edges: int, device: str, wanted: Sequence[str]) -> tuple[Run, dict[str, Work], dict[str, int]]:
    """A run on a graph of that size, the works to be timed, and the most bytes each takes."""
    torch.set_num_threads(1)
    keep_freed_memory(False)
    tiny = build(block_model(200, 1000), device)  # loads what is loaded at first use
    tiny.train_epoch(0, keep_last=False)
    snapshot_run(tiny, epoch=1)
    del tiny
    memory = Memory(device)
    built: list[Run] = []
    peaks = {"build": memory.peak(lambda: built.append(build(block_model(nodes, edges), device)))}
    (run,) = built
    epoch = iter(range(1, run.spec.epochs))

    def step() -> None:
        run.train_epoch(next(epoch), keep_last=False)

    def snapshot(tier: Any) -> Work:
        def work() -> None:
            run.specs = tuple(replace(spec, tier=tier) for spec in run.specs)
            snapshot_run(run, epoch=1)

        return work

    works = {"step": step, "quick": snapshot("quick"), "standard": snapshot("standard")}
    works = {name: work for name, work in works.items() if name in wanted}
    peaks |= {name: memory.peak(work, times=2) for name, work in works.items()}
    return run, works, peaks | {"process": memory.before}


def block_model(nodes: int, edges: int) -> GraphTask:
    """Drawn edge by edge, so that time and memory grow with the edges alone."""
    task = load_task("sbm", nodes=nodes, degree=2 * edges / nodes, features=FEATURES, classes=CLASSES)
    assert isinstance(task, GraphTask)
    return task


def build(task: GraphTask, device: str) -> Run:
    spec = plan_run(
        task="sbm", net="gcn", net_options={"depth": DEPTH, "width": WIDTH}, rule="bp", optimiser="adam", epochs=10_000
    )
    run = build_run(spec, task, torch.device(device))
    return stack_runs([run]) if device.startswith("cuda") else run


class Memory:
    """Peaks of memory: what CUDA's allocator gave out, or the resident size of this process."""

    def __init__(self, device: str):
        self.on_cuda = device.startswith("cuda")
        _reset_peak(self.on_cuda)
        self.before = torch.cuda.memory_allocated() if self.on_cuda else _resident("VmRSS")

    def peak(self, work: Callable[[], object], times: int = 1) -> int:
        """The most bytes in use while the work is done so many times, with all that was there before."""
        _reset_peak(self.on_cuda)
        for _ in range(times):
            work()
        return (torch.cuda.max_memory_allocated() if self.on_cuda else _resident("VmHWM")) - self.before


def _resident(field: str) -> int:
    """Bytes of this process that are (VmRSS) or at the most were (VmHWM) in memory."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    found = re.search(rf"{field}:\s+(\d+) kB", status.read_text())
    assert found is not None
    return 1024 * int(found[1])


def _reset_peak(on_cuda: bool) -> None:
    """Give freed memory back and let the peak start again; on other systems than Linux a resident peak only grows."""
    gc.collect()
    if on_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    elif sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def keep_freed_memory(keep: bool) -> None:
    """Keep what is freed, as worker processes do (places/here.py), or return it at once, so that peaks are of use."""
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**30 if keep else 2**17)
        ctypes.CDLL(None).mallopt(M_TRIM_THRESHOLD, 2**30 if keep else 2**17)


def free_bytes(device: str) -> float:
    """Memory that a process could still take."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info()[0]
    meminfo = Path("/proc/meminfo")
    found = re.search(r"MemAvailable:\s+(\d+) kB", meminfo.read_text()) if meminfo.exists() else None
    return 1024 * int(found[1]) if found else float("inf")


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]), sys.argv[6:])
    else:
        main()
