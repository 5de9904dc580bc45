"""What a task is, and what it must satisfy before anything is trained on it."""

import hashlib
from dataclasses import dataclass

import numpy as np

from creditscope.errors import CreditscopeError


@dataclass(frozen=True)
class Task:
    """Inputs and class labels, split into training and test rows."""

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: int

    @property
    def chance(self) -> float:
        """Accuracy of a uniform guess."""
        return 1.0 / self.classes

    @property
    def best_constant(self) -> float:
        """Accuracy of the best constant prediction on the test rows."""
        return float(np.bincount(self.y_test, minlength=self.classes).max() / len(self.y_test))

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.x_train.shape[1:]

    def checksum(self) -> str:
        """A digest of all arrays: what the run was really trained on."""
        digest = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]


def check_task(task: Task) -> Task:
    """Refuse data no run should start on; return the task unchanged."""
    for split, x, y in (("training", task.x_train, task.y_train), ("test", task.x_test, task.y_test)):
        where = f"the {split} rows of task {task.name!r}"
        if len(x) == 0:
            raise CreditscopeError(f"Expected at least one row in {where}, but got none.")
        if len(x) != len(y):
            raise CreditscopeError(f"Expected one label per row in {where}, but got {len(x)} rows and {len(y)} labels.")
        if not np.issubdtype(y.dtype, np.integer):
            raise CreditscopeError(f"Expected integer class labels in {where}, but got dtype {y.dtype}.")
        if y.min() < 0 or y.max() >= task.classes:
            raise CreditscopeError(
                f"Expected labels from 0 to {task.classes - 1} in {where}, but got labels from {y.min()} to {y.max()}."
            )
        bad = np.size(x) - int(np.isfinite(x).sum())
        if bad:
            raise CreditscopeError(
                f"Expected finite inputs in {where}, but got {bad} NaN or infinite value(s). "
                "Clean the data before training."
            )
    if task.x_train.shape[1:] != task.x_test.shape[1:]:
        raise CreditscopeError(
            f"Expected training and test inputs of one shape in task {task.name!r}, "
            f"but got {task.x_train.shape[1:]} and {task.x_test.shape[1:]}."
        )
    return task
