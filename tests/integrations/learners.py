"""A net and data that show whether anything was touched: dropout, batch norm, and rows that draw from every stream."""

import random

import numpy as np
import torch
from torch import Tensor, nn

CLASSES = 3


class Noisy(torch.utils.data.Dataset):
    """Rows with noise of torch, NumPy and Python: whoever moves a stream changes what is trained on."""

    def __init__(self, rows: int = 96, *, keys: tuple[str, str] | None = None):
        stream = torch.Generator().manual_seed(1)
        self.y = torch.arange(rows) * CLASSES // rows  # sorted by class
        self.x = torch.randn(rows, 8, generator=stream) + self.y[:, None]
        self.keys = keys
        self.order: list[int] = []
        """Which rows were asked for."""

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, i: int):
        self.order.append(i)
        row = self.x[i] + 0.1 * torch.randn(8) + 0.1 * random.random() + 0.1 * float(np.random.rand())
        return (row, self.y[i]) if self.keys is None else dict(zip(self.keys, (row, self.y[i]), strict=True))


def make_net() -> nn.Module:
    """Blocks with dropout and batch norm between a stem and a head."""
    blocks = [nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2)) for _ in range(3)]
    return nn.Sequential(nn.Linear(8, 16), nn.Sequential(*blocks), nn.Linear(16, CLASSES))


def seed_all() -> None:
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)


def streams() -> tuple:
    """Where the global random streams are."""
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers, and gradients where they are."""
    grads = {f"{name}.grad": p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return {name: value.clone() for name, value in model.state_dict().items()} | grads


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    """Bit by bit."""
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
