"""Data on the device: crops and flips by hand, graphs as one batch, tasks that do not fit a net."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stacking import snapshots_of

from creditscope.errors import CreditscopeError
from creditscope.rng import generator
from creditscope.stack import call_net
from creditscope.tasks import ImageSettings, Task, load_task
from creditscope.train.data import RowData, check_data, crop_and_flip, draw_crops, normalise_pixels, pixel_scale
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

SETTINGS = ImageSettings(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), pad=2)


def image_task(rows: int = 40) -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(rows, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=rows)
    return Task("toy", x, y, x[:20], y[:20], 4, SETTINGS)


def test_crops_and_flips_against_numpy():
    images = torch.from_numpy(image_task(30).x_train)
    crops = draw_crops(30, SETTINGS, generator(0, "augmentation"))
    rows = torch.randperm(30, generator=generator(0, "order"))
    bordered = torch.nn.functional.pad(images, [SETTINGS.pad] * 4)
    found = crop_and_flip(bordered, rows, crops, SETTINGS).numpy()
    for i, (dy, dx, flip) in enumerate(crops.tolist()):
        padded = np.pad(images[rows[i]].numpy(), ((0, 0), (2, 2), (2, 2)))
        expected = padded[:, dy : dy + 8, dx : dx + 8]
        np.testing.assert_array_equal(found[i], expected[:, :, ::-1] if flip else expected)


def test_draws_cover_their_range_evenly():
    crops = draw_crops(20_000, SETTINGS, generator(0, "augmentation")).numpy()
    for column, values in ((0, 5), (1, 5), (2, 2)):
        share = np.bincount(crops[:, column]) / 20_000
        assert len(share) == values
        np.testing.assert_allclose(share, 1 / values, atol=0.015)
    still = draw_crops(100, ImageSettings(mean=(0,), std=(1,), pad=0, flip=False), generator(0, "augmentation"))
    assert not still.any()


def test_pixels_are_normalised_per_channel():
    images = torch.from_numpy(image_task().x_test)
    found = normalise_pixels(images, *pixel_scale(SETTINGS, torch.float64, images.device)).numpy()
    raw = images.numpy() / 255
    for channel in range(3):
        expected = (raw[:, channel] - SETTINGS.mean[channel]) / SETTINGS.std[channel]
        np.testing.assert_allclose(found[:, channel], expected, atol=1e-12)


def test_epochs_have_their_own_order_and_crops_and_repeat():
    spec = plan_run(task="cifar10", net="vit", batch=16)
    batches = {}
    for name, epoch in (("first", 0), ("again", 0), ("next", 1)):
        data = RowData(image_task(), spec, torch.device("cpu"))
        batches[name] = [(b.inputs, b.target) for b in map(data.train_batch, *data.plan_epoch(42, epoch))]
    assert len(batches["first"]) == 2  # 40 rows, incomplete third batch dropped
    for (x, y), (x2, y2) in zip(batches["first"], batches["again"], strict=True):
        assert torch.equal(x, x2)
        assert torch.equal(y, y2)
    assert not torch.equal(batches["first"][0][1], batches["next"][0][1])
    assert data.x_train.dtype == torch.uint8
    assert batches["first"][0][0].dtype == torch.float32


def test_plans_differ_by_epoch_and_seed_but_random_targets_stay_with_their_rows():
    spec, task = plan_run(task="cifar10", net="vit", batch=20, targets="random"), image_task(4000)
    data, true = (RowData(task, s, torch.device("cpu")) for s in (spec, replace(spec, targets="true")))
    plans = {(seed, epoch): data.plan_epoch(seed, epoch) for seed in (1, 2) for epoch in (0, 1)}
    for one, other in (((1, 0), (1, 1)), ((1, 0), (2, 0))):
        rows, _, crops = zip(plans[one], plans[other], strict=True)
        assert not torch.equal(*rows)
        assert not torch.equal(*crops)
    by_row = {}
    for (seed, epoch), (rows, targets, crops) in plans.items():
        assert sorted(rows.flatten().tolist()) == list(range(4000))
        by_row[seed, epoch] = targets.flatten()[rows.flatten().argsort()]
        assert torch.equal(data.train_batch(rows[0], targets[0], crops[0]).target, targets[0])
        assert (true.train_batch(rows[0], crops[0]).target.numpy() == task.y_train[rows[0]]).all()
        np.testing.assert_allclose(targets.flatten().bincount() / 4000, 0.25, atol=0.05)  # uniform
    assert torch.equal(by_row[1, 0], by_row[1, 1])
    for other in (by_row[2, 0], torch.from_numpy(task.y_train)):
        assert (by_row[1, 0] == other).double().mean() < 0.3  # one in four by chance


def test_redrawn_targets_belong_to_the_minibatch():
    spec = plan_run(task="cifar10", net="vit", batch=20, targets="redrawn")
    data = RowData(image_task(400), spec, torch.device("cpu"))
    plans = [data.plan_epoch(*which) for which in ((1, 0), (1, 0), (1, 1), (2, 0))]
    (_, targets, _), *others = plans
    drawn = torch.randint(4, (20, 20), generator=generator(1, "redrawn targets", 0))
    assert torch.equal(targets, drawn)
    assert [torch.equal(targets, other) for _, other, _ in others] == [True, False, False]
    assert torch.equal(data.train_batch(*(told[3] for told in plans[0])).target, targets[3])
    share = torch.cat([other.flatten() for _, other, _ in plans]).bincount() / 1600
    np.testing.assert_allclose(share, 0.25, atol=0.05)
    true = RowData(image_task(400), plan_run(task="cifar10", net="vit", batch=20), torch.device("cpu")).plan_epoch(1, 0)
    for one, other in zip(true, (plans[0][0], plans[0][2]), strict=True):  # rows and crops are what they are
        assert torch.equal(one, other)


@pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])
def test_images_train_under_every_rule(rule):
    options = {"depth": 2, "width": 16, "heads": 2}
    spec = plan_run(
        task="cifar10", net="vit", net_options=options, rule=rule, batch=16, epochs=2, eval_rows=16, tier="quick"
    )
    run = build_run(spec, image_task())
    last = snapshots_of(run)[-1]
    assert run.facts.class_token == 0
    assert run.facts.tap_shapes == ((5, 16),) * 3
    assert run.facts.residual == (False, True, True)
    # the class token alone: at the last tap it is all there is of the gradient
    assert last.class_token.g_norm[-1] == pytest.approx(last.taps.g_norm[-1], rel=1e-5)
    assert last.class_token.h_norm[-1] < last.taps.h_norm[-1]
    assert last.class_token.g_norm[0] < last.taps.g_norm[0]
    assert (last.taps.cos[-1] == pytest.approx(1, abs=1e-5)) == (rule in ("bp", "block_fa"))


def test_class_token_measures_match_numpy():
    spec = plan_run(task="cifar10", net="vit", net_options={"depth": 1, "width": 16}, rule="dfa", batch=16, epochs=1)
    run = build_run(spec, image_task())
    from creditscope.measure.observation import observe
    from creditscope.measure.snapshot import take_snapshots

    batch = run.data.snapshot_batch()
    seen = observe(run.net, run.application.applied, batch.inputs, batch.target)
    (taken,) = take_snapshots(seen, run.facts, epoch=0)
    for tap in range(2):
        h, g, a = (x[tap][:, 0].double().numpy() for x in (seen.states, seen.exact, seen.credits))
        assert taken.class_token.h_norm[tap] == pytest.approx(np.median(np.linalg.norm(h, axis=1)), rel=1e-5)
        cosines = (a * g).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(g, axis=1)
        assert taken.class_token.cos[tap] == pytest.approx(cosines.mean(), abs=1e-5)


@pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])
def test_graphs_train_under_every_rule(rule):
    spec = plan_run(
        task="sbm", net="gcn", net_options={"depth": 3, "width": 16, "dropout": 0.2}, rule=rule, epochs=40,
        optimiser="adam", lr=0.01, schedule="constant", snapshot_every=0, tier="quick",
    )  # fmt: skip
    run = build_run(spec)
    last = snapshots_of(run)[-1]
    assert last.accuracy > 0.7
    assert (run.facts.rows_interact, run.facts.stem_tap, run.facts.gamma_taps) == (True, False, (0, 1))
    assert (last.rows_covered, last.step) == (80, 40)
    task = load_task("sbm")
    assert run.facts.test_rows == int(task.test.sum())
    run.net.eval()
    logits = call_net(run.net, (run.data.x, run.data.adjacency)).detach().double().numpy()[task.test]
    assert last.accuracy == pytest.approx((logits.argmax(1) == task.y[task.test]).mean())
    own = np.take_along_axis(logits, task.y[task.test][:, None], 1)
    np.testing.assert_allclose(last.loss, np.log(np.exp(logits - own).sum(1)).mean(), rtol=1e-4)
    if rule == "dfa":
        assert last.taps.rows_no_credit == (920, 920)


@pytest.mark.parametrize("images", [True, False])
def test_a_snapshot_is_of_the_first_test_rows(images):
    task = image_task() if images else load_task("digits")
    spec = plan_run(task="cifar10" if images else "digits", net="vit" if images else "resmlp", eval_rows=7, batch=16)
    batch = RowData(task, spec, torch.device("cpu")).snapshot_batch()
    expected = task.x_test[:7].astype(np.float64)
    if images:
        mean, std = (np.array(v)[:, None, None] for v in (SETTINGS.mean, SETTINGS.std))
        expected = (expected / 255 - mean) / std
    np.testing.assert_allclose(batch.inputs, expected, atol=1e-6)
    np.testing.assert_array_equal(batch.target, task.y_test[:7])


def test_a_probe_is_trained_on_whole_images_without_their_border():
    task = image_task()
    data = RowData(task, plan_run(task="cifar10", net="vit", batch=16), torch.device("cpu"))
    assert data.x_train.shape[-2:] == (12, 12)
    train, test = data.probe_batches()
    mean, std = (np.array(v)[:, None, None] for v in (SETTINGS.mean, SETTINGS.std))
    for batch, x, y in ((train, task.x_train, task.y_train), (test, task.x_test, task.y_test)):
        np.testing.assert_allclose(batch.inputs, (x / 255 - mean) / std, atol=1e-6)
        np.testing.assert_array_equal(batch.target, y)


def test_vectors_are_refused_by_a_net_for_images():
    with pytest.raises(CreditscopeError, match=r"vectors.*'digits'.*'vit'.*resmlp, student"):
        check_data(load_task("digits"), plan_run(task="digits", net="vit"))


@pytest.mark.parametrize("targets", ["random", "redrawn"])
def test_random_targets_for_a_graph_are_refused(targets):
    with pytest.raises(CreditscopeError, match="graph"):
        check_data(load_task("sbm"), plan_run(task="sbm", net="gcn", targets=targets))


def test_credit_is_normalised_by_the_rows_that_a_steps_loss_is_over():
    rows = build_run(plan_run(task="digits", rule="dfa", batch=32, credit_norm="sample-mean"))
    graph = build_run(plan_run(task="sbm", net="gcn", rule="dfa", credit_norm="sample-mean"))
    labelled = int(graph.data.snapshot_batch().mask.sum())
    assert [run.application.applied.batch for run in (rows, graph)] == [32, labelled]


@pytest.mark.slow
def test_students_learn_from_their_teacher():
    spec = plan_run(task="teacher", net="student", rule="bp", epochs=3, snapshot_every=0, tier="quick")
    taken = snapshots_of(build_run(spec))
    assert taken[-1].accuracy > 0.7 > 0.3 > taken[0].accuracy
