"""Settings that the benchmarks of the stacked engine share, and a plain eager PyTorch step for each."""

from dataclasses import dataclass, field
from typing import Any

import torch
from common import Work, random_graph, random_images, random_rows
from torch import nn

from creditscope.record.spec import RunSpec
from creditscope.registry import NETS
from creditscope.tasks import AnyTask
from creditscope.tasks.cifar10 import PIXELS
from creditscope.train.data import GraphData, RowData, place_data
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import StackedRun, stack_runs

BATCH = 128


@dataclass(frozen=True)
class Case:
    """A net on random data of a task's shape."""

    name: str
    net: str
    options: dict[str, Any]
    data: str
    steps: int = 100
    """Steps of an epoch; a graph has one."""
    spec: dict[str, Any] = field(default_factory=dict)

    def task(self) -> AnyTask:
        """Its data."""
        if self.data == "graph":
            return random_graph()
        rows = self.steps * BATCH
        return random_images(rows) if self.data == "images" else random_rows(int(self.data), rows)

    def plan(self, **fields: Any) -> RunSpec:
        """A run of its net; the task named there is one whose kind of data the net takes."""
        return plan_run(net=self.net, net_options=self.options, **fields, **self.spec)

    def stack(
        self, seeds: int, device: str, rule: str = "bp", task: AnyTask | None = None, **fields: Any
    ) -> StackedRun:
        """All seeds as one run."""
        return stack_runs(self.runs(seeds, device, rule, task, **fields))

    def runs(self, seeds: int, device: str, rule: str = "bp", task: AnyTask | None = None, **fields: Any) -> list[Run]:
        """Each seed a run of its own, on the same data."""
        task, place = task or self.task(), torch.device(device)
        specs = [self.plan(rule=rule, epochs=1000, seed=seed, **fields) for seed in range(seeds)]
        data = place_data(task, specs[0], place)
        return [build_run(spec, task, place, data) for spec in specs]


GRAPH = {"task": "cora", "optimiser": "adam"}
RESMLP = Case("ResMLP d = 256, L = 4, CIFAR-10 with augmentation", "resmlp", {"depth": 4, "width": 256}, "images")
VIT = Case("ViT-Mini, CIFAR-10 with augmentation", "vit", {}, "images")
GCN = Case("GCN L = 6, Cora's size", "gcn", {"depth": 6, "width": 64}, "graph", 1, GRAPH)
SMALL = Case("ResMLP d = 32, L = 4, mnist1d's size", "resmlp", {"depth": 4, "width": 32}, "40", 10)
MIDDLE = Case("ResMLP d = 128, L = 4, mnist1d's size", "resmlp", {"depth": 4, "width": 128}, "40", 10)


def eager_step(case: Case, task: AnyTask, device: str) -> Work:
    """One training step of one seed as one would write it in plain PyTorch."""
    net = NETS.get(case.net)(task.input_shape, task.classes, **case.options).to(device)
    kind = torch.optim.Adam if case.spec.get("optimiser") == "adam" else torch.optim.AdamW
    optimiser = kind(net.parameters(), lr=1e-3, weight_decay=0.01)
    data = place_data(task, case.plan(), torch.device(device))
    images = torch.from_numpy(task.x_train).to(device) if case.data == "images" else None  # pyright: ignore
    mean, std = (torch.tensor(v, device=device).view(-1, 1, 1) for v in (PIXELS.mean, PIXELS.std))

    def batch() -> tuple[tuple, torch.Tensor]:
        if isinstance(data, GraphData):
            return (data.x, data.adjacency), data.y
        assert isinstance(data, RowData)
        rows = torch.randint(len(data.y_train), (BATCH,), device=device)
        if images is None:
            return (data.x_train[rows],), data.y_train[rows]
        return ((cropped(images[rows], device).float() / 255 - mean) / std,), data.y_train[rows]

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        inputs, target = batch()
        output = net(*inputs)
        if isinstance(data, GraphData):
            output, target = output[data.train], target[data.train]
        nn.functional.cross_entropy(output, target).backward()
        optimiser.step()

    return step


def cropped(images: torch.Tensor, device: str) -> torch.Tensor:
    """Each image padded by 4, cropped at random and mirrored at random."""
    rows, _, height, breadth = images.shape
    padded = nn.functional.pad(images, [4] * 4)
    y = torch.randint(9, (rows, 1), device=device) + torch.arange(height, device=device)
    x = torch.arange(breadth, device=device)
    mirrored = torch.where(torch.randint(2, (rows, 1), device=device) > 0, breadth - 1 - x, x)
    x = torch.randint(9, (rows, 1), device=device) + mirrored
    index = torch.arange(rows, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[index, y[:, :, None], x[:, None]].permute(0, 3, 1, 2)
