"""rho and descent: what they are of the gradient, of nothing, at any scale, and against differences taken by hand."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from subjects import make_net, make_subject, rescaled
from torch import nn

from creditscope.measure import functional_net, moves
from creditscope.measure.alignment import measure_alignment
from creditscope.measure.functional_net import Twin, first_rows, held_states, make_twin, replaced_states, row_losses
from creditscope.measure.moves import SIZES, Slope, measure_descent, measure_rho, measure_stage_descent, pearson
from creditscope.measure.nulls import turned_rows
from creditscope.measure.numerics import flat_rows
from creditscope.record.schema import DESCENT_ROWS, DESCENT_TURNS, FRESH_MOVES
from creditscope.rng import generator


@pytest.fixture(scope="module")
def learnt():
    return make_net()


def twin_of(net, x, y, rule="bp", rows=1024, **options) -> Twin:
    return make_twin(make_subject(net, x[:rows], y[:rows], rule, **options))


def with_credits(twin: Twin, credits) -> Twin:
    return replace(twin, seen=replace(twin.seen, credits=list(credits)))


def random_like(tensors):
    stream = torch.Generator().manual_seed(1)
    return [torch.randn(t.shape, generator=stream, dtype=t.dtype) for t in tensors]


@pytest.mark.parametrize("factor", [1.0, 1e8])
def test_rho_of_the_gradient_is_one_and_of_random_credit_zero(learnt, factor):
    net, x, y = learnt
    twin = twin_of(rescaled(net, factor), x, y)
    assert twin.seen.output.dtype == torch.float64
    assert float(measure_rho(twin)["rho"].min()) > 0.99
    nothing = measure_rho(with_credits(twin, random_like(twin.seen.exact)))["rho"]
    assert float(nothing.abs().max()) < 0.02


def test_rho_estimates_cos_F_of_rows_weighted_by_their_states(learnt):
    """The steps are relative to ‖h‖, so that a row weighs ‖h‖² as much."""
    twin = twin_of(*learnt)
    pairs = zip(twin.seen.exact, random_like(twin.seen.exact), strict=True)
    credits = [g + 1.5 * float(g.norm() / r.norm()) * r for g, r in pairs]
    rho = measure_rho(with_credits(twin, credits))["rho"]
    for found, a, g, h in zip(rho.tolist(), credits, twin.seen.exact, twin.seen.states, strict=True):
        size = h.norm(dim=1, keepdim=True)
        assert found == pytest.approx(float(measure_alignment(size * a, size * g)["cos_F"]), abs=0.02)
        assert 0.2 < found < 0.7


@pytest.mark.parametrize("seed", [0, 3])
def test_rho_against_differences_taken_by_hand(learnt, monkeypatch, seed):
    """The net's upper part called directly, one direction after the other, each from the run's own seed."""
    net, x, y = learnt
    twin = twin_of(net, x, y, "dfa", rows=40, seed=seed)
    monkeypatch.setattr(moves, "DIRECTIONS", 5)
    found = measure_rho(twin)["rho"]
    upper, stream = copy.deepcopy(net).double(), generator(seed, "directions")
    h, a = twin.seen.states[1], twin.seen.credits[1].numpy()
    told, done = [], []

    def loss(state):
        for block in upper.blocks[1:]:
            state = block(state)
        return nn.functional.cross_entropy(upper.head(upper.norm(state)), y[:40], reduction="none").detach().numpy()

    for _ in range(5):
        v = torch.randn(h.shape, generator=stream).double().numpy()
        v *= 1e-3 * np.linalg.norm(h, axis=1, keepdims=True) / np.linalg.norm(v, axis=1, keepdims=True)
        told.append((v * a).sum(1))
        done.append(loss(h + torch.from_numpy(v)) - loss(h))
    expected = np.corrcoef(np.ravel(told), np.ravel(done))[0, 1]
    np.testing.assert_allclose(float(found[1]), expected, rtol=1e-6)


def test_pearson_against_numpy():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 500)) + rng.normal(size=500)
    np.testing.assert_allclose(float(pearson(torch.tensor(x), torch.tensor(y))), np.corrcoef(x, y)[0, 1])
    assert torch.isnan(pearson(torch.ones(5), torch.arange(5.0)))


def test_losses_keep_their_digits_where_rows_are_fitted():
    logits = torch.tensor([[40.0, 0.0, 0.0], [1.0, 2.0, 0.5], [0.0, 60.0, 0.0]], dtype=torch.float64)
    target = torch.tensor([0, 0, 0])
    found = row_losses(logits, target, None, None)
    plain = nn.functional.cross_entropy(logits, target, reduction="none")
    np.testing.assert_allclose(found[1:], plain[1:])
    np.testing.assert_allclose(float(found[0]), np.log1p(2 * np.exp(-40.0)), rtol=1e-14)
    masked = row_losses(logits, torch.tensor([0, -1, 0]), None, torch.tensor([True, False, False]))
    np.testing.assert_allclose(masked, [float(found[0]), 0, 0])


@pytest.mark.slow
def test_descent_of_the_gradient_is_exactly_one_and_of_its_negative_zero(learnt):
    twin = twin_of(*learnt)
    assert measure_descent(twin)["descent"].tolist() == [1.0] * 4
    assert measure_stage_descent(twin)["descent_stage"].tolist() == [1.0] * 4
    uphill = with_credits(twin, [-g for g in twin.seen.exact])
    assert measure_descent(uphill)["descent"].tolist() == [0.0] * 4
    against = replace(twin.seen, rule_weights={name: -g for name, g in twin.seen.exact_weights.items()})
    assert measure_stage_descent(replace(twin, seen=against))["descent_stage"].tolist() == [0.0] * 4


def test_descent_against_steps_taken_by_hand(learnt):
    net, x, y = learnt
    twin = twin_of(net, x, y, "fa", rows=60)
    found, by_stage = measure_descent(twin), measure_stage_descent(twin)["descent_stage"]
    plain = copy.deepcopy(net).double()

    def loss(state):
        return float(nn.functional.cross_entropy(plain.head(plain.norm(plain.blocks[2](state))), y[:60]).detach())

    def best(direction):
        h = twin.seen.states[2]
        moved = [loss(h - t * float(h.norm() / direction.norm()) * direction) for t in SIZES]
        return max(0.0, loss(h) - min(moved))

    expected = best(twin.seen.credits[2]) / best(twin.seen.exact[2])
    assert 0 < expected < 1
    np.testing.assert_allclose(float(found["descent"][2]), expected, rtol=1e-9)

    def best_weights(gradients):
        names = [name for name in dict(plain.named_parameters()) if name.startswith("blocks.1.")]
        weights = {name: plain.get_parameter(name).detach().clone() for name in names}
        length = np.sqrt(sum(float(w.square().sum()) for w in weights.values()))
        size = np.sqrt(sum(float(gradients[name].square().sum()) for name in names))
        losses = []
        for t in (0, *SIZES):
            moved = copy.deepcopy(plain)
            for name in names:
                moved.get_parameter(name).data = weights[name] - t * length / size * gradients[name]
            losses.append(float(nn.functional.cross_entropy(moved(x[:60].double()), y[:60]).detach()))
        return max(0.0, losses[0] - min(losses))

    expected = best_weights(twin.seen.rule_weights) / best_weights(twin.seen.exact_weights)
    np.testing.assert_allclose(float(by_stage[2]), expected, rtol=1e-9)


def test_descent_of_random_credit_is_its_null(learnt):
    twin = twin_of(*learnt, rows=128)
    found = measure_descent(with_credits(twin, random_like(twin.seen.exact)))
    below = found["descent_null"] + 4 * found["descent_null_sd"] + 0.02
    assert (found["descent"] <= below).all()
    assert float(found["descent_null"].max()) < 0.3


@pytest.mark.slow
def test_descent_does_not_change_with_the_scale_of_the_stream(learnt):
    net, x, y = learnt
    small, large = (twin_of(rescaled(net, factor), x, y, "dfa", rows=64) for factor in (1.0, 1e8))
    for key, value in measure_descent(small).items():
        torch.testing.assert_close(measure_descent(large)[key], value, rtol=1e-6, atol=1e-9)


def test_a_stage_without_trained_weights_has_no_descent(learnt):
    net, x, y = learnt
    frozen = copy.deepcopy(net)
    frozen.blocks[1].requires_grad_(False)
    found = measure_stage_descent(twin_of(frozen, x, y, rows=32))["descent_stage"]
    assert found.isnan().tolist() == [False, False, True, False]


def test_credit_that_is_zero_has_no_descent(learnt):
    twin = twin_of(*learnt, rows=32)
    found = measure_descent(with_credits(twin, [torch.zeros_like(g) for g in twin.seen.exact]))
    assert all(found[name].isnan().all() for name in ("descent", "descent_null", "descent_null_sd"))


def test_holding_states_is_the_same_as_computing_them(learnt):
    net, twin = learnt[0], twin_of(*learnt, rows=32)
    before = {name: dict(vars(module)) for name, module in net.named_modules()}
    state = twin.seen.states[2] + 0.1
    with replaced_states(net, {"blocks.1": lambda h: state}):
        computed = twin.losses()
    assert set(twin._held_below(3)) == {"stem", "blocks.0", "blocks.1"}
    torch.testing.assert_close(twin.from_tap(2)(state), computed, rtol=1e-14, atol=0)
    with pytest.raises(ZeroDivisionError), held_states(net, {"stem": state}):
        raise ZeroDivisionError
    for name, module in net.named_modules():
        assert vars(module).keys() == before[name].keys()
    net.stem.register_forward_hook(lambda module, args, output: output)
    try:
        assert twin._held_below(3) == {}  # a hook of the user's would be applied twice
        torch.testing.assert_close(twin.from_tap(2)(state), computed, rtol=1e-14, atol=0)
    finally:
        net.stem._forward_hooks.clear()


class Tied(nn.Module):
    """One layer used in two stages: moving it moves both."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))
        self.second[0].weight = self.first[0].weight
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.second(self.first(x)))


def test_shared_weights_are_moved_everywhere():
    torch.manual_seed(0)
    net, x, y = Tied(), torch.randn(32, 8), torch.arange(32) % 4
    twin = twin_of(net, x, y, taps=("first", "second"))
    moved = {"first.0.weight": twin.subject.tensors["first.0.weight"] * 2}
    doubled = copy.deepcopy(net).double()
    doubled.first[0].weight.data *= 2
    expected = nn.functional.cross_entropy(doubled(x.double()), y, reduction="none").detach()
    torch.testing.assert_close(twin.from_stage(1)(moved), expected)


def test_interacting_rows_are_one_sample(monkeypatch):
    """Train-mode BatchNorm, which cannot be mapped either: one by one, and the whole state moves."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 10), nn.BatchNorm1d(10), nn.Tanh(), nn.Linear(10, 3))
    x, y = torch.randn(24, 6), torch.arange(24) % 3
    monkeypatch.setattr(moves, "JOINT_DIRECTIONS", 64)
    twin = twin_of(net, x, y, taps=("0", "1"))
    assert twin.subject.applied.anatomy.rows_interact
    assert float(measure_rho(twin)["rho"].min()) > 0.99
    assert measure_descent(twin)["descent"].tolist() == [1.0, 1.0]
    assert first_rows(twin.subject, 4) is twin.subject


class Casts(nn.Module):
    """A model that goes back to float32 on its own."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.stem(x)).float().to(self.head.weight.dtype)).float()


def test_a_net_that_casts_is_measured_in_its_own_precision_and_said_to_be():
    torch.manual_seed(0)
    twin = twin_of(Casts(), torch.randn(64, 8), torch.arange(64) % 4, taps=("stem",))
    assert twin.seen.output.dtype == torch.float32
    assert "float32" in twin.note
    assert float(measure_rho(twin)["rho"].min()) > 0.99


def test_rows_of_descent_are_those_with_a_loss(learnt):
    net, x, y = learnt
    subject = make_subject(net, x, y)
    masked = replace(subject, mask=torch.arange(1024) >= 900)
    assert torch.equal(first_rows(masked, 50).target, y[900:950])
    assert torch.equal(first_rows(subject, 50).inputs, x[:50])
    assert DESCENT_ROWS == 256


@pytest.mark.slow
def test_the_nulls_of_rho_and_descent_are_those_of_credit_from_fresh_feedback(learnt):
    """DFA's credit e Bᵀ with B drawn here from the named streams."""
    twin, drawn = twin_of(*learnt, "dfa"), []
    rho, descent, error = measure_rho(twin), measure_descent(twin), twin.seen.errors.error
    for draw in range(FRESH_MOVES):
        stream = generator(twin.subject.seed, "fresh feedback", draw)
        sizes = [h.shape[-1] for h in twin.seen.states]
        credits = [error @ (torch.randn(size, 4, generator=stream) / 2).double().T for size in sizes]
        drawn.append(with_credits(twin, credits))
    for found, name, one in ((rho, "rho", measure_rho), (descent, "descent", measure_descent)):
        by_hand = torch.stack([one(fresh)[name] for fresh in drawn])
        torch.testing.assert_close(found[f"fresh_{name}"], by_hand.mean(0))
        torch.testing.assert_close(found[f"fresh_{name}_sd"], by_hand.std(0))
    exact = measure_rho(with_credits(twin, twin.seen.exact))["rho"]
    torch.testing.assert_close(rho["rho_exact"], exact)
    assert float(exact.min()) > 0.99


@pytest.fixture(scope="module")
def twin():
    return twin_of(*make_net(depth=2, width=12, steps=20), "dfa", rows=24)


class TestRotations:
    def test_all_rotations_at_once_are_as_one_by_one(self, twin):
        found = measure_descent(twin)
        base, stream = twin.mean_of(twin.losses()).detach(), generator(twin.subject.seed, "rotations")
        for tap, (h, a, g) in enumerate(zip(twin.seen.states, twin.seen.credits, twin.seen.exact, strict=True)):
            slope = Slope(twin, base, h, twin.from_tap(tap), h.numel())
            turned = [t.view_as(a) for _ in range(DESCENT_TURNS) for t in turned_rows(flat_rows(a), stream, 1)]
            shares = torch.cat([slope.best([t]) for t in turned]) / slope.best([g])
            assert len(shares) == 64
            torch.testing.assert_close(found["descent_null"][tap], shares.mean(), rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(found["descent_null_sd"][tap], shares.std(), rtol=1e-7, atol=1e-12)

    @pytest.mark.slow
    def test_how_many_go_together_does_not_matter(self, twin, monkeypatch):
        together = measure_descent(twin) | measure_stage_descent(twin)
        monkeypatch.setattr(functional_net, "TOGETHER", {"cpu": 1})
        for key, value in (measure_descent(twin) | measure_stage_descent(twin)).items():
            torch.testing.assert_close(value, together[key], rtol=1e-9, atol=1e-12)

    def test_exact_credit_is_not_turned_and_has_nothing_to_draw_anew(self):
        twin = twin_of(*make_net(depth=1, width=8, steps=5), rows=24)
        found = measure_descent(twin)
        assert found["descent"].tolist() == [1.0, 1.0]
        assert found["descent_null"].isnan().all()
        assert not any(name.startswith("fresh") for name in {**measure_rho(twin), **found})
