"""What a training step of each rule costs against a plain PyTorch BP step, interleaved in one process, one thread.

MLP 3072-512×4-10, batch 128, AdamW for all. The plain step written twice is the noise control; BioTorch's layers
are measured beside ours where that package is installed. Prints a table; `--json FILE` writes it too.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

import creditscope as cs
from creditscope.losses import row_errors
from creditscope.tasks import Task
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

INPUTS, WIDTH, DEPTH, CLASSES, ROWS, ROUNDS = 3072, 512, 4, 10, 128, 40


@cs.register_net("bench_mlp")
class PlainMLP(nn.Module):
    """Linear and ReLU, four times, then the head; a tap after every ReLU."""

    stem_tap = None
    block_taps = "layers.*"

    def __init__(self, input_shape: tuple[int, ...], classes: int):
        super().__init__()
        sizes = [INPUTS, *[WIDTH] * DEPTH]
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes))
        self.head = nn.Linear(WIDTH, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def data() -> tuple[torch.Tensor, torch.Tensor, Task]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(ROWS, INPUTS)).astype(np.float32), rng.integers(CLASSES, size=ROWS)
    return torch.from_numpy(x), torch.from_numpy(y), Task("random", x, y, x, y, CLASSES)


def plain_step(net: nn.Module) -> Callable[[], None]:
    x, y, _ = data()
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()

    return step


def rule_step(rule: str) -> Callable[[], None]:
    x, y, task = data()
    run = build_run(plan_run(net="bench_mlp", rule=rule, batch=ROWS), task)

    def step() -> None:
        run.optimiser.zero_grad(set_to_none=True)
        run.application.applied.backward(x, lambda output: row_errors(output, y))
        run.optimiser.step()

    return step


def biotorch_steps() -> dict[str, Callable[[], None]]:
    """The same net by BioTorch's module converter, if it is installed."""
    try:
        from biotorch.module.biomodule import BioModule  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    return {
        f"BioTorch {mode}": plain_step(BioModule(PlainMLP((INPUTS,), CLASSES), mode=mode, output_dim=CLASSES))
        for mode in ("fa", "dfa")
    }


def measure(steps: dict[str, Callable[[], None]]) -> dict[str, dict[str, float]]:
    """Median and quartiles of each step's time over that of the plain step in the same round."""
    for step in steps.values():
        for _ in range(3):
            step()
    ratios: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        times = {name: timed(step) for name, step in steps.items()}
        for name in steps:
            ratios[name].append(times[name] / times["plain BP"])
    table = {}
    for name, values in ratios.items():
        low, middle, high = statistics.quantiles(values, n=4)
        table[name] = {"median": middle, "q25": low, "q75": high}
    return table


def timed(work: Callable[[], None]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    steps = {
        "plain BP": plain_step(PlainMLP((INPUTS,), CLASSES)),
        "plain BP again": plain_step(PlainMLP((INPUTS,), CLASSES)),
    }
    steps |= {rule: rule_step(rule) for rule in ("bp", "fa", "block_fa", "dfa")} | biotorch_steps()
    table = measure(steps)
    print(f"MLP {INPUTS}-{WIDTH}×{DEPTH}-{CLASSES}, batch {ROWS}, one thread: step over plain BP, {ROUNDS} rounds")
    for name, row in table.items():
        print(f"{name:<16} {row['median']:.2f} ({row['q25']:.2f}–{row['q75']:.2f})")
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
