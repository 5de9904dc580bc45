"""Snapshots: honest rows, no dependence on batch or scale, identities that must hold, one transfer."""

import copy

import numpy as np
import pytest
import torch
from subjects import make_net, rescaled
from torch import nn

import creditscope as cs
from creditscope.auditing import audit
from creditscope.losses import row_errors
from creditscope.measure.observation import gather_facts, observe
from creditscope.measure.snapshot import OVERFLOWED, LastStep, measure_noise, measure_scale, take_snapshots
from creditscope.measure.weights import Direction, measure_update
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.taps import resolve_taps


@pytest.fixture(scope="module")
def learnt():
    return make_net(steps=60)


def observed(net, x, y, **options):
    """What is seen of the net under DFA, and its facts."""
    rule, taps = rule_class("dfa")(), resolve_taps(net, ["stem", "blocks.*"])
    application = apply_rule(rule, net, taps, x[:8], generator(0, "feedback"))
    return observe(net, application.applied, x, y, **options), gather_facts(rule, application, stem_tap=True)


def scoped(net, rule="dfa", **options):
    return cs.watch(net, taps="blocks.*", stem="stem", rule=rule, **options)


def test_loss_on_8_of_64_rows_reports_the_8_and_counts_56(learnt):
    net, x, y = learnt
    weight = torch.zeros(64)
    weight[::8] = 1

    def partial(output, target):
        return nn.functional.cross_entropy(output, target, reduction="none") * weight[: len(output)]

    some = scoped(net, loss=partial).snapshot(x[:64], y[:64])
    only = scoped(net).snapshot(x[:64:8], y[:64:8])
    assert some.taps.rows_used == (8,) * 4
    assert some.taps.rows_no_gradient == (56,) * 4
    assert some.rows_covered == 8
    assert some.rows_fitted == 0
    for key in ("cos", "z", "g_norm", "ratio", "angle", "g_rel"):
        np.testing.assert_allclose(getattr(some.taps, key), getattr(only.taps, key), rtol=1e-3, atol=1e-5)
    masked = scoped(net).snapshot(x[:64], y[:64], mask=weight.bool())
    np.testing.assert_allclose(masked.taps.cos, only.taps.cos, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(masked.loss, only.loss, rtol=1e-5)
    np.testing.assert_allclose(masked.accuracy, only.accuracy)


def test_gradient_norms_do_not_depend_on_the_batch_size(learnt):
    net, x, y = learnt
    (few, _), (many, _) = observed(net, x[:64], y[:64]), observed(net, x, y)
    for a, b in zip(few.exact, many.exact, strict=True):
        torch.testing.assert_close(a, b[:64], rtol=1e-4, atol=1e-7)
    tiled_x, tiled_y = x[:64].repeat(8, 1), y[:64].repeat(8)
    scope = cs.watch(net, taps="blocks.*", rule="dfa")
    one, eight = scope.snapshot(x[:64], y[:64]), scope.snapshot(tiled_x, tiled_y)
    for key in ("h_norm", "g_rel", "cos", "cos_F", "ratio", "z"):
        np.testing.assert_allclose(getattr(one.taps, key), getattr(eight.taps, key), rtol=2e-3, err_msg=key)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_gradients_at_extreme_scales_keep_norm_and_cosine(learnt, scale):
    """Scale the loss: the gradient scales, its direction does not."""
    net, x, y = learnt

    def loss(output, target, factor=scale):
        return nn.functional.cross_entropy(output, target, reduction="none") * factor

    plain = cs.watch(net, taps="blocks.*", rule="dfa").snapshot(x, y)
    scaled = cs.watch(net, taps="blocks.*", rule="dfa", loss=loss).snapshot(x, y)
    assert scaled.taps.rows_used == plain.taps.rows_used
    np.testing.assert_allclose(scaled.taps.cos, plain.taps.cos, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(np.array(scaled.taps.g_norm) / scale, plain.taps.g_norm, rtol=1e-3)
    np.testing.assert_allclose(scaled.taps.g_rel, plain.taps.g_rel, rtol=1e-3)


@pytest.mark.slow
def test_rescaling_the_stream_by_1e8_changes_no_verdict_and_no_cosine(learnt):
    net, x, y = learnt
    net, big = rescaled(net, 1.0), rescaled(net, 1e8)
    torch.testing.assert_close(big(x), net(x), rtol=1e-3, atol=1e-3)
    scopes = [scoped(n, rule) for n in (net, big) for rule in ("bp", "dfa")]
    snapshots = [scope.snapshot(x, y) for scope in scopes]
    for small, large in ((snapshots[0], snapshots[2]), (snapshots[1], snapshots[3])):
        np.testing.assert_allclose(large.taps.cos, small.taps.cos, atol=2e-4)
        np.testing.assert_allclose(np.array(large.taps.h_norm), 1e8 * np.array(small.taps.h_norm), rtol=1e-3)
        np.testing.assert_allclose(np.array(large.taps.g_norm), 1e-8 * np.array(small.taps.g_norm), rtol=1e-2)
        np.testing.assert_allclose(large.taps.g_rel, small.taps.g_rel, rtol=1e-2)
    verdicts = [str(audit(scope).methods[0].verdict) for scope in scopes]
    assert verdicts[0] == verdicts[2]
    assert [audit(scopes[i]).methods[0].verdict.lines[1].answer for i in (0, 2)] == ["yes", "yes"]
    assert verdicts[1] == verdicts[3]
    floors = [{f.code: f for f in audit(scope).methods[0].findings}["CS002"] for scope in (scopes[1], scopes[3])]
    assert floors[0].published is False
    assert floors[1].published is True  # the published floor is crossed by a change of units


def test_layer_norm_identities_at_the_last_tap(learnt):
    """y = LN(h): Σ_j g_{L,j} = 0 and g_L ⊥ (h_L − mean)."""
    net, x, y = learnt
    net = copy.deepcopy(net).double()
    seen, _ = observed(net, x.double(), y)
    g, h = seen.exact[-1], seen.states[-1]
    size = g.norm(dim=1)
    assert float((g.sum(1).abs() / size).max()) < 1e-10
    centred = h - h.mean(1, keepdim=True)
    assert float(((g * centred).sum(1).abs() / size / centred.norm(dim=1)).max()) < 1e-4  # LN's eps
    sigma = centred.square().mean(1, keepdim=True).add(net.norm.eps).sqrt()
    v = net.norm.weight * (seen.errors.error @ net.head.weight)
    unit = centred / sigma
    by_hand = (v - v.mean(1, keepdim=True) - unit * (v * unit).mean(1, keepdim=True)) / sigma
    torch.testing.assert_close(g, by_hand.detach())


def test_noise_sees_rounding_and_only_rounding(learnt):
    net, x, y = learnt
    clean = cs.watch(net, taps="blocks.*").snapshot(x, y)
    assert all(0 < value < 1e-4 for value in clean.taps.g_noise)
    noisy = copy.deepcopy(net)
    with torch.no_grad():  # a common offset of 1e7 that LayerNorm subtracts again: float32 keeps one digit
        noisy.blocks[-1].w2.bias += 1e7
    drowned = cs.watch(noisy, taps="blocks.*").snapshot(x, y)
    assert drowned.taps.g_noise[-1] > 0.1
    exact = cs.watch(copy.deepcopy(noisy).double(), taps="blocks.*").snapshot(x.double(), y)
    assert exact.taps.g_noise[-1] is None
    assert "float64 already" in exact.notes[0]


def test_noise_is_that_of_the_exact_gradient_whatever_feedback_the_net_carries(learnt):
    net, x, y = learnt
    net = copy.deepcopy(net)
    taps = resolve_taps(net, ["stem", "blocks.*"])
    application = apply_rule(rule_class("fa")(), net, taps, x[:8], generator(0, "feedback"))
    seen = observe(net, application.applied, x, y)
    for a, g, g64 in zip(seen.credits, seen.exact, seen.exact64, strict=True):
        torch.testing.assert_close(g.double(), g64, rtol=1e-2, atol=1e-5)
        assert not torch.allclose(a, g, rtol=0.5)


def test_errors_of_fitted_rows_do_not_cancel():
    logits = torch.tensor([[40.0, 0.0, 0.0], [200.0, 0.0, 0.0]])
    errors = row_errors(logits, torch.tensor([0, 0]))
    np.testing.assert_allclose(errors.error[0, 0], -2 * np.exp(-40.0), rtol=1e-5)
    np.testing.assert_allclose(errors.error[0, 1], np.exp(-40.0), rtol=1e-5)


def test_fitted_rows_take_no_part_although_their_gradient_is_not_zero():
    """Logits of 89 leave an error of 1e-39, a number without all its digits; weights of 100 make 1e-37 of it."""
    net = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Linear(3, 3, bias=False))
    with torch.no_grad():
        net[0].weight.copy_(torch.eye(3)[:, :2])
        net[1].weight.copy_(100 * torch.eye(3))
    x = torch.tensor([[0.89, 0.0], [0.89, 0.0], [0.01, 0.0], [0.02, 0.0], [0.03, 0.0]])
    taken = cs.watch(net, taps="0", rule="dfa").snapshot(x, torch.zeros(5, dtype=torch.long))
    open_only = cs.watch(copy.deepcopy(net), taps="0", rule="dfa").snapshot(x[2:], torch.zeros(3, dtype=torch.long))
    assert (taken.rows_fitted, taken.taps.rows_used, taken.taps.rows_no_gradient) == (2, (3,), (2,))
    np.testing.assert_allclose(taken.taps.cos, open_only.taps.cos, rtol=1e-5)
    np.testing.assert_allclose(taken.taps.ratio, open_only.taps.ratio, rtol=1e-5)


def test_one_transfer_to_the_host(learnt, monkeypatch):
    net, x, y = learnt
    seen, facts = observed(net, x, y, noise=False)
    calls = []
    for name in ("tolist", "item", "__float__", "__bool__", "__int__", "cpu", "numpy"):
        original = getattr(torch.Tensor, name)

        def counted(tensor, *args, _original=original, _name=name, **kwargs):
            calls.append(_name)
            return _original(tensor, *args, **kwargs)

        monkeypatch.setattr(torch.Tensor, name, counted)
    take_snapshots(seen, facts, epoch=0)
    assert calls == ["tolist"]


def test_weights_are_told_apart_and_updates_measured(learnt):
    net, x, y = learnt
    scope = scoped(net)
    taken = scope.snapshot(x, y)
    weights = dict(zip((w.name for w in scope.records[0].facts.weights), taken.weights.cos, strict=True))
    assert weights["head.weight"] == pytest.approx(1, abs=1e-5)
    assert abs(weights["stem.weight"]) < 0.9
    assert taken.weights.update_cos == (None,) * len(weights)


def test_update_cosine_and_decrease_against_numpy():
    rng = np.random.default_rng(0)
    gradient = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)}
    update = {name: -0.1 * g + 0.05 * rng.normal(size=g.shape) for name, g in gradient.items()}
    found = measure_update(
        {n: torch.tensor(u) for n, u in update.items()},
        {n: Direction.of(torch.tensor(g)) for n, g in gradient.items()},
    )
    for i, name in enumerate(gradient):
        u, g = update[name].ravel(), -gradient[name].ravel()
        np.testing.assert_allclose(float(found["update_cos"][i]), u @ g / np.linalg.norm(u) / np.linalg.norm(g))
    decreases = np.array([-(update[n] * gradient[n]).sum() for n in gradient])
    np.testing.assert_allclose(found["decrease_share"], decreases / decreases.sum())


def test_gamma_and_its_null_against_numpy():
    """Γ leaves the stem out, Γ without exact taps the last block too; the null's taps are turned independently."""
    net, x, y = make_net(steps=5)
    taken = scoped(net, "block_fa").snapshot(x[:64], y[:64])
    cos, null_sd = np.array(taken.taps.cos), np.array(taken.taps.null_sd)
    assert cos[3] == pytest.approx(1, abs=1e-5)
    np.testing.assert_allclose(taken.gamma, cos[1:].mean(), rtol=1e-5)
    np.testing.assert_allclose(taken.gamma_inexact, cos[1:3].mean(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(taken.gamma_null_sd, np.sqrt((null_sd[1:] ** 2).sum()) / 3, rtol=1e-5)


def test_sizes_of_weight_gradients_are_those_of_the_mean_loss():
    net, x, y = make_net(steps=5)
    plain = copy.deepcopy(net)
    nn.functional.cross_entropy(plain(x[:64]), y[:64]).backward()
    scope = scoped(net, "bp")
    taken = scope.snapshot(x[:64], y[:64]).weights
    expected = [float(plain.get_parameter(w.name).grad.double().norm()) for w in scope.records[0].facts.weights]
    for found in (taken.norm, taken.exact_norm):
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_sizes_of_the_last_step_are_those_it_was_given(learnt):
    """Its gradients are of the mean loss already: nothing is divided by the rows of the snapshot."""
    net, x, y = learnt
    seen, facts = observed(net, x, y, noise=False)
    given = {name: (i + 1) * torch.ones_like(g) for i, (name, g) in enumerate(seen.exact_weights.items())}
    step = LastStep(given, given, {name: -g for name, g in given.items()}, torch.tensor(0.5))
    (taken,) = take_snapshots(seen, facts, epoch=1, last_step=step)
    np.testing.assert_allclose(taken.weights.step_norm, [float(g.norm()) for g in given.values()], rtol=1e-6)
    assert (taken.step_error, set(taken.weights.step_all_zero)) == (0.5, {0})


def test_scales_of_state_and_gradient_against_numpy():
    rng = np.random.default_rng(0)
    h, g, e = 10 * rng.normal(size=(21, 6)), rng.normal(size=(21, 6)), rng.uniform(0.1, 1, size=21)
    norms = [np.linalg.norm(x, axis=1) for x in (h, g)]
    found = measure_scale(torch.from_numpy(h), torch.from_numpy(norms[1]), torch.from_numpy(e))
    np.testing.assert_allclose(found["h_rms"], np.sqrt((h**2).mean()))
    np.testing.assert_allclose(found["g_rel"], np.median(norms[1] * norms[0] / e))
    for name, size in zip(("h_norm", "g_norm"), norms, strict=True):
        quartiles = [float(found[f"{name}{part}"]) for part in ("_q25", "", "_q75")]
        np.testing.assert_allclose(quartiles, np.percentile(size, [25, 50, 75]))


def test_noise_is_the_error_over_the_true_size():
    """Float32 gradients of 3, 2 and half their true size: relative errors of 2, 1 and ½, and rows that do not count."""
    true = torch.tensor([[3.0, 4.0], [1.0, 0.0], [0.0, 2.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    found = true * torch.tensor([3.0, 2.0, 0.5, 1.0, 9.0]).double()[:, None]
    keep = torch.tensor([True, True, True, True, False])
    assert float(measure_noise(found.float(), true, keep)) == pytest.approx(1.0)
    found[0, 0] = torch.inf
    assert float(measure_noise(found[:1].float(), true[:1], keep[:1])) == OVERFLOWED
