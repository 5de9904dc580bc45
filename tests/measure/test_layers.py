"""Layer by layer: gradients at pre-activations, sizes of states and probes against dense NumPy and scikit-learn."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression
from trained import record_runs

from creditscope.errors import CreditscopeError
from creditscope.measure.layers import layer_names, measure_layers
from creditscope.measure.weights import Direction, gradient_sizes, plain_norm
from creditscope.record import read_record, run_folder
from creditscope.record.store import RecordWriter
from creditscope.tasks import cora
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.stacked import stack_runs

GRAPH = {"task": "sbm", "task_options": {"nodes": 200}, "net": "gcn", "epochs": 2, "tier": "quick", "batch": 1}
PRECISE = {"precision": "float64"}


def spec_of(*, rule: str = "bp", depth: int = 4, **others):
    options = {"depth": depth, "width": 8, **others.pop("net_options", {})}
    return plan_run(**{**GRAPH, **others}, net_options=options, rule=rule)


def dense_backprop(run) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """∂L/∂Z_l, ∂L/∂W_l and H_l of a plain GCN by hand, in float64."""
    task = run.task
    adjacency = run.data.adjacency.matrix.to_dense().double().numpy()
    weights = [p.detach().double().numpy().T for p in run.net.parameters()]
    states, pre = [task.x.astype(float)], []
    for i, w in enumerate(weights):
        pre.append(adjacency @ states[-1] @ w)
        states.append(np.maximum(pre[-1], 0) if i < len(weights) - 1 else pre[-1])
    delta = (softmax(pre[-1], axis=1) - np.eye(task.classes)[task.y]) * task.train[:, None] / task.train.sum()
    deltas, gradients = [delta], [(adjacency @ states[-2]).T @ delta]
    for i in range(len(weights) - 2, -1, -1):
        delta = (pre[i] > 0) * (adjacency.T @ delta @ weights[i + 1].T)
        deltas.insert(0, delta)
        gradients.insert(0, (adjacency @ states[i]).T @ delta)
    return deltas, gradients, states


def compared(run, rtol: float):
    """A snapshot whose sizes are those of the derivation, and its states."""
    (taken,) = snapshot_run(run, 0)
    deltas, gradients, states = dense_backprop(run)
    np.testing.assert_allclose(taken.layers.z_grad, [np.linalg.norm(d) for d in deltas], rtol=rtol)
    np.testing.assert_allclose(taken.layers.rms, [np.sqrt((h**2).mean()) for h in states], rtol=rtol)
    centred = [h - h.mean(0) for h in states]
    np.testing.assert_allclose(taken.layers.dispersion, [np.sqrt((h**2).mean()) for h in centred], rtol=rtol)
    np.testing.assert_allclose(taken.weights.exact_norm, [np.linalg.norm(g) for g in gradients], rtol=rtol)
    return taken, states


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
@pytest.mark.parametrize("how", ["symmetric", "row"])
def test_every_number_matches_a_hand_derivation(rule, how):
    """Also under other rules: the gradients are exact ones."""
    run = build_run(spec_of(rule=rule, task_options={"nodes": 200, "normalisation": how}, **PRECISE))
    taken, states = compared(run, rtol=1e-9)
    layers, weights = taken.layers, taken.weights
    np.testing.assert_allclose(weights.exact_float32, weights.exact_norm, rtol=1e-5)
    norms = [np.linalg.norm(p.detach().numpy()) for p in run.net.parameters()]
    np.testing.assert_allclose(weights.w_norm, norms, rtol=1e-9)
    assert (layers.probe[0], len(layers.probe)) == (pytest.approx(reference_probe(run.task, states[0]), abs=1e-9), 5)
    for found, h in zip(layers.probe[1:], states[1:], strict=True):
        assert found == pytest.approx(reference_probe(run.task, h), abs=0.016)  # one node of 90


def reference_probe(task, h: np.ndarray) -> float:
    h = (h - h[task.train].mean(0)) / np.where(h[task.train].std(0) > 0, h[task.train].std(0), np.inf)
    theirs = LogisticRegression(tol=1e-9, max_iter=9999).fit(h[task.train], task.y[task.train])
    return theirs.score(h[task.test], task.y[task.test])


def test_sizes_are_right_where_float32_squares_vanish():
    run = build_run(spec_of(rule="bp", depth=3))
    with torch.no_grad():
        for p in run.net.parameters():
            p.mul_(1e-12)
    taken, _ = compared(run, rtol=1e-4)
    assert taken.weights.exact_norm[0] < 1e-22
    assert taken.weights.exact_float32 == (0.0, 0.0, 0.0)
    assert taken.weights.exact_underflow == (1, 1, 1)
    assert taken.weights.exact_all_zero == (0, 0, 0)
    ordinary = snapshot_run(build_run(spec_of(rule="bp", depth=3)), 0)[0].layers
    np.testing.assert_allclose(taken.layers.probe, ordinary.probe, atol=0.012)  # a probe has no units


def test_some_of_a_float32_norm_may_vanish():
    gradient = torch.full((40_000,), 2e-23)
    gradient[0] = 1e-22
    true = float(gradient.double().norm())
    sizes = gradient_sizes([Direction.of(gradient)], 1)
    assert float(sizes["norm"]) == pytest.approx(true, rel=1e-5)
    assert not sizes["underflow"]
    plain = np.sqrt((gradient.numpy() ** 2).sum())
    assert 0 < plain < 0.1 * true
    assert float(plain_norm(gradient)) == pytest.approx(float(plain), rel=1e-5)


def test_collapsed_states_have_no_probe():
    run = build_run(spec_of(depth=4))
    assert int(run.task.train.sum()) == 80
    with torch.no_grad():
        run.net.layers[1].conv.linear.weight.zero_()
    (taken,) = snapshot_run(run, 0)
    assert [value is None for value in taken.layers.probe] == [False, False, True, True, True]
    assert taken.layers.rms[2:] == taken.layers.dispersion[2:] == (0.0, 0.0, 0.0)
    assert taken.weights.exact_all_zero == (1, 1, 1, 1)
    assert taken.layers.z_grad[:3] == (0.0, 0.0, 0.0)
    assert taken.layers.z_grad[3] == pytest.approx(math.sqrt(3 / 4) / math.sqrt(80), rel=1e-6)


@pytest.mark.skipif(not cora.FILES.present(), reason="needs the Cora files")
def test_uniform_answers_on_cora_have_the_error_that_can_be_predicted():
    run = build_run(plan_run(task="cora", net="gcn", rule="bp", tier="quick", epochs=1))
    with torch.no_grad():
        run.net.head.linear.weight.zero_()
    (taken,) = snapshot_run(run, 0)
    assert taken.layers.z_grad[-1] == pytest.approx(math.sqrt(6 / 7) / math.sqrt(140), rel=1e-6)
    assert taken.layers.z_grad[-1] == pytest.approx(0.0782, abs=1e-4)
    assert taken.accuracy == pytest.approx(0.130, abs=1e-9)


def test_probes_are_taken_at_both_ends_only_and_sizes_always():
    run = build_run(spec_of())
    assert [bool(snapshot_run(run, epoch)[0].layers.probe) for epoch in (0, 1, 2)] == [True, False, True]
    assert len(snapshot_run(run, 1)[0].layers.z_grad) == 4


def test_all_seeds_of_a_stack_are_measured_as_alone():
    specs = [spec_of(seed=seed, net_options={"residual": True}, **PRECISE) for seed in (1, 2, 3)]
    together = snapshot_run(stack_runs([build_run(spec) for spec in specs]), 0)
    for taken, spec in zip(together, specs, strict=True):
        (alone,) = snapshot_run(build_run(spec), 0)
        for name, values in vars(alone.layers).items():
            np.testing.assert_allclose(getattr(taken.layers, name), values, rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(taken.weights.w_norm, alone.weights.w_norm, rtol=1e-9)


def test_nothing_is_left_behind_and_other_nets_are_passed_by():
    run = build_run(spec_of(rule="fa"))
    before = {name: t.clone() for name, t in run.net.state_dict().items()}
    stream = torch.get_rng_state()
    snapshot_run(run, 0)
    assert torch.equal(torch.get_rng_state(), stream)
    assert all(torch.equal(t, before[name]) for name, t in run.net.state_dict().items())
    assert all(p.grad is None for p in run.net.parameters())
    assert not any(m._forward_hooks for m in run.net.modules())
    other = build_run(plan_run(task="digits", net="resmlp", rule="bp", tier="quick", epochs=1))
    assert layer_names(other.net) == ()
    assert snapshot_run(other, 0)[0].layers is None


def test_names_that_do_not_fit_the_taps_are_refused():
    run, batch = build_run(spec_of()), build_run(spec_of()).data.snapshot_batch()
    with pytest.raises(CreditscopeError, match=r"pre_activations.* 3 .*layers\.0"):
        measure_layers(run.net, ["layers.0", "layers.1"], batch.inputs, batch.target, mask=batch.mask)


def test_records_keep_layers_and_refuse_uneven_ones(tmp_path):
    spec = spec_of(epochs=1)
    record_runs([spec], tmp_path)
    record = read_record(run_folder(tmp_path, spec))
    assert len(record.last.layers.probe) == 5
    short = replace(record.last.layers, rms=record.last.layers.rms[:-1])
    with RecordWriter(tmp_path, spec).open() as writer:
        writer.begin()
        writer.append(record.snapshots[0])
        writer.append(replace(record.last, layers=short))
        writer.write_provenance(record.provenance)
    with pytest.raises(CreditscopeError, match="other lengths"):
        read_record(run_folder(tmp_path, spec))
