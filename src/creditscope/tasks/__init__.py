"""Tasks: data with its splits and chance level; one file each, NumPy only."""

from collections.abc import Callable

from creditscope.registry import Registry
from creditscope.tasks._task import Task, check_task

TASKS = Registry("task", "creditscope.tasks")


def register_task(name: str, *, version: str) -> Callable[[Callable[..., Task]], Callable[..., Task]]:
    """Make a function that returns a `Task` known as `name`; `version` changes when its data do."""

    def keep(factory: Callable[..., Task]) -> Callable[..., Task]:
        setattr(factory, "data_version", version)  # noqa: B010 (a fact of the task, readable without its data)
        return TASKS.register(name)(factory)

    return keep


def load_task(name: str, **options) -> Task:
    """The task called `name`, checked: finite inputs, labels inside the classes, no empty split."""
    return check_task(TASKS.get(name)(**options))


__all__ = ["TASKS", "Task", "check_task", "load_task", "register_task"]
