"""A task's data on the device, as the batches that a run trains, tests and is measured on.

Data live there as one tensor; a batch is an index into it. What is drawn for an epoch (rows, crops) is planned on the
CPU from the seed's own streams, so that it is the same on every device and in every engine.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.measure.probe import spread_rows
from creditscope.nets import accepted_kinds
from creditscope.record.spec import RunSpec
from creditscope.registry import NETS
from creditscope.rng import generator
from creditscope.stack import Batch, PerSeed
from creditscope.tasks import AnyTask, GraphTask, ImageSettings, Task, TaskKind

SAMPLE_ROWS = 8  # enough to read a net's anatomy off one forward
TEST_CHUNK = 2048

EpochPlan = tuple[Tensor, ...]
"""What an epoch's steps are told, each tensor with one entry per step; on the CPU."""


def number_format(precision: str) -> torch.dtype:
    """What weights and data are stored in; "tf32" stores float32 and rounds the factors of matrix products."""
    return torch.float64 if precision == "float64" else torch.float32


class RowData:
    """Independent rows: shuffled batches in training, chunks in testing. Images are kept with the border of a crop."""

    def __init__(self, task: Task, spec: RunSpec, device: torch.device):
        self.images, self.batch, self.eval_rows = task.images, spec.batch, spec.eval_rows
        dtype = number_format(spec.precision)
        kept = None if task.images else dtype  # images stay uint8 until they are used
        self.x_train, self.x_test = (torch.from_numpy(x).to(device, kept) for x in (task.x_train, task.x_test))
        self.y_train, self.y_test = (torch.from_numpy(y).to(device, torch.int64) for y in (task.y_train, task.y_test))
        self.classes, self.targets, self.random_targets = task.classes, spec.targets, spec.random_targets
        if task.images:
            self.x_train = torch.nn.functional.pad(self.x_train, [task.images.pad] * 4)
            self.scale = pixel_scale(task.images, dtype, device)
        self.steps = len(task.y_train) // spec.batch

    def plan_epoch(self, seed: int, epoch: int) -> EpochPlan:
        """Rows (steps, batch) in the epoch's own order, random targets if asked, and crops (steps, batch, 3) of images.

        An incomplete last batch is dropped. Random targets stay with their rows, or belong to the batch (redrawn).
        """
        order = torch.randperm(len(self.y_train), generator=generator(seed, "order", epoch))
        rows = order[: self.steps * self.batch].view(self.steps, self.batch)
        told = [rows]
        if self.targets == "redrawn":
            stream = generator(seed, "redrawn targets", epoch)
            told.append(torch.randint(self.classes, (self.steps, self.batch), generator=stream))
        elif self.random_targets:
            drawn = torch.randint(self.classes, (len(self.y_train),), generator=generator(seed, "targets"))
            told.append(drawn[rows])
        if self.images is not None:
            crops = draw_crops(rows.numel(), self.images, generator(seed, "augmentation", epoch))
            told.append(crops.view(self.steps, self.batch, 3))
        return tuple(told)

    def train_batch(self, rows: Tensor, *told: Tensor) -> Batch:
        """One step's share of a plan: (batch,) rows of one seed, or (seeds, batch)."""
        target = told[0] if self.random_targets else self.y_train[rows]
        if self.images is None:
            inputs = self.x_train[rows]
        else:
            inputs = normalise_pixels(crop_and_flip(self.x_train, rows, told[-1], self.images), *self.scale)
        return Batch(PerSeed(inputs) if rows.ndim > 1 else inputs, target)

    def test_batches(self) -> Iterator[Batch]:
        """The whole test set, in order."""
        for x, y in zip(self.x_test.split(TEST_CHUNK), self.y_test.split(TEST_CHUNK), strict=True):
            yield Batch(self._inputs(x), y)

    def snapshot_batch(self) -> Batch:
        return self._first_rows(self.eval_rows)

    def sample_batch(self) -> Batch:
        """A few rows, to read a net's anatomy or to try it out."""
        return self._first_rows(SAMPLE_ROWS)

    def probe_batches(self) -> tuple[Batch, Batch]:
        """Training rows, as they are (no crop, true labels), and test rows, for a linear probe."""
        train, test = (spread_rows(len(y)).to(y.device) for y in (self.y_train, self.y_test))
        x = self.x_train[train]
        if self.images is not None:
            pad = self.images.pad
            x = x[..., pad : x.shape[-2] - pad, pad : x.shape[-1] - pad]
        return Batch(self._inputs(x), self.y_train[train]), Batch(self._inputs(self.x_test[test]), self.y_test[test])

    def _first_rows(self, rows: int) -> Batch:
        return Batch(self._inputs(self.x_test[:rows]), self.y_test[:rows])

    def _inputs(self, x: Tensor) -> Tensor:
        return x if self.images is None else normalise_pixels(x, *self.scale)


def draw_crops(rows: int, settings: ImageSettings, generator: torch.Generator) -> Tensor:
    """Per row: vertical and horizontal offset from 0 to 2·pad, and whether to flip; (rows, 3) on the CPU."""
    offsets = torch.randint(2 * settings.pad + 1, (rows, 2), generator=generator)
    flips = torch.randint(2, (rows, 1), generator=generator) * settings.flip
    return torch.cat([offsets, flips], dim=1)


def crop_and_flip(bordered: Tensor, rows: Tensor, crops: Tensor, settings: ImageSettings) -> Tensor:
    """Images `rows` (…) of a bordered set, each cut at its own offset and mirrored if so drawn, by one gather."""
    channels, tall, broad = bordered.shape[1:]
    height, breadth = tall - 2 * settings.pad, broad - 2 * settings.pad
    place = torch.arange(max(channels, height, breadth), device=bordered.device)
    planes = (rows[..., None] * channels + place[:channels])[..., None]
    line = planes * tall + crops[..., 0, None, None] + place[:height]
    x = place[:breadth]
    x = crops[..., 1, None] + torch.where(crops[..., 2, None] > 0, breadth - 1 - x, x)
    return bordered.view(-1)[line[..., None] * broad + x[..., None, None, :]]


def pixel_scale(settings: ImageSettings, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """−mean/std and 1/(255·std) per channel on the device, to be made once: a copy in every batch would wait for it."""
    mean, std = (torch.tensor(v, dtype=torch.float64).view(-1, 1, 1) for v in (settings.mean, settings.std))
    return (-mean / std).to(device, dtype), (1 / (255 * std)).to(device, dtype)


def normalise_pixels(images: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """(x/255 − mean)/std per channel, in the number format of the scale."""
    return torch.addcmul(shift, images.to(scale.dtype), scale)


class GraphData:
    """One graph: an epoch is one step on all nodes, with a loss on the labelled ones."""

    steps = 1

    def __init__(self, task: GraphTask, spec: RunSpec, device: torch.device):
        dtype = number_format(spec.precision)
        self.adjacency = Adjacency.normalised(task.adjacency, task.normalisation, dtype).to(device)
        self.x = torch.from_numpy(task.x).to(device, dtype)
        self.y = torch.from_numpy(task.y).to(device, torch.int64)
        self.train = torch.from_numpy(task.train).to(device)
        self.test = torch.from_numpy(task.test.nonzero()[0]).to(device)
        self.batch = int(task.train.sum())

    def plan_epoch(self, seed: int, epoch: int) -> EpochPlan:
        return ()  # nothing is drawn

    def test_batches(self) -> Iterator[Batch]:
        """The graph, scored on the test nodes."""
        yield Batch((self.x, self.adjacency), self.y, scored=self.test)

    def snapshot_batch(self) -> Batch:
        """The graph with the training loss: what the net is told, and any number of seeds."""
        return Batch((self.x, self.adjacency), self.y, mask=self.train)

    train_batch = sample_batch = snapshot_batch  # a graph has no smaller sample

    def probe_batches(self) -> tuple[Batch, Batch]:
        """The graph, to train a linear probe on labelled nodes and test it on the test nodes."""
        sets = (self.train.nonzero()[:, 0], self.test)
        train, test = (index[spread_rows(len(index)).to(index.device)] for index in sets)
        inputs = (self.x, self.adjacency)
        return Batch(inputs, self.y, scored=train), Batch(inputs, self.y, scored=test)


Data = RowData | GraphData


def place_data(task: AnyTask, spec: RunSpec, device: torch.device) -> Data:
    """The task's data on `device`, ready for this run; refuses data that do not fit it."""
    check_data(task, spec)
    return GraphData(task, spec, device) if isinstance(task, GraphTask) else RowData(task, spec, device)


def check_data(task: AnyTask, spec: RunSpec) -> None:
    """Refuse a net that the task does not fit, and a batch that its rows cannot fill."""
    check_kind(spec, (task.kind,))
    if isinstance(task, GraphTask) and spec.random_targets:
        raise CreditscopeError(
            "Expected true targets for a graph, whose few labelled nodes anything fits, but got random ones. Use true."
        )
    if isinstance(task, Task) and spec.batch > task.training_rows:
        raise CreditscopeError(
            f"Expected a batch of at most the {task.training_rows} training rows of {spec.task!r}, "
            f"but got {spec.batch}."
        )


def check_kind(spec: RunSpec, kinds: Sequence[TaskKind]) -> None:
    """Refuse a net that takes none of the kinds which the task can be of."""
    taken = accepted_kinds(NETS.get(spec.net))
    if not set(kinds) & set(taken):
        fitting = [name for name in NETS.names() if set(kinds) & set(accepted_kinds(NETS.get(name)))]
        raise CreditscopeError(
            f"Expected a net for {' or '.join(kinds)} to learn task {spec.task!r}, but got {spec.net!r}, which takes "
            f"{' or '.join(taken)}. Nets that fit: {', '.join(fitting)}."
        )
