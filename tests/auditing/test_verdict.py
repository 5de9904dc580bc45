"""What may be concluded; a check that could not run never looks like one that passed."""

from dataclasses import replace
from itertools import product

import pytest
from builders import make_facts, make_family, make_record, make_snapshot, write_record
from hypothesis import given
from hypothesis import strategies as st

from creditscope.auditing import Finding, Outcome, Thresholds, audit
from creditscope.auditing.checks import all_checks
from creditscope.auditing.judge import combine
from creditscope.auditing.verdict import QUESTIONS, reach_verdict
from creditscope.errors import CreditscopeError
from creditscope.record import RuleFacts
from creditscope.runs import Runs

ISSUE, TIP, PASSED, UNDECIDED = Outcome.ISSUE, Outcome.TIP, Outcome.PASSED, Outcome.UNDECIDED
NOT_APPLICABLE, SKIPPED, MUTED = Outcome.NOT_APPLICABLE, Outcome.SKIPPED, Outcome.MUTED
LINES = {
    "reference": ("CS002", "CS003", "CS007"),
    "credit": ("CS001", "CS005", "CS006", "CS008"),
    "depth": ("CS004", "CS009", "CS010"),
}
CHECKS = all_checks()
INSUFFICIENT = ("CS003", "CS009", "CS010")
"""Checks whose pass alone does not answer their question."""
CODES = sorted(code for codes in LINES.values() for code in codes)


def finding(outcome: Outcome, code: str = "CS001", **others) -> Finding:
    return Finding(code=code, title="t", outcome=outcome, message=f"said {outcome}", advisory=code == "CS003", **others)


class TestWord:
    @given(st.lists(st.sampled_from(Outcome), min_size=len(CODES), max_size=len(CODES)))
    def test_any_outcomes_give_the_right_word_and_codes(self, outcomes):
        verdict = reach_verdict([finding(o, code) for code, o in zip(CODES, outcomes, strict=True)])
        by_outcome = {o: tuple(c for c, found in zip(CODES, outcomes, strict=True) if found == o) for o in Outcome}
        unsettled = tuple(sorted({*by_outcome[SKIPPED], *by_outcome[UNDECIDED]} - {"CS003"}))
        if by_outcome[ISSUE]:
            assert (verdict.word, verdict.codes) == ("walk back", by_outcome[ISSUE])
        elif unsettled:
            assert (verdict.word, verdict.codes) == ("inconclusive", unsettled)
        else:
            assert (verdict.word, verdict.codes) == ("trustworthy", ())
        assert verdict.muted == by_outcome[MUTED]

    @pytest.mark.parametrize("line", LINES)
    def test_every_combination_within_a_line(self, line):
        """Yes needs a pass or a tip among what is sufficient, and nothing open (but the tip's check) or wrong."""
        codes = LINES[line]
        for outcomes in product(Outcome, repeat=len(codes)):
            verdict = reach_verdict(list(map(finding, outcomes, codes)), checks=CHECKS)
            (answer,) = [found for found in verdict.lines if found.question == QUESTIONS[line]]
            pairs = list(zip(codes, outcomes, strict=True))
            held = [c for c, o in pairs if o in (PASSED, TIP) and c not in INSUFFICIENT]
            if ISSUE in outcomes:
                expected = "no"
            elif any(o in (SKIPPED, UNDECIDED) and c != "CS003" for c, o in pairs):
                expected = "open"
            else:
                expected = "yes" if held else "not applicable"
            assert answer.answer == expected, outcomes

    def test_a_line_says_what_it_rests_on(self):
        findings = [finding(PASSED, "CS001"), finding(ISSUE, "CS005"), finding(PASSED, "CS006")]
        credit = reach_verdict(findings).lines[1]
        assert (credit.question, credit.reason) == ("Does credit carry information?", "CS005 said issue")
        assert credit.codes == ("CS005",)

    def test_a_line_says_when_its_issue_began(self):
        late = finding(ISSUE, "CS005", first_epoch=3, last_first_epoch=7)
        verdict = reach_verdict(
            [finding(PASSED, "CS001"), late, finding(PASSED, "CS006", first_epoch=5, last_first_epoch=5)]
        )
        assert verdict.lines[1].reason == "CS005 said issue [first at epoch 3–7]"
        assert verdict.fired == {"CS005": "epoch 3–7", "CS006": "epoch 5"}

    def test_one_reason_is_said_once(self):
        lone = [finding(NOT_APPLICABLE, code) for code in ("CS005", "CS006", "CS008")]
        assert reach_verdict([finding(PASSED), *lone]).lines[1].reason == (
            "CS001 said passed; CS005, CS006, CS008 said not applicable"
        )

    def test_reads_as_word_codes_and_muted(self):
        findings = [finding(ISSUE, "CS004"), finding(MUTED, "CS005"), finding(ISSUE, "CS006")]
        assert str(reach_verdict(findings)) == "walk back (CS004, CS006) [muted: CS005]"

    def test_diverged_is_inconclusive_unless_there_is_an_issue(self):
        passed = [finding(PASSED, code) for code in CODES]
        verdict = reach_verdict(passed, diverged="seed 1 at epoch 3")
        assert (verdict.word, verdict.codes, verdict.diverged) == ("inconclusive", (), "seed 1 at epoch 3")
        assert reach_verdict([*passed[1:], finding(ISSUE)], diverged="seed 1 at epoch 3").word == "walk back"

    def test_the_lines_hold_every_check_once(self):
        assert sorted((check.line, check.code) for check in all_checks()) == sorted(
            (line, code) for line, codes in LINES.items() for code in codes
        )


class TestCombine:
    """One finding over seeds."""

    def outcome(self, *outcomes: Outcome) -> Outcome:
        return combine([finding(o) for o in outcomes], Thresholds()).outcome

    def test_issue_if_at_least_half(self):
        assert self.outcome(ISSUE, PASSED) == ISSUE
        assert self.outcome(PASSED, ISSUE, ISSUE) == ISSUE
        assert self.outcome(ISSUE, ISSUE, PASSED, PASSED) == ISSUE

    def test_undecided_if_some(self):
        found = combine([finding(PASSED), finding(ISSUE), finding(PASSED)], Thresholds())
        assert (found.outcome, found.seeds_hit, found.seeds) == (UNDECIDED, 1, 3)
        assert found.message == "1 of 3 seeds, e.g. said issue"

    def test_otherwise_the_least_certain(self):
        assert self.outcome(PASSED, SKIPPED, UNDECIDED) == SKIPPED
        assert self.outcome(PASSED, TIP, UNDECIDED) == UNDECIDED
        assert self.outcome(PASSED, PASSED, TIP) == TIP
        assert self.outcome(NOT_APPLICABLE, PASSED) == PASSED
        assert self.outcome(NOT_APPLICABLE, NOT_APPLICABLE) == NOT_APPLICABLE

    @given(st.lists(st.sampled_from([o for o in Outcome if o != MUTED]), min_size=1, max_size=6))
    def test_one_seed_that_could_not_run_is_never_a_pass(self, outcomes):
        if {SKIPPED, UNDECIDED} & set(outcomes):
            assert self.outcome(*outcomes) in (ISSUE, SKIPPED, UNDECIDED)

    def test_numbers(self):
        found = combine(
            [
                finding(PASSED, value=1.0, published=None, first_epoch=7),
                finding(PASSED, value=2.0, published=True),
                finding(PASSED, value=None, published=False, first_epoch=5),
            ],
            Thresholds(),
        )
        assert (found.value, found.published, found.first_epoch) == (1.5, True, 5)
        assert found.message == "all seeds, e.g. said passed"

    def test_one_seed_is_told_as_it_is(self):
        assert combine([finding(TIP)], Thresholds()).message == "said tip"


def only(records, method: str = "DFA", **options):
    (found,) = [m for m in audit(records, **options).methods if m.method == method]
    return found


class TestMethod:
    def test_a_healthy_method_is_trustworthy(self):
        found = only(make_family())
        assert (str(found.verdict), found.seeds) == ("trustworthy", (1, 2, 3))
        assert [line.answer for line in found.verdict.lines] == ["yes", "yes", "yes"]
        assert {f.code: f.outcome for f in found.findings if f.outcome != PASSED} == {"CS009": NOT_APPLICABLE}
        assert [f.page for f in found.findings] == [f"docs/checks/{code}.md" for code in CODES]

    @pytest.mark.parametrize(
        ("code", "taps", "others"),
        [
            ("CS001", {"h_rms": None}, {}),
            ("CS002", {"g_noise": None}, {}),
            ("CS008", {"descent": ()}, {}),
            ("CS006", {}, {"gamma": None}),
            ("CS006", {}, {"gamma_null_sd": None}),
            ("CS007", {}, {"weights": None}),
        ],
    )
    def test_without_an_input_nothing_is_trustworthy(self, code, taps, others):
        """Seed 2 alone lacks the input."""
        records = make_family()
        poor = make_snapshot(taps=taps, **{"accuracy": 0.704, **others})
        records[1] = replace(records[1], snapshots=(poor,))
        assert records[1].spec.seed == 2
        verdict = only(records).verdict
        assert (verdict.word, verdict.codes) == ("inconclusive", (code,))

    def test_without_an_accuracy_neither_depth_nor_chance_is_judged(self):
        records = make_family()
        records[1] = replace(records[1], snapshots=(make_snapshot(accuracy=None),))
        assert only(records).verdict.codes == ("CS004", "CS010")

    def test_a_tap_without_a_cosine_leaves_what_needs_it_open(self):
        records = make_family(taps={"z": (9, 9, None, 9, 9)})
        assert only(records).verdict.codes == ("CS005", "CS006", "CS008")

    def test_without_baselines_nothing_is_trustworthy(self):
        found = only([r for r in make_family() if r.spec and r.spec.rule == "dfa"])
        assert (found.verdict.word, found.verdict.codes) == ("inconclusive", ("CS004",))
        assert (found.frozen_own is None, found.frozen_bp) == (False, None)

    def test_one_seed_is_inconclusive(self):
        assert str(only([make_record()]).verdict) == "inconclusive (CS004)"

    def test_an_issue_in_one_of_three_seeds_is_undecided(self):
        records = make_family()
        blind = {"z": (9, 9, 0, 9, 9), "descent": (0.4, 0.4, 0.02, 0.4, 0.4)}
        records[0] = make_record(seed=1, accuracy=0.702, taps=blind)
        assert str(only(records).verdict) == "inconclusive (CS005)"
        assert str(only(records, limits=Thresholds(seed_share=0.3)).verdict) == "walk back (CS005)"

    def test_muted_is_named_and_keeps_what_it_was(self):
        records = make_family(taps={"z": (9, 9, 0, 9, 9), "descent": (0.4, 0.4, 0.02, 0.4, 0.4)})
        assert str(only(records).verdict) == "walk back (CS005)"
        found = only(records, mute=["CS005"])
        assert str(found.verdict) == "trustworthy [muted: CS005]"
        (muted,) = [f for f in found.findings if f.outcome == MUTED]
        assert muted.message.startswith("muted; it was issue: all seeds, e.g. tap 2")

    def test_an_unknown_code_cannot_be_muted(self):
        with pytest.raises(CreditscopeError, match=r"but got 'CS999'. Choices: CS001, CS002"):
            audit(make_family(), mute=["CS999"])

    def test_diverged_seeds_are_named(self):
        records = make_family()
        records[2] = make_record(seed=3, accuracy=0.706, diverged=4)
        verdict = only(records).verdict
        assert (verdict.word, verdict.diverged) == ("inconclusive", "seed 3 at epoch 4")

    def test_first_epoch_ignores_the_untrained_net(self):
        facts = make_facts()

        def blind(epoch: int, z: float):
            return make_snapshot(facts, epoch=epoch, taps={"z": (9, 9, z, 9, 9)})

        def first_epoch(*snapshots):
            found = only([make_record(snapshots=snapshots)])
            return {f.code: f.first_epoch for f in found.findings}["CS005"]

        assert first_epoch(blind(0, 0), blind(5, 9), blind(10, 0), blind(15, 0)) == 10
        assert first_epoch(blind(0, 0), blind(5, 9)) is None

    def test_limits_change_the_verdict(self):
        records = make_family(taps={"h_rms": (1, 1, 30, 30, 30)})
        assert only(records).verdict.word == "trustworthy"
        assert str(only(records, limits=Thresholds(growth=20)).verdict) == "walk back (CS001)"

    def test_bp_with_a_penalty_is_no_baseline(self):
        records = [r for r in make_family() if r.spec and r.spec.rule == "dfa"]
        for frozen in (False, True):
            records += [make_record(rule="bp", seed=s, frozen=frozen, penalty=0.1) for s in (1, 2, 3)]
        assert str(only(records).verdict) == "inconclusive (CS004)"

    def test_baselines_of_another_setting_do_not_count(self):
        records = [r for r in make_family() if r.spec and r.spec.rule == "dfa"]
        for frozen in (False, True):
            records += [make_record(rule="bp", seed=s, frozen=frozen, lr=0.5) for s in (1, 2, 3)]
        assert str(only(records).verdict) == "inconclusive (CS004)"

    def test_a_watched_model_says_that_depth_was_not_tested(self):
        record = make_record(facts={"trainer": False})
        (found,) = audit([replace(record, spec=None)]).methods
        assert (found.setting, found.verdict.word) == ("watched model", "trustworthy")
        assert found.verdict.lines[2].answer == "not applicable"
        assert "use of depth not tested" in found.verdict.lines[2].reason

    def test_variants_of_a_rule_are_methods_of_their_own(self):
        variant = RuleFacts(name="fa", label="FA", variant="head exact")
        records = [
            make_record(rule="fa"),
            make_record(rule="fa", facts={"rule": variant}, rule_options={"head": "exact"}),
            make_record(rule="fa", penalty=0.01),
            make_record(rule="fa", credit_norm="batch"),
        ]
        names = [m.method for m in audit(records).methods]
        assert names == ["FA", "FA, head exact", "FA, λ 0.01", "FA, norm batch"]  # as they came


class TestSource:
    def test_a_folder_records_and_runs_are_one(self, tmp_path):
        records = make_family()
        for record in records:
            write_record(tmp_path, record)
        expected = str(audit(records))
        for source in (tmp_path, str(tmp_path), tuple(records), iter(records), Runs(records)):
            assert str(audit(source)) == expected

    @pytest.mark.parametrize("source", [5, None, object(), [1, 2], {"a": 1}])
    def test_nonsense_is_named(self, source):
        with pytest.raises(CreditscopeError, match="Expected a folder, records, runs or a scope to audit, but got"):
            audit(source)

    def test_a_folder_that_is_not_there(self, tmp_path):
        with pytest.raises(CreditscopeError, match=r"Expected a folder of records, but .*nowhere does not exist"):
            audit(tmp_path / "nowhere")

    @pytest.mark.parametrize("source", [[], Runs([])])
    def test_no_records(self, source):
        with pytest.raises(CreditscopeError, match="Expected at least one finished record to audit, but got none"):
            audit(source)

    def test_an_empty_folder_and_one_of_unfinished_records(self, tmp_path):
        with pytest.raises(CreditscopeError, match=r"at least one finished record to audit under .*, but got none"):
            audit(tmp_path)
        folder = write_record(tmp_path, make_record(status="running"))
        with pytest.raises(CreditscopeError, match=f"but got none. Record {folder.name} is incomplete"):
            audit(tmp_path)

    def test_frozen_runs_alone(self):
        for part in ({"frozen": True}, {"train_last": 2}):
            with pytest.raises(CreditscopeError, match="Expected a run whose blocks are all trained, but got frozen"):
                audit([make_record(**part)])

    def test_what_could_not_be_used_is_named(self, tmp_path):
        write_record(tmp_path, make_record())
        lost = write_record(tmp_path, make_record(seed=7, status="running"))
        empty = write_record(tmp_path, make_record(seed=8, snapshots=[]))
        found = audit(tmp_path)
        assert len(found.methods[0].seeds) == 1
        assert [lost.name in p or empty.name in p for p in found.problems] == [True, True]
