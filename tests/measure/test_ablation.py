"""Blocks put back to where they began, or left out: against copies of the net that are changed by hand."""

import copy
from dataclasses import replace

import pytest
import torch
from builders import make_facts, make_snapshot
from subjects import learn, make_net, make_subject
from torch import Tensor, nn

from creditscope.auditing.depth import rewound_blocks
from creditscope.errors import CreditscopeError
from creditscope.measure.ablation import measure_rewind, measure_skips
from creditscope.nets.resmlp import ResMLP
from creditscope.stack import Batch

ROWS = 600


class Residual(nn.Module):
    def __init__(self, blocks, norm: type[nn.Module]):
        super().__init__()
        self.stem, self.blocks = nn.Sequential(nn.Linear(8, 16), norm(16)), nn.ModuleList(blocks)
        self.norm, self.head = norm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.head(self.norm(h))


def with_norms() -> Residual:
    """Blocks with batch norms; that of the last has no weights."""
    norms = [nn.BatchNorm1d(16, affine=i < 2) for i in range(3)]
    return Residual([nn.Sequential(nn.Linear(16, 16), norm, nn.ReLU()) for norm in norms], nn.BatchNorm1d)


def with_a_shared_weight() -> Residual:
    """The second block's matrix is also that of the third."""
    blocks = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)]
    blocks[2][0].weight = blocks[1][0].weight
    return Residual(blocks, nn.Identity)


def rows() -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + 2 * (x[:, 1] * x[:, 2] > 0).long()


def trained(make, *, steps: int = 60) -> tuple[nn.Module, dict[str, Tensor]]:
    """A net that has learnt something of the rows, and what it began with."""
    torch.manual_seed(0)
    net = make()
    began = copy.deepcopy(net.state_dict())
    learn(net, *rows(), steps)
    return net.eval(), began


def resmlp(depth: int = 2) -> ResMLP:
    return ResMLP((8,), 4, depth=depth, width=16)


@pytest.fixture
def normed():
    return trained(with_norms)


def measured(net: nn.Module, began: dict[str, Tensor] | None, rule: str = "bp") -> dict[str, Tensor]:
    subject = make_subject(net, *rows(), rule)
    return measure_rewind(replace(subject, initial=None if began is None else lambda: began))


def put_back(net: nn.Module, began: dict[str, Tensor], prefix: str) -> nn.Module:
    """A copy in which all that begins with the prefix is as it was."""
    alike, old = copy.deepcopy(net), {name: tensor for name, tensor in began.items() if name.startswith(prefix)}
    assert old
    alike.load_state_dict({**alike.state_dict(), **old})
    return alike


@torch.no_grad()
def share_right(net: nn.Module) -> float:
    x, y = rows()
    return (net(x).argmax(1) == y).sum().item() / ROWS


def by_hand(net: nn.Module, began: dict[str, Tensor], blocks: int = 3) -> list[float]:
    """Accuracy with each block put back."""
    return [share_right(put_back(net, began, f"blocks.{i}.")) for i in range(blocks)]


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
def test_against_a_net_that_is_put_back_by_hand(rule):
    net, began = trained(lambda: resmlp(3))
    wanted = by_hand(net, began)
    found = measured(net, began, rule)
    assert list(found) == ["rewind"]
    assert found["rewind"].dtype == torch.float64
    assert found["rewind"][0].isnan()
    assert found["rewind"][1:].tolist() == wanted
    assert max(wanted) < share_right(net)
    assert len(set(wanted)) == 3


def test_the_net_and_what_was_kept_stay_as_they_are(normed):
    net, began = normed
    net.train()
    before, kept = copy.deepcopy(net.state_dict()), copy.deepcopy(began)
    measured(net, began)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(torch.equal(tensor, kept[name]) for name, tensor in began.items())
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm1d)]
    assert all(m.training and m.momentum == 0.1 for m in norms)


def test_only_rows_that_are_scored_count():
    net, began = trained(resmlp)
    x, y = rows()
    scored = torch.arange(0, ROWS, 7)
    batches = [Batch(x[:300], y[:300]), Batch(x, y, scored=scored)]
    subject = replace(make_subject(net, x, y), initial=lambda: began, test=lambda: batches)
    with torch.no_grad():
        right = put_back(net, began, "blocks.1.")(x).argmax(1) == y
    wanted = (right[:300].sum() + right[scored].sum()).item() / (300 + len(scored))
    assert measure_rewind(subject)["rewind"][2].item() == wanted


class TestBatchNorm:
    def test_its_statistics_are_put_back_with_its_block_if_they_were_kept(self, normed):
        net, began = normed
        weights_only = {name: began[name] for name, _ in net.named_parameters()}
        wanted, half = by_hand(net, began), by_hand(net, weights_only)
        assert measured(net, began)["rewind"][1:].tolist() == wanted != half
        assert measured(net, weights_only)["rewind"][1:].tolist() == half

    def test_a_norm_outside_of_the_tapped_block_is_put_back_with_the_stage_it_lies_in(self):
        class Before(nn.Module):
            def __init__(self):
                super().__init__()
                self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
                self.norms = nn.ModuleList(nn.BatchNorm1d(16) for _ in range(2))
                self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(2))

            def forward(self, x: Tensor) -> Tensor:
                h = 5 * self.stem(x) + 3
                for norm, block in zip(self.norms, self.blocks, strict=True):
                    h = block(norm(h))
                return self.head(h)

        net, began = trained(Before)
        found = measured(net, began)["rewind"][1:].tolist()
        both = [put_back(put_back(net, began, f"blocks.{i}."), began, f"norms.{i}.") for i in range(2)]
        assert found == [share_right(alike) for alike in both]
        now = {f"norms.{i}.{name}": b for i in range(2) for name, b in net.norms[i].named_buffers()}
        assert found != measured(net, {**began, **now})["rewind"][1:].tolist()  # statistics matter

    def test_statistics_estimated_anew_are_those_of_the_training_rows(self, normed):
        """By hand: each norm normalises what it sees of them by that, and keeps mean and (unbiased) variance."""
        net, began = normed

        def estimate(norm: nn.BatchNorm1d, given: tuple[Tensor], _: Tensor) -> Tensor:
            (h,) = given
            norm.running_mean.copy_(h.mean(0))
            norm.running_var.copy_(h.var(0))
            scaled = (h - h.mean(0)) / (h.var(0, correction=0) + norm.eps).sqrt()
            return scaled if norm.weight is None else scaled * norm.weight + norm.bias

        wanted = []
        for i in range(3):
            alike = put_back(net, began, f"blocks.{i}.")
            norms = [m for m in alike.modules() if isinstance(m, nn.BatchNorm1d)]
            handles = [norm.register_forward_hook(estimate) for norm in norms]
            with torch.no_grad():
                alike(rows()[0][::2])
            for handle in handles:
                handle.remove()
            wanted.append(share_right(alike))
        found = measured(net, began)
        assert found["rewind_refit"][0].isnan()
        assert found["rewind_refit"][1:].tolist() == pytest.approx(wanted, rel=0, abs=1.5 / ROWS)
        assert found["rewind_refit"][1:].tolist() != found["rewind"][1:].tolist()

    def test_an_idle_block_costs_nothing_beside_what_estimating_does(self, normed):
        """Statistics that lag behind the weights: estimating them is a gain that no block has lost or won."""
        net, began = normed
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
            net = with_norms()
            for name, m in list(net.named_modules()):
                if isinstance(m, nn.BatchNorm1d):
                    net.set_submodule(name, nn.BatchNorm1d(16, track_running_stats=False))
            return net

        assert list(measured(*trained(make))) == ["rewind"]


class TestNotMeasured:
    def test_without_class_labels_or_what_training_began_with(self):
        net, began = trained(resmlp, steps=1)
        assert measured(net, None) == {}
        assert measure_rewind(replace(make_subject(net, *rows()), initial=lambda: began, test=None)) == {}

    def test_a_block_that_is_not_trained(self):
        net, began = trained(lambda: resmlp(3))
        net.blocks[1].requires_grad_(False)
        assert measured(net, began)["rewind"].isnan().tolist() == [True, False, True, False]

    def test_a_net_of_which_no_block_is_trained_is_not_built_again(self):
        net, _ = trained(with_norms, steps=1)
        net.blocks.requires_grad_(False)

        def fail():
            raise AssertionError

        found = measure_rewind(replace(make_subject(net, *rows()), initial=fail))
        assert list(found) == ["rewind", "rewind_refit"]
        assert all(values.isnan().all() for values in found.values())

    def test_blocks_that_share_a_weight(self):
        net, began = trained(with_a_shared_weight)
        found = measured(net, began)["rewind"]
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
        torch.testing.assert_close(found[tap], (without(x).argmax(1) == y).double().mean())
    assert not net.blocks[0]._forward_hooks


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(16, 16)

    def forward(self, h: Tensor) -> Tensor:
        h += torch.tanh(self.w(h.clone()))
        return h


class InPlaceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
        self.blocks = nn.ModuleList(InPlace() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h)


def test_a_block_that_works_in_place_is_skipped_too():
    net, _ = trained(InPlaceNet)
    found = measure_skips(make_subject(net, *rows()))["skip_one"]
    wanted = []
    for i in range(3):
        without = copy.deepcopy(net)
        del without.blocks[i]
        wanted.append(share_right(without))
    assert found[1:].tolist() == wanted
    assert len({*wanted, share_right(net)}) == 4


def test_there_is_nothing_to_skip_without_a_residual_block_or_labels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    subject = make_subject(net, torch.randn(20, 8), torch.arange(20) % 4, taps=("0", "1"))
    assert measure_skips(subject)["skip_one"].isnan().all()
    with pytest.raises(CreditscopeError, match="class labels"):
        measure_skips(replace(subject, test=None))
