"""What each tier measures, on every net and engine, and that nothing is left on the model."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import nn
from trained import train_run

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.measure import instruments, moves
from creditscope.measure.instruments import INSTRUMENTS, instruments_due
from creditscope.record import Snapshot, TapMeasures, WeightMeasures
from creditscope.tasks import ImageSettings, Task
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.stacked import stack_runs

pytestmark = pytest.mark.slow

TINY = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 2, "eval_rows": 300}
GRAPH = {"task": "sbm", "task_options": {"nodes": 200}, "net": "gcn", "net_options": {"depth": 3, "width": 8}}
CHEAP = {"common", "common_a", "drift", "permuted_cos", "cos_input", "stage_cos", "stage_null_sd"}
DEAR = {"rho", "rho_exact", "probe", "skip_one", "fresh_cos", "fresh_sd", "fresh_rho", "fresh_rho_sd"}
LATE = {"descent", "descent_null", "descent_null_sd", "descent_stage", "fresh_descent", "fresh_descent_sd"}
LAST = {"rewind"}
NEW = CHEAP | DEAR | LATE
OWN_DRAWS = {"beta", "beta_se", "beta_null_sd", "draw_noise", "draw_cos"}
"""Of rules that draw noise in every step."""
OTHER_AIM = {"descent_stage_null", "descent_stage_null_sd"}
"""Of rules that do not aim at the gradient."""


def filled(snapshot: Snapshot) -> set[str]:
    return {name for name in NEW | LAST | {"rewind_refit"} if getattr(snapshot.taps, name)}


def images() -> Task:
    rng = np.random.default_rng(0)
    x, y = rng.integers(256, size=(48, 3, 8, 8), dtype=np.uint8), rng.integers(4, size=48)
    return Task("toy", x, y, x, y, 4, ImageSettings(mean=(0.5,) * 3, std=(0.2,) * 3))


def test_every_instrument_names_fields_of_the_record():
    series = {"taps": {f.name for f in fields(TapMeasures)}, "weights": {f.name for f in fields(WeightMeasures)}}
    for instrument in INSTRUMENTS:
        assert set(instrument.fields) <= series[instrument.of]
    named = {name for i in INSTRUMENTS if i.of == "taps" for name in i.fields}
    assert named == NEW | LAST | OWN_DRAWS | OTHER_AIM | {"rewind_refit", "handed_on", "skip_cos", "skip_alone"}


@pytest.mark.parametrize(
    ("tier", "ends", "last", "costs"),
    [
        ("quick", True, False, set()),
        ("quick", True, True, {"cheap", "last"}),
        ("standard", False, False, {"cheap"}),
        ("standard", False, True, {"cheap", "last"}),
        ("standard", True, False, {"cheap", "dear"}),
        ("standard", True, True, {"cheap", "dear", "late", "last"}),
        ("full", False, False, {"cheap", "dear", "late"}),
        ("full", True, True, {"cheap", "dear", "late", "last"}),
    ],
)
def test_what_is_due_goes_by_cost(tier, ends, last, costs):
    assert instruments_due(tier, ends=ends, last=last) == [i for i in INSTRUMENTS if i.cost in costs]
    assert {i.name for i in INSTRUMENTS if i.cost == "last"} == {"rewind"}


@pytest.mark.parametrize(
    ("tier", "first", "between", "last"),
    [
        ("quick", set(), set(), CHEAP | LAST),
        ("standard", CHEAP | DEAR, CHEAP, NEW | LAST),
        ("full", NEW, NEW, NEW | LAST),
    ],
)
def test_every_tier_fills_what_it_promises(tier, first, between, last):
    taken = []
    train_run(build_run(plan_run(rule="dfa", tier=tier, **TINY)), on_snapshots=taken.extend)
    assert [filled(s) for s in taken] == [first, between, last]
    assert [s.untrained for s in taken] == [True, False, False]
    assert [s.taps.g_noise[0] is None for s in taken] == [tier == "quick", tier == "quick", False]
    for snapshot in taken:
        assert snapshot.notes == ()
        for name in filled(snapshot) - {"skip_one", "rewind", "cos_input"}:
            assert all(isinstance(value, float) for value in getattr(snapshot.taps, name)), name
    assert taken[-1].fresh_draws == (20 if first else 0)
    assert taken[-1].probe_rows == (397 if first else 0)
    assert taken[-1].taps.rewind[0] is None
    assert all(0 <= value <= 1 for value in taken[-1].taps.rewind[1:])
    assert [value is None for value in taken[-1].taps.cos_input] == [True, False, False]
    if first:
        assert taken[-1].taps.skip_one[0] is None
        assert all(0 <= value <= 1 for value in (*taken[-1].taps.skip_one[1:], *taken[-1].taps.probe))


@pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])
def test_rules_on_weights(rule):
    run = build_run(plan_run(rule=rule, **TINY))
    (taken,) = snapshot_run(run, 1)
    roles = [w.role for w in run.facts.weights]
    assert [z is None for z in taken.weights.z] == [role == "exact" for role in roles]
    if rule == "fa":
        weights = [w.name for w in run.facts.weights]
        angles = dict(zip(weights, taken.weights.feedback_angle, strict=True))
        assert angles["stem.bias"] is None
        assert angles["blocks.0.w1.weight"] == pytest.approx(90, abs=12)
    else:
        assert taken.weights.feedback_angle == ()
    assert bool(snapshot_run(run, 0)[0].fresh_draws) == (rule != "bp")


def test_backprop_is_the_positive_control():
    run = build_run(plan_run(rule="bp", **TINY))
    train_run(run, audit=False)
    taps = snapshot_run(run, 2)[0].taps
    assert min(taps.rho) > 0.99
    assert taps.descent == taps.descent_stage == (1.0,) * 3
    assert taps.fresh_cos == ()
    assert taps.common == taps.common_a


@pytest.mark.parametrize("rule", ["bp", "fa", "block_fa", "dfa"])
def test_loop_and_stack_agree_and_mates_do_not_matter(rule):
    specs = [plan_run(rule=rule, seed=seed, precision="float64", **TINY) for seed in (1, 2, 3)]
    alone = [snapshot_run(build_run(spec), 0)[0] for spec in specs]
    stack = snapshot_run(stack_runs([build_run(spec) for spec in specs]), 0)
    pair = snapshot_run(stack_runs([build_run(spec) for spec in specs[:0:-1]]), 0)
    for one, many in zip(alone + alone[:0:-1], stack + pair, strict=True):
        assert one.notes == many.notes
        assert filled(one) == filled(many)
        assert_close(one.taps, many.taps, filled(one))
        assert_close(one.weights, many.weights, ("z", "feedback_angle"))
        assert (one.fresh_draws, one.probe_rows) == (many.fresh_draws, many.probe_rows)
    if rule == "dfa":
        assert alone[0].taps.fresh_cos != alone[1].taps.fresh_cos


def assert_close(ours, theirs, names):
    for name in names:
        one, other = (np.array(getattr(series, name), dtype=float) for series in (ours, theirs))  # None is NaN
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
def test_graphs(rule, monkeypatch):
    monkeypatch.setattr(moves, "JOINT_DIRECTIONS", 128)
    run = build_run(plan_run(rule=rule, epochs=20, **GRAPH))
    train_run(run, audit=False)
    (taken,) = snapshot_run(run, 20)
    assert taken.notes == ()
    assert taken.taps.drift == (None, None)
    assert taken.taps.skip_one == (None, None)
    assert taken.taps.probe == ()  # its layers were probed, and that once
    assert taken.layers is not None
    assert taken.layers.probe_rows == run.facts.test_rows
    assert min(taken.tap_probe) > 0.5
    assert all(-1 <= value <= 1 for value in taken.taps.rho)
    if rule == "bp":
        assert min(taken.taps.rho) > 0.99
        assert taken.taps.descent == (1.0, 1.0)
        assert taken.taps.descent_stage == (1.0, 1.0)


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
def test_tokens(rule):
    small = {"task": "cifar10", "net": "vit", "net_options": {"depth": 2, "width": 16}, "batch": 16}
    spec = plan_run(rule=rule, epochs=1, tier="full", **small)
    run = build_run(spec, images())
    (taken,) = snapshot_run(run, 0)
    assert taken.notes == ()
    assert filled(taken) == (NEW if rule != "bp" else {name for name in NEW if not name.startswith("fresh")})
    assert all(value is not None for value in taken.taps.descent)
    assert taken.taps.skip_one[0] is None
    assert None not in taken.taps.skip_one[1:]
    if rule == "bp":
        assert min(taken.taps.rho) > 0.98
        assert taken.taps.descent == (1.0,) * 3
    alone = build_run(spec, images())
    (stacked,) = snapshot_run(stack_runs([alone]), 0)
    np.testing.assert_allclose(stacked.taps.rho, taken.taps.rho, atol=1e-4)
    np.testing.assert_allclose(stacked.taps.descent, taken.taps.descent, atol=1e-4)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("rule", ["fa", "dfa"])
def test_fully_measured_and_unmeasured_runs_end_bit_identical(rule, stacked):
    def build():
        runs = [build_run(plan_run(rule=rule, seed=seed, tier="full", **TINY)) for seed in (1, 2)]
        return stack_runs(runs) if stacked else runs[0]

    measured, plain = build(), build()
    train_run(measured)
    train_run(plain, audit=False)
    torch.testing.assert_close(measured.tensors(), plain.tensors(), rtol=0, atol=0)


def test_frozen_stages_and_diverged_seeds():
    (frozen,) = snapshot_run(build_run(plan_run(rule="dfa", frozen=True, tier="full", **TINY)), 0)
    assert frozen.taps.descent_stage[1:] == (None, None)
    runs = [build_run(plan_run(rule="dfa", seed=seed, tier="full", **TINY)) for seed in (1, 2)]
    with torch.no_grad():
        runs[0].net.stem.weight.fill_(torch.nan)
    dead, alive = snapshot_run(stack_runs(runs), 0)
    assert dead.taps.rho == dead.taps.probe == dead.taps.descent == (None,) * 3
    assert None not in (*alive.taps.rho, *alive.taps.probe, *alive.taps.descent)


def test_the_sample_of_a_probe_is_not_augmented():
    data = build_run(plan_run(rule="bp", task="cifar10", net="vit", batch=16, epochs=1), images()).data
    train, test = data.probe_batches()
    torch.testing.assert_close(train.inputs, test.inputs)  # this task's test rows are its training rows
    assert torch.equal(train.target, test.target)


def fingerprint(model: nn.Module) -> dict[str, torch.Tensor]:
    state = {f"state {k}": v.clone() for k, v in model.state_dict().items()}
    state |= {f"grad {k}": p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
    for name, m in model.named_modules():
        state[f"module {name}"] = torch.tensor([m.training, len(vars(m)), len(m._forward_hooks)])
    return state | {"random": torch.get_rng_state()}


class Reads(nn.Module):
    """A model that reads a number on the host, which `vmap` cannot map; the number changes nothing."""

    def __init__(self, *, reads: bool):
        super().__init__()
        self.reads, self.stem, self.head = reads, nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.tanh(self.stem(x))
        return self.head(h if self.reads and h.sum().item() > -1e9 else h.clone())


def test_an_instrument_that_cannot_be_mapped_is_read_seed_by_seed(monkeypatch):
    specs = [plan_run(rule="dfa", seed=seed, **TINY | {"epochs": 3}) for seed in (1, 2)]
    usual = snapshot_run(stack_runs([build_run(spec) for spec in specs]), 1)
    (permuted,) = [i for i in INSTRUMENTS if i.name == "permuted_cos"]
    read = []

    def reads(gradients, credits, keys):
        read.append(keys.sum().item())
        return permuted.measure(gradients, credits, keys)

    broken = [replace(i, measure=reads) if i is permuted else i for i in INSTRUMENTS]
    monkeypatch.setattr(instruments, "INSTRUMENTS", broken)
    found = snapshot_run(stack_runs([build_run(spec) for spec in specs]), 1)
    assert len(read) == 2
    for one, other in zip(found, usual, strict=True):
        assert (one.notes, filled(one)) == (other.notes, CHEAP)
        assert_close(one.taps, other.taps, CHEAP)


def small(*middle: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), *(middle or [nn.Tanh()]), nn.Linear(8, 3))


class TestWatch:
    def data(self, rows=120):
        torch.manual_seed(0)
        return torch.randn(rows, 6), torch.arange(rows) % 3

    def test_tiers_of_a_watched_model(self):
        x, y = self.data()
        scope = cs.watch(small(), taps="1", stem="0", rule="dfa")
        assert filled(scope.snapshot(x, y, tier="quick")) == set()
        standard, full = scope.snapshot(x, y), scope.snapshot(x, y, tier="full")
        assert filled(standard) == CHEAP
        assert filled(full) == NEW
        assert full.probe_rows == 60
        assert full.notes == ()
        with pytest.raises(CreditscopeError, match=r"tier.*'all'"):
            scope.snapshot(x, y, tier="all")

    @pytest.mark.parametrize("train", [True, False])
    def test_nothing_is_left_on_the_model(self, train):
        x, y = self.data()
        net = small(nn.BatchNorm1d(8), nn.ReLU(inplace=True)).train(train)
        nn.functional.cross_entropy(net(x), y).backward()
        before = fingerprint(net)
        taken = cs.watch(net, taps=["0", "1"]).snapshot(x, y, tier="full")
        torch.testing.assert_close(fingerprint(net), before, rtol=0, atol=0)
        assert min(taken.taps.rho) > 0.98

    def test_a_model_that_draws_says_so(self):
        x, y = self.data()
        net = small(nn.Tanh(), nn.Dropout(0.5)).train()
        scope = cs.watch(net, taps="0", rule="dfa")
        before = fingerprint(net)
        taken = scope.snapshot(x, y, tier="full")
        assert taken.taps.rho == taken.taps.descent == (None,)
        assert any(note.startswith("rho") and "random numbers" in note for note in taken.notes)
        torch.testing.assert_close(fingerprint(net), before, rtol=0, atol=0)
        net.eval()
        assert None not in scope.snapshot(x, y, tier="full").taps.rho

    def test_a_model_that_cannot_be_mapped_is_measured_draw_by_draw(self):
        x, y = self.data()
        taken = []
        for reads in (False, True):
            torch.manual_seed(0)
            model = Reads(reads=reads)
            cs.convert(model, "fa", taps="stem", inputs=x)
            taken.append(cs.watch(model, taps="stem").snapshot(x, y, tier="full"))
        plain, read = taken
        assert plain.notes == read.notes == ()
        assert filled(plain) == filled(read) == NEW
        assert_close(read.taps, plain.taps, NEW)

    def test_a_forward_of_the_module_s_own_is_put_back(self):
        x, y = self.data()
        net = small(nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        plain = cs.watch(net, taps=["1", "3"]).snapshot(x, y, tier="full")

        def doubled(h, own=net[1].forward):
            return 2 * own(h)

        net[1].forward = doubled
        taken = cs.watch(net, taps=["1", "3"]).snapshot(x, y, tier="full")
        assert vars(net[1])["forward"] is doubled
        assert min(taken.taps.rho) > 0.99
        assert taken.taps.h_norm[0] == pytest.approx(2 * plain.taps.h_norm[0], rel=1e-5)

    def test_other_losses_have_no_probe(self):
        x, y = self.data()
        scope = cs.watch(small(), taps="1", loss=lambda out, t: (out - t[:, None]).square().sum(1))
        taken = scope.snapshot(x, y.float(), tier="full")
        assert taken.taps.rho[0] > 0.99
        assert taken.taps.probe == (None,)
        assert any(note.startswith("probe") and "labels" in note for note in taken.notes)

    def test_masked_rows(self):
        x, y = self.data(400)
        mask = torch.arange(400) >= 300
        net = small()
        some = cs.watch(net, taps="1", rule="dfa").snapshot(x, torch.where(mask, y, -1), mask=mask, tier="full")
        only = cs.watch(net, taps="1", rule="dfa").snapshot(x[mask], y[mask], tier="full")
        assert some.probe_rows == only.probe_rows == 50
        for name in ("common", "common_a", "fresh_cos", "descent", "probe", "descent_stage"):
            np.testing.assert_allclose(getattr(some.taps, name), getattr(only.taps, name), rtol=1e-3, err_msg=name)

    def test_an_instrument_that_fails_is_named_and_the_others_go_on(self, monkeypatch):
        def fails(subject):
            raise RuntimeError("no such luck")

        broken = [replace(i, measure=fails) if i.name == "skip_one" else i for i in INSTRUMENTS]
        monkeypatch.setattr(instruments, "INSTRUMENTS", broken)
        x, y = self.data()
        taken = cs.watch(small(), taps="1", rule="dfa").snapshot(x, y, tier="full")
        assert taken.taps.skip_one == (None,)
        assert [note.split()[0] for note in taken.notes] == ["skip_one"]
        assert taken.taps.rho != ()
