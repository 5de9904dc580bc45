"""Tasks: data with its splits and chance level; one file each, NumPy only."""

from collections.abc import Callable
from functools import lru_cache

from creditscope.options import Scalar
from creditscope.registry import TASKS
from creditscope.tasks._task import KINDS, AnyTask, GraphTask, ImageSettings, Task, TaskKind, check_task


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


__all__ = [
    "KINDS",
    "AnyTask",
    "GraphTask",
    "ImageSettings",
    "Task",
    "TaskKind",
    "check_task",
    "declared_kinds",
    "load_task",
    "register_task",
]
