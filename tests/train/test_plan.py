"""From what is asked to specs."""

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from creditscope.errors import CreditscopeError
from creditscope.record import load_records
from creditscope.train.plan import choose_seeds, plan_run, plan_runs
from creditscope.train.run import build_run

PAPER = Path(__file__).parents[2] / "results" / "paper"


class TestSeeds:
    def test_a_number_gives_the_usual_ones_first(self):
        assert choose_seeds(1) == (42,)
        assert choose_seeds(3) == (42, 123, 456)
        assert choose_seeds(5) == (42, 123, 456, 1, 2)

    @pytest.mark.parametrize("count", [44, 45, 500])
    def test_a_number_gives_so_many_different_ones(self, count):
        assert len(set(choose_seeds(count))) == count

    def test_seeds_themselves(self):
        assert choose_seeds([7, 3]) == (7, 3)
        assert choose_seeds(range(2)) == (0, 1)

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

    @pytest.mark.parametrize("fields", [{"weight_decay": 0}, {"lr": 1}, {"penalty": 1}])
    def test_equal_numbers_are_one_run(self, fields):
        assert plan_run(**fields).digest() == plan_run(**{name: float(v) for name, v in fields.items()}).digest()

    def test_numpy_seeds_are_seeds(self):
        (spec, _) = plan_runs(rules=["bp"], seeds=choose_seeds(np.arange(2)))  # pyright: ignore
        assert spec.digest() == plan_run(seed=0).digest()

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
            (
                {"credit_norm": "row"},
                "Expected credit_norm to be one of none, .* sample-mean, but got 'row'",
            ),
            ({"train_last": -2}, "Expected train_last >= -1, but got -2"),
            ({"train_last": 1.5}, "Expected train_last to be a whole number, but got 1.5"),
            ({"train_last": 1, "frozen": True}, "but got train_last 1 beside frozen"),
            ({"targets": "shuffled"}, "Expected targets to be one of true, random, redrawn, but got 'shuffled'"),
            ({"decay_on": "last"}, "decay_on.* all, first, .*'last'"),
            ({"tier": "slow"}, "Expected tier to be one of quick, standard, full, but got 'slow'"),
            ({"snapshot_at": "soon"}, "Expected snapshot_at to be 'log' or epochs such as '1,5,20', but got 'soon'"),
        ],
    )
    def test_refusals(self, fields, message):
        with pytest.raises(CreditscopeError, match=message):
            plan_run(**fields)

    def test_baselines(self):
        specs = plan_runs(rules=["dfa", "bp"], seeds=(1, 2), baselines=True, penalty=0.1, depth=2)
        found = {(s.rule, s.penalty, s.frozen, s.seed) for s in specs}
        wanted = {("dfa", 0.1), ("bp", 0.1), ("bp", 0.0)}  # BP as it was asked for, and plain
        assert found == {(*rule, frozen, seed) for rule in wanted for frozen in (False, True) for seed in (1, 2)}
        assert len(specs) == len(found)  # plain BP once, though two rules need it
        assert {s.net_options["depth"] for s in specs} == {2}

    def test_what_the_plan_chooses_cannot_be_given(self):
        with pytest.raises(CreditscopeError, match="'seed'"):
            plan_runs(rules=["bp"], seeds=(1,), seed=3)

    @pytest.mark.parametrize(
        ("task", "net", "fitting"),
        [
            ("sbm", "resmlp", "gcn"),
            ("cora", "resmlp", "gcn"),
            ("digits", "gcn", "resmlp, student"),
            ("cifar10", "gcn", "resmlp, student, vit"),
        ],
    )
    def test_a_net_that_no_data_of_the_task_fit_is_refused_before_they_are_fetched(
        self, task, net, fitting, monkeypatch
    ):
        monkeypatch.setattr("creditscope.tasks.cora.load_planetoid", lambda *_, **__: pytest.fail("fetched"))
        with pytest.raises(CreditscopeError, match=f"{task!r}.*{net!r}.*: {fitting}"):
            plan_run(task=task, net=net)
