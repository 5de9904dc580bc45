"""Models that are odd and well: a snapshot neither breaks them nor calls them ill."""

import pytest
import torch
from torch import nn
from torch.nn import functional

import creditscope as cs

X = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(64) % 4


def judged(scope: cs.Scope):
    return scope.audit().methods[0]


def test_lazy_layers_work_afterwards():
    model = nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(4))
    cs.watch(model, taps=["1", "3"]).snapshot(X, LABELS, tier="quick")
    assert model(X).shape == (64, 4)


class Spread(nn.Module):
    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.linear = nn.Linear(inside, outside)

    def forward(self, graph, x):
        return torch.relu(graph @ self.linear(x))


class SparseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = Spread(10, 8), Spread(8, 8), nn.Linear(8, 4)

    def forward(self, graph, x):
        return self.head(self.b(graph, self.a(graph, x)))


def test_a_sparse_argument_is_passed_by():
    scope = cs.watch(SparseNet(), taps=["a", "b"])
    taken = scope.snapshot((torch.eye(64).to_sparse(), X), LABELS, epoch=0, tier="quick")
    assert len(taken.taps.g_norm) == 2


class Logs(nn.Module):
    """Keeps a copy for a log, and joins by keyword."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(10, 8), nn.Linear(8, 8), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.relu(self.a(x))
        self.log = h.detach()
        return self.head(torch.cat(tensors=[h, torch.relu(self.b(h))], dim=1))


def test_keywords_of_joins_are_read():
    scope = cs.watch(Logs(), taps=["a", "b"])
    scope.snapshot(X, LABELS, epoch=0, tier="quick")
    assert judged(scope).verdict.word == "not trained yet"


def one_logit(output, target):
    return functional.binary_cross_entropy_with_logits(output.squeeze(-1), target.float(), reduction="none")


def ages(output, target):
    return (output.squeeze(-1) - target.float()).square()


def partners(output, target):
    near = torch.cdist(output, output)
    return torch.where(target[:, None] == target[None], near, (1 - near).clamp(min=0)).mean(1)


@pytest.mark.parametrize(
    ("loss", "width", "target"), [(one_logit, 1, LABELS % 2), (ages, 1, LABELS), (partners, 32, LABELS)]
)
def test_whole_numbers_need_not_be_classes(loss, width, target):
    model = nn.Sequential(nn.Linear(10, 16), nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, width))
    scope = cs.watch(model, taps="1", loss=loss)
    scope.snapshot(X, target, epoch=0, tier="quick")
    assert {f.code: f.is_issue for f in judged(scope).findings}["CS101"] is False


def test_rows_without_a_target_are_no_part_of_the_best_constant():
    model = nn.Sequential(nn.Linear(10, 16), nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 1))
    mask, target = torch.arange(64) < 32, X[:, :1].clone()
    target[~mask] = -999.0
    scope = cs.watch(model, taps="1", loss=lambda o, t: (o - t).square().mean(1))
    taken = scope.snapshot(X, target, mask=mask, epoch=0, tier="quick")
    assert taken.output.best_constant_loss == pytest.approx(float(target[mask].var(unbiased=False)), rel=1e-4)


class Scaled(nn.Module):
    """A block with a norm over whole maps and a scale for each channel, all of which begin alike."""

    def __init__(self):
        super().__init__()
        self.norm, self.conv = nn.LayerNorm([6, 5, 5]), nn.Conv2d(6, 6, 3, padding=1)
        self.scale = nn.Parameter(torch.full((6, 1, 1), 1e-6))

    def forward(self, x):
        return x + self.scale * self.conv(self.norm(x)).relu()


def test_scales_that_begin_alike_are_no_units_alike():
    model = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), Scaled(), Scaled(), nn.Flatten(), nn.Linear(150, 4))
    scope = cs.watch(model, taps=["1", "2"])
    scope.snapshot(torch.randn(64, 3, 5, 5), LABELS, epoch=0, tier="quick")
    assert judged(scope).verdict.word == "not trained yet"


def test_units_of_images_with_channels_last_are_channels():
    """60 of 64 have a bias under which none is ever active."""
    layer = nn.Linear(16, 64)
    with torch.no_grad():
        layer.bias[:60] = -100.0
    model = nn.Sequential(nn.Linear(3, 16), nn.Sequential(layer, nn.ReLU()), nn.Flatten(), nn.Linear(64 * 25, 4))
    scope = cs.watch(model, taps="1")
    scope.snapshot(torch.randn(64, 5, 5, 3), LABELS, epoch=0, tier="quick")
    found = {f.code: f for f in judged(scope).findings}["CS106"]
    assert found.is_issue
    assert found.where.startswith("1")


def test_a_head_that_begins_at_zero_is_well_whatever_the_snapshot_is_called():
    model = nn.Sequential(nn.Linear(10, 16), nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 4))
    nn.init.zeros_(model[-1].weight)
    nn.init.zeros_(model[-1].bias)
    scope = cs.watch(model, taps="1")
    scope.snapshot(X, LABELS, tier="quick")
    assert judged(scope).verdict.word != "ill"
