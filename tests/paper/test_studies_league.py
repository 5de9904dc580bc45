"""The league asks every rule for the same, with all that it is judged by; predictions name what it has."""

import tomllib
from importlib.resources import files

import pytest

from creditscope.auditing import audit
from creditscope.paper.predictions.outcomes import QUANTITIES
from creditscope.paper.studies import find_wanted, studies_at, train_runs
from creditscope.paper.studies._league import FAMILIES, UNBOUNDED, Block, Row
from creditscope.paper.studies.league import NEW_SETTINGS, SCALES, league
from creditscope.paper.studies.league_more import LONG
from creditscope.paper.studies.league_more import SCALES as MORE
from creditscope.record import load_records
from creditscope.record.table import method_name
from creditscope.registry import RULES
from creditscope.train.plan import plan_run

PREDICTIONS = tomllib.loads(files("creditscope.paper.predictions").joinpath("league.toml").read_text("utf-8"))
PREDICTIONS = PREDICTIONS["prediction"]
ALL = SCALES["league"] | MORE["league"]
TRIED = {"E6": "kaft"}


def test_every_rule_is_in_it_and_has_one_family():
    rules = {row.rule for block in SCALES["league"].values() for row in block.rows}
    assert rules == {name for name in RULES.names() if RULES.is_built_in(name)} - {"bp"}
    assert sorted(rules) == sorted(rule for family in FAMILIES.values() for rule in family)


@pytest.mark.parametrize("name", ALL)
def test_every_run_has_its_twin_and_bp_on_its_seeds(name):
    block = ALL[name]
    specs = [plan_run(**wanted) for wanted in block.plan()]
    assert len({spec.digest() for spec in specs}) == len(specs)
    assert len(block.seeds) >= (3 if name in LONG else 5)
    bp = {(s.seed, s.penalty, s.frozen) for s in specs if s.rule == "bp"}
    twins = {(s.rule, str(s.rule_options), s.credit_norm, s.seed, s.penalty) for s in specs if s.frozen}
    for spec in (s for s in specs if not s.frozen):
        assert ((spec.seed, spec.penalty, False) in bp) is block.bp
        if block.twins:
            penalty = spec.penalty if spec.rule == "bp" else 0.0
            assert (spec.seed, 0.0, True) in bp
            assert (spec.rule, str(spec.rule_options), spec.credit_norm, spec.seed, penalty) in twins
    assert block.twins or not twins


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_rules_by_their_defaults_are_penalised_where_nothing_bounds_them(name):
    for row in SCALES["league"][name].rows:
        usual = not row.options or row.options == {"joint": True}
        assert row.penalties == ((0.0, 1e-2) if usual and row.rule in UNBOUNDED else (0.0,)), row


def test_a_penalty_shares_its_twin_but_under_bp():
    block = Block({"task": "mnist1d", "net": "resmlp", "net_options": {}}, (Row("dfa", {}, (0.0, 0.1)),), (1,))
    runs = [(w["rule"], w["penalty"], w.get("frozen", False)) for w in block.plan()]
    assert runs == [
        ("bp", 0.0, False), ("bp", 0.0, True), ("bp", 0.1, False), ("bp", 0.1, True),
        ("dfa", 0.0, False), ("dfa", 0.0, True), ("dfa", 0.1, False),
    ]  # fmt: skip


def test_a_penalty_that_reaches_the_stem_has_its_own_frozen_twin():
    """A weight rule's backward pass carries it there; of a rule that gives credit at taps one twin serves every λ."""
    recipe = SCALES["demo"]["A"].recipe
    for local, penalties in ((True, {0.0}), (False, {0.0, 0.01})):
        runs = Block(recipe, (Row("mine.py:Rule", penalties=(0.0, 0.01), local=local),), (1,)).plan()
        twins = {run["penalty"] for run in runs if run["rule"] != "bp" and run.get("frozen")}
        assert twins == penalties


@pytest.mark.slow
def test_most_of_the_settings_are_none_that_thresholds_were_set_on(shipped_records):
    """They were set on records like those of the paper."""

    def setting(spec):
        return spec.task, spec.net, sorted(spec.net_options.items()), spec.epochs, spec.decay_on

    known = [setting(r.spec) for r in shipped_records if r.spec]
    for name in NEW_SETTINGS:
        assert setting(plan_run(**SCALES["league"][name].plan()[0])) not in known, name
    assert 2 * len(NEW_SETTINGS) >= len(SCALES["league"])


def test_other_studies_of_its_scale_have_no_runs_of_their_own():
    found = {study.name: study.runs for study in studies_at("league")}
    assert list(found) == ["judges", "league", "league_more", "phase", "trained_depth"]
    all_runs = [*found["league"], *found["league_more"]]
    assert all(run in all_runs for name in ("judges", "phase", "trained_depth") for run in found[name])


class TestPredictions:
    def test_each_can_miss(self):
        assert len({p["id"] for p in PREDICTIONS}) == len(PREDICTIONS) == 46
        for p in PREDICTIONS:
            assert "low" in p or "high" in p, p["id"]
            assert p["figure"] in ("league", "judges", "trained_depth", "phase"), p["id"]
            assert p["basis"] in ("none", "prototype", "records", "published"), p["id"]
            assert p["quantity"] in (*QUANTITIES, "order", "rank", "rank_gap", "rank_pair", "explains"), p["id"]

    @pytest.mark.parametrize("prediction", [p for p in PREDICTIONS if "rows" in p], ids=lambda p: p["id"])
    def test_its_rows_are_asked_for(self, prediction):
        own = prediction["block"] + (", no norm" if prediction.get("terminal_norm") is False else "")
        for block in (own, prediction.get("over_block", own)):
            names = {name for row in ALL[block].all_rows for name in row.names()}
            assert {*prediction["rows"], prediction.get("less", prediction["rows"][0])} <= names


@pytest.mark.slow
def test_runs_are_named_as_rows_are_and_judged(tmp_path):
    """One method with its twin, at the smallest scale."""
    wanted = [w for block, rule in TRIED.items() for w in league("test", blocks=[block]).runs if w["rule"] == rule]
    train_runs([plan_run(**w) for w in wanted], tmp_path, problems=[], slots=1, device="cpu")
    records = load_records(tmp_path)
    assert len(find_wanted(league("test"), records)) == len(records) == 2
    assert {method_name(r) for r in records if not r.spec.frozen} == set(TRIED.values())
    assert len(audit(records).methods) == 1
    for record in records:
        assert [s.epoch for s in record.snapshots] == ([0, 2] if record.spec.frozen else [0, 1, 2])
        assert record.spec.frozen or record.last.taps.rewind
