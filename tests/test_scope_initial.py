"""A watched model beside what it began with: blocks put back, and when a snapshot is one of an untrained model."""

import copy

import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.errors import CreditscopeError

pytestmark = pytest.mark.usefixtures("own_stream")

ROWS = 120
KEEP = r"copy\.deepcopy\(model\.state_dict\(\)\)"
QUICK = {"tier": "quick"}


def net() -> nn.Sequential:
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2)]
    return nn.Sequential(nn.Linear(4, 8), *blocks, nn.Linear(8, 3))


def normed() -> nn.Sequential:
    blocks = [nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True)) for _ in range(2)]
    return nn.Sequential(nn.Linear(4, 8), *blocks, nn.Linear(8, 3))


def begun(make=net) -> tuple[nn.Sequential, dict[str, torch.Tensor]]:
    """A model and what it began with."""
    model = make()
    return model, copy.deepcopy(model.state_dict())


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(ROWS, 4, generator=torch.Generator().manual_seed(0))
    return x, x[:, :3].argmax(1)


def learn(model: nn.Module, steps: int = 30) -> None:
    x, y = rows()
    optimiser = torch.optim.Adam((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()


def share_right(model: nn.Module) -> float:
    x, y = rows()
    with torch.no_grad():
        return (model(x).argmax(1) == y).sum().item() / len(y)


def put_back(model: nn.Module, began: dict[str, torch.Tensor], block: str) -> nn.Module:
    alike = copy.deepcopy(model)
    old = {name: tensor for name, tensor in began.items() if name.startswith(f"{block}.")}
    alike.load_state_dict({**alike.state_dict(), **old})
    return alike


class TestRewind:
    @pytest.mark.parametrize("make", [net, normed])
    @pytest.mark.parametrize("tier", ["standard", "full"])
    def test_every_snapshot_of_these_tiers_puts_blocks_back(self, make, tier):
        model, began = begun(make)
        scope = cs.watch(model, taps=["1", "2"], stem="0", initial=began)
        for _ in range(2):
            learn(model.train())
            model.eval()
            taken = scope.snapshot(*rows(), tier=tier)
            assert taken.notes == ()
            assert taken.taps.rewind == (None, *(share_right(put_back(model, began, block)) for block in "12"))
            assert len(taken.taps.rewind_refit) == (3 if make is normed else 0)
            assert taken.accuracy == share_right(model)
        assert scope.snapshots[0].taps.rewind != scope.snapshots[1].taps.rewind

    def test_not_at_tier_quick_nor_without_what_it_began_with_nor_without_labels(self):
        (model, began), (x, y) = begun(), rows()
        quick = cs.watch(model, taps="1", initial=began).snapshot(x, y, tier="quick")
        assert (quick.taps.rewind, quick.taps.common) == ((), ())
        assert cs.watch(model, taps="1").snapshot(x, y, tier="full").taps.rewind == ()
        other = cs.watch(model, taps="1", initial=began, loss=lambda output, target: output.square().sum(1))
        assert other.snapshot(x, y).taps.rewind == ()

    def test_rows_outside_the_mask_do_not_count(self):
        model, began = begun()
        learn(model)
        (x, y), mask = rows(), torch.arange(ROWS) >= 90
        scope = cs.watch(model, taps=["1", "2"], initial=began)
        some = scope.snapshot(x, torch.where(mask, y, -1), mask=mask)
        assert some.taps.rewind == scope.snapshot(x[mask], y[mask]).taps.rewind
        assert some.taps.rewind[1] is not None

    def test_weights_kept_before_conversion_will_do(self):
        model, began = begun()
        cs.convert(model, "fa", taps=["1", "2"], stem="0", inputs=rows()[0])
        assert any(name not in began for name in model.state_dict())
        scope = cs.watch(model, taps=["1", "2"], stem="0", initial=began)
        assert scope.snapshot(*rows()).untrained
        learn(model)
        taken = scope.snapshot(*rows())
        assert not taken.untrained
        assert taken.taps.rewind == (None, *(share_right(put_back(model, began, block)) for block in "12"))

    def test_kept_in_another_number_format(self):
        model = net().double()
        began = {name: tensor.float() for name, tensor in model.state_dict().items()}
        x, y = rows()
        taken = cs.watch(model, taps=["1", "2"], initial=began).snapshot(x.double(), y)
        assert taken.taps.rewind[1] is not None
        assert taken.untrained  # they were float32 numbers before

    def test_the_model_and_what_was_kept_are_not_touched(self):
        model, began = begun(normed)
        learn(model)
        before, kept, stream = copy.deepcopy(model.state_dict()), copy.deepcopy(began), torch.get_rng_state()
        cs.watch(model, taps=["1", "2"], stem="0", initial=began).snapshot(*rows())
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
        assert all(torch.equal(tensor, kept[name]) for name, tensor in began.items())
        assert all(module.training for module in model.modules())
        assert torch.equal(stream, torch.get_rng_state())


class TestUntrained:
    def test_by_what_was_kept(self):
        model, began = begun()
        scope = cs.watch(model, taps="1", initial=began)
        assert scope.snapshot(*rows(), epoch=7).untrained
        learn(model, steps=1)
        assert not scope.snapshot(*rows(), epoch=8).untrained

    def test_what_is_frozen_need_not_be_as_it_was(self):
        model, began = begun()
        with torch.no_grad():
            model[0].weight.add_(1)
        assert not cs.watch(model, taps="1", initial=began).snapshot(*rows(), **QUICK).untrained
        model[0].weight.requires_grad_(False)
        assert cs.watch(model, taps="1", initial=began).snapshot(*rows(), **QUICK).untrained

    def test_without_it_by_the_epoch_that_is_given_and_weights_that_did_not_change(self):
        scope = cs.watch(net(), taps="1")
        assert scope.snapshot(*rows(), epoch=0, **QUICK).untrained
        assert not scope.snapshot(*rows(), epoch=1, **QUICK).untrained
        taken = cs.watch(net(), taps="1").snapshot(*rows(), **QUICK)
        assert (taken.epoch, taken.untrained) == (0, False)  # an epoch that nobody gave says nothing

    def test_the_first_epoch_of_a_loop_that_counts_from_0_is_trained(self):
        scope = cs.watch(model := net(), taps="1")
        for epoch in range(2):
            learn(model, steps=1)
            assert not scope.snapshot(*rows(), epoch=epoch, **QUICK).untrained

    @pytest.mark.parametrize("name", ["0.weight", "2.0.bias", "3.weight"])
    def test_one_weight_that_has_changed_is_enough(self, name):
        model = net()
        scope = cs.watch(model, taps="1")
        with torch.no_grad():
            tensor = model.get_parameter(name)
            tensor.copy_(-tensor)  # of the same size
        assert not scope.snapshot(*rows(), epoch=0, **QUICK).untrained

    def test_layers_that_are_not_there_yet_can_be_watched(self):
        model = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.Linear(8, 3))
        scope = cs.watch(model, taps="1")
        model(rows()[0])
        assert not scope.snapshot(*rows(), epoch=0, **QUICK).untrained


ALIKE = net().state_dict()


@pytest.mark.parametrize(
    ("initial", "said"),
    [
        (lambda own: [1, 2], "a list"),
        (lambda own: net(), "a Sequential"),
        (lambda own: {}, r"lacks 0\.weight, 0\.bias, 1\.0\.weight, 1\.0\.bias and 4 more"),
        (lambda own: {**ALIKE, "1.0.weight": torch.zeros(8, 9)}, r"1\.0\.weight .*\(8, 8\), but got shape \(8, 9\)"),
        (lambda own: {**ALIKE, "3.bias": [0, 0, 0]}, r"3\.bias .*\(3,\), but got a list"),
        (lambda own: own, "the model itself, "),
    ],
    ids=["list", "model", "empty", "shape", "no tensor", "its own"],
)
def test_what_is_not_a_copy_of_its_parameters_is_refused(initial, said):
    model = net()
    with pytest.raises(CreditscopeError, match=rf"{said}.* {KEEP}"):
        cs.watch(model, taps="1", initial=initial(model.state_dict()))


def test_shares_are_in_float64():
    """A tenth in float32 is more than a tenth: a model at chance would be above it."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 10))
    with torch.no_grad():
        model[1].weight.zero_()
        model[1].bias.copy_(torch.arange(10) == 3)
    scope = cs.watch(model, taps="0")
    taken = scope.snapshot(torch.randn(100, 4), torch.arange(100) % 10, tier="quick")
    assert taken.accuracy == 0.1
    assert scope.records[0].facts.best_constant == 0.1 == scope.records[0].facts.chance
