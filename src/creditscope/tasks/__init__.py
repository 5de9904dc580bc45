"""Tasks: data with its splits and chance level; one file each, NumPy only."""

from collections.abc import Callable
from functools import lru_cache

from creditscope.options import Scalar
from creditscope.registry import TASKS
from creditscope.tasks._task import KINDS, AnyTask, GraphTask, ImageSettings, Kind, Task, check_task


def register_task(name: str, *, version: str) -> Callable[[Callable[..., AnyTask]], Callable[..., AnyTask]]:
    """Make a function that returns a `Task` known as `name`; `version` changes when its data do."""

    def keep(factory: Callable[..., AnyTask]) -> Callable[..., AnyTask]:
        setattr(factory, "data_version", version)  # noqa: B010 (a fact of the task, readable without its data)
        return TASKS.register(name)(factory)

    return keep


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
    "Kind",
    "Task",
    "check_task",
    "load_task",
    "register_task",
]
