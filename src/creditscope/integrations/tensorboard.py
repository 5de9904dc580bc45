"""Write what a scope sees to TensorBoard: scalars, histograms over layers, and the verdict as text."""

from os import PathLike
from typing import TYPE_CHECKING

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from creditscope.auditing import Audit
from creditscope.integrations._told import PREFIX, name_scalars, spread_over_layers, word_verdict

if TYPE_CHECKING:
    from creditscope.scope import Scope


class TensorBoardWriter:
    """Writes to a folder, or by a `SummaryWriter` of yours.

    >>> import tempfile, torch
    >>> from torch import nn
    >>> import creditscope as cs
    >>> from creditscope.integrations.tensorboard import TensorBoardWriter
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> scope = cs.watch(model, taps="1", stem="0")
    >>> writer = TensorBoardWriter(tempfile.mkdtemp())
    >>> taken = scope.snapshot(torch.randn(20, 4), torch.arange(20) % 3, step=100, tier="quick")
    >>> writer.write(scope)
    >>> writer.tell(scope.audit(), step=100)
    """

    def __init__(self, where: "str | PathLike[str] | SummaryWriter"):
        self.board = SummaryWriter(str(where)) if isinstance(where, str | PathLike) else where

    def write(self, scope: "Scope") -> None:
        """The scalars of the last snapshot, and how sizes are spread over the layers, at its step."""
        snapshot = scope.snapshots[-1]
        for name, value in name_scalars(scope).items():
            self.board.add_scalar(name, value, snapshot.step)
        for name, values in spread_over_layers(snapshot).items():
            self.board.add_histogram(name, np.array(values), snapshot.step, bins="sturges")

    def tell(self, audit: Audit, step: int = 0) -> None:
        """The verdict, its reason and what to do."""
        self.board.add_text(f"{PREFIX}/verdict", word_verdict(audit).replace("\n", "\n\n"), step)
        self.board.flush()
