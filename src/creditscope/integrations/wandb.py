"""Write what a scope sees to Weights & Biases: scalars, histograms over layers, and the verdict."""

from typing import TYPE_CHECKING

import wandb

from creditscope.auditing import Audit
from creditscope.errors import CreditscopeError
from creditscope.integrations._told import PREFIX, name_scalars, spread_over_layers, word_verdict

if TYPE_CHECKING:
    from creditscope.scope import Scope

STEP = f"{PREFIX}/step"
"""Its own axis: a step that is given to `log` would move that of everyone else."""


class WandbWriter:
    """Writes to a run, the current one if none is given.

    >>> import tempfile, torch, wandb
    >>> from torch import nn
    >>> import creditscope as cs
    >>> from creditscope.integrations.wandb import WandbWriter
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    >>> scope = cs.watch(model, taps="1", stem="0")
    >>> run = wandb.init(mode="disabled", dir=tempfile.mkdtemp())
    >>> writer = WandbWriter(run)
    >>> taken = scope.snapshot(torch.randn(20, 4), torch.arange(20) % 3, step=100, tier="quick")
    >>> writer.write(scope)
    >>> writer.tell(scope.audit(), step=100)
    >>> run.finish()
    """

    def __init__(self, run: "wandb.Run | None" = None):
        found = wandb.run if run is None else run
        if found is None:
            raise CreditscopeError("Expected a run of wandb, but none has begun. Call wandb.init(...) first.")
        self.run = found
        self.run.define_metric(f"{PREFIX}/*", step_metric=STEP)

    def write(self, scope: "Scope") -> None:
        """The scalars of the last snapshot, and how sizes are spread over the layers, at its step."""
        snapshot = scope.snapshots[-1]
        spread = {name: wandb.Histogram(values) for name, values in spread_over_layers(snapshot).items()}
        self.run.log({STEP: snapshot.step, **name_scalars(scope), **spread})

    def tell(self, audit: Audit, step: int = 0) -> None:
        """The word and its codes into the summary, with the reason and what to do as text."""
        self.run.summary[f"{PREFIX}/verdict"] = str(audit.methods[0].verdict)
        self.run.summary[f"{PREFIX}/what_to_do"] = word_verdict(audit)
