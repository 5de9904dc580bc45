"""What a quick snapshot of a watched model costs, in plain training steps at equal rows, interleaved in one process.

A step against itself is the noise control; `share` is what a callback costs that takes one snapshot every 100 steps.
"""

from collections.abc import Callable

import torch
from common import Spread, Table, arguments, interleaved, over
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs
from creditscope.nets.resnet import ResNet
from creditscope.nets.vit import ViT

EVERY = 100


def mlp(width: int) -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(nn.Linear(64, width), *blocks, nn.Linear(width, 10))


def resnet(width: int) -> nn.Module:
    return ResNet((3, 16, 16), 10, depth=6, width=width, norm="batch")


def vit(width: int) -> nn.Module:
    return ViT((3, 16, 16), 10, depth=4, width=width, heads=4)


IMAGE, VECTOR = (3, 16, 16), (64,)
CASES: dict[str, tuple[Callable[[int], nn.Module], int, int, tuple[int, ...]]] = {
    "ResNet, 16 channels": (resnet, 16, 64, IMAGE),
    "ResNet, 32 channels": (resnet, 32, 64, IMAGE),
    "ViT, 64 features": (vit, 64, 64, IMAGE),
    "ViT, 192 features": (vit, 192, 64, IMAGE),
    "MLP, 128 features": (mlp, 128, 256, VECTOR),
    "MLP, 1024 features": (mlp, 1024, 256, VECTOR),
}
"""How it is made, width, rows, shape of a row."""


def main() -> None:
    given = arguments(__doc__, rounds=20)
    table = Table(f"A quick snapshot over a training step at equal rows, {given.rounds} rounds", given.device)
    for name, (make, width, rows, shape) in CASES.items():
        torch.manual_seed(0)
        x, y = torch.randn(rows, *shape, device=given.device), torch.arange(rows, device=given.device) % 10
        times = measure(make(width).to(given.device), x, y, given.rounds, given.device)
        ratio = over(times, "snapshot", "step")
        share = f"{ratio.median / EVERY:.1%}"
        step = Spread.of([1e3 * t for t in times["step"]])
        control = over(times, "step again", "step")
        table.add(net=name, rows=rows, step_ms=step, ratio=ratio, share=share, control=control)
    table.save(given.json)


def measure(model: nn.Module, x: Tensor, y: Tensor, rounds: int, device: str) -> dict[str, list[float]]:
    optimiser, scope = torch.optim.SGD(model.parameters(), lr=1e-3), cs.watch(model)

    def step() -> None:
        optimiser.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    def snapshot() -> None:
        scope.snapshot(x, y, tier="quick")

    return interleaved({"step": step, "snapshot": snapshot, "step again": step}, rounds, device)


if __name__ == "__main__":
    main()
