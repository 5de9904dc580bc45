"""What a run is compared with: the plan of baselines, ladder and controls, and that all start from the same place."""

import numpy as np
import pytest
import torch
from torch import nn
from trained import train_run

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec
from creditscope.registry import NETS
from creditscope.tasks import load_task
from creditscope.train.plan import plan_run, plan_runs
from creditscope.train.run import Run, build_run
from creditscope.train.snapshots import evaluate

TINY = {"task": "digits", "net_options": {"depth": 3, "width": 8}, "epochs": 2, "tier": "quick", "snapshot_every": 0}
DEPTH = 3


class Depthless(nn.Module):
    """A net without options."""

    stem_tap, block_taps = "stem", "blocks.*"

    def __init__(self, input_shape: tuple[int, ...], classes: int): ...


@pytest.fixture(scope="module")
def digits():
    return load_task("digits")


def planned(rules=("dfa",), seeds=(1,), **asked) -> list[RunSpec]:
    return plan_runs(rules=rules, seeds=seeds, **TINY, **asked)


def places(specs: list[RunSpec]) -> list[tuple]:
    return sorted((s.rule, s.frozen, s.train_last, s.seed) for s in specs)


class TestLadder:
    def test_every_rung_of_the_rule_and_of_bp(self):
        wanted = [(rule, False, k, 1) for rule in ("bp", "dfa") for k in (-1, 1, 2)]
        wanted += [(rule, True, -1, 1) for rule in ("bp", "dfa")]  # k = 0
        specs = planned(ladder=True)
        assert places(specs) == sorted(wanted)
        assert len({spec.digest() for spec in specs}) == len(specs)

    def test_it_holds_the_baselines(self):
        assert places(planned(ladder=True, baselines=True)) == places(planned(ladder=True))
        assert set(places(planned(baselines=True))) < set(places(planned(ladder=True)))

    def test_bp_is_plain_and_climbed_once(self):
        specs = planned(("dfa", "block_fa"), ladder=True, credit_norm="batch", penalty=0.1)
        bp = [s for s in specs if s.rule == "bp"]
        assert places(bp) == [("bp", False, k, 1) for k in (-1, 1, 2)] + [("bp", True, -1, 1)]
        assert {(s.credit_norm, s.penalty) for s in bp} == {("none", 0.0)}
        assert {(s.credit_norm, s.penalty) for s in specs if s.rule != "bp"} == {("batch", 0.1)}

    def test_the_depth_is_that_of_the_net(self):
        assert {s.train_last for s in plan_runs(rules=["bp"], seeds=(1,), ladder=True)} == {-1, 1, 2, 3}
        assert {s.train_last for s in plan_runs(rules=["bp"], seeds=(1,), ladder=True, depth="2")} == {-1, 1}
        assert {s.train_last for s in plan_runs(rules=["bp"], seeds=(1,), ladder=True, depth=1)} == {-1}

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"net": "mine"}, "but 'mine' has no `depth` option. Train single rungs"),
            ({"net": "gcn", "task": "sbm"}, "but 'gcn' has no stem"),
            ({"frozen": True}, "Expected 'frozen' to be chosen by the plan"),
            ({"train_last": 2}, "Expected all blocks to be trained beside baselines or a ladder, but got train_last 2"),
        ],
    )
    def test_refusals(self, asked, message, monkeypatch):
        monkeypatch.setitem(NETS._registered, "mine", Depthless)
        with pytest.raises(CreditscopeError, match=message):
            plan_runs(rules=["bp"], seeds=(1,), ladder=True, **asked)


class TestControls:
    def test_random_targets_for_the_rule_and_bp(self):
        specs = planned(controls="random targets", seeds=(1, 2))
        assert sorted((s.rule, s.targets, s.seed) for s in specs) == [
            *(("bp", "random", seed) for seed in (1, 2)),
            *(("dfa", kind, seed) for kind in ("random", "true") for seed in (1, 2)),
        ]

    def test_sgd_at_the_same_rate_unless_given(self):
        same, own = planned(controls=["sgd"], lr=0.003), planned(controls=["sgd"], lr=0.003, sgd_lr=0.05)
        wanted = [("bp", "sgd"), ("dfa", "adamw"), ("dfa", "sgd")]
        assert sorted((s.rule, s.optimiser) for s in same) == sorted((s.rule, s.optimiser) for s in own) == wanted
        assert {s.lr for s in same} == {0.003}
        assert {(s.optimiser, s.lr) for s in own} == {("adamw", 0.003), ("sgd", 0.05)}

    def test_norms_of_tap_rules_alone(self):
        specs = planned(("bp", "dfa", "fa"), controls=["norms"])
        found = sorted((s.rule, s.credit_norm) for s in specs)
        assert found == [("bp", "none"), ("dfa", "batch"), ("dfa", "none"), ("dfa", "sample"), ("fa", "none")]

    def test_controls_that_change_the_training_have_baselines_too(self):
        specs = planned(controls=["sgd", "norms", "random targets"], baselines=True)
        frozen = {(s.rule, s.optimiser, s.credit_norm) for s in specs if s.frozen}
        assert frozen == {(rule, opt, "none") for rule in ("bp", "dfa") for opt in ("adamw", "sgd")} | {
            ("dfa", "adamw", norm) for norm in ("batch", "sample")
        }
        assert {s.frozen for s in specs if s.targets == "random"} == {False}

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            ({"controls": ["sdg"]}, "Expected the name of a control, but got 'sdg'.*sgd"),
            ({"controls": ["sgd"], "optimiser": "sgd"}, "Expected another optimiser beside the control 'sgd'"),
            ({"controls": ["random targets"], "targets": "random"}, "Expected true targets beside the control"),
            ({"controls": ["random targets"], "targets": "redrawn"}, "Expected true targets beside the control"),
            ({"controls": ["random targets"], "net": "gcn"}, "but 'gcn' takes graphs"),
            ({"controls": ["norms"]}, r"Expected a tap rule .* but 'bp' has no tap credit to normalise"),
            ({"sgd_lr": 0.1}, "Expected sgd_lr beside the control 'sgd', but got 0.1 without it"),
        ],
    )
    def test_refusals(self, asked, message):
        with pytest.raises(CreditscopeError, match=message):
            plan_runs(rules=["bp"], seeds=(1,), **asked)


@pytest.fixture(scope="module")
def runs(digits) -> list[Run]:
    specs = planned(("dfa", "fa"), ladder=True, controls=["sgd", "random targets", "norms"])
    return [build_run(spec, digits) for spec in specs]


class TestSameStart:
    """Baselines differ from the run in what is trained, and in nothing else."""

    def test_initial_weights(self, runs):
        first = {name: p.detach().clone() for name, p in runs[0].net.named_parameters()}
        for run in runs[1:]:
            own = dict(run.net.named_parameters())
            assert own.keys() == first.keys()
            assert all(torch.equal(p, first[name]) for name, p in own.items()), run.spec.name()

    def test_feedback(self, runs):
        dfa = [run.application.applied.tensors() for run in runs if run.spec.rule == "dfa"]
        assert len(dfa) > 4
        assert all(torch.equal(own[name], b) for own in dfa for name, b in dfa[0].items())

    def test_order_of_the_data(self, runs):
        for epoch in (0, 1):
            rows = [run.data.plan_epoch(run.spec.seed, epoch)[0] for run in runs]
            assert all(torch.equal(own, rows[0]) for own in rows)
        assert not torch.equal(*(runs[0].data.plan_epoch(1, epoch)[0] for epoch in (0, 1)))


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
@pytest.mark.parametrize("last", [0, 1, 2, 3])
def test_a_rung_trains_exactly_its_blocks_the_stem_and_the_head(digits, rule, last):
    chosen = {"frozen": True} if last == 0 else {"train_last": last}
    run = build_run(plan_run(**{**TINY, "epochs": 1, "weight_decay": 0.0}, rule=rule, seed=1, **chosen), digits)
    before = {name: p.detach().clone() for name, p in run.net.named_parameters()}
    train_run(run, audit=False)
    moved = {name for name, p in run.net.named_parameters() if not torch.equal(p, before[name])}
    trained = ("stem", "norm", "head", *(f"blocks.{i}" for i in range(DEPTH - last, DEPTH)))
    assert moved == {name for name in before if name.startswith(tuple(f"{part}." for part in trained))}
    assert set(run.facts.frozen_weights) == before.keys() - moved


def targets_by_row(run: Run, seed: int, epochs: int = 3) -> np.ndarray:
    """The label each training row is given, one row of the table per epoch; −1 for rows of a dropped batch."""
    table = np.full((epochs, len(run.data.y_train)), -1)
    for epoch in range(epochs):
        plan = run.data.plan_epoch(seed, epoch)
        for step in range(run.data.steps):
            batch = run.data.train_batch(*(told[step] for told in plan))
            table[epoch, plan[0][step]] = batch.target
    return table


class TestRandomTargets:
    SPEC = TINY | {"rule": "dfa", "targets": "random"}

    def test_drawn_once_per_seed(self, digits):
        run = build_run(plan_run(**self.SPEC, seed=1), digits)
        first, other = targets_by_row(run, 1), targets_by_row(run, 2)
        for table in (first, other):
            given = np.where(table >= 0, table, table.max(0))
            assert (given == given[0]).all()  # the same label in every epoch
        assert (first.max(0) == other.max(0)).mean() < 0.15  # one in ten by chance
        assert (first.max(0) == digits.y_train).mean() < 0.15
        counts = np.bincount(first.max(0)[first.max(0) >= 0], minlength=10)
        assert counts.min() > 0.6 * counts.mean()  # uniform

    def test_true_targets_are_the_labels(self, digits):
        run = build_run(plan_run(**TINY, seed=1), digits)
        table = targets_by_row(run, 1, epochs=1)[0]
        assert (table == digits.y_train)[table >= 0].all()

    def test_testing_is_on_the_true_labels(self, digits):
        run = build_run(plan_run(**self.SPEC, seed=1), digits)
        train_run(run, audit=False)
        run.net.eval()
        with torch.no_grad():
            answers = run.net(torch.from_numpy(digits.x_test).float()).argmax(1).numpy()
        assert (evaluate(run)[1].numpy() == (answers == digits.y_test)).all()
        assert (run.data.snapshot_batch().target.numpy() == digits.y_test[: run.spec.eval_rows]).all()
