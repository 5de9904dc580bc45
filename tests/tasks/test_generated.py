"""Tasks made from a seed: the teacher against a torch net of the same weights, the graph against its parameters."""

import tracemalloc

import numpy as np
import pytest
import torch
from trained import train_run

from creditscope.errors import CreditscopeError
from creditscope.nets.student import StudentNet
from creditscope.tasks import load_task
from creditscope.tasks.sbm import sbm
from creditscope.tasks.teacher import TEACHER_SEED, teacher
from creditscope.train.data import check_data
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

TINY_VIT = {"depth": 1, "width": 8, "heads": 2, "patch": 4}


def test_the_teacher_is_a_student_net():
    rng = np.random.default_rng(TEACHER_SEED)
    x = rng.normal(size=(12_000, 128))
    net = StudentNet((128,), 10, depth=4, width=128, alpha=0.5).double()
    bound = 128**-0.5
    with torch.no_grad():
        for layer in (net.stem, *(b.linear for b in net.blocks), net.head):
            layer.weight.copy_(torch.tensor(rng.uniform(-bound, bound, layer.weight.shape)))
            layer.bias.copy_(torch.tensor(rng.uniform(-bound, bound, layer.bias.shape)))
        logits = net(torch.tensor(x)).numpy()
    task = load_task("teacher", alpha=0.5)
    y = (logits - logits.mean(0)).argmax(1)
    np.testing.assert_array_equal(np.concatenate([task.y_train, task.y_test]), y)


def test_digits_are_vectors_or_images():
    """The same pixels; as images they fit nets that cut them into patches."""
    vectors, images = load_task("digits"), load_task("digits", image=True)
    assert (vectors.kind, images.kind) == ("vectors", "images")
    assert images.input_shape == (1, 8, 8)
    np.testing.assert_array_equal(images.x_train.reshape(len(images.x_train), -1), vectors.x_train)
    spec = plan_run(task="digits", net="vit", task_options={"image": True}, net_options=TINY_VIT, epochs=1)
    check_data(images, spec)
    with pytest.raises(CreditscopeError, match=r"vectors .*'digits', but got 'vit'"):
        check_data(vectors, spec)
    run = build_run(spec)
    train_run(run, audit=False)
    assert all(torch.isfinite(tensor).all() for tensor in run.tensors().values())


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0])
def test_no_class_of_the_teacher_dominates(alpha):
    task = load_task("teacher", alpha=alpha)
    assert (len(task.y_train), len(task.y_test)) == (10_000, 2_000)
    for y in (task.y_train, task.y_test):
        assert np.bincount(y, minlength=10).max() / len(y) <= 0.2


def test_label_noise_redraws_its_share():
    clean, noisy = load_task("teacher"), load_task("teacher", noise=0.5)
    changed = (clean.y_train != noisy.y_train).mean()
    assert changed == pytest.approx(0.5 * 0.9, abs=0.02)
    np.testing.assert_array_equal(clean.x_train, noisy.x_train)


def test_the_block_model_has_its_parameters():
    task = load_task("sbm", nodes=4000, degree=12.0, homophily=0.7, signal=1.0)
    source, target = task.adjacency.nonzero()
    assert (task.y[source] == task.y[target]).mean() == pytest.approx(0.7, abs=0.02)
    assert len(source) / 4000 == pytest.approx(12, rel=0.03)
    assert not (source == target).any()
    assert not (task.train & task.test).any()
    assert not (task.validation & (task.train | task.test)).any()
    assert np.bincount(task.y[task.train]).tolist() == [20] * 4
    centres = np.stack([task.x[task.y == c].mean(0) for c in range(4)])
    np.testing.assert_allclose(np.abs(centres).mean(), 1.0, atol=0.05)


def test_the_block_model_takes_memory_in_proportion_to_its_edges():
    def peak(nodes: int) -> int:
        tracemalloc.start()
        try:
            sbm(nodes=nodes)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(200)
    assert peak(80_000) / peak(20_000) == pytest.approx(4, rel=0.1)


@pytest.mark.slow
def test_generated_tasks_repeat():
    assert sbm().checksum() == sbm().checksum() != sbm(homophily=0.5).checksum()
    assert teacher().checksum() == teacher().checksum() != teacher(depth=3).checksum()


@pytest.mark.parametrize(
    ("task", "options", "said"),
    [
        ("teacher", {"alpha": 2.0}, r"alpha 2\.0"),
        ("sbm", {"nodes": 10}, "10 nodes"),
        ("sbm", {"normalisation": "no"}, "'no'"),
    ],
)
def test_senseless_parameters_are_refused(task, options, said):
    with pytest.raises(CreditscopeError, match=said):
        build_run(plan_run(task=task, net="gcn" if task == "sbm" else "student", task_options=options))
