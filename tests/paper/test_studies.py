"""Which runs a study finds on record."""

import inspect
from dataclasses import fields

import pytest
from builders import QUICK, make_record, make_snapshot, write_record

from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.options import declared_options
from creditscope.paper.studies import DEFAULTS, Study, collect, find_missing, find_wanted, fits, studies_at
from creditscope.paper.studies._recipes import TEN_SEEDS
from creditscope.paper.studies.baselines import JUDGED, baselines
from creditscope.paper.studies.conventions import conventions
from creditscope.paper.studies.depth_scan import depth_scan
from creditscope.paper.studies.rescaling import DerivedRecord
from creditscope.record import Record, RuleFacts, RunSpec
from creditscope.registry import NETS, STUDIES, TASKS

WANTED = {"task": "mnist1d", "net": "resmlp", "rule": "fa", "epochs": 60, "net_options": {"depth": 4}}
STUDY = Study("mine", tuple({**WANTED, "seed": seed} for seed in (1, 2)))
OPTIONS = {"depth": 4, "width": 128}


def missing(*records) -> list[int]:
    return [wanted["seed"] for wanted in find_missing(STUDY, records)]


def run(**changes):
    return make_record(**{"rule": "fa", "seed": 1, "epochs": 60, "net_options": OPTIONS} | changes)


def test_runs_on_record_are_found():
    assert missing() == [1, 2]
    assert missing(run()) == [2]
    assert missing(run(), run(seed=2), run(seed=3)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 61},
        {"rule": "bp"},
        {"frozen": True},
        {"train_last": 2},
        {"targets": "random"},
        {"lr": 0.1},
        {"net_options": {**OPTIONS, "depth": 5}},
    ],
)
def test_other_runs_do_not_count(change):
    assert missing(run(**change)) == [1, 2]


def test_a_variant_of_the_rule_does_not_count():
    """FA with an exact head is not FA: the figure would show another method under its name."""
    exact = RuleFacts(name="fa", label="FA", variant="head exact")
    variant = run(rule_options={"head": "exact", "scale": "unit"}, facts={"rule": exact})
    plain = run(rule_options={"head": "random", "scale": "unit"})
    assert missing(variant) == [1, 2]
    assert missing(plain) == [2]


def test_every_option_of_a_variant_is_asked_for():
    """DFA on all tokens indexed by the input is not DFA on all tokens."""
    options = {"tokens": "all", "index": "input"}
    both, one = (
        run(rule_options=own, facts={"rule": RuleFacts(name="fa", label="FA", variant=variant)})
        for own, variant in ((options, "index input, tokens all"), ({"tokens": "all"}, "tokens all"))
    )
    usual = run(rule_options=options)
    asked = [{**STUDY.runs[0], "rule_options": own} for own in ({}, {"tokens": "all"}, {"index": "input"}, options)]
    assert [fits(both, w) for w in asked] == [False, False, False, True]
    assert [fits(one, w) for w in asked] == [False, True, False, False]
    assert [fits(usual, w) for w in asked] == [True, True, True, True]


def test_what_is_collected_is_what_was_asked(tmp_path):
    exact = RuleFacts(name="fa", label="FA", variant="head exact")
    plain, variant = run(rule_options={"head": "random"}), run(rule_options={"head": "exact"}, facts={"rule": exact})
    for record in (plain, variant, run(seed=3), run(frozen=True)):
        write_record(tmp_path, record)
    problems: list[str] = []
    found = collect(STUDY, tmp_path, train=False, slots=1, quiet=True, problems=problems)
    assert [r.spec for r in found] == [plain.spec]
    assert (len(problems), "1 of 2" in problems[0], "fa seed 2" in problems[0]) == (1, True, True)


class TestEarlierRecords:
    """They are drawn; where runs are trained, they do not count."""

    def test_what_is_measured_by_now(self):
        old, new = run(snapshots=[make_snapshot(epoch=60, taps={"rewind": ()})]), run()
        assert missing(old) == [2]
        assert len(find_missing(STUDY, [old], whole=True)) == 2
        assert len(find_missing(STUDY, [old, new], whole=True)) == 1
        for records in ([old, new], [new, old]):
            assert find_wanted(STUDY, records) == [new]

    def test_noise_at_tier_quick(self):
        study = Study("mine", ({**STUDY.runs[0], "snapshot_every": 0, "tier": "quick"},))
        old, new = (run(snapshot_every=0, tier="quick", noise=noise) for noise in (False, True))
        assert find_missing(study, [old]) == find_missing(study, [new], whole=True) == []
        assert len(find_missing(study, [old], whole=True)) == 1
        assert find_wanted(study, [old, new]) == [new]

    def test_a_frozen_run_serves_as_it_is(self):
        (wanted, *_) = (w for w in STUDIES.get("penalty_rescue")("demo").runs if w.get("frozen"))
        record = make_record(**wanted, taps=QUICK)
        assert find_missing(Study("mine", (wanted,)), [record], whole=True) == []


def test_nothing_on_record_is_an_error(tmp_path):
    with pytest.raises(CreditscopeError, match=r"'mine' .*nowhere"):
        collect(STUDY, tmp_path / "nowhere", train=False, slots=1, quiet=True, problems=[])


def test_what_is_derived_comes_after_the_records(tmp_path):
    heard = {}

    def derive(records, root, **how):
        heard.update(how, root=root, seeds=[r.spec.seed for r in records])
        return [DerivedRecord(r.spec, r.provenance, r.snapshots, None, 3.0) for r in records]

    write_record(tmp_path, run())
    study, problems = Study("mine", STUDY.runs, derive=derive), []
    found = collect(study, tmp_path, train=False, problems=problems, device="cpu")
    assert [type(r) for r in found] == [Record, DerivedRecord]
    assert heard == {"root": tmp_path, "seeds": [1], "measure": False, "problems": problems, "device": "cpu"}


@pytest.mark.parametrize("name", ["bp_bottleneck", "graph_depth", "bottleneck_controls"])
@pytest.mark.parametrize("scale", ["demo", "test"])
@pytest.mark.parametrize("change", [{"nodes": 400}, {"homophily": 0.3}, {"normalisation": "other"}])
def test_a_run_on_another_graph_does_not_count(name, scale, change):
    """The options of the task that a study does not ask for are the declared ones."""
    wanted = STUDIES.get(name)(scale, seeds=(1,)).runs[0]
    study = Study("mine", (wanted,))
    factory = TASKS.get("sbm")
    options = declared_options(factory) | wanted["task_options"]
    spec = {**wanted, "task": "sbm", "data_version": factory.data_version}
    assert find_missing(study, [make_record(**{**spec, "task_options": options})]) == []
    assert find_missing(study, [make_record(**{**spec, "task_options": options | change})]) == [wanted]


@pytest.mark.parametrize("name", STUDIES.names())
def test_every_option_of_the_net_is_asked_for(name):
    """Defaults of nets are not read when records are matched, so that a study must name them all."""
    study = STUDIES.get(name)
    scaled, looked_at = "scale" in inspect.signature(study).parameters, 0
    for scale in ("demo", "paper", "test") if scaled else ("",):
        try:
            runs = (study(scale) if scaled else study()).runs
        except UnknownNameError:
            continue
        for net, options in {(run["net"], tuple(sorted(run["net_options"]))) for run in runs}:
            assert set(options) == set(declared_options(NETS.get(net)))
            looked_at += 1
    assert looked_at


@pytest.mark.parametrize("scale", ["demo", "paper", "test"])
def test_no_study_wants_a_run_twice(scale):
    defaults = {f.name: f.default for f in fields(RunSpec)}
    for study in studies_at(scale):
        asked = [tuple(str(wanted.get(name, value)) for name, value in defaults.items()) for wanted in study.runs]
        assert len(set(asked)) == len(asked), study.name


def test_what_is_missing_is_named_once(tmp_path):
    wanted = STUDY.runs[0]
    write_record(tmp_path, run())
    study, problems = Study("mine", (*STUDY.runs, *({**wanted, "seed": 9, "lr": lr} for lr in (1.0, 2.0, 3.0)))), []
    collect(study, tmp_path, train=False, problems=problems)
    assert problems[0].endswith(": fa seed 2, fa seed 9 (3 runs).")


def setting_of(wanted, *left_out) -> str:
    return str(sorted((n, str(v)) for n, v in {**DEFAULTS, **wanted}.items() if n not in left_out))


class TestBaselines:
    """CS004 asks for the frozen twin of a method, for BP, and for frozen BP, on its seeds."""

    MEASURING = ("snapshot_every", "snapshot_at", "tier", "noise")
    OF_RULE = (*MEASURING, "rule", "rule_options", "credit_norm", "penalty", "frozen")

    @pytest.mark.parametrize("scale", ["paper", "test"])
    def test_every_judged_run_has_all_it_is_compared_with(self, scale):
        """On ten seeds at least, and on all that there are of BP and FA."""
        frozen = {setting_of(w, *self.MEASURING, "penalty") for w in baselines(scale).runs}
        by_bp = {setting_of(w, *self.OF_RULE) for w in baselines(scale).runs if w["rule"] == "bp"}
        asked = 0
        for wanted in (w for name in JUDGED for w in STUDIES.get(name)(scale).runs if not w.get("frozen")):
            shallow = wanted["net"] == "gcn" and wanted["net_options"]["depth"] == 2
            other = wanted.get("train_last", -1) >= 0 or wanted.get("targets", "true") != "true"
            few = wanted["rule"] in ("bp", "fa") or wanted["seed"] in TEN_SEEDS
            if not (shallow or other) and few:
                asked += 1
                assert setting_of({**wanted, "frozen": True}, *self.MEASURING, "penalty") in frozen
                assert setting_of(wanted, *self.OF_RULE) in by_bp
        assert asked

    def test_they_train_no_block_and_are_read_at_their_end(self):
        for wanted in baselines("paper").runs:
            assert (wanted["frozen"], wanted["tier"], wanted["snapshot_every"]) == (True, "quick", 0)
            assert not (wanted["net"] == "gcn" and wanted["net_options"]["depth"] < 3)

    def test_a_penalty_is_kept_only_where_it_reaches_the_stem(self):
        penalties = {(w["rule"], w["penalty"]) for w in baselines("paper").runs if w["net"] == "resmlp"}
        assert ("bp", 1e-2) in penalties
        assert {rule for rule, penalty in penalties if penalty} == {"bp"}


def test_published_conventions_are_one_setting():
    for wanted in (*conventions("paper").runs, *depth_scan("paper").runs):
        given = (wanted["rule"], wanted["credit_norm"], wanted.get("rule_options"))
        assert given in (("block_fa", "sample-mean", None), ("dfa", "sample", {"index": "input"}))
        assert wanted.get("targets", "true") in ("true", "redrawn")


def test_the_studies_are_what_they_say():
    demo, hero = STUDIES.get("demo")().runs, STUDIES.get("audit_hero")().runs
    assert (len(demo), len(hero)) == (30, 9)
    assert all(wanted in demo for wanted in hero)  # the figure of the demo needs no further run
