"""A net with its data and its way of training: what is examined, and what a fault is done to."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from creditscope.clinic import _nets
from creditscope.graph import Adjacency
from creditscope.losses import RowLoss
from creditscope.tasks import GraphTask, Task, load_task

SEED: ContextVar[int] = ContextVar("seed", default=7)
"""Of everything that is drawn for a case: weights, order of rows, dropout."""
TRAINED_ROWS, SEEN_ROWS = 1024, 192
RATE = 3e-3
ROWS = 64
"""Of a step."""


@dataclass
class Patient:
    """A model, the rows it learns, the rows a snapshot sees, and how it is trained."""

    model: nn.Module
    inputs: Any
    """A tensor of rows; or a tuple of arguments, of which every step takes all."""
    target: Tensor
    seen: Any = None
    """Inputs of snapshots; None: those it learns."""
    seen_target: Tensor | None = None
    mask: Tensor | None = None
    loss: RowLoss | None = None
    """One loss per row; None is cross-entropy of the classes."""
    optimiser: torch.optim.Optimizer = field(init=False)
    step: Callable[["Patient", Any, Tensor], Tensor] | None = None
    """One step of training where it is not the usual one; gives the loss."""
    options: dict[str, Any] = field(default_factory=dict)
    """What `watch` is given beside the model."""
    evaluated: bool = False
    """Whether snapshots are taken in eval mode; the model is trained in train mode."""
    where: tuple[str, ...] = ()
    """Modules (globs) of which one is to be named, it or a part of it; none where the fault has no place."""

    def __post_init__(self) -> None:
        self.optimise()

    def optimise(
        self, parameters: Iterable[nn.Parameter] | None = None, *, rate: float = RATE, sgd: bool = False, **options: Any
    ) -> None:
        """Give it an optimiser: Adam, or SGD, of all parameters or of those given."""
        kind = torch.optim.SGD if sgd else torch.optim.AdamW if "weight_decay" in options else torch.optim.Adam
        self.optimiser = kind(list(parameters or self.model.parameters()), lr=rate, **options)

    def mean_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """What the usual step descends."""
        if self.mask is not None:
            output, target = output[self.mask], target[self.mask]
        if self.loss is None:
            return nn.functional.cross_entropy(output, target)
        return self.loss(output, target).mean()

    def train(self, steps: int, generator: torch.Generator | None = None) -> list[float]:
        """Some steps in train mode; the losses."""
        self.model.train()
        generator = generator or torch.Generator().manual_seed(SEED.get())
        losses = []
        for _ in range(steps):
            inputs, target = self.inputs, self.target
            if not isinstance(inputs, tuple):
                rows = torch.randint(len(target), (min(ROWS, len(target)),), generator=generator)
                inputs, target = pick_rows(inputs, rows), target[rows]
            loss = self.step(self, inputs, target) if self.step else take_step(self, inputs, target)
            losses.append(float(loss.detach()))
        return losses


def pick_rows(inputs: Any, rows: Tensor) -> Any:
    """Rows of a tensor, or of every tensor of a dictionary."""
    return {name: value[rows] for name, value in inputs.items()} if isinstance(inputs, dict) else inputs[rows]


def call(model: nn.Module, inputs: Any) -> Any:
    """The output of one call: a tuple is arguments, a dictionary keywords."""
    found = (
        model(*inputs) if isinstance(inputs, tuple) else model(**inputs) if isinstance(inputs, dict) else model(inputs)
    )
    return getattr(found, "logits", found)


def take_step(patient: Patient, inputs: Any, target: Tensor) -> Tensor:
    """The usual step: zero_grad, backward, step."""
    patient.optimiser.zero_grad()
    loss = patient.mean_loss(call(patient.model, inputs), target)
    loss.backward()
    patient.optimiser.step()
    return loss


@contextmanager
def seeded() -> Iterator[None]:
    """What is drawn from torch's global stream is the same every time; the stream is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED.get())
        yield


@cache
def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Images of digits as vectors of 64, and labels: rows to learn, rows to see."""
    task = load_task("digits")
    assert isinstance(task, Task)
    x, y = torch.from_numpy(task.x_train), torch.from_numpy(task.y_train)
    cut = TRAINED_ROWS, TRAINED_ROWS + SEEN_ROWS
    return x[: cut[0]], y[: cut[0]], x[cut[0] : cut[1]], y[cut[0] : cut[1]]


@cache
def graph() -> tuple[Tensor, Adjacency, Tensor, Tensor, Tensor]:
    """Features, Â, labels, and masks of the nodes to learn and to see, of a small graph of communities."""
    task = load_task("sbm", nodes=400)
    assert isinstance(task, GraphTask)
    masks = torch.from_numpy(task.train), torch.from_numpy(task.test)
    return torch.from_numpy(task.x), Adjacency.normalised(task.adjacency), torch.from_numpy(task.y), *masks


SHAPES: dict[str, tuple[int, ...]] = {
    "plain": (64,),
    "conv": (1, 8, 8),
    "residual": (64,),
    "resnet": (1, 8, 8),
    "transformer": (8, 8),
    "lstm": (8, 8),
}
"""How an image of 64 numbers is given to an architecture; a GCN has a graph of its own."""


def admit(architecture: str, *, classes: int = 10, **options: Any) -> Patient:
    """A healthy patient: the net of that architecture, options as in `_nets`, on data that it learns."""
    with seeded():
        make = getattr(_nets, f"make_{architecture}")
        if architecture == "gcn":
            x, adjacency, y, learnt, _ = graph()
            return Patient(make(4, **options), (x, adjacency), y, mask=learnt)
        return on_digits(make(classes, **options), SHAPES[architecture])


def on_digits(model: nn.Module, shape: tuple[int, ...], **options: Any) -> Patient:
    """A model that learns digits of this shape."""
    x, y, seen, seen_y = digits()
    return Patient(
        model, x.reshape(-1, *shape).clone(), y.clone(), seen.reshape(-1, *shape).clone(), seen_y.clone(), **options
    )
