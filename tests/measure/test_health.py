"""What modules of a watched model show: against NumPy, in one forward, one transfer, and whatever the scale."""

from collections import Counter
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs
from creditscope.measure import snapshot as snapshots
from creditscope.measure.movement import ENTRIES
from creditscope.record import CutFacts

ROWS = 96


class Functional(nn.Module):
    """A block whose activation is a function, not a module."""

    def __init__(self, act=functional.relu):
        super().__init__()
        self.first, self.second, self.act = nn.Linear(12, 12), nn.Linear(12, 12), act

    def forward(self, h: Tensor) -> Tensor:
        return self.second(self.act(self.first(h)))


def data(classes: int = 3) -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(5)
    return torch.randn(ROWS, 6, generator=drawn), torch.arange(ROWS) % classes


def net(*blocks: nn.Module) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 12), *blocks, nn.Linear(12, 3))


def watch(model: nn.Module, taps=("1",), **options):
    scope = cs.watch(model, taps=list(taps), **options)
    return scope, scope.snapshot(*data(), tier="quick", epoch=0)


def at(scope, taken, name: str, quantity: str):
    place = [m.name for m in scope.records[0].facts.modules].index(name)
    return getattr(taken.modules, quantity)[place]


def outputs(model: nn.Module, name: str) -> np.ndarray:
    found = []
    hand = model.get_submodule(name).register_forward_hook(
        lambda m, a, out: found.append(out.detach().double().numpy())
    )
    model(data()[0])
    hand.remove()
    return found[0].reshape(len(found[0]), -1)


@pytest.mark.parametrize("name", ["0", "1", "2"])
def test_sizes_dispersion_and_rank_are_those_of_numpy(name):
    model = net(nn.Sequential(nn.Linear(12, 12), nn.Tanh()))
    scope, taken = watch(model)
    x = outputs(model, name)
    rms = np.sqrt((x**2).mean())
    assert at(scope, taken, name, "rms") == pytest.approx(rms, rel=1e-5)
    few = x[::2]  # at most 64 of 96 rows
    expected = np.sqrt(few.var(0).mean() / (few**2).mean())
    assert at(scope, taken, name, "dispersion") == pytest.approx(expected, rel=1e-5)
    squares = np.linalg.svd(few - few.mean(0), compute_uv=False) ** 2
    assert at(scope, taken, name, "rank") == pytest.approx(squares.sum() ** 2 / (squares**2).sum(), rel=1e-4)


@pytest.mark.parametrize("block", [Functional, lambda: nn.Sequential(nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 12))])
def test_dead_units_are_counted_after_the_activation_whether_it_is_a_module_or_a_function(block):
    model = net(block())
    first = model[1].first if isinstance(model[1], Functional) else model[1][0]
    with torch.no_grad():
        first.bias[:9] = -100.0
    scope, taken = watch(model)
    name = "1.first" if isinstance(model[1], Functional) else "1.1"
    assert at(scope, taken, name, "dead") == pytest.approx(9 / 12)
    assert {m.owner for m in scope.records[0].facts.modules if m.name == name} == {
        "1.first" if "first" in name else "1.0"
    }


@pytest.mark.parametrize("act", [torch.tanh, torch.sigmoid])
def test_saturated_entries_are_those_next_to_a_bound(act):
    model = net(Functional(act))
    with torch.no_grad():
        model[1].first.weight.mul_(60)
    scope, taken = watch(model)
    x = act(torch.as_tensor(outputs(model, "1.first")[::2])).numpy()
    low = {torch.tanh: -1, torch.sigmoid: 0}[act]
    near = 0.025 * (1 - low) / 2
    assert at(scope, taken, "1.first", "saturated") == pytest.approx(
        ((x < low + near) | (x > 1 - near)).mean(), abs=1e-6
    )


def test_data_that_are_zero_are_no_dead_units():
    scope = cs.watch(model := net(Functional()), taps=["1"])
    x, y = data()
    x[:, 2:] = 0
    taken = scope.snapshot(x, y, tier="quick")
    assert at(scope, taken, "0", "dead") is None or at(scope, taken, "0", "dead") < 0.5
    assert model.training


def test_updates_are_relative_and_what_did_not_move_is_told():
    model = net(Functional())
    scope, first = watch(model)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        model[0].weight.add_(0.01 * torch.randn_like(model[0].weight))
        model[2].bias[1] += 1e-3
    taken = scope.snapshot(*data(), tier="quick", epoch=1)
    names = [w.name for w in scope.records[0].facts.weights]
    assert set(first.weights.update) == {None}
    for name, update, changed in zip(names, taken.weights.update, taken.weights.changed, strict=True):
        p = dict(model.named_parameters())[name].detach()
        expected = float((p - before[name]).norm() / torch.maximum(p.norm(), before[name].norm()))
        assert (update, bool(changed)) == (pytest.approx(expected, rel=1e-4, abs=1e-12), expected > 0), name


def test_a_change_outside_the_sample_is_seen():
    model = nn.Sequential(nn.Linear(6, 12), nn.Linear(12, 3 * ENTRIES), nn.Linear(3 * ENTRIES, 3))
    scope, _ = watch(model)
    with torch.no_grad():
        model[1].weight.view(-1)[1] += 1.0
    taken = scope.snapshot(*data(), tier="quick", epoch=1)
    place = [w.name for w in scope.records[0].facts.weights].index("1.weight")
    assert (taken.weights.changed[place], sum(taken.weights.changed)) == (1, 1)


def test_one_forward_one_backward_and_one_transfer():
    counts = Counter()

    class Counted(nn.Sequential):
        def forward(self, input):
            counts.update(["forward"])
            return super().forward(input)

    scope, _ = watch(Counted(*net(nn.Sequential(nn.Linear(12, 12), nn.ReLU()))))
    counts.clear()
    grad, host = torch.autograd.grad, snapshots.to_host
    with (
        mock.patch.object(
            torch.autograd, "grad", side_effect=lambda *a, **k: counts.update(["backward"]) or grad(*a, **k)
        ),
        mock.patch.object(
            snapshots, "to_host", side_effect=lambda *a, **k: counts.update(["transfer"]) or host(*a, **k)
        ),
    ):
        scope._bind = lambda rows, again: scope._application  # the anatomy is read by forwards of its own
        scope.snapshot(*data(), tier="quick", epoch=1)
    assert counts == {"forward": 1, "backward": 1, "transfer": 1}


def test_nothing_of_the_model_is_touched():
    model = net(nn.Sequential(nn.Linear(12, 12), nn.Dropout(0.5), nn.ReLU()))
    before, state = {n: p.detach().clone() for n, p in model.named_parameters()}, torch.get_rng_state()
    watch(model)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[n], p) and p.grad is None for n, p in model.named_parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


class Joined(nn.Module):
    """A block that adds in some way."""

    def __init__(self, how):
        super().__init__()
        self.branch, self.how = nn.Linear(12, 12), how

    def forward(self, h: Tensor) -> Tensor:
        return self.how(h, self.branch(h))


@pytest.mark.parametrize(
    ("how", "cuts"),
    [
        (lambda h, f: h + f, None),
        (lambda h, f: h.detach() + f, CutFacts(skips=("1",))),
        (lambda h, f: torch.cat([h.detach(), f], 1)[:, :12], CutFacts(skips=("1",))),
        (lambda h, f: h + f.detach(), CutFacts(detached=("1",))),
        (lambda h, f: f + (f.round() - f).detach() + h, None),  # straight through
        (lambda h, f: (f.detach().mean(), h + f)[1], None),  # for a log
    ],
    ids=["whole", "skip", "joined", "branch", "straight through", "log"],
)
def test_detached_states_matter_where_a_path_is_cut(how, cuts):
    scope, _ = watch(net(Joined(how)))
    assert scope.records[0].facts.cuts == cuts
