"""The decision table, by hand-made records whose answers are known."""

from dataclasses import replace

import pytest
from builders import QUICK, make_facts, make_family, make_record, make_snapshot, make_taps
from judging import blind_taps

from creditscope.auditing import audit
from creditscope.auditing.checks import PUBLISHED, USUAL, all_checks
from creditscope.auditing.decisions import Decision, Decisions
from creditscope.auditing.judge import first_fired

GROWTH, FLOOR, GAIN, DRIFT = "growth > 50", "‖g_L‖ < 1.28e-5", "gain < 2 pp", "stability (drift)"


def trajectory(seed: int, *steps: tuple[int, float, float], **spec):
    """A run whose largest growth and ‖g_L‖ take these values at these epochs; taps 2 to 4 are blind throughout."""
    facts, blind = make_facts(), blind_taps(2, 3, 4)
    sizes = [(epoch, {"h_rms": (1, g, g, g, g), "g_norm": (1, 1, 1, 1, top)}) for epoch, g, top in steps]
    snapshots = [make_snapshot(facts, epoch=e, accuracy=0.3, taps={**blind, **own}) for e, own in sizes]
    return make_record(seed=seed, epochs=steps[-1][0], snapshots=snapshots, **spec)


@pytest.fixture(scope="module")
def decisions() -> Decisions:
    """Two seeds of a failing DFA: growth crosses at 8 and 11, the floor at 3 and 4; frozen at 0.29 and 0.26."""
    runs = [
        trajectory(1, (0, 1, 1), (3, 9, 1e-6), (8, 60, 1e-6), (20, 700, 1e-8)),
        trajectory(2, (0, 1, 1), (4, 9, 1e-6), (11, 60, 1e-6), (20, 700, 1e-8)),
    ]
    frozen = [make_record(seed=s, frozen=True, accuracy=a, epochs=20) for s, a in ((1, 0.29), (2, 0.26))]
    return audit([*runs, *frozen]).decisions()


def pick(decisions: Decisions, criterion: str, seed: int | None = None, method: str = "DFA") -> Decision:
    (found,) = [d for d in decisions if (d.criterion, d.seed, d.method) == (criterion, seed, method)]
    return found


def test_the_usual_pair_walks_back_nothing(decisions):
    for seed in (1, 2, None):
        assert pick(decisions, "accuracy", seed).conclusion == "accepts"
        assert pick(decisions, "accuracy + Γ", seed).conclusion == "accepts"
    assert (pick(decisions, "accuracy").value, pick(decisions, "accuracy + Γ").value) == (0.3, 0.5)


def test_published_diagnostics_with_their_epochs(decisions):
    for criterion, epochs in ((GROWTH, (8, 11)), (FLOOR, (3, 4))):
        for seed, epoch in zip((1, 2), epochs, strict=True):
            found = pick(decisions, criterion, seed)
            assert (found.kind, found.conclusion, found.first_epoch) == ("published", "walks back", epoch)
        whole = pick(decisions, criterion)
        assert (whole.first_epoch, whole.last_first_epoch, whole.seeds_hit, whole.seeds) == (*epochs, 2, 2)


def test_they_take_no_part_in_a_verdict_and_fire_by_name():
    codes = {check.code for check in (*USUAL.values(), *PUBLISHED.values())}
    assert not codes & {check.code for check in all_checks()}
    run = trajectory(1, (0, 60, 1e-6), (3, 9, 1e-6), (8, 60, 1e-6))
    assert [first_fired(PUBLISHED[name], run) for name in ("growth", "floor")] == [8, 3]  # not of the untrained net
    calm = make_taps(5, g_norm=1.0)
    by_token = replace(run, snapshots=tuple(replace(s, class_token=calm) for s in run.snapshots))
    assert [first_fired(PUBLISHED["floor"], by_token, head_only=alone) for alone in (False, True)] == [3, None]


def test_the_published_gain_is_on_the_mean_over_the_own_frozen_runs(decisions):
    """1 and 4 pp: one seed is walked back, the mean of 2.5 pp is not."""
    assert [pick(decisions, GAIN, s).conclusion for s in (1, 2)] == ["walks back", "accepts"]
    whole = pick(decisions, GAIN)
    assert (whole.conclusion, whole.seeds_hit) == ("accepts", 1)
    assert whole.value == pytest.approx(0.025)


def test_a_number_at_its_published_limit_is_not_beyond_it_and_chance_is_not_above_chance():
    facts = make_facts()
    taps = {"h_rms": (1, 50, 50, 50, 50), "g_norm": (1, 1, 1, 1, 1.28e-5)}
    found = audit([make_record(snapshots=[make_snapshot(facts, accuracy=0.1, gamma=0.0, taps=taps)])]).decisions()
    limits = {GROWTH: "accepts", FLOOR: "accepts", "accuracy": "walks back", "accuracy + Γ": "walks back"}
    assert {name: pick(found, name, 42).conclusion for name in limits} == limits
    for gamma in (0.0, -0.1):
        turned = audit([make_record(snapshots=[make_snapshot(facts, accuracy=0.5, gamma=gamma)])]).decisions()
        assert [pick(turned, c).conclusion for c in ("accuracy", "accuracy + Γ")] == ["accepts", "walks back"]
    runs = [make_record(seed=1, accuracy=0.02), make_record(seed=1, accuracy=0.0, frozen=True)]
    assert pick(audit(runs).decisions(), GAIN, 1).conclusion == "accepts"  # exactly 2 pp


def test_stability_is_exported_without_a_verdict(decisions):
    assert {pick(decisions, DRIFT, s).conclusion for s in (1, 2, None)} == {"no verdict"}
    assert pick(decisions, DRIFT).value == pytest.approx(0.4)
    quick = audit([make_record(taps=QUICK)]).decisions()
    assert (pick(quick, DRIFT, 42).value, pick(quick, DRIFT, 42).said) == (None, "not measured")


def test_checks_and_the_protocol_by_seed_and_over_seeds(decisions):
    assert (pick(decisions, "CS001", 2).conclusion, pick(decisions, "CS001", 2).first_epoch) == ("walks back", 11)
    assert (pick(decisions, "CS001").first_epoch, pick(decisions, "CS001").last_first_epoch) == (8, 11)
    assert pick(decisions, "CS002").conclusion == "accepts"  # the floor is a tip
    assert pick(decisions, "CS002").said.startswith("tip: ")
    assert pick(decisions, "CS004", 1).conclusion == "not applicable"  # it needs several seeds
    assert pick(decisions, "CS004").conclusion == "open"  # two seeds, no BP
    assert pick(decisions, "CS009").conclusion == "not applicable"
    assert [pick(decisions, "CS005", s).conclusion for s in (1, 2, None)] == ["open", "open", "walks back"]
    assert pick(decisions, "CS005").first_epoch == 20  # the only epoch of training that both seeds were measured at
    for seed, codes in ((1, "CS001"), (2, "CS001"), (None, "CS001, CS005, CS006")):
        found = pick(decisions, "whole protocol", seed)
        assert (found.conclusion, found.said) == ("walks back", f"walk back ({codes})")
    whole = pick(decisions, "whole protocol")
    assert (whole.first_epoch, whole.last_first_epoch) == (8, 11)


def test_a_trustworthy_method_is_accepted_by_all():
    found = audit(make_family()).decisions()
    dfa = [d for d in found if d.method == "DFA"]
    assert {d.conclusion for d in dfa} == {"accepts", "not applicable", "no verdict"}
    several = {"CS004", "CS011"}  # have nothing to say of one seed
    assert {d.criterion for d in dfa if d.conclusion == "not applicable"} == {"CS009", "CS012", *several}
    assert {d.conclusion for d in dfa if d.criterion in several and d.seed is None} == {"accepts"}
    assert pick(audit(make_family(), mute=["CS005"]).decisions(), "CS005").conclusion == "muted"


def test_what_is_missing_is_open_or_not_applicable():
    facts = make_facts(residual=(False,) * 5)
    bare = make_snapshot(facts, accuracy=None, gamma=None, taps={"g_norm": None})
    found = audit([make_record(facts={"residual": (False,) * 5}, snapshots=[bare])]).decisions()
    expected = {"accuracy": "open", "accuracy + Γ": "open", GROWTH: "not applicable", FLOOR: "open", GAIN: "open"}
    assert {c: pick(found, c).conclusion for c in expected} == expected


def test_one_seed_of_three_is_open_over_seeds_and_a_diverged_one_too():
    good = [trajectory(s, (0, 1, 1), (5, 2, 1)) for s in (1, 2)]
    bad = trajectory(3, (0, 1, 1), (5, 99, 1))
    found = pick(audit([*good, bad]).decisions(), GROWTH)
    assert (found.conclusion, found.seeds_hit, found.first_epoch) == ("open", 1, 5)
    lost = make_record(seed=3, epochs=5, diverged=2)
    assert pick(audit([*good, lost]).decisions(), GROWTH).conclusion == "open"


def test_every_criterion_has_a_row_for_every_seed_and_one_over_seeds(decisions):
    criteria = dict.fromkeys(d.criterion for d in decisions)
    assert list(criteria) == [
        "accuracy", "accuracy + Γ", GROWTH, FLOOR, GAIN, DRIFT, *(f"CS0{i:02}" for i in range(1, 13)), "whole protocol"
    ]  # fmt: skip
    assert len(decisions) == len(criteria) * 3


def test_as_a_frame_as_plain_data_and_as_people_read_it(decisions):
    frame = decisions.frame()
    assert len(frame) == len(decisions)
    over = frame[frame.seed.isna() & (frame.criterion == GROWTH)].iloc[0]
    assert (over.conclusion, over.first_epoch, over.last_first_epoch) == ("walks back", 8, 11)
    assert decisions.to_dicts()[0]["criterion"] == "accuracy"
    lines = [line for line in str(decisions).splitlines() if line.strip().startswith("DFA, all seeds")]
    words = " ".join(lines).split()
    assert words.count("8–11") >= 2  # the published growth, and CS001
    assert words.count("3–4") == 1  # the published floor
    assert pick(decisions, "whole protocol").said in " ".join(words)
