"""What the callbacks share: a scope that takes a quick snapshot every so many steps, and a verdict at the end."""

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from creditscope.errors import CreditscopeError
from creditscope.integrations._told import Writer, word_verdict
from creditscope.scope import Scope, watch

MOST_ROWS = 256
"""Of a batch that are measured."""


class Watching:
    """Steps in, snapshots out: common to the callbacks, which say when and of what.

    `rows` is a batch to measure, (inputs, target) or a dictionary with `labels`; `every` so many steps a snapshot;
    `tier` how much it measures; `writers` get it; `tell` prints the verdict at the end. `options` are those of `watch`.
    """

    def __init__(
        self, rows: Any = None, *, every: int = 100, tier: Any = "quick", writers: Sequence[Writer] = (),
        tell: bool = True, **options: Any,
    ):  # fmt: skip
        if every < 1:
            raise CreditscopeError(f"Expected a snapshot every 1 or more steps, but got every={every}.")
        self.every, self.tier, self.writers, self.tell, self.options = every, tier, list(writers), tell, options
        self.rows: Any = rows
        self.scope: Scope | None = None
        """From the first step on; it holds the snapshots."""
        self._tried: int | None = None

    def is_due(self, step: int) -> bool:
        """Whether so many steps have passed since the last try; the first is always due."""
        return self._tried is None or not 0 <= step - self._tried < self.every

    def take(self, model: nn.Module, step: int) -> None:
        """Measure, and hand it on. What fails at first is an error; later it is a warning, and training goes on."""
        if self.scope is None or step < (self._tried or 0):  # another training has begun
            self.scope = watch(model, **self.options)
            self.rows = place_rows(self.rows, model)
        self._tried = step
        inputs, target = split_rows(self.rows)
        try:
            self.scope.snapshot(inputs, target, step=step, tier=self.tier)
        except (CreditscopeError, RuntimeError) as error:
            if not self.scope.snapshots:
                raise
            warnings.warn(f"No snapshot at step {step}: {error}", stacklevel=2)
        else:
            for writer in self.writers:
                writer.write(self.scope)

    def finish(self, model: nn.Module, step: int) -> None:
        """The last snapshot, if it is not taken yet, and the verdict."""
        if self._tried is not None and step > self._tried:
            self.take(model, step)
        self.conclude()

    def conclude(self) -> None:
        """The verdict of what was seen, to the writers and in print."""
        if self.scope is not None and self.scope.snapshots:
            audit = self.scope.audit()
            for writer in self.writers:
                writer.tell(audit, self.scope.snapshots[-1].step)
            if self.tell:
                print(word_verdict(audit))


def split_rows(rows: Any) -> tuple[Any, Tensor | None]:
    """Inputs and target of a batch: of a pair, or of a dictionary that holds its labels."""
    if isinstance(rows, Mapping):
        return rows, None
    if isinstance(rows, tuple | list) and len(rows) == 2:
        return rows[0], rows[1]
    raise CreditscopeError(
        f"Expected a batch of (inputs, target) or a dictionary with labels, but got {type(rows).__name__}. "
        "Give rows=(inputs, target) of your own."
    )


def place_rows(rows: Any, model: nn.Module) -> Any:
    """A copy of the first rows of a batch where the model is; what has no rows of the batch stays whole."""
    tensors = [leaf for leaf in tree_leaves(rows) if isinstance(leaf, Tensor) and leaf.ndim]
    length, device = len(tensors[-1]) if tensors else 0, next(model.parameters()).device

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        own = leaf[:MOST_ROWS] if leaf.ndim and len(leaf) == length else leaf
        return own.detach().to(device, copy=True)

    return tree_map(place, rows)


@contextmanager
def streams_kept() -> Iterator[None]:
    """Every global random stream ends where it began: torch's, NumPy's and Python's."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []
    numpy_state, python_state = np.random.get_state(), random.getstate()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
