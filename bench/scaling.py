"""Time and memory of a stacked BP step against width, depth and seeds; ResMLP on CIFAR-10's shape.

Each sweep runs in its own process, from small to large, so that the peak of memory is that of the present size.
"""

import json
import resource
import subprocess
import sys
from dataclasses import replace
from functools import partial

import torch
from cases import RESMLP
from common import Spread, Table, arguments, timed

CUDA = {"width": (64, 128, 256, 512, 1024), "depth": (2, 4, 8, 16, 32), "seeds": (1, 3, 10, 20, 64, 128)}
CPU = {"width": (64, 128, 256), "depth": (2, 4, 8), "seeds": (1, 3, 6)}
BASE = {"width": 256, "depth": 4, "seeds": 20}
CPU_BASE = {"width": 128, "depth": 4, "seeds": 3}


def main() -> None:
    given = arguments(__doc__, rounds=5)
    on_cuda = given.device.startswith("cuda")
    table = Table(f"ResMLP on CIFAR-10's shape, batch 128, stacked BP step, {given.rounds} rounds", given.device)
    for axis in CUDA:
        command = [sys.executable, __file__, axis, given.device, str(given.rounds)]
        for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
            row = json.loads(line)
            row["step_ms"] = Spread(**row["step_ms"])
            table.add(**row)
    table.save(given.json)
    if not on_cuda:
        print("  (memory is the whole process's, with torch itself)")


def sweep(axis: str, device: str, rounds: int) -> None:
    """One axis; a JSON line per size."""
    torch.set_num_threads(1)
    on_cuda = device.startswith("cuda")
    for size in (CUDA if on_cuda else CPU)[axis]:
        sizes = {**(BASE if on_cuda else CPU_BASE), axis: size}
        options = {"width": sizes["width"], "depth": sizes["depth"]}
        case = replace(RESMLP, options=options, steps=50 if on_cuda else 5)
        if on_cuda:
            torch.cuda.reset_peak_memory_stats()
        run = case.stack(sizes["seeds"], device)
        times = [timed(partial(run.train_epoch, epoch, keep_last=False), device) for epoch in range(rounds + 1)][1:]
        step = Spread.of([1e3 * t / run.data.steps for t in times])
        peak = (
            torch.cuda.max_memory_allocated() if on_cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        )
        print(json.dumps(sizes | {"varied": axis, "step_ms": vars(step), "peak_mib": round(peak / 2**20)}), flush=True)
        del run
        if on_cuda:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sweep(sys.argv[1], sys.argv[2], int(sys.argv[3])) if len(sys.argv) == 4 and sys.argv[1] in CUDA else main()
