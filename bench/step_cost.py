"""What a training step of each rule costs against a plain PyTorch BP step, interleaved in one process, one thread.

MLP 3072-512×4-10, batch 128, AdamW for all. The plain step written twice is the noise control; BioTorch's layers
are measured beside ours where that package is installed. Where a net's tensors lie in memory is felt by a percent or
two, so all nets are built anew every few rounds, each time in another order.
"""

import random
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from io import StringIO
from itertools import pairwise

import torch
from common import Table, Work, arguments, interleaved, over, random_rows
from torch import nn

import creditscope as cs
from creditscope.train.data import RowData
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

INPUTS, WIDTH, DEPTH, CLASSES, ROWS = 3072, 512, 4, 10, 128
ROUNDS_OF_A_BUILD = 4


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


def plain_step(net: nn.Module | None = None, *, with_targets: bool = False) -> Work:
    net = net or PlainMLP((INPUTS,), CLASSES)
    task = random_rows(INPUTS, ROWS, CLASSES)
    x, y = torch.from_numpy(task.x_train), torch.from_numpy(task.y_train)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        output = net(x, y, nn.functional.cross_entropy) if with_targets else net(x)
        nn.functional.cross_entropy(output, y).backward()
        optimiser.step()

    return step


def rule_step(rule: str) -> Work:
    run = build_run(plan_run(net="bench_mlp", rule=rule, batch=ROWS), random_rows(INPUTS, ROWS, CLASSES))
    assert isinstance(run.data, RowData)
    batch = run.data.train_batch(torch.arange(ROWS))

    def step() -> None:
        run.train_step(batch)

    return step


def biotorch_step(mode: str) -> Work:
    """The same net by BioTorch's module converter."""
    from biotorch.module.biomodule import BioModule  # pyright: ignore[reportMissingImports]

    with redirect_stdout(StringIO()):
        net = BioModule(PlainMLP((INPUTS,), CLASSES), mode=mode, output_dim=CLASSES)
    return plain_step(net, with_targets=mode == "dfa")


def main() -> None:
    given = arguments(__doc__, rounds=40)
    builders: dict[str, Callable[[], Work]] = {"plain BP": plain_step, "plain BP again": plain_step}
    builders |= {rule: partial(rule_step, rule) for rule in ("bp", "fa", "block_fa", "dfa")}
    if find_spec("biotorch"):
        builders |= {f"BioTorch {mode}": partial(biotorch_step, mode) for mode in ("fa", "dfa")}
    times: dict[str, list[float]] = {name: [] for name in builders}
    order = random.Random(0)
    for _ in range(0, given.rounds, ROUNDS_OF_A_BUILD):
        works = {name: builders[name]() for name in order.sample(list(builders), len(builders))}
        for name, seconds in interleaved(works, ROUNDS_OF_A_BUILD, "cpu").items():
            times[name] += seconds
    title = f"MLP {INPUTS}-{WIDTH}×{DEPTH}-{CLASSES}, batch {ROWS}: step over plain BP step, {len(times['bp'])} rounds"
    table = Table(title, "cpu")
    for name in builders:
        table.add(step=name, ratio=over(times, name, "plain BP"))
    table.save(given.json)


if __name__ == "__main__":
    main()
