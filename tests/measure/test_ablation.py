"""Blocks put back to where they began, or left out: against copies of the net that are changed by hand."""

import copy
from dataclasses import replace

import pytest
import torch
from builders import make_facts, make_snapshot
from subjects import make_net, make_subject
from torch import Tensor, nn

from creditscope.auditing.depth import rewound_blocks
from creditscope.errors import CreditscopeError
from creditscope.measure.ablation import measure_rewind, measure_skips
from creditscope.nets.resmlp import ResMLP
from creditscope.stack import Batch

ROWS = 600


class Normed(nn.Module):
    """Residual blocks with batch norms; that of the last has no weights."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(8, width), nn.BatchNorm1d(width))
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width)) for _ in range(3))
        self.blocks[2][1] = nn.BatchNorm1d(width, affine=False)
        self.norm, self.head = nn.BatchNorm1d(width), nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h).relu()
        return self.head(self.norm(h))


class Twice(nn.Module):
    """The second block's matrix is also that of the third."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.stem, self.head = nn.Linear(8, width), nn.Linear(width, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(4))
        self.blocks[2][0].weight = self.blocks[1][0].weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(h)


def rows() -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] * x[:, 2] > 0).long()


def trained(make, *, steps: int = 60) -> tuple[nn.Module, dict[str, Tensor]]:
    """A net that has learnt something of the rows, and what it began with."""
    torch.manual_seed(0)
    net, (x, y) = make(), rows()
    began = copy.deepcopy(net.state_dict())
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    optimiser.zero_grad()
    return net.eval(), began


def measured(net: nn.Module, began: dict[str, Tensor] | None, rule: str = "bp", **others) -> dict[str, Tensor]:
    subject = make_subject(net, *rows(), rule, **others)
    return measure_rewind(replace(subject, initial=None if began is None else lambda: began))


def put_back(net: nn.Module, began: dict[str, Tensor], prefix: str) -> nn.Module:
    """A copy in which all that begins with the prefix is as it was."""
    alike = copy.deepcopy(net)
    now = alike.state_dict()
    old = {name: tensor for name, tensor in began.items() if name.startswith(prefix)}
    assert old
    alike.load_state_dict({**now, **old})
    return alike


@torch.no_grad()
def share_right(net: nn.Module) -> float:
    x, y = rows()
    return (net(x).argmax(1) == y).sum().item() / ROWS


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
def test_against_a_net_that_is_put_back_by_hand(rule):
    net, began = trained(lambda: ResMLP((8,), 4, depth=3, width=16))
    wanted = [share_right(put_back(net, began, f"blocks.{i}.")) for i in range(3)]
    found = measured(net, began, rule)
    assert list(found) == ["rewind"]
    assert found["rewind"].dtype == torch.float64
    assert found["rewind"][0].isnan()
    assert found["rewind"][1:].tolist() == wanted
    assert max(wanted) < share_right(net)
    assert len(set(wanted)) == 3


def test_the_net_and_what_was_kept_stay_as_they_are():
    net, began = trained(Normed)
    net.train()
    before, kept = copy.deepcopy(net.state_dict()), copy.deepcopy(began)
    measured(net, began)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in began.items())
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm1d)]
    assert all(m.training and m.momentum == 0.1 for m in norms)


def test_only_rows_that_are_scored_count():
    net, began = trained(lambda: ResMLP((8,), 4, depth=2, width=16))
    x, y = rows()
    scored = torch.arange(0, ROWS, 7)
    batches = [Batch(x[:300], y[:300]), Batch(x, y, scored=scored)]
    subject = replace(make_subject(net, x, y), initial=lambda: began, test=lambda: batches)
    alike = put_back(net, began, "blocks.1.")
    with torch.no_grad():
        right = alike(x).argmax(1) == y
    wanted = (right[:300].sum() + right[scored].sum()).item() / (300 + len(scored))
    assert measure_rewind(subject)["rewind"][2].item() == wanted


class TestBatchNorm:
    def test_its_statistics_are_put_back_with_its_block(self):
        net, began = trained(Normed)
        wanted = [share_right(put_back(net, began, f"blocks.{i}.")) for i in range(3)]
        weights_only = {name: t for name, t in began.items() if "running" not in name}
        half = [share_right(put_back(net, weights_only, f"blocks.{i}.")) for i in range(3)]
        assert measured(net, began)["rewind"][1:].tolist() == wanted != half

    def test_what_was_kept_without_buffers_puts_back_weights_alone(self):
        net, began = trained(Normed)
        weights_only = {name: began[name] for name, _ in net.named_parameters()}
        wanted = [share_right(put_back(net, weights_only, f"blocks.{i}.")) for i in range(3)]
        assert measured(net, weights_only)["rewind"][1:].tolist() == wanted

    def test_statistics_estimated_anew_are_those_of_the_training_rows(self):
        """By hand: each norm normalises what it sees of them by that, and keeps mean and (unbiased) variance."""
        net, began = trained(Normed)

        def by_hand(norm: nn.BatchNorm1d, given: tuple[Tensor], _: Tensor) -> Tensor:
            (h,) = given
            norm.running_mean.copy_(h.mean(0))
            norm.running_var.copy_(h.var(0))
            scaled = (h - h.mean(0)) / (h.var(0, correction=0) + norm.eps).sqrt()
            return scaled if norm.weight is None else scaled * norm.weight + norm.bias

        wanted = []
        for i in range(3):
            alike = put_back(net, began, f"blocks.{i}.")
            norms = [m for m in alike.modules() if isinstance(m, nn.BatchNorm1d)]
            handles = [norm.register_forward_hook(by_hand) for norm in norms]
            with torch.no_grad():
                alike(rows()[0][::2])
            for handle in handles:
                handle.remove()
            wanted.append(share_right(alike))
        found = measured(net, began)
        assert found["rewind_refit"][0].isnan()
        assert found["rewind_refit"][1:].tolist() == pytest.approx(wanted, rel=0, abs=1.5 / ROWS)
        assert found["rewind_refit"][1:].tolist() != found["rewind"][1:].tolist()

    def test_an_idle_block_costs_nothing_beside_what_estimating_does(self):
        """Statistics that lag behind the weights: estimating them is a gain that no block has lost or won."""
        net, began = trained(Normed)
        now = net.state_dict()
        idle = {name: now[name].clone() if name.startswith("blocks.1.") else old for name, old in began.items()}
        net.norm.running_mean += torch.linspace(-9, 9, 16)
        found = measured(net, idle)
        assert found["accuracy_refit"].item() == found["rewind_refit"][2].item()
        assert found["accuracy_refit"].item() > share_right(net) + 0.05
        series = {name: tuple(values.nan_to_num().tolist()) for name, values in found.items() if values.ndim}
        taken = make_snapshot(make_facts(depth=3), accuracy=share_right(net), taps=series)
        assert rewound_blocks(taken)[2] < -0.05
        after = replace(taken, accuracy_refit=found["accuracy_refit"].item())
        assert rewound_blocks(after)[2] == 0
        assert min(rewound_blocks(after)[tap] for tap in (1, 3)) > 0.05

    def test_without_running_statistics_there_is_nothing_to_estimate(self):
        def make() -> nn.Module:
            net = Normed()
            for name, m in list(net.named_modules()):
                if isinstance(m, nn.BatchNorm1d):
                    net.set_submodule(name, nn.BatchNorm1d(16, track_running_stats=False))
            return net

        assert list(measured(*trained(make))) == ["rewind"]


class TestNotMeasured:
    def test_without_what_training_began_with(self):
        net, _ = trained(lambda: ResMLP((8,), 4, depth=2, width=16), steps=1)
        assert measured(net, None) == {}

    def test_without_class_labels(self):
        net, began = trained(lambda: ResMLP((8,), 4, depth=2, width=16), steps=1)
        subject = make_subject(net, *rows())
        assert measure_rewind(replace(subject, initial=lambda: began, test=None)) == {}

    def test_a_block_that_is_not_trained(self):
        net, began = trained(lambda: ResMLP((8,), 4, depth=3, width=16))
        net.blocks[1].requires_grad_(False)
        assert measured(net, began)["rewind"].isnan().tolist() == [True, False, True, False]

    def test_a_net_of_which_no_block_is_trained_is_not_built_again(self):
        net, _ = trained(Normed, steps=1)
        net.blocks.requires_grad_(False)

        def fail():
            raise AssertionError

        found = measure_rewind(replace(make_subject(net, *rows()), initial=fail))
        assert {name: values.isnan().all().item() for name, values in found.items()} == {
            "rewind": True,
            "rewind_refit": True,
        }

    def test_blocks_that_share_a_weight(self):
        net, began = trained(Twice)
        found = measured(net, began, taps=("stem", "blocks.*"))["rewind"]
        assert found.isnan().tolist() == [True, False, True, True, False]
        assert found[1].item() == share_right(put_back(net, began, "blocks.0."))
        assert found[4].item() == share_right(put_back(net, began, "blocks.3."))


def test_skipping_a_block_is_the_net_without_it():
    net, x, y = make_net(depth=3)
    subject = make_subject(net, x, y)
    found = measure_skips(subject)["skip_one"]
    assert found.isnan().tolist() == [True, False, False, False]
    for tap in (1, 2, 3):
        without = copy.deepcopy(net)
        del without.blocks[tap - 1]
        expected = (without(x).argmax(1) == y).double().mean()
        torch.testing.assert_close(found[tap], expected)
    assert not net.blocks[0]._forward_hooks


def test_there_is_nothing_to_skip_without_a_residual_block():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    subject = make_subject(net, torch.randn(20, 8), torch.arange(20) % 4, taps=("0", "1"))
    assert measure_skips(subject)["skip_one"].isnan().all()


def test_labels_are_needed_to_skip():
    net, x, y = make_net(depth=1, steps=1)
    with pytest.raises(CreditscopeError, match="class labels"):
        measure_skips(replace(make_subject(net, x, y), test=None))
