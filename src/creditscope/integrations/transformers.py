"""Watch a model that the Trainer of Hugging Face trains: `Trainer(..., callbacks=[ScopeCallback()])`."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from creditscope.errors import CreditscopeError
from creditscope.integrations._told import name_scalars
from creditscope.integrations._watching import MOST_ROWS, Watching, streams_kept


class ScopeCallback(Watching, TrainerCallback):
    """A quick snapshot every 100 steps to the trainer's history and reports; at the end the verdict.

    Measured are rows from all over the training set, as many as a batch has and collated as the trainer does, or
    `rows` of yours. `scope` holds the snapshots. Other arguments are those of `Watching` and of `creditscope.watch`.

    >>> from creditscope.integrations.transformers import ScopeCallback
    >>> callback = ScopeCallback(every=50)  # then Trainer(..., callbacks=[callback]).train()
    >>> callback.every, callback.scope
    (50, None)
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Find rows, and where to write to."""
        if not state.is_world_process_zero:
            return
        if self.rows is None:
            self.rows = choose_rows(kwargs["train_dataloader"], max(args.train_batch_size, 2))
        if "tensorboard" in args.report_to:
            from creditscope.integrations.tensorboard import TensorBoardWriter

            self.writers.append(TensorBoardWriter(Path(args.output_dir) / "creditscope"))
        if "wandb" in args.report_to:
            from creditscope.integrations.wandb import WandbWriter

            self.writers.append(WandbWriter())

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Before the first step, in the mode that the trainer is about to set."""
        if self.scope is None:
            kwargs["model"].train()
            self._take(state, kwargs["model"])

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """After a step of the optimiser."""
        if self.is_due(state.global_step):
            self._take(state, kwargs["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The verdict."""
        if state.is_world_process_zero:
            self.finish(kwargs["model"], state.global_step)

    def _take(self, state: Any, model: Any) -> None:
        if state.is_world_process_zero:
            self.take(model, state.global_step)
            if self.scope and self.scope.snapshots[-1].step == state.global_step:
                state.log_history.append({**name_scalars(self.scope), "step": state.global_step})


def choose_rows(loader: Any, count: int) -> Any:
    """So many rows at even distances, since a data set may be sorted; no random stream is moved."""
    data = loader.dataset
    if not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise CreditscopeError(
            "Expected a training set whose rows can be taken by number, but it is streamed. Give rows=, a batch."
        )
    chosen = range(0, len(data), max(len(data) // min(count, MOST_ROWS), 1))[:MOST_ROWS]
    with streams_kept():
        return loader.collate_fn([data[i] for i in chosen[:count]])
