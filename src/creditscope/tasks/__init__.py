"""Tasks: data with its splits and chance level; one file each, NumPy only."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from creditscope.errors import CreditscopeError
from creditscope.options import Scalar
from creditscope.registry import TASKS

TaskKind = Literal["vectors", "images", "graph"]
KINDS: tuple[TaskKind, ...] = get_args(TaskKind)


@dataclass(frozen=True, kw_only=True)
class ImageSettings:
    """How pixels become inputs: (x/255 − mean)/std per channel; in training a padded random crop and a flip.

    >>> from creditscope.tasks import ImageSettings
    >>> ImageSettings(mean=(0.5,), std=(0.25,), flip=False).pad
    4
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int = 4
    flip: bool = True


@dataclass(frozen=True)
class Task:
    """Inputs and class labels, split into training and test rows; images are (rows, channels, y, x).

    With `images` they are uint8 pixels, cropped and flipped in training; without, floats that are taken as they are.

    >>> import numpy as np
    >>> import creditscope as cs
    >>> x, y = np.eye(4, dtype=np.float32), np.array([0, 1, 0, 1])
    >>> task = cs.Task("unit vectors", x, y, x, y, classes=2)
    >>> task.kind, task.input_shape, task.best_constant
    ('vectors', (4,), 0.5)
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int
    images: ImageSettings | None = None

    @property
    def kind(self) -> TaskKind:
        """What a net must accept."""
        return "images" if self.images or self.x_train.ndim == 4 else "vectors"

    @property
    def best_constant(self) -> float:
        """Accuracy of the best constant prediction on the test rows."""
        return _best_share(self.y_test, self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.x_train.shape[1:]

    @property
    def training_rows(self) -> int:
        """Rows that can fill a batch."""
        return len(self.y_train)

    @property
    def test_rows(self) -> int:
        """Rows that accuracy is over."""
        return len(self.y_test)

    def checksum(self) -> str:
        """A digest of all arrays: what the run was really trained on."""
        return _digest(self.x_train, self.y_train, self.x_test, self.y_test)


@dataclass(frozen=True)
class GraphTask:
    """One graph: node features, a label per node, an adjacency matrix, and which nodes train and test.

    `adjacency` is a SciPy CSR matrix of 0/1 without self-loops; `normalisation` says how Â is made from it.

    >>> import numpy as np
    >>> from scipy.sparse import csr_matrix
    >>> from creditscope.tasks import GraphTask
    >>> path, one = csr_matrix([[0, 1, 0], [1, 0, 1], [0, 1, 0]]), np.eye(3, dtype=bool)
    >>> task = GraphTask("path", np.eye(3), np.array([0, 1, 0]), path, one[0], one[1], one[2], classes=2)
    >>> task.kind, task.training_rows, task.test_rows
    ('graph', 1, 1)
    """

    kind: ClassVar[TaskKind] = "graph"
    name: str
    x: np.ndarray
    y: np.ndarray
    adjacency: Any
    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray
    classes: int
    normalisation: str = "symmetric"
    """Or row."""

    @property
    def best_constant(self) -> float:
        """Accuracy of the best constant prediction on the test nodes."""
        return _best_share(self.y[self.test], self.classes)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one node's features."""
        return self.x.shape[1:]

    @property
    def training_rows(self) -> int:
        """Labelled nodes; a graph is one batch whatever the batch size."""
        return int(self.train.sum())

    @property
    def test_rows(self) -> int:
        """Nodes that accuracy is over."""
        return int(self.test.sum())

    def checksum(self) -> str:
        """A digest of all arrays."""
        edges = self.adjacency.indptr, self.adjacency.indices
        return _digest(self.x, self.y, *edges, self.train, self.validation, self.test)


AnyTask = Task | GraphTask


def register_task(name: str, *, version: str) -> Callable[[Callable[..., AnyTask]], Callable[..., AnyTask]]:
    """Make a function that returns a `Task` or `GraphTask` known as `name`; `version` changes when its data do.

    >>> import numpy as np
    >>> import creditscope as cs
    >>> @cs.register_task("parity", version="1")
    ... def parity(*, rows=200):
    ...     x = np.random.default_rng(0).integers(0, 2, (rows, 8))
    ...     x, y = x.astype(np.float32), x.sum(1) % 2
    ...     return cs.Task("parity", x[::2], y[::2], x[1::2], y[1::2], classes=2)
    >>> cs.run(task="parity", seeds=1, epochs=1, batch=50, tier="quick").records[0].facts.best_constant
    0.5...
    """

    def keep(factory: Callable[..., AnyTask]) -> Callable[..., AnyTask]:
        setattr(factory, "data_version", version)  # noqa: B010 (a fact of the task, readable without its data)
        return TASKS.register(name)(factory)

    return keep


def declared_kinds(factory: Callable[..., AnyTask]) -> tuple[TaskKind, ...]:
    """What a function that makes a task says it returns, known without its data; any kind if it does not say.

    >>> declared_kinds(TASKS.get("cora"))
    ('graph',)
    """
    returned = getattr(factory, "__annotations__", {}).get("return")
    if returned is GraphTask:
        return (GraphTask.kind,)
    return tuple(kind for kind in KINDS if kind != GraphTask.kind) if returned is Task else KINDS


def load_task(name: str, **options: Scalar) -> AnyTask:
    """The task called `name`, checked: finite inputs, labels inside the classes, no empty split."""
    return _load(TASKS.get(name), tuple(sorted(options.items())))


@lru_cache(maxsize=2)
def _load(factory: Callable[..., AnyTask], options: tuple[tuple[str, Scalar], ...]) -> AnyTask:
    return check_task(factory(**dict(options)))


def check_task(task: AnyTask) -> AnyTask:
    """Refuse data no run should start on; return the task unchanged."""
    if isinstance(task, GraphTask):
        for split, mask in (("training", task.train), ("test", task.test)):
            _check_rows(task.x[mask], task.y[mask], task.classes, f"the {split} nodes of task {task.name!r}")
        return task
    for split, x, y in (("training", task.x_train, task.y_train), ("test", task.x_test, task.y_test)):
        _check_rows(x, y, task.classes, f"the {split} rows of task {task.name!r}")
    if task.x_train.shape[1:] != task.x_test.shape[1:]:
        raise CreditscopeError(
            f"Expected training and test inputs of one shape in task {task.name!r}, "
            f"but got {task.x_train.shape[1:]} and {task.x_test.shape[1:]}."
        )
    return task


def _check_rows(x: np.ndarray, y: np.ndarray, classes: int, where: str) -> None:
    if len(x) == 0:
        raise CreditscopeError(f"Expected at least one row in {where}, but got none.")
    if len(x) != len(y):
        raise CreditscopeError(f"Expected one label per row in {where}, but got {len(x)} rows and {len(y)} labels.")
    if not np.issubdtype(y.dtype, np.integer):
        raise CreditscopeError(f"Expected integer class labels in {where}, but got dtype {y.dtype}.")
    if y.min() < 0 or y.max() >= classes:
        raise CreditscopeError(
            f"Expected labels from 0 to {classes - 1} in {where}, but got labels from {y.min()} to {y.max()}."
        )
    bad = np.size(x) - int(np.isfinite(x).sum()) if np.issubdtype(x.dtype, np.floating) else 0
    if bad:
        raise CreditscopeError(
            f"Expected finite inputs in {where}, but got {bad} NaN or infinite value(s). "
            "Clean the data before training."
        )


def clean_adjacency(source: np.ndarray, target: np.ndarray, nodes: int) -> Any:
    """A symmetric 0/1 SciPy CSR matrix; duplicates and self-loops are dropped."""
    import scipy.sparse as sp

    ends = np.concatenate([[source, target], [target, source]], axis=1)
    ends = ends[:, ends[0] != ends[1]]
    matrix = sp.csr_matrix((np.ones(ends.shape[1], dtype=np.float32), ends), shape=(nodes, nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix


def _best_share(labels: np.ndarray, classes: int) -> float:
    return float(np.bincount(labels, minlength=classes).max() / len(labels))


def _digest(*arrays: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()[:16]
