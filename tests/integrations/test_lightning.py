"""The callback for Lightning, in real training: nothing of the training changes, and everything asked for is there."""

import csv
import importlib.util

import pytest
import torch
from learners import Noisy, assert_equal, make_net, seed_all, state_of, streams
from torch import nn

from creditscope.errors import CreditscopeError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="lightning is not installed"),
    pytest.mark.filterwarnings(
        "ignore:The `srun` command is available on your system:UserWarning",
        "ignore:The '.*_dataloader' does not have many workers:UserWarning",
        "ignore:The number of training batches:UserWarning",
        "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
    ),
]
NAMES = ("lightning.pytorch", "pytorch_lightning")


def make_module(library) -> nn.Module:
    class Module(library.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = make_net()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, batch_idx):
            x, y = batch
            loss = nn.functional.cross_entropy(self(x), y)
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("accuracy", (self(batch[0]).argmax(-1) == batch[1]).float().mean())

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    return Module()


def fit(folder, *callbacks, library: str = "lightning.pytorch", steps: int = 12, logger=False, **options):
    """Train; gives the module, what it ended as, and what was asked of the data."""
    pl = importlib.import_module(library)
    seed_all()
    module, data = make_module(pl), Noisy()
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = pl.Trainer(
        max_steps=steps, accelerator="cpu", logger=logger, callbacks=list(callbacks), default_root_dir=folder,
        **quiet, **options,
    )  # fmt: skip
    trainer.fit(module, loader, torch.utils.data.DataLoader(data, batch_size=32))
    return module, state_of(module), (data.order, streams())


@pytest.fixture
def make():
    from creditscope.integrations.lightning import ScopeCallback

    return lambda *given, **options: ScopeCallback(*given, **{"tell": False, **options})


@pytest.mark.parametrize("library", NAMES)
@pytest.mark.parametrize(
    "options", [{}, {"accumulate_grad_batches": 2, "gradient_clip_val": 0.1}], ids=["plain", "added"]
)
def test_training_is_bit_identical(tmp_path, make, library, options):
    """Weights, buffers, gradients, streams and the rows that were asked for, in their order."""
    callback = make(every=2)
    module, with_it, seen = fit(tmp_path, callback, library=library, **options)
    _, without, seen_without = fit(tmp_path, library=library, **options)
    assert_equal(with_it, without)
    assert seen == seen_without
    assert [s.step for s in callback.scope.snapshots] == [0, 2, 4, 6, 8, 10, 12]
    assert len({s.loss for s in callback.scope.snapshots}) == 7  # it did look at a net that changes
    assert module.training


def test_a_callback_that_draws_is_noticed(tmp_path):
    """The test above would see it."""
    pl = importlib.import_module("lightning.pytorch")

    class Draws(pl.Callback):
        def on_train_batch_end(self, *given):
            torch.rand(1)

    assert fit(tmp_path, Draws())[2] != fit(tmp_path)[2]


def test_snapshots_are_those_of_the_net_at_that_step(tmp_path, make):
    """By hand, on rows of one's own: the loss of the trained net, in the mode that training has."""
    x, y = Noisy().x, Noisy().y
    callback = make((x, y), every=5, net="net")
    module, *_ = fit(tmp_path, callback, steps=7)
    assert [s.step for s in callback.scope.snapshots] == [0, 5, 7]
    assert callback.scope.snapshots[0].untrained
    assert callback.scope.taps == ("1.0", "1.1", "1.2")
    assert all(s.rows == 96 for s in callback.scope.snapshots)
    for layer in module.modules():
        layer.p = 0.0 if isinstance(layer, nn.Dropout) else getattr(layer, "p", None)
    again = callback.scope.snapshot(x, y, step=8)
    by_hand = nn.functional.cross_entropy(module.net.train()(x), y).detach()
    assert again.loss == pytest.approx(float(by_hand), rel=1e-5)


def test_scalars_reach_the_logger(tmp_path, make):
    from lightning.pytorch.loggers import CSVLogger

    callback, logger = make(every=4), CSVLogger(tmp_path)
    fit(tmp_path, callback, logger=logger, log_every_n_steps=1)
    with open(f"{logger.log_dir}/metrics.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["creditscope/loss"]]
    assert {int(row["step"]): float(row["creditscope/loss"]) for row in rows} == pytest.approx(
        {s.step: s.loss for s in callback.scope.snapshots}
    )
    assert len(rows) == 4
    assert float(rows[-1]["creditscope/taps/2/g_norm"]) == pytest.approx(callback.scope.snapshots[-1].taps.g_norm[2])
    assert "creditscope/gamma" not in rows[0]  # of exact gradients it says nothing


def test_verdict_is_told_at_the_end_and_when_training_is_stopped(tmp_path, make, capsys):
    pl = importlib.import_module("lightning.pytorch")

    class Stops(pl.Callback):
        def on_train_batch_end(self, trainer, *given):
            if trainer.global_step == 3:
                raise RuntimeError("enough")

    callback = make(every=100, tell=True)
    fit(tmp_path, callback, steps=2)
    word = str(callback.scope.audit().methods[0].verdict)
    assert word in capsys.readouterr().out
    stopped = make(every=2, tell=True)
    with pytest.raises(RuntimeError, match="enough"):
        fit(tmp_path, stopped, Stops())
    assert str(stopped.scope.audit().methods[0].verdict) in capsys.readouterr().out


def test_what_cannot_be_watched_is_refused_before_the_first_step(tmp_path, make):
    with pytest.raises(CreditscopeError, match="inputs, target"):
        fit(tmp_path, make({1, 2}))
    with pytest.raises(CreditscopeError, match="every"):
        make(every=0)


def test_what_cannot_be_measured_later_is_a_warning(tmp_path, make):
    """Training of days does not end because somebody froze a layer."""
    pl = importlib.import_module("lightning.pytorch")

    class Freezes(pl.Callback):
        def on_train_batch_end(self, trainer, pl_module, *given):
            if trainer.global_step == 3:
                pl_module.net[0].requires_grad_(False)

    callback = make(every=2)
    with pytest.warns(UserWarning, match="No snapshot at step") as told:
        fit(tmp_path, Freezes(), callback, steps=7)
    ours = [str(one.message).partition(":")[0] for one in told if "No snapshot" in str(one.message)]
    assert [message.split()[-1] for message in ours] == ["4", "6", "7"]
    assert [s.step for s in callback.scope.snapshots] == [0, 2]
