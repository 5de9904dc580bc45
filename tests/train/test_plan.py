"""From what is asked to specs, with baselines, ladder and controls; and that all of them start from the same place."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from trained import train_run

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, load_records
from creditscope.registry import NETS
from creditscope.tasks import load_task
from creditscope.train.plan import choose_seeds, plan_run, plan_runs
from creditscope.train.run import build_run
from creditscope.train.snapshots import evaluate

PAPER = Path(__file__).parents[2] / "results" / "paper"
DEPTH = 3
TINY = {
    "task": "digits",
    "net_options": {"depth": DEPTH, "width": 8},
    "epochs": 2,
    "tier": "quick",
    "snapshot_every": 0,
}


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


class TestSeeds:
    def test_a_number_gives_the_usual_ones_first_and_so_many_different_ones(self):
        assert choose_seeds(1) == (42,)
        assert choose_seeds(5) == (42, 123, 456, 1, 2)
        assert [len(set(choose_seeds(count))) for count in (44, 45, 500)] == [44, 45, 500]

    def test_seeds_themselves(self):
        assert choose_seeds([7, 3]) == (7, 3)
        assert choose_seeds(range(2)) == (0, 1)
        (spec, _) = plan_runs(rules=["bp"], seeds=choose_seeds(np.arange(2)))  # pyright: ignore
        assert spec.digest() == plan_run(seed=0).digest()

    @pytest.mark.parametrize(
        ("seeds", "message"),
        [
            (0, "Expected at least one seed, but got 0"),
            (-2, "Expected at least one seed, but got -2"),
            ((), "Expected at least one seed, but got none"),
            ((3, 1, 3, 1, 2), "Expected every seed once, but got 1, 3 more than once"),
        ],
    )
    def test_refusals(self, seeds, message):
        with pytest.raises(CreditscopeError, match=message):
            choose_seeds(seeds)


class TestPlan:
    def test_a_default_and_the_same_value_typed_are_one_run(self):
        asked = plan_run()
        typed = plan_run(task="mnist1d", net="resmlp", rule="bp", net_options={"width": "128", "depth": 4}, lr=0.001)
        assert typed.digest() == asked.digest()
        assert asked.net_options == {"depth": 4, "width": 128, "terminal_norm": True}
        assert asked.data_version.startswith("mnist1d-")
        assert plan_run(rule="fa").digest() == plan_run(rule="fa", rule_options={"head": "random"}).digest()
        assert plan_run(net_options={"width": 64}).digest() != asked.digest()
        for name, number in (("weight_decay", 0), ("lr", 1), ("penalty", 1)):
            assert plan_run(**{name: number}).digest() == plan_run(**{name: float(number)}).digest()

    @pytest.mark.parametrize("bundle", ["normalisation", "cross_architecture", "reproduction"])
    def test_shipped_runs_keep_their_names_when_they_are_planned_again(self, bundle):
        """Options that came later are no part of a spec at their defaults."""
        left_out = ("data_version", "net_source", "rule_source")
        for record in load_records(PAPER / f"{bundle}.jsonl.xz"):
            spec = record.spec
            again = plan_run(**{name: value for name, value in asdict(spec).items() if name not in left_out})
            assert (again.digest(), again.name(), again) == (spec.digest(), record.name, spec)

    @pytest.mark.slow
    def test_a_later_option_is_written_out_where_it_is_not_the_default(self):
        usual, typed = plan_run(rule="dfa"), plan_run(rule="dfa", rule_options={"index": "own"})
        assert usual.rule_options == {"tokens": "all"}
        assert typed == usual
        other = plan_run(rule="dfa", rule_options={"index": "input"})
        assert other.rule_options == {"tokens": "all", "index": "input"}
        assert other.digest() != usual.digest()
        facts = [build_run(spec).facts.rule for spec in (usual, other)]
        assert [fact.variant for fact in facts] == ["", "index input"]
        assert "index" not in plan_run(task="sbm", net="gcn", rule="dfa_gnn").rule_options

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"epochs": 0}, "Expected epochs >= 1, but got 0"),
            ({"eval_rows": 1}, "Expected eval_rows >= 2, but got 1"),
            ({"snapshot_every": -1}, "Expected snapshot_every >= 0, but got -1"),
            ({"penalty": float("nan")}, "Expected penalty >= 0, but got nan"),
            ({"penalty": float("inf")}, "Expected penalty"),
            ({"weight_decay": float("inf")}, "Expected weight_decay"),
            ({"lr": float("inf")}, "Expected a learning rate"),
            ({"epochs": 1.5}, "Expected epochs"),
            ({"precision": "float16"}, "Expected precision to be one of float32, tf32, float64, but got 'float16'"),
            ({"optimiser": "lion"}, "Expected optimiser to be one of adamw, adam, sgd, but got 'lion'"),
            ({"credit_norm": "row"}, "Expected credit_norm to be one of none, .* sample-mean, but got 'row'"),
            ({"train_last": -2}, "Expected train_last >= -1, but got -2"),
            ({"train_last": 1.5}, "Expected train_last to be a whole number, but got 1.5"),
            ({"train_last": 1, "frozen": True}, "but got train_last 1 beside frozen"),
            ({"targets": "shuffled"}, "Expected targets to be one of true, random, redrawn, but got 'shuffled'"),
            ({"decay_on": "last"}, "decay_on.* all, first, .*'last'"),
            ({"tier": "slow"}, "Expected tier to be one of quick, standard, full, but got 'slow'"),
            ({"snapshot_at": "soon"}, "Expected snapshot_at to be 'log' or epochs such as '1,5,20', but got 'soon'"),
            ({"task": "sbm", "net": "resmlp"}, "'sbm'.*'resmlp'.*: gcn"),
            ({"task": "cora", "net": "resmlp"}, "'cora'.*'resmlp'.*: gcn"),
            ({"task": "digits", "net": "gcn"}, "'digits'.*'gcn'.*resmlp, .*student"),
            ({"task": "cifar10", "net": "gcn"}, "'cifar10'.*'gcn'.*resmlp, .*student, vit"),
        ],
    )
    def test_refusals_before_data_are_fetched(self, fields, message, monkeypatch):
        monkeypatch.setattr("creditscope.tasks.cora.load_planetoid", lambda *_, **__: pytest.fail("fetched"))
        with pytest.raises(CreditscopeError, match=message):
            plan_run(**fields)

    def test_baselines(self):
        specs = plan_runs(rules=["dfa", "bp"], seeds=(1, 2), baselines=True, penalty=0.1, depth=2)
        found = {(s.rule, s.penalty, s.frozen, s.seed) for s in specs}
        wanted = {("dfa", 0.1), ("bp", 0.1), ("bp", 0.0)}  # BP as it was asked for, and plain
        assert found == {(*rule, frozen, seed) for rule in wanted for frozen in (False, True) for seed in (1, 2)}
        assert len(specs) == len(found)  # plain BP once, though two rules need it
        assert {s.net_options["depth"] for s in specs} == {2}


class TestLadder:
    def test_every_rung_of_the_rule_and_of_bp(self):
        wanted = [(rule, False, k, 1) for rule in ("bp", "dfa") for k in (-1, 1, 2)]
        wanted += [(rule, True, -1, 1) for rule in ("bp", "dfa")]  # k = 0
        specs = planned(ladder=True)
        assert places(specs) == sorted(wanted) == places(planned(ladder=True, baselines=True))
        assert len({spec.digest() for spec in specs}) == len(specs)
        assert set(places(planned(baselines=True))) < set(wanted)

    def test_bp_is_plain_and_climbed_once(self):
        specs = planned(("dfa", "block_fa"), ladder=True, credit_norm="batch", penalty=0.1)
        bp = [s for s in specs if s.rule == "bp"]
        assert places(bp) == [("bp", False, k, 1) for k in (-1, 1, 2)] + [("bp", True, -1, 1)]
        assert {(s.credit_norm, s.penalty) for s in bp} == {("none", 0.0)}
        assert {(s.credit_norm, s.penalty) for s in specs if s.rule != "bp"} == {("batch", 0.1)}

    @pytest.mark.parametrize(("net", "rungs"), [({}, {-1, 1, 2, 3}), ({"depth": "2"}, {-1, 1}), ({"depth": 1}, {-1})])
    def test_the_depth_is_that_of_the_net(self, net, rungs):
        assert {s.train_last for s in plan_runs(rules=["bp"], seeds=(1,), ladder=True, **net)} == rungs


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
        ({"seed": 3}, "'seed'"),
        ({"ladder": True, "net": "mine"}, "but 'mine' has no `depth` option. Train single rungs"),
        ({"ladder": True, "net": "gcn", "task": "sbm"}, "but 'gcn' has no stem"),
        ({"ladder": True, "frozen": True}, "Expected 'frozen' to be chosen by the plan"),
        (
            {"ladder": True, "train_last": 2},
            "Expected all blocks .* beside .* ladder, but got train_last 2",
        ),
        ({"controls": ["sdg"]}, "Expected the name of a control, but got 'sdg'.*sgd"),
        ({"controls": ["sgd"], "optimiser": "sgd"}, "Expected another optimiser beside the control 'sgd'"),
        ({"controls": ["random targets"], "targets": "random"}, "Expected true targets beside the control"),
        ({"controls": ["random targets"], "targets": "redrawn"}, "Expected true targets beside the control"),
        ({"controls": ["random targets"], "net": "gcn"}, "but 'gcn' takes graphs"),
        ({"controls": ["norms"]}, r"Expected a tap rule .* but 'bp' has no tap credit to normalise"),
        ({"sgd_lr": 0.1}, "Expected sgd_lr beside the control 'sgd', but got 0.1 without it"),
    ],
)
def test_what_cannot_be_planned(asked, message, monkeypatch):
    monkeypatch.setitem(NETS._registered, "mine", Depthless)
    with pytest.raises(CreditscopeError, match=message):
        plan_runs(rules=["bp"], seeds=(1,), **asked)


def test_all_start_from_the_same_weights_feedback_and_order_of_the_data(digits):
    """They differ in what is trained, and in nothing else."""
    specs = planned(("dfa", "fa"), ladder=True, controls=["sgd", "random targets", "norms"])
    runs = [build_run(spec, digits) for spec in specs]
    first = dict(runs[0].net.named_parameters())
    for run in runs[1:]:
        own = dict(run.net.named_parameters())
        assert own.keys() == first.keys()
        assert all(torch.equal(p, first[name]) for name, p in own.items()), run.spec.name()
    dfa = [run.application.applied.tensors() for run in runs if run.spec.rule == "dfa"]
    assert len(dfa) > 4
    assert all(torch.equal(own[name], b) for own in dfa for name, b in dfa[0].items())
    orders = [[run.data.plan_epoch(1, epoch)[0] for run in runs] for epoch in (0, 1)]
    assert all(torch.equal(own, rows[0]) for rows in orders for own in rows)
    assert not torch.equal(orders[0][0], orders[1][0])


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


def test_testing_is_on_the_true_labels(digits):
    run = build_run(plan_run(**TINY, rule="dfa", targets="random", seed=1), digits)
    train_run(run, audit=False)
    run.net.eval()
    with torch.no_grad():
        answers = run.net(torch.from_numpy(digits.x_test).float()).argmax(1).numpy()
    assert (evaluate(run)[1].numpy() == (answers == digits.y_test)).all()
    assert (run.data.snapshot_batch().target.numpy() == digits.y_test[: run.spec.eval_rows]).all()
