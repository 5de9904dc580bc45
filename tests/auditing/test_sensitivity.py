"""How far thresholds can move: records whose edges are known by hand."""

from unittest.mock import ANY

import pytest
from builders import make_family, make_record, make_snapshot, make_weights
from judging import CHECKS, blind_taps
from scipy import stats

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.sensitivity import words_under
from creditscope.auditing.thresholds import table
from creditscope.errors import CreditscopeError


def range_of(name: str, records, **options):
    (found,) = audit(records, **options).sensitivity(name)
    return found


def others(**spec):
    """What stands beside DFA: its frozen runs, and BP with its own."""
    return [r for r in make_family(**spec) if r.spec and (r.spec.frozen or r.spec.rule == "bp")]


def grown(factor: float, rule: str = "dfa", **spec):
    return make_family(rule, taps={"h_rms": (1, *[factor] * 4)}, **spec)


def gains_of_3_4_and_5_points():
    return others() + [make_record(seed=s, accuracy=0.4 + 0.002 * s + 0.02 + 0.01 * s) for s in (1, 2, 3)]


def cosines_of_9_10_and_11_percent():
    narrow = {"null_sd": 0.001, "null_sd_F": 0.001, "stage_cos": 0.0, "cos_F": 0.5}
    taps = {s: {**narrow, "cos": (0.5, *[0.08 + 0.01 * s] * 4)} for s in (1, 2, 3)}
    return others() + [make_record(seed=s, accuracy=0.7 + 0.002 * s, taps=one) for s, one in taps.items()]


def one_dead_seed_of_four():
    dead = make_snapshot(accuracy=0.702, weights=make_weights(step_all_zero=1))
    return [make_record(seed=1, snapshots=[dead]), *make_family(seeds=(1, 2, 3, 4))[1:]]


def told(pairs: str, *methods: str) -> str:
    return "; ".join(f"{method}: {pairs}" for method in methods)


OF_FOUR = stats.binomtest(1, 4).proportion_ci(0.9, method="exact")
"""Of a share of which one seed of four is a sample: 0.013 to 0.751."""
BETTER, WORSE, OPENS = "walk back → trustworthy", "trustworthy → walk back", "trustworthy → undecided"
EDGES = {
    "the largest growth that passes": ("growth", grown(30), (), (30, None), told(WORSE, "DFA"), ""),
    "the growth that fails, and below it BP's, whose stream does not grow": (
        "growth", grown(694), (), (1, 694), told(WORSE, "BP"), told(BETTER, "DFA")
    ),
    "the narrowest of several methods": (
        "growth",
        grown(30) + [r for r in grown(90, "fa") if r.spec and r.spec.rule == "fa"],
        (), (30, 90), told(WORSE, "DFA"), told(BETTER, "FA"),
    ),
    "a muted check moves nothing": ("growth", grown(30), ("CS001",), (None, None), "", ""),
    "δ at the lower bound over seeds": (
        "alignment", cosines_of_9_10_and_11_percent(), (),
        (None, 0.1 - stats.t.ppf(0.95, 2) * 0.01 / 3**0.5), "", told(OPENS, "DFA"),
    ),
    "a confidence near one: gains are 2 pp above the limit, their standard error 1/√3 pp": (
        "depth_confidence", gains_of_3_4_and_5_points(), (), (ANY, stats.t.cdf(2 * 3**0.5, 2)), ANY, told(OPENS, "DFA")
    ),
    "shares: 2 of 4 block taps carry credit, Γ hides them from a half on": (
        "hidden_share", make_family(taps=blind_taps(3, 4)), ("CS005",), (0.5, None), told(BETTER, "DFA"), ""
    ),
    "counts are whole: a fourth seed is not on record": (
        "seeds", make_family(), (), (None, 3), "", told("trustworthy → not measured", "BP", "DFA")
    ),
    "a share of seeds at the bounds of the share": (
        "seed_share", one_dead_seed_of_four(), ("CS009",), (OF_FOUR.low, OF_FOUR.high),
        told("undecided → walk back", "DFA"), told("undecided → trustworthy", "DFA"),
    ),
    "tips change no verdict": ("common", make_family(taps={"common": 0.4}), (), (None, None), "", ""),
}  # fmt: skip
"""Threshold, records, muted checks, where the words change, and how they do below and above."""


@pytest.mark.parametrize("case", EDGES)
def test_edges_known_by_hand(case):
    name, records, mute, edges, below, above = EDGES[case]
    found = range_of(name, records, mute=mute)
    expected = tuple(pytest.approx(edge, rel=1e-6) if isinstance(edge, float | int) else edge for edge in edges)
    assert ((found.low, found.high), found.below, found.above) == (expected, below, above)


def test_the_words_do_change_at_the_edge():
    low = range_of("growth", grown(30)).low
    for factor, word in ((1, "trustworthy"), (1 - 1e-6, "walk back")):
        assert audit(grown(30), limits=Thresholds(growth=low * factor)).methods[1].verdict.word == word


@pytest.mark.slow
def test_a_probability_stays_between_0_and_1():
    """Cosines over three seeds with a null of 0.05 each: the level may fall to the p-value of their mean."""
    for cos, edge in ((0.3, None), (0.1, stats.norm.sf(0.1 / (0.05 / 3**0.5)))):  # the first is beyond the scan
        found = range_of("orientation", make_family(taps={"cos": cos, "cos_F": cos}), mute=["CS008"])
        assert found.low == (None if edge is None else pytest.approx(edge, rel=1e-6))
        assert (found.below, found.high) == (told(OPENS, "DFA") if edge else "", None)


@pytest.mark.slow
def test_what_is_not_judged_stays_so():
    found = audit([make_record(seed=s, targets="random") for s in (1, 2, 3)])
    assert {(r.low, r.high) for r in found.sensitivity("growth", "alignment", "seeds")} == {(None, None)}


def test_it_starts_from_the_limits_in_use_and_zero_can_only_grow():
    found = range_of("growth", grown(30), limits=Thresholds(growth=20))
    assert (found.value, found.high) == (20, pytest.approx(30, rel=1e-6))
    found = range_of("depth_gain", make_family(), limits=Thresholds(depth_gain=0))
    assert (found.low, found.high) == (None, pytest.approx(0.3, rel=1e-6))  # every seed gains 30 pp


def test_settings_are_told_apart():
    records = [*make_family(), *grown(30, lr=0.5)[:6]]
    assert "1 epoch · lr 0.5): " in range_of("growth", records).below


@pytest.mark.slow
def test_every_threshold_has_a_row_and_reads_as_a_table():
    found = audit(make_family(taps={"h_rms": (1, 30, 30, 30, 30)})).sensitivity()
    assert [one.name for one in found] == [row["name"] for row in table()]
    (line,) = [line for line in str(found).splitlines() if line.strip().startswith("growth ")]
    assert line.split()[:5] == ["growth", "CS001", "50", "30", "any"]
    assert "below: DFA: trustworthy → walk back" in line
    frame = found.frame().set_index("name")
    assert frame.loc["growth", "low"] == pytest.approx(30, rel=1e-6)


def test_unknown_names_list_the_choices():
    with pytest.raises(CreditscopeError, match=r"a threshold, but got 'grwth'\. Nearest: growth\. Choices: .*growth"):
        audit(make_family()).sensitivity("grwth")


@pytest.mark.slow
def test_words_under_a_threshold_are_those_of_another_audit():
    records = [*make_family(accuracy=0.43), *make_family("fa", accuracy=0.6)]
    judged = audit(records)
    for name, value in (("depth_gain", 0.1), ("alignment", 0.5), ("seeds", 9), ("growth", 1.0)):
        again = audit(records, limits=judged.limits.changed(**{name: value}))
        assert words_under(judged, name)(value) == tuple(m.verdict.word for m in again.methods)


def test_it_judges_only_what_depends_on_the_threshold(monkeypatch):
    """Every check but CS009 is judged again for its own thresholds, those of a run for those of seeds too."""
    done, judged = audit(make_family()), []
    for code, check in CHECKS.items():
        judge = type(check).judge
        monkeypatch.setattr(type(check), "judge", lambda *args, c=code, j=judge: judged.append(c) or j(*args))
    monkeypatch.setattr(type(CHECKS["CS009"]), "judge", lambda self, *_: self.not_applicable("asks CS007 itself"))
    done.sensitivity("growth", "depth_confidence", "exact_cos")
    assert set(judged) == {"CS001", "CS004", "CS005", "CS011"}
    judged.clear()
    done.sensitivity("seed_share")
    assert {"CS001", "CS002", "CS003", "CS007", "CS010"} <= set(judged)
    assert not {"CS004", "CS011"} & set(judged)
