"""What may be concluded; a check that could not run never looks like one that passed."""

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from builders import make_facts, make_family, make_record, make_snapshot, make_weights, write_record
from hypothesis import given
from hypothesis import strategies as st
from judging import ISSUE, MUTED, NOT_APPLICABLE, PASSED, SKIPPED, TIP, UNDECIDED, blind_taps

from creditscope.auditing import Finding, Outcome, Thresholds, audit
from creditscope.auditing.checks import all_checks
from creditscope.auditing.verdict import MEANINGS, QUESTIONS, Word, reach_verdict
from creditscope.errors import CreditscopeError
from creditscope.record import RuleFacts
from creditscope.runs import Runs

LINES = {
    "reference": ("CS002", "CS003", "CS007"),
    "credit": ("CS001", "CS005", "CS006", "CS008", "CS012"),
    "depth": ("CS004", "CS009", "CS010", "CS011"),
}
CHECKS = [check for check in all_checks() if not check.network]
SUFFICIENT = ("CS002", "CS007", "CS005", "CS012", "CS004")
"""Checks whose pass alone answers their question."""
LOST, LATE = "seed 1 at epoch 3", "seed 3 at epoch 4"
CODES = sorted(code for codes in LINES.values() for code in codes)


def finding(outcome: Outcome, code: str = "CS001", **others) -> Finding:
    return Finding(code=code, title="t", outcome=outcome, message=f"said {outcome}", advisory=code == "CS003", **others)


class TestWord:
    @pytest.mark.slow
    @given(st.lists(st.sampled_from(Outcome), min_size=len(CODES), max_size=len(CODES)), st.booleans(), st.booleans())
    def test_any_outcomes_give_the_right_word_and_codes(self, outcomes, diverged, idle):
        """Not judged comes first, then walk back, not measured, undecided, and trustworthy."""
        findings = [finding(o, code) for code, o in zip(CODES, outcomes, strict=True)]
        told = {"diverged": "seed 1" if diverged else "", "not_judged": "random targets" if idle else ""}
        verdict = reach_verdict(findings, **told)
        by_outcome = {o: tuple(c for c, found in zip(CODES, outcomes, strict=True) if found == o) for o in Outcome}
        missing, unsettled = (tuple(c for c in by_outcome[o] if c != "CS003") for o in (SKIPPED, UNDECIDED))
        ranked = [("not judged", (), idle), ("walk back", by_outcome[ISSUE], bool(by_outcome[ISSUE]))]
        ranked += [("not measured", missing, bool(missing)), ("undecided", unsettled, bool(unsettled or diverged))]
        expected = next((said for said in ranked if said[2]), ("trustworthy", (), True))
        assert (verdict.word, verdict.codes) == expected[:2]
        assert verdict.muted == by_outcome[MUTED]
        assert set(verdict.not_tested) == {*by_outcome[MUTED], *by_outcome[NOT_APPLICABLE]}

    @pytest.mark.slow
    @pytest.mark.parametrize("line", LINES)
    def test_every_combination_within_a_line(self, line):
        """Yes needs a pass or a tip of what is sufficient, and nothing open (but the tip's check) or wrong."""
        codes = LINES[line]
        place = list(QUESTIONS).index(line)
        for outcomes in product(Outcome, repeat=len(codes)):
            verdict = reach_verdict(list(map(finding, outcomes, codes)), checks=CHECKS)
            answer, pairs = verdict.lines[place], list(zip(codes, outcomes, strict=True))
            decisive = [o for c, o in pairs if c != "CS003"]
            held = any(o in (PASSED, TIP) and c in SUFFICIENT for c, o in pairs)
            ranked = {"no": ISSUE in outcomes, "not measured": SKIPPED in decisive, "open": UNDECIDED in decisive}
            expected = next(said for said, holds in (ranked | {"yes": held, "not applicable": True}).items() if holds)
            assert answer.answer == expected, outcomes

    def test_every_word_has_a_meaning(self):
        assert set(MEANINGS) == set(get_args(Word))
        assert all(MEANINGS.values())

    def test_a_line_says_what_it_rests_on(self):
        findings = [finding(PASSED, "CS001"), finding(ISSUE, "CS005"), finding(PASSED, "CS006")]
        credit = reach_verdict(findings).lines[1]
        assert (credit.question, credit.reason) == (QUESTIONS["credit"], "CS005 said issue")
        assert credit.codes == ("CS005",)
        late = finding(ISSUE, "CS005", first_epoch=3, last_first_epoch=7)
        early = finding(PASSED, "CS006", first_epoch=5, last_first_epoch=5)
        verdict = reach_verdict([finding(PASSED, "CS001"), late, early])
        assert verdict.lines[1].reason == f"CS005 said issue [first at {verdict.fired['CS005']}]"
        assert verdict.fired == {"CS005": "epoch 3–7", "CS006": "epoch 5"}

    def test_one_reason_is_said_once(self):
        lone = [finding(NOT_APPLICABLE, code) for code in ("CS005", "CS006", "CS012")]
        line = reach_verdict([finding(PASSED), *lone]).lines[1]  # that CS001 passed is no evidence
        assert (line.answer, line.reason) == ("not applicable", f"CS005, CS012 said {NOT_APPLICABLE}")

    def test_reads_as_word_codes_and_muted(self):
        findings = [finding(ISSUE, "CS004"), finding(MUTED, "CS005"), finding(ISSUE, "CS006")]
        assert str(reach_verdict(findings)) == "walk back (CS004, CS006) [muted: CS005]"

    def test_diverged_is_undecided_unless_there_is_an_issue(self):
        passed = [finding(PASSED, code) for code in CODES]
        verdict = reach_verdict(passed, diverged=LOST)
        assert (verdict.word, verdict.codes, verdict.diverged) == ("undecided", (), LOST)
        assert reach_verdict([*passed[1:], finding(ISSUE)], diverged=LOST).word == "walk back"

    def test_the_lines_hold_every_check_once(self):
        assert sorted((check.line, check.code) for check in all_checks() if not check.network) == sorted(
            (line, code) for line, codes in LINES.items() for code in codes
        )


def only(records, method: str = "DFA", **options):
    (found,) = [m for m in audit(records, **options).methods if m.method == method]
    return found


class TestMethod:
    def test_a_healthy_method_is_trustworthy(self):
        found = only(make_family())
        assert (str(found.verdict), found.seeds) == ("trustworthy", (1, 2, 3))
        assert [line.answer for line in found.verdict.lines] == ["yes", "yes", "yes"]
        others = {f.code: f.outcome for f in found.findings if f.outcome != PASSED}
        assert others == {"CS009": NOT_APPLICABLE, "CS012": NOT_APPLICABLE}
        assert found.verdict.not_tested == ("CS009", "CS012")
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
        assert (verdict.word, verdict.codes) == ("not measured", (code,))

    def test_what_needs_an_accuracy_a_cosine_or_baselines_says_so(self):
        records = make_family()
        records[1] = replace(records[1], snapshots=(make_snapshot(accuracy=None),))
        assert only(records).verdict.codes == ("CS004", "CS010", "CS011")
        records = make_family(taps={"cos": (0.5, 0.5, None, 0.5, 0.5)})
        assert only(records).verdict.codes == ("CS005", "CS006", "CS008")
        for records in ([r for r in make_family() if r.spec and r.spec.rule == "dfa"], [make_record()]):
            found = only(records)
            assert (found.verdict.word, found.verdict.codes) == ("not measured", ("CS004", "CS011"))
            assert (found.frozen_own is None, found.frozen_bp) == (len(records) == 1, None)

    def test_an_event_in_one_of_three_seeds_is_undecided_and_in_one_of_twenty_named(self):
        def verdict(seeds: int, **limits: float):
            records = make_family(seeds=range(1, seeds + 1))
            dead = make_snapshot(accuracy=0.702, weights=make_weights(step_all_zero=1), taps={"probe": ()})
            records[0] = make_record(seed=1, snapshots=[dead])
            return only(records, limits=Thresholds().changed(**limits), mute=["CS009"]).verdict

        assert (verdict(3).word, verdict(3).codes) == ("undecided", ("CS007",))
        assert verdict(20).word == "trustworthy"
        assert "seed 1" in verdict(20).lines[0].reason
        assert verdict(3, seed_share=0.01).word == "walk back"

    def test_blind_seeds_pull_the_estimate_and_none_decides_alone(self):
        def word(blind: int, seeds: int) -> str:
            records = make_family(seeds=range(1, seeds + 1))
            for i in range(blind):
                records[i] = make_record(seed=i + 1, accuracy=0.702 + 0.002 * i, taps=blind_taps(2))
            return str(only(records).verdict)

        assert word(1, 20) == "trustworthy"
        assert word(2, 3) == "undecided (CS005)"
        assert word(3, 3) == "walk back (CS005)"

    def test_muted_is_named_and_keeps_what_it_was(self):
        records = make_family(taps=blind_taps(2))
        assert str(only(records).verdict) == "walk back (CS005)"
        found = only(records, mute=["CS005"])
        assert (found.verdict.word, found.verdict.muted) == ("trustworthy", ("CS005",))
        assert [(f.code, ISSUE in f.message) for f in found.findings if f.outcome == MUTED] == [("CS005", True)]
        with pytest.raises(CreditscopeError, match="CS999"):
            audit(records, mute=["CS999"])

    def test_random_targets_are_not_judged(self):
        for targets in ("random", "redrawn"):
            found = only(make_family(targets=targets, taps=blind_taps(2)))
            assert (found.verdict.word, found.verdict.codes) == ("not judged", ())
            assert found.verdict.not_judged == "random targets"
            assert {v.word for v in found.seed_verdicts.values()} == {"not judged"}

    def test_a_net_that_is_not_trained_yet_is_not_judged(self):
        fresh = make_snapshot(epoch=0, untrained=True, accuracy=0.1, weights=make_weights(step_all_zero=1))
        for snapshots, said in (([fresh], "not trained yet"), ([fresh, make_snapshot(epoch=1)], "")):
            record = make_record(facts={"trainer": False}, snapshots=snapshots)
            (found,) = audit([replace(record, spec=None)]).methods
            assert (found.verdict.word == "not judged", found.verdict.not_judged) == (bool(said), said)

    def test_diverged_seeds_are_named(self):
        for seeds, expected in (((1, 2, 3), ("not measured", ("CS004", "CS011"))), ((1, 2, 3, 4), ("undecided", ()))):
            records = make_family(seeds=seeds)
            records[2] = make_record(seed=3, accuracy=0.706, diverged=4)
            verdict = only(records).verdict
            assert (verdict.word, verdict.codes, verdict.diverged) == (*expected, LATE)  # two seeds are left, or three

        lost = only([make_record(seed=s, diverged=2) for s in (1, 2)]).verdict  # then nothing was looked at
        assert (lost.word, lost.codes, {line.answer for line in lost.lines}) == ("not measured", (), {"not measured"})

    def test_first_epoch_ignores_the_untrained_net(self):
        def first_epoch(code: str, *taps: tuple[int, dict], seeds: int = 1):
            snapshots = [make_snapshot(make_facts(), epoch=e, taps=t) for e, t in taps]
            found = only([make_record(seed=s, snapshots=snapshots) for s in range(seeds)])
            return {f.code: (f.first_epoch, f.last_first_epoch) for f in found.findings}[code]

        bad, good = {"h_rms": (1, 99, 99, 99, 99)}, {}
        assert first_epoch("CS001", (0, bad), (5, good), (10, bad), (15, bad)) == (10, 10)
        assert first_epoch("CS001", (0, bad), (5, good)) == (None, None)
        blind = blind_taps(2)
        over_seeds = first_epoch("CS005", (0, blind), (5, good), (10, blind), (15, good), seeds=3)
        assert over_seeds == (10, 10)  # all seeds together: a single one is never an issue
        assert first_epoch("CS005", (0, blind), (5, blind)) == (None, None)

    @pytest.mark.parametrize("other", [{"penalty": 0.1}, {"lr": 0.5}])
    def test_bp_with_a_penalty_or_of_another_setting_is_no_baseline(self, other):
        records = [r for r in make_family() if r.spec and r.spec.rule == "dfa"]
        for frozen in (False, True):
            records += [make_record(rule="bp", seed=s, frozen=frozen, **other) for s in (1, 2, 3)]
        assert only(records).verdict.codes == ("CS004", "CS011")

    def test_a_watched_model_is_never_trustworthy_about_depth(self):
        record = make_record(facts={"trainer": False})
        (found,) = audit([replace(record, spec=None)]).methods
        assert (found.setting, found.verdict.word) == ("watched model", "not measured")
        assert (found.verdict.lines[2].answer, found.verdict.codes) == ("not measured", ("CS004",))
        assert [line.answer for line in found.verdict.lines[:2]] == ["yes", "yes"]

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
    @pytest.mark.slow
    def test_a_folder_records_and_runs_are_one(self, tmp_path):
        records = make_family()
        for record in records:
            write_record(tmp_path, record)
        expected = str(audit(records))
        for source in (tmp_path, str(tmp_path), tuple(records), iter(records), Runs(records)):
            assert str(audit(source)) == expected

    @pytest.mark.parametrize(
        ("source", "said"),
        [
            *((source, type(source).__name__) for source in (5, None, object(), [1, 2], {"a": 1})),
            *((source, "finished") for source in ([], Runs([]))),
            *(([make_record(**part)], "train_last") for part in ({"frozen": True}, {"train_last": 2})),
        ],
    )
    def test_what_holds_no_whole_run_is_refused(self, source, said):
        with pytest.raises(CreditscopeError, match=said):
            audit(source)

    def test_a_folder_without_finished_records_is_named(self, tmp_path):
        for folder in (tmp_path / "nowhere", tmp_path, write_record(tmp_path, make_record(status="running"))):
            with pytest.raises(CreditscopeError, match=folder.name):
                audit(folder if folder.name == "nowhere" else tmp_path)

    def test_what_could_not_be_used_is_named(self, tmp_path):
        write_record(tmp_path, make_record())
        lost = write_record(tmp_path, make_record(seed=7, status="running"))
        empty = write_record(tmp_path, make_record(seed=8, snapshots=[]))
        found = audit(tmp_path)
        assert len(found.methods[0].seeds) == 1
        assert [lost.name in p or empty.name in p for p in found.problems] == [True, True]
