"""One run: audited or not it ends alike, as a plain PyTorch loop does; what an optimiser does to its weights."""

import base64
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from stacking import Ended, assert_equal, read, record_run, snapshots_of, train, weights_of
from torch import nn
from trained import train_run

from creditscope import rng
from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.measure.fresh_feedback import fresh_streams
from creditscope.measure.functional_net import subjects_of
from creditscope.nets._layers import HashDropout
from creditscope.rng import generator
from creditscope.rules import AppliedRule, apply_rule, layers_with_feedback, rule_class
from creditscope.tasks import ImageSettings, Task, load_task
from creditscope.tasks.mnist1d import mnist1d
from creditscope.train.data import RowData
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run, learning_rate, make_optimiser
from creditscope.train.stacked import stack_runs

TINY = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 3, "eval_rows": 64, "tier": "quick"}


GRAPH = {"task": "sbm", "net": "gcn", "net_options": {"depth": 3, "width": 8, "dropout": 0.2}, "epochs": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "fields"),
    [(rule, TINY | {"penalty": 0.01}) for rule in ("bp", "fa", "block_fa", "dfa", "grape")]
    + [("dfa", GRAPH | {"tier": "quick"}), ("dfa_gnn", GRAPH | {"tier": "quick"}), ("kaft", GRAPH)],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_audited_and_unaudited_runs_end_bit_identical(rule, fields):
    spec = plan_run(rule=rule, **fields)
    plain = build_run(spec)
    (audited,) = train(build_run(spec))
    torch.manual_seed(1)  # the global stream must not matter
    assert len(audited.snapshots) == 4
    assert_equal(Ended(audited.tensors, []), train(plain, audit=False)[0])
    drawn, ended = (run.application.applied.tensors().values() for run in (build_run(spec), plain))
    moved = [not torch.equal(a, b) for a, b in zip(drawn, ended, strict=True)]
    assert all(moved) if rule in ("grape", "kaft") else not any(moved)


def test_backprop_equals_a_plain_pytorch_loop():
    spec = plan_run(rule="bp", **TINY)
    run, twin = build_run(spec), build_run(spec)
    train_run(run, audit=False)
    net = twin.net
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    for epoch in range(3):
        optimiser.param_groups[0]["lr"] = 1e-3 * 0.5 * (1 + np.cos(np.pi * epoch / 3))
        order = torch.randperm(1400, generator=generator(42, "order", epoch))
        for index in order[: 10 * 128].view(10, 128):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net(twin.data.x_train[index]), twin.data.y_train[index]).backward()
            optimiser.step()
    for (name, a), (_, b) in zip(run.net.state_dict().items(), net.state_dict().items(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5, msg=name)


def test_seeds_differ_and_repeat():
    runs = [build_run(plan_run(rule="dfa", seed=seed, **TINY)) for seed in (1, 1, 2)]
    first, again, other = (run.application.applied.feedback for run in runs)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(runs[0].net.stem.weight, runs[2].net.stem.weight)
    dropped = [build_run(plan_run(rule="bp", seed=seed, **GRAPH)).net for seed in (1, 1, 2)]
    first, again, other = ([m.key.item() for m in net.modules() if isinstance(m, HashDropout)] for net in dropped)
    assert first == again
    assert not set(first) & set(other)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_kolen_pollack_feedback_meets_its_weight_as_decay_says(optimiser):
    """W_t − B_t = Π(1 − η_s λ)(W_0 − B_0), whatever the gradients; other weights decay as the run says."""
    fields = {"optimiser": optimiser, "lr": 0.01, "weight_decay": 0.0, "batch": 350, "precision": "float64"}
    run = build_run(plan_run(rule="kp", rule_options={"decay": 4.0}, **TINY | fields))
    layers = layers_with_feedback(run.net)
    apart = {name: layer.weight.detach() - layer.feedback for name, layer in layers.items()}
    began = {name: layer.weight.detach().clone() for name, layer in layers.items()}
    for epoch in range(3):
        run.train_epoch(epoch, keep_last=False)
    rates = [0.01 * 0.5 * (1 + np.cos(np.pi * epoch / 3)) for epoch in range(3) for _ in range(4)]
    left = np.prod([1 - 4.0 * rate for rate in rates])
    assert 0.3 < left < 0.8
    for name, layer in layers.items():
        torch.testing.assert_close(layer.weight.detach() - layer.feedback, left * apart[name])
        assert not torch.allclose(layer.weight, left * began[name])  # it has learnt, too


def test_an_epoch_s_loss_is_the_mean_over_its_steps_and_its_last_error_that_of_a_row():
    spec = plan_run(rule="bp", optimiser="sgd", lr=0.5, batch=350, precision="float64", **TINY)
    run, net = build_run(spec), build_run(spec).net
    (rows,) = run.data.plan_epoch(spec.seed, 0)
    loss, last = run.train_epoch(0, keep_last=True)
    losses, errors, optimiser = [], [], torch.optim.SGD(net.parameters(), lr=0.5, weight_decay=spec.weight_decay)
    for index in rows:
        optimiser.zero_grad()
        logits, target = net(run.data.x_train[index]), run.data.y_train[index]
        mean = nn.functional.cross_entropy(logits, target)
        mean.backward()
        optimiser.step()
        losses.append(mean.item())
        errors.append((logits.softmax(-1) - nn.functional.one_hot(target, 10)).detach().numpy())
    assert len(losses) == 4
    np.testing.assert_allclose(loss, [np.mean(losses)])
    np.testing.assert_allclose(last.error, np.sqrt((errors[-1] ** 2).sum(1).mean()))


@pytest.mark.slow
def test_building_and_training_leave_the_global_stream_alone():
    load_task("mnist1d")
    torch.manual_seed(3)
    np.random.seed(3)
    stream, numpy_stream = torch.get_rng_state(), np.random.get_state()[1].copy()
    mnist1d()
    run = build_run(plan_run(rule="fa", **TINY))
    train_run(run)
    assert torch.equal(stream, torch.get_rng_state())
    assert (numpy_stream == np.random.get_state()[1]).all()


def test_weights_and_feedback_are_saved(tmp_path):
    for rule, feedback in (("dfa", "feedback.0"), ("fa", "blocks.0.w1.feedback")):
        spec = plan_run(rule=rule, **TINY)
        record_run(spec, tmp_path)
        saved = weights_of(tmp_path, spec)
        (ended,) = train(build_run(spec), audit=False)
        assert_equal(Ended(saved, []), ended)
        assert feedback in saved
        record = read(tmp_path, spec)
        assert record.provenance.status == "complete"
        assert [s.epoch for s in record.snapshots] == [0, 1, 2, 3]
        assert record.last.correct is not None
        bits = np.unpackbits(np.frombuffer(base64.b64decode(record.last.correct), np.uint8))[:397]
        assert bits.mean() == pytest.approx(record.last.accuracy)


def test_accuracy_and_loss_are_those_of_the_whole_test_set(tmp_path):
    run = build_run(plan_run(rule="bp", **TINY))
    taken, task = snapshots_of(run), load_task("digits")
    logits = run.net(torch.from_numpy(task.x_test)).detach().numpy()
    assert taken[-1].accuracy == pytest.approx((logits.argmax(1) == task.y_test).mean())
    shifted = logits - logits.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    assert taken[-1].loss == pytest.approx(-log_p[np.arange(397), task.y_test].mean(), rel=1e-5)
    assert taken[-1].rows == 64


def test_update_of_the_last_step_points_downhill_under_backprop():
    taken = snapshots_of(build_run(plan_run(rule="bp", **TINY)))
    assert [snapshot.untrained for snapshot in taken] == [True, False, False, False]
    assert taken[0].weights.update_cos[0] is None
    assert taken[0].weights.step_all_zero[0] is None
    assert np.mean([c for c in taken[1].weights.update_cos if c is not None]) > 0.1
    assert sum(s for s in taken[1].weights.decrease_share if s is not None) == pytest.approx(1)


@pytest.mark.parametrize("stacked", [False, True])
def test_the_update_is_compared_with_the_gradient_before_the_step(stacked):
    """Plain SGD steps along −∇ exactly; so long a step that the gradient after it points elsewhere."""
    fields = TINY | {"epochs": 1, "precision": "float64"}
    run = build_run(plan_run(rule="bp", optimiser="sgd", lr=2.0, weight_decay=0.0, **fields))
    last = snapshots_of(stack_runs([run], compare=False) if stacked else run)[-1]
    np.testing.assert_allclose(last.weights.update_cos, 1, atol=1e-9)


def test_streams_differ(monkeypatch):
    """Every purpose, epoch and draw has a seed of its own, of whatever name: init, feedback, order, crops, targets."""
    seeds: list[int] = []

    def noted(*asked, derive=rng.derive_seed) -> int:
        seeds.append(derive(*asked))
        return seeds[-1]

    monkeypatch.setattr(rng, "derive_seed", noted)
    run = build_run(plan_run(rule="dfa", **TINY))
    assert len(seeds) == 2  # weights and feedback
    x, y = np.zeros((8, 1, 4, 4), np.uint8), np.arange(8) % 2
    task = Task("toy", x, y, x, y, 2, ImageSettings(mean=(0.5,), std=(0.5,), pad=1))
    data = RowData(task, plan_run(task="cifar10", net="vit", batch=4, targets="redrawn"), torch.device("cpu"))
    for epoch in range(3):
        data.plan_epoch(run.spec.seed, epoch)
    assert len(seeds) == 2 + 3 * 3
    (subject,) = subjects_of(run.net, run.application.applied, [run.spec.seed], inputs=None, target=None)
    assert len(fresh_streams(subject, 3)) == 3
    assert len(seeds) == len(set(seeds)) == 2 + 3 * 3 + 3


def test_a_loss_that_stops_being_finite_ends_the_run(tmp_path):
    spec = plan_run(rule="bp", optimiser="sgd", lr=1e12, **TINY)
    assert record_run(spec, tmp_path) == "diverged"
    record = read(tmp_path, spec)
    assert (record.provenance.status, record.provenance.diverged_epoch) == ("diverged", 1)
    assert [s.epoch for s in record.snapshots] == [0]


def test_penalty_without_a_skip_is_refused():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    with pytest.raises(CreditscopeError, match="residual blocks"):
        apply_rule(rule_class("dfa")(), net, ("0", "1"), torch.randn(4, 3), generator(0, "f"), penalty=0.1)


def test_normalising_a_rule_without_tap_credit_is_refused():
    with pytest.raises(CreditscopeError, match=r"normalisation.*'fa'"):
        build_run(plan_run(rule="fa", credit_norm="sample", **TINY))


def test_float64_runs_measure_in_float64():
    run = build_run(plan_run(rule="dfa", precision="float64", **TINY))
    taken = snapshots_of(run)
    assert run.net.stem.weight.dtype == torch.float64
    assert taken[-1].taps.g_noise == (None,) * 3


def test_a_task_given_in_memory_is_trained_on():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    task = Task("toy", x[:200], y[:200], x[200:], y[200:], 2)
    run = build_run(plan_run(rule="bp", **{**TINY, "epochs": 20, "batch": 50}), task)
    train_run(run, audit=False)
    errors = row_errors(run.net(run.data.x_test), run.data.y_test)
    assert float(errors.mean_loss) < 0.4


SIZES = (1, 3, 5, 10, 31, 40)
SEEDS, STEPS = 23, 30
KINDS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def trained(parameters, optimiser, gradients):
    for step in gradients:
        for p, g in zip(parameters, step, strict=True):
            p.grad = g.clone()
        optimiser.step()
    return [p.detach() for p in parameters]


def optimiser_of(spec, parameters):
    """As a run of backprop makes it, for these parameters alone."""
    anatomy = SimpleNamespace(stages=[()])
    return make_optimiser(spec, AppliedRule(rule_class("bp")(), nn.ParameterList(parameters), anatomy))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_s_elements_have_the_bits_they_have_alone_and_in_plain_pytorch(kind, precision):
    dtype, generator = getattr(torch, precision), torch.Generator().manual_seed(0)
    spec = plan_run(optimiser=kind, precision=precision, lr=1e-2, weight_decay=0.1)

    def draw(size):
        return torch.randn(SEEDS, size, dtype=dtype, generator=generator)

    starts, gradients = [draw(n) for n in SIZES], [[draw(n).exp() for n in SIZES] for _ in range(STEPS)]

    stacked = [nn.Parameter(start.clone()) for start in starts]
    together = trained(stacked, optimiser_of(spec, stacked), gradients)
    for seed in range(SEEDS):
        own = [[g[seed] for g in step] for step in gradients]
        alone, plain = ([nn.Parameter(start[seed].clone()) for start in starts] for _ in range(2))
        results = (
            trained(alone, optimiser_of(spec, alone), own),
            trained(plain, KINDS[kind](plain, lr=1e-2, weight_decay=0.1, foreach=False), own),
        )
        for result in results:
            assert all(torch.equal(found[seed], wanted) for found, wanted in zip(together, result, strict=True))


@pytest.mark.parametrize("epochs", [1, 5, 7, 250])
@pytest.mark.parametrize("name", ["cosine", "steps"])
def test_rates_are_those_of_torchs_schedules(name, epochs):
    spec = plan_run(rule="bp", **TINY | {"lr": 0.3, "schedule": name, "epochs": epochs})
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=spec.lr)
    if name == "cosine":
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    else:
        milestones = [math.ceil(epochs * fifths / 5) for fifths in (2, 3, 4)]
        schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, milestones)
    for epoch in range(epochs):
        assert learning_rate(spec, epoch) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9), epoch
        optimiser.step()
        schedule.step()


def adam(w: np.ndarray, g: np.ndarray, decay: float, *, lr: float, decoupled: bool) -> np.ndarray:
    """One first step of Adam: the update is lr·g/(|g| + ε) of the gradient with its L2 term."""
    if decoupled:
        return w * (1 - lr * decay) - lr * g / (np.abs(g) + 1e-8)
    g = g + decay * w
    return w - lr * g / (np.abs(g) + 1e-8)


@pytest.mark.parametrize("setting", [GRAPH, TINY], ids=["gcn", "resmlp"])
@pytest.mark.parametrize("optimiser", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("decay_on", ["all", "first"])
def test_the_first_step_and_which_weights_decay_match_numpy(setting, optimiser, decay_on):
    fields = {"optimiser": optimiser, "decay_on": decay_on, "weight_decay": 0.1, "lr": 0.01, "schedule": "constant"}
    spec = plan_run(rule="bp", **setting | fields, precision="float64")
    run = build_run(spec)
    first = set(run.application.anatomy.stages[0])
    assert first == ({"layers.0.conv.linear.weight"} if setting is GRAPH else {"stem.weight", "stem.bias"})
    before = {name: p.detach().numpy().copy() for name, p in run.trained.items()}
    plan = run.data.plan_epoch(spec.seed, 0)
    run.train_step(run.data.train_batch(*(told[0] for told in plan)))
    for name, p in run.trained.items():
        decay = spec.weight_decay if decay_on == "all" or name in first else 0.0
        g = p.grad.numpy()
        if optimiser == "sgd":
            wanted = before[name] - spec.lr * (g + decay * before[name])
        else:
            wanted = adam(before[name], g, decay, lr=spec.lr, decoupled=optimiser == "adamw")
        np.testing.assert_allclose(p.detach(), wanted, rtol=1e-10, atol=1e-12)
