"""What a quick snapshot every 100 steps costs in a callback, as a share of training, with TensorBoard as logger.

One process; snapshot and step take turns, at equal rows: share = (snapshot + what is written of it) / (100 steps).
"""

import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import torch
from common import Spread, Table, Work, arguments, interleaved
from torch import nn

from creditscope.integrations._watching import Watching
from creditscope.integrations.tensorboard import TensorBoardWriter

EVERY = 100
"""Steps between snapshots."""


def main() -> None:
    given = arguments(__doc__, rounds=20)
    table = Table(f"A snapshot every {EVERY} steps: share of training, {given.rounds} rounds", given.device)
    for name, make in NETS.items():
        model, batch = make()
        times = measure(model.to(given.device), move(batch, given.device), given.rounds, given.device)
        table.add(net=name, steps=over_steps(times), percent=share(times))
    table.save(given.json)


def mlp(rows: int = 128, width: int = 512) -> tuple[nn.Module, Any]:
    blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(6)]
    model = nn.Sequential(nn.Linear(64, width), *blocks, nn.Linear(width, 10))
    return model, (torch.randn(rows, 64), torch.arange(rows) % 10)


def conv(rows: int = 64) -> tuple[nn.Module, Any]:
    blocks = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(6)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.Sequential(*blocks), *head)
    return model, (torch.randn(rows, 3, 16, 16), torch.arange(rows) % 10)


def gpt2(rows: int = 16) -> tuple[nn.Module, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    size: dict[str, Any] = {"vocab_size": 256, "n_positions": 64, "n_embd": 128, "n_layer": 6, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    tokens = torch.randint(256, (rows, 64))
    return model, {"input_ids": tokens, "labels": tokens}


NETS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "MLP, 6 blocks of 128, 128 rows": lambda: mlp(width=128),
    "MLP, 6 blocks of 512, 128 rows": mlp,
    "conv, 6 blocks of 32 channels, 64 rows of 16 × 16": conv,
    "GPT-2, 6 blocks of 128, 16 rows of 64 tokens": gpt2,
}


def move(batch: Any, device: str) -> Any:
    if isinstance(batch, Mapping):
        return {name: value.to(device) for name, value in batch.items()}
    return tuple(value.to(device) for value in batch)


def measure(model: nn.Module, batch: Any, rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds of a training step, and of a snapshot with what is written of it."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad()
        if isinstance(batch, Mapping):
            model(**batch).loss.backward()
        else:
            nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
        optimiser.step()

    with tempfile.TemporaryDirectory() as folder:
        writer = TensorBoardWriter(folder)
        watching, taken = Watching(batch, writers=[writer]), iter(range(10**6))
        works: dict[str, Work] = {"step": step, "snapshot": lambda: watching.take(model, next(taken))}
        times = interleaved(works, rounds, device)
        writer.board.close()
    return times


def over_steps(times: dict[str, list[float]]) -> Spread:
    """A snapshot in training steps: of each over the median of the others, since one is rare and the other is not."""
    usual = Spread.of(times["step"]).median
    return Spread.of([one / usual for one in times["snapshot"]])


def share(times: dict[str, list[float]]) -> Spread:
    """Per cent of training."""
    found = over_steps(times)
    return Spread(*(100 * value / EVERY for value in (found.median, found.q25, found.q75)))


if __name__ == "__main__":
    main()
