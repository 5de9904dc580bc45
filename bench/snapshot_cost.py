"""What a snapshot without g_noise costs, in plain BP training steps at equal rows, interleaved in one process.

Prints the median ratio with its quartiles; the BP step against itself is the noise control.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.measure.snapshot import take_snapshot
from creditscope.tasks import Task
from creditscope.train.data import RowData
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run

ROUNDS = 40
SIZES = ((40, 128, 128), (40, 128, 1000), (3072, 256, 128), (3072, 512, 128))
"""Inputs, width, rows: mnist1d's batch and snapshot, then the sizes of CIFAR-10."""


def main() -> None:
    torch.set_num_threads(1)
    print(f"ResMLP of depth 4, one thread; snapshot over BP step: median (quartiles) of {ROUNDS} rounds")
    for inputs, width, rows in SIZES:
        for rule in ("bp", "fa", "block_fa", "dfa"):
            snapshot, repeat = measure(build("bp", inputs, width, rows), build(rule, inputs, width, rows))
            print(f"{inputs:>4} inputs, d = {width}, {rows:>4} rows, {rule:<9} {snapshot}   step again {repeat}")


def build(rule: str, inputs: int, width: int, rows: int) -> Run:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, inputs)).astype(np.float32), rng.integers(10, size=rows)
    task = Task("random", x, y, x, y, 10)
    return build_run(plan_run(rule=rule, net_options={"depth": 4, "width": width}, batch=rows), task)


def measure(reference: Run, run: Run) -> tuple[str, str]:
    assert isinstance(run.data, RowData)
    x, y = run.data.x_train, run.data.y_train

    def step() -> None:
        reference.optimiser.zero_grad(set_to_none=True)
        reference.application.applied.backward(x, lambda output: row_errors(output, y))
        reference.optimiser.step()

    def snapshot() -> None:
        seen = observe(run.net, run.application.applied, x, y, noise=False)
        take_snapshot(seen, run.facts, epoch=0)

    for _ in range(3):
        step()
        snapshot()
    rounds = [(timed(step), timed(snapshot), timed(step)) for _ in range(ROUNDS)]
    return ratios([b / a for a, b, _ in rounds]), ratios([c / a for a, _, c in rounds])


def timed(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def ratios(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
