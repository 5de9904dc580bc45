"""The callback for the Trainer of Hugging Face, in real training of a tiny GPT-2 and of a net of nobody's."""

import pytest
import torch
from learners import Noisy, assert_equal, make_net, seed_all, state_of, streams
from torch import nn

from creditscope.errors import CreditscopeError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but no accelerator:UserWarning"),
]
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


class Classifier(nn.Module):
    """Takes labels and gives the loss, as models of the library do."""

    def __init__(self):
        super().__init__()
        self.net = make_net()

    def forward(self, x, labels=None):
        logits = self.net(x)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Sentences(torch.utils.data.Dataset):
    """Rows of tokens whose labels they are themselves; a few are padding."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(10) * (i % 5 + 1) + i) % 29
        return {"input_ids": tokens, "labels": torch.where(torch.arange(10) < 9, tokens, -100)}


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=29, n_positions=10, n_embd=16, n_layer=3, n_head=2)
    return transformers.GPT2LMHeadModel(config)


def train(folder, make, data, *callbacks, steps: int = 9, **options):
    """Train; gives the trainer and what the model ended as."""
    seed_all()
    args = transformers.TrainingArguments(
        folder, max_steps=steps, per_device_train_batch_size=16, report_to=options.pop("report_to", "none"),
        logging_steps=3, save_strategy="no", disable_tqdm=True, use_cpu=True, learning_rate=1e-2, **options,
    )  # fmt: skip
    trainer = transformers.Trainer(make(), args, train_dataset=data, callbacks=list(callbacks))
    seed_all()
    trainer.train()
    return trainer, state_of(trainer.model), streams()


@pytest.fixture
def make():
    from creditscope.integrations.transformers import ScopeCallback

    return lambda *given, **options: ScopeCallback(*given, **{"tell": False, **options})


@pytest.mark.parametrize(
    "options", [{}, {"gradient_accumulation_steps": 2, "eval_strategy": "no"}], ids=["plain", "added"]
)
def test_training_is_bit_identical(tmp_path, make, options):
    """Weights, buffers and streams, with rows that draw from every stream; GPT-2 has dropout of its own."""
    for model, data in ((Classifier, lambda: Noisy(keys=("x", "labels"))), (gpt2, Sentences)):
        callback = make(every=2)
        _, with_it, seen = train(tmp_path, model, data(), callback, **options)
        _, without, seen_without = train(tmp_path, model, data(), **options)
        assert_equal(with_it, without)
        assert seen == seen_without
        assert [s.step for s in callback.scope.snapshots] == [0, 2, 4, 6, 8, 9]
        assert len({s.loss for s in callback.scope.snapshots}) == 6


def test_gpt2_is_watched_as_it_is(tmp_path, make):
    """Its blocks are found, and the loss is the model's own: each token is asked for the next one."""
    callback = make(every=4)
    trainer, *_ = train(tmp_path, gpt2, Sentences(), callback)
    assert callback.scope.taps == ("transformer.h.0", "transformer.h.1", "transformer.h.2")
    assert callback.scope.snapshots[0].untrained
    model = trainer.model.eval()
    again = callback.scope.snapshot(callback.rows, step=10)
    assert again.rows == 16
    assert again.loss == pytest.approx(float(model(**callback.rows).loss.detach()), rel=1e-4)


def test_rows_come_from_all_over_the_data(tmp_path, make):
    """The data are sorted by class; the first batch of them would be of one."""
    data, callback = Noisy(keys=("x", "labels")), make(every=100)
    train(tmp_path, Classifier, data, callback, steps=1)
    assert callback.rows["labels"].bincount().tolist() == [6, 5, 5]
    assert data.order[:16] == list(range(0, 96, 6))


def test_scalars_are_in_the_history(tmp_path, make):
    callback = make(every=4)
    trainer, *_ = train(tmp_path, Classifier, Noisy(keys=("x", "labels")), callback)
    found = {row["step"]: row for row in trainer.state.log_history if "creditscope/loss" in row}
    assert {step: row["creditscope/loss"] for step, row in found.items()} == {
        s.step: s.loss for s in callback.scope.snapshots if s.step in (0, 4, 8)
    }
    assert found[8]["creditscope/taps/1/g_norm"] == callback.scope.snapshots[2].taps.g_norm[1]


def test_reports_go_where_the_trainers_do(tmp_path, make, capsys):
    """To TensorBoard, beside the trainer's own; the verdict is printed."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = make(every=4, tell=True)
    train(tmp_path, Classifier, Noisy(keys=("x", "labels")), callback, report_to="tensorboard")
    board = EventAccumulator(str(tmp_path / "creditscope")).Reload()
    assert [e.step for e in board.Scalars("creditscope/loss")] == [0, 4, 8, 9]
    assert str(callback.scope.audit().methods[0].verdict) in capsys.readouterr().out


def test_streamed_data_need_rows(tmp_path, make):
    class Streamed(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter([Sentences()[i % 48] for i in range(200)])

    with pytest.raises(CreditscopeError, match="rows="):
        train(tmp_path, gpt2, Streamed(), make())
    rows = torch.utils.data.default_collate([Sentences()[i] for i in range(8)])
    callback = make(rows)
    train(tmp_path, gpt2, Streamed(), callback, steps=2)
    assert [s.rows for s in callback.scope.snapshots] == [8, 8]
