"""Which records are methods, which are their baselines, and what they are called."""

from dataclasses import replace

import pytest
from builders import make_family, make_record
from scipy import stats

from creditscope.auditing import MethodAudit, audit
from creditscope.auditing.methods import group_methods, is_baseline
from creditscope.options import declared_options
from creditscope.record import Record, RuleFacts
from creditscope.registry import NETS, TASKS


def ladder(*rungs: int, rule: str = "dfa", seeds=(1, 2, 3)):
    """Rungs that gain 5 pp a block over the frozen 0.40, a little different by seed."""
    return [
        make_record(rule=rule, seed=s, train_last=k, accuracy=0.4 + 0.05 * k + 0.002 * s * s)
        for k in rungs
        for s in seeds
    ]


def dfa_of(records: list[Record]) -> MethodAudit:
    return next(m for m in audit(records).methods if m.method == "DFA")


class TestLadder:
    def test_rungs_are_no_methods_and_no_full_runs(self):
        alone, with_rungs = make_family(), [*make_family(), *ladder(1, 2, 3)]
        assert [m.method for m in audit(with_rungs).methods] == ["BP", "DFA"]
        for before, after in zip(audit(alone).methods, audit(with_rungs).methods, strict=True):
            assert (before.accuracy, before.gain, before.verdict) == (after.accuracy, after.gain, after.verdict)

    def test_a_rung_with_more_snapshots_does_not_replace_the_full_run(self):
        full, rung = make_record(accuracy=0.7), make_record(accuracy=0.5, train_last=2)
        rung = replace(rung, snapshots=rung.snapshots * 2)
        for records in ([full, rung], [rung, full]):
            assert dfa_of(records).accuracy.mean == 0.7

    def test_accuracy_by_trained_blocks_paired_with_the_full_run(self):
        dfa = dfa_of([*make_family(), *ladder(1, 3)])
        assert [rung.trained for rung in dfa.ladder] == [0, 1, 3]
        full = [0.7 + 0.002 * s for s in (1, 2, 3)]
        for rung, base in zip(dfa.ladder[1:], (0.45, 0.55), strict=True):
            own = [base + 0.002 * s * s for s in (1, 2, 3)]
            gaps = [f - o for f, o in zip(full, own, strict=True)]
            low, high = stats.t.interval(0.95, 2, sum(gaps) / 3, stats.sem(gaps))
            assert rung.accuracy.mean == pytest.approx(sum(own) / 3)
            assert (rung.below_full.low, rung.below_full.high) == (pytest.approx(low), pytest.approx(high))

    def test_pairs_are_of_common_seeds(self):
        rung = dfa_of([*make_family(), *ladder(2, seeds=(2, 3, 4))]).ladder[-1]
        assert (rung.trained, rung.accuracy.n, rung.below_full.n) == (2, 3, 2)
        assert dfa_of([*make_family(), *ladder(2, seeds=(8, 9))]).ladder[-1].below_full is None

    def test_each_rule_has_its_own(self):
        records = [*make_family(), *ladder(1), *ladder(2, rule="bp")]
        assert [[r.trained for r in m.ladder] for m in audit(records).methods] == [[0, 2], [0, 1]]

    def test_no_block_trained_is_the_frozen_baseline_by_another_name(self):
        own = [r for r in make_family() if r.spec and not (r.spec.rule == "dfa" and r.spec.frozen)]
        zero = ladder(0)
        dfa = dfa_of([*own, *zero])
        assert (dfa.verdict.word, dfa.frozen_own is None) == ("trustworthy", False)
        assert all(map(is_baseline, zero))

    def test_a_diverged_rung_is_left_out(self):
        broken = [make_record(seed=s, train_last=1, diverged=1) for s in (1, 2, 3)]
        assert [rung.trained for rung in dfa_of([*make_family(), *broken]).ladder] == [0]


class TestSetting:
    def test_random_targets_are_a_setting_of_their_own(self):
        records = make_family() + [make_record(seed=s, accuracy=0.1, targets="random") for s in (1, 2, 3)]
        found = {m.setting: m for m in audit(records).methods if m.method == "DFA"}
        assert [setting.endswith("random targets") for setting in found] == [False, True]
        outcomes = {f.code: str(f.outcome) for f in list(found.values())[1].findings}
        assert (outcomes["CS004"], outcomes["CS010"]) == ("not applicable", "not applicable")

    def test_redrawn_targets_are_random_ones_and_another_setting(self):
        found = group_methods([make_record(targets=targets) for targets in ("random", "redrawn")])
        assert [m.random_targets for m in found] == [True, True]
        assert len({m.setting for m in found}) == 2

    def test_a_title_leaves_out_defaults_but_for_the_size_of_the_net(self):
        usual = {"depth": 2, "width": 64, "dropout": 0.0, "gain": 1.0, "residual": False}
        records = [
            make_record(task="digits", task_options={"image": False}, net="gcn", net_options=usual),
            make_record(task="digits", task_options={"image": True}, net="gcn", net_options=usual | {"residual": True}),
            make_record(net="my.py:Net", net_options={"depth": 1, "slope": 0.5}),
        ]
        assert [m.setting for m in group_methods(records)] == [
            "digits · gcn (depth 2, width 64) · 1 epoch",
            "digits (image True) · gcn (depth 2, width 64, residual True) · 1 epoch",
            "mnist1d · my.py:Net (depth 1, slope 0.5) · 1 epoch",
        ]

    @pytest.mark.parametrize("registry", [NETS, TASKS])
    def test_defaults_read_without_import_are_those_of_the_constructors(self, registry):
        for name in registry.names():
            if registry.is_built_in(name):
                assert registry.defaults(name) == declared_options(registry.get(name))

    @pytest.mark.parametrize(("name", "value"), [("weight_decay", 0.0), ("decay_on", "first")])
    def test_another_weight_decay_is_said(self, name, value):
        plain, other = group_methods([make_record(), make_record(**{name: value})])
        assert other.setting == f"{plain.setting} · {name} {value}"

    def test_of_the_same_run_the_richer_record_is_judged(self):
        """How it was measured is no part of the setting."""
        quick = make_record(tier="quick", snapshot_every=1, accuracy=0.6)
        quick = replace(quick, snapshots=quick.snapshots * 3)
        standard = make_record(accuracy=0.7)
        for records in ([quick, standard], [standard, quick]):
            (method,) = group_methods(records)
            assert method.first is standard


def test_differences_are_paired():
    """Seeds differ by 20 pp, the method by 3 pp from BP in each: only the paired interval shows it."""
    base = {1: 0.3, 2: 0.5, 3: 0.7}
    records = [make_record(seed=s, accuracy=a - 0.03) for s, a in base.items()]
    records += [make_record(rule="bp", seed=s, accuracy=a) for s, a in base.items()]
    bp, dfa = audit(records).methods
    assert (dfa.versus_bp.mean, dfa.versus_bp.high) == (pytest.approx(-0.03), pytest.approx(-0.03))
    assert dfa.accuracy.high - dfa.accuracy.mean > 0.4
    assert bp.versus_bp is None  # BP against itself is no comparison


def test_an_unfinished_run_is_named_and_left_out():
    done, running = make_record(rule="bp", seed=1), make_record(rule="bp", seed=2)
    running = replace(running, provenance=replace(running.provenance, status="running"))
    found = audit([done, running])
    assert found.methods[0].seeds == (1,)
    assert running.name in found.problems[0]


def test_rules_of_one_name_are_called_by_their_files_too():
    """Cards are files named after their method: of two alike one would be lost."""
    facts, label = {"rule": RuleFacts(name="Rule", label="mine")}, "mine"
    own = {n: [make_record(seed=s, rule=f"{n}.py:Rule", facts=facts) for s in (1, 2, 3)] for n in ("one", "two")}
    judged = audit([*own["one"], *own["two"]])
    assert [m.method for m in judged.methods] == [f"{label} (one.py:Rule)", f"{label} (two.py:Rule)"]
    assert len({card.name for card in judged.cards()}) == 2
    assert [m.method for m in audit(own["one"]).methods] == [label]
