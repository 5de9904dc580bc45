"""What a training step of each rule costs against a plain PyTorch BP step, interleaved in one process, one thread.

MLP 3072-512×4-10, batch 128, AdamW for all. The plain step written twice is the noise control; BioTorch's layers
are measured beside ours where that package is installed.
"""

from itertools import pairwise

import torch
from common import Table, Work, arguments, interleaved, over, random_rows
from torch import nn

import creditscope as cs
from creditscope.train.data import RowData
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

INPUTS, WIDTH, DEPTH, CLASSES, ROWS = 3072, 512, 4, 10, 128


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


def plain_step(net: nn.Module, *, with_targets: bool = False) -> Work:
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


def biotorch_steps() -> dict[str, Work]:
    """The same net by BioTorch's module converter, if it is installed."""
    try:
        from biotorch.module.biomodule import BioModule  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    nets = {mode: BioModule(PlainMLP((INPUTS,), CLASSES), mode=mode, output_dim=CLASSES) for mode in ("fa", "dfa")}
    return {f"BioTorch {mode}": plain_step(net, with_targets=mode == "dfa") for mode, net in nets.items()}


def main() -> None:
    given = arguments(__doc__, rounds=40)
    works = {name: plain_step(PlainMLP((INPUTS,), CLASSES)) for name in ("plain BP", "plain BP again")}
    works |= {rule: rule_step(rule) for rule in ("bp", "fa", "block_fa", "dfa")} | biotorch_steps()
    times = interleaved(works, given.rounds, "cpu")
    title = f"MLP {INPUTS}-{WIDTH}×{DEPTH}-{CLASSES}, batch {ROWS}: step over plain BP step, {given.rounds} rounds"
    table = Table(title, "cpu")
    for name in works:
        table.add(step=name, ratio=over(times, name, "plain BP"))
    table.save(given.json)


if __name__ == "__main__":
    main()
