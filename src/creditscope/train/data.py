"""A task's data on the device, as the batches that a run trains, tests and is measured on.

Data live there as one tensor; a batch is an index into it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.record.schema import RunSpec
from creditscope.registry import NETS
from creditscope.rng import generator
from creditscope.tasks import AnyTask, GraphTask, Task
from creditscope.train.augment import crop_and_flip, draw_crops, normalise_pixels, pixel_scale

SAMPLE_ROWS = 8
"""Rows enough to read a net's anatomy off one forward."""
TEST_CHUNK = 2048


@dataclass(frozen=True)
class Batch:
    """Inputs (a tensor, or a tuple of arguments), targets, and which rows carry a loss (None: all)."""

    inputs: Any
    target: Tensor
    mask: Tensor | None = None
    scored: Tensor | None = None
    """Index of the rows that accuracy is over (None: all)."""


class RowData:
    """Independent rows: shuffled batches in training, chunks in testing."""

    def __init__(self, task: Task, spec: RunSpec, device: torch.device):
        self.task, self.spec, self.dtype = task, spec, getattr(torch, spec.precision)
        kept = None if task.images else self.dtype  # images stay uint8 until they are used
        self.x_train, self.x_test = (torch.from_numpy(x).to(device, kept) for x in (task.x_train, task.x_test))
        self.y_train, self.y_test = (torch.from_numpy(y).to(device, torch.int64) for y in (task.y_train, task.y_test))
        self.scale = pixel_scale(task.images, self.dtype, device) if task.images else None
        self.steps = len(task.y_train) // spec.batch

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """One pass in the epoch's own order, each row with its own crop; an incomplete last batch is dropped."""
        spec, device = self.spec, self.y_train.device
        order = torch.randperm(len(self.y_train), generator=generator(spec.seed, "order", epoch))
        batches = order[: self.steps * spec.batch].view(-1, spec.batch).to(device)
        crops = [None] * self.steps
        if self.task.images:
            drawn = draw_crops(batches.numel(), self.task.images, generator(spec.seed, "augmentation", epoch))
            crops = drawn.to(device).view(self.steps, spec.batch, 3)
        for index, crop in zip(batches, crops, strict=True):
            yield Batch(self._inputs(self.x_train[index], crop), self.y_train[index])

    def test_batches(self) -> Iterator[Batch]:
        """The whole test set, in order."""
        for x, y in zip(self.x_test.split(TEST_CHUNK), self.y_test.split(TEST_CHUNK), strict=True):
            yield Batch(self._inputs(x), y)

    def snapshot_batch(self) -> Batch:
        """The first test rows."""
        rows = self.spec.eval_rows
        return Batch(self._inputs(self.x_test[:rows]), self.y_test[:rows])

    def sample_inputs(self) -> Tensor:
        """A few rows, to read a net's anatomy."""
        return self._inputs(self.x_train[:SAMPLE_ROWS])

    def _inputs(self, x: Tensor, crops: Tensor | None = None) -> Tensor:
        if self.task.images is None or self.scale is None:
            return x
        return normalise_pixels(x if crops is None else crop_and_flip(x, crops, self.task.images), *self.scale)


class GraphData:
    """One graph: an epoch is one step on all nodes, with a loss on the labelled ones."""

    steps = 1

    def __init__(self, task: GraphTask, spec: RunSpec, device: torch.device):
        dtype = getattr(torch, spec.precision)
        self.adjacency = Adjacency.normalised(task.adjacency, task.normalisation, dtype).to(device)
        self.x = torch.from_numpy(task.x).to(device, dtype)
        self.y = torch.from_numpy(task.y).to(device, torch.int64)
        self.train = torch.from_numpy(task.train).to(device)
        self.test = torch.from_numpy(task.test.nonzero()[0]).to(device)

    def train_batches(self, epoch: int) -> Iterator[Batch]:
        """The graph, once."""
        yield self.snapshot_batch()

    def test_batches(self) -> Iterator[Batch]:
        """The graph, scored on the test nodes."""
        yield Batch((self.x, self.adjacency), self.y, scored=self.test)

    def snapshot_batch(self) -> Batch:
        """The graph with the training loss: what the net is told."""
        return Batch((self.x, self.adjacency), self.y, mask=self.train)

    def sample_inputs(self) -> tuple[Tensor, Adjacency]:
        """All of it: a graph has no smaller sample."""
        return self.x, self.adjacency


Data = RowData | GraphData


def place_data(task: AnyTask, spec: RunSpec, device: torch.device) -> Data:
    """The task's data on `device`, ready for this run."""
    return GraphData(task, spec, device) if isinstance(task, GraphTask) else RowData(task, spec, device)


def check_data(task: AnyTask, spec: RunSpec) -> None:
    """Refuse a net that the task does not fit, and a batch that its rows cannot fill."""
    if task.kind not in accepted(NETS.get(spec.net)):
        fitting = [name for name in NETS.names() if task.kind in accepted(NETS.get(name))]
        raise CreditscopeError(
            f"Expected a net for {task.kind} to learn task {spec.task!r}, but got {spec.net!r}, which takes "
            f"{' or '.join(accepted(NETS.get(spec.net)))}. Nets that fit: {', '.join(fitting)}."
        )
    if isinstance(task, Task) and spec.batch > task.training_rows:
        raise CreditscopeError(
            f"Expected a batch of at most the {task.training_rows} training rows of {spec.task!r}, "
            f"but got {spec.batch}."
        )


def accepted(net_class: type) -> tuple[str, ...]:
    """The kinds of task a net takes; one that does not say takes any."""
    return getattr(net_class, "accepts", ("vectors", "images", "graph"))
