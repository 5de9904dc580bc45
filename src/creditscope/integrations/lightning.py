"""Watch a model that Lightning trains: `Trainer(callbacks=[ScopeCallback()])`."""

from typing import TYPE_CHECKING, Any

from creditscope.integrations._told import ScalarWriter, Writer
from creditscope.integrations._watching import Watching

if TYPE_CHECKING:
    from lightning.pytorch import Callback
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:  # the same under its older name
        from pytorch_lightning import Callback


class ScopeCallback(Watching, Callback):
    """A quick snapshot every 100 steps to the trainer's loggers; at the end, or an exception, the verdict.

    Measured are the first rows of the first training batch, or `rows` of yours; of the whole module, or of the part
    that `net` names. `scope` holds the snapshots. Other arguments are those of `Watching` and of `creditscope.watch`.

    >>> from creditscope.integrations.lightning import ScopeCallback
    >>> callback = ScopeCallback(every=50)  # then Trainer(callbacks=[callback]).fit(model, data)
    >>> callback.every, callback.scope
    (50, None)
    """

    def __init__(self, rows: Any = None, *, net: str = "", **options: Any):
        super().__init__(rows, **options)
        self.net = net
        self._own_writers = list(self.writers)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Find out where to write to."""
        self.writers = [*self._own_writers, *map(writer_of, trainer.loggers if trainer.is_global_zero else ())]

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Before the first step, which also gives the rows."""
        self.rows = batch if self.rows is None else self.rows
        if self.scope is None:
            self._take(trainer, pl_module)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After a step of the optimiser; batches whose gradients are only added up are none."""
        if self.is_due(trainer.global_step):
            self._take(trainer, pl_module)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The verdict."""
        if trainer.is_global_zero:
            with trainer.precision_plugin.forward_context():
                self.finish(pl_module.get_submodule(self.net), trainer.global_step)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The verdict of what was seen until then: training was stopped because something is wrong."""
        if trainer.is_global_zero:
            self.conclude()

    def _take(self, trainer: Any, module: Any) -> None:
        if trainer.is_global_zero:
            with trainer.precision_plugin.forward_context():
                self.take(module.get_submodule(self.net), trainer.global_step)


def writer_of(logger: Any) -> Writer:
    """Histograms and words too, where the logger's own object takes them."""
    if hasattr(logger.experiment, "add_histogram"):
        from creditscope.integrations.tensorboard import TensorBoardWriter

        return TensorBoardWriter(logger.experiment)
    if hasattr(logger.experiment, "define_metric"):
        from creditscope.integrations.wandb import WandbWriter

        return WandbWriter(logger.experiment)
    return ScalarWriter(logger)
