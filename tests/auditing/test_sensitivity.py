"""How far thresholds can move: records whose edges are known by hand."""

import pytest
from builders import make_family, make_record
from judging import CHECKS
from scipy import stats

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.thresholds import table
from creditscope.errors import CreditscopeError


def range_of(name: str, records, **options):
    (found,) = audit(records, **options).sensitivity(name)
    return found


def test_the_edge_below_is_the_largest_growth_that_passes():
    records = make_family(taps={"h_rms": (1, 30, 30, 30, 30)})
    found = range_of("growth", records)
    assert (found.low, found.high) == (pytest.approx(30, rel=1e-6), None)
    assert (found.below, found.above) == ("DFA: trustworthy → walk back", "")
    for factor, word in ((1, "trustworthy"), (1 - 1e-6, "walk back")):
        assert audit(records, limits=Thresholds(growth=found.low * factor)).methods[1].verdict.word == word


def test_the_edge_above_is_the_growth_that_fails():
    found = range_of("growth", make_family(taps={"h_rms": (1, 694, 694, 694, 694)}))
    assert found.high == pytest.approx(694, rel=1e-6)
    assert found.above == "DFA: walk back → trustworthy"
    assert found.low == pytest.approx(1, rel=1e-6)  # below it BP, whose stream does not grow, fails too
    assert found.below == "BP: trustworthy → walk back"


def test_several_methods_share_the_narrowest_range():
    records = [*make_family(taps={"h_rms": (1, 30, 30, 30, 30)})]
    records += [r for r in make_family("fa", taps={"h_rms": (1, 90, 90, 90, 90)}) if r.spec and r.spec.rule == "fa"]
    found = range_of("growth", records)
    assert (found.low, found.high) == (pytest.approx(30, rel=1e-6), pytest.approx(90, rel=1e-6))


def test_a_probability_stays_between_0_and_1():
    """All taps at z = 3: Holm asks p ≤ level/5 of the first, so the level may fall to 5p; above, nothing changes."""
    found = range_of("orientation", make_family(taps={"z": 3.0}))
    assert (found.low, found.high) == (pytest.approx(5 * stats.norm.sf(3.0), rel=1e-6), None)
    assert found.below == "DFA: trustworthy → walk back"


def test_a_confidence_has_an_edge_near_one():
    """Gains of 3, 4 and 5 pp against 2 pp: t = 2/(1/√3), so the bound leaves 2 pp at that confidence."""
    rest = [r for r in make_family() if r.spec and (r.spec.frozen or r.spec.rule == "bp")]
    own = [make_record(seed=s, accuracy=0.4 + 0.002 * s + g) for s, g in ((1, 0.03), (2, 0.04), (3, 0.05))]
    found = range_of("depth_confidence", rest + own)
    assert found.high == pytest.approx(stats.t.cdf(2 * 3**0.5, 2), rel=1e-6)
    assert found.above == "DFA: trustworthy → inconclusive"


def test_shares_end_at_0_and_1():
    """2 of 4 block taps are informed; Γ hides them from a share of 0.5 on. The others fail by CS005 too: muted."""
    blind = {"z": (9, 9, 9, 0, 0), "descent": (0.4, 0.4, 0.4, 0.02, 0.02)}
    found = range_of("hidden_share", make_family(taps=blind), mute=["CS005"])
    assert (found.low, found.high) == (pytest.approx(0.5, rel=1e-6), None)
    assert found.below == "DFA: walk back → trustworthy"


def test_counts_are_whole():
    found = range_of("seeds", make_family())
    assert (found.low, found.high) == (None, 3)  # a fourth seed is not on record
    assert found.above == "BP: trustworthy → inconclusive; DFA: trustworthy → inconclusive"


def test_the_share_of_seeds_has_its_edges_at_their_fractions():
    records = make_family(seeds=(1, 2, 3, 4))
    records[0] = make_record(seed=1, accuracy=0.702, taps={"h_rms": (1, 99, 99, 99, 99)})
    found = range_of("seed_share", records)  # undecided, an issue from a quarter down
    assert found.low == pytest.approx(0.25, rel=1e-6)
    assert found.below == "DFA: inconclusive → walk back"
    assert found.high is None


def test_thresholds_of_tips_change_no_verdict():
    found = audit(make_family(taps={"common": 0.4, "g_norm": 1e-4, "cos_F": 0.2}))
    assert {(r.low, r.high) for r in found.sensitivity("common", "floor", "weighting")} == {(None, None)}


def test_a_muted_check_moves_nothing():
    found = range_of("growth", make_family(taps={"h_rms": (1, 30, 30, 30, 30)}), mute=["CS001"])
    assert (found.low, found.high) == (None, None)


def test_it_starts_from_the_limits_in_use():
    records = make_family(taps={"h_rms": (1, 30, 30, 30, 30)})
    found = range_of("growth", records, limits=Thresholds(growth=20))
    assert (found.value, found.high) == (20, pytest.approx(30, rel=1e-6))


def test_a_threshold_of_zero_can_only_grow():
    found = range_of("depth_gain", make_family(), limits=Thresholds(depth_gain=0))
    assert (found.low, found.high) == (None, pytest.approx(0.3, rel=1e-6))  # every seed gains 30 pp


def test_settings_are_told_apart():
    records = [*make_family(), *make_family(lr=0.5, taps={"h_rms": (1, 30, 30, 30, 30)})[:6]]
    assert "DFA (mnist1d · resmlp · 1 epoch · lr 0.5): " in range_of("growth", records).below


def test_every_threshold_has_a_row_and_reads_as_a_table():
    found = audit(make_family(taps={"h_rms": (1, 30, 30, 30, 30)})).sensitivity()
    assert [one.name for one in found] == [row["name"] for row in table()]
    (line,) = [line for line in str(found).splitlines() if line.strip().startswith("growth ")]
    assert line.split()[:5] == ["growth", "CS001", "50", "30", "any"]
    assert "below: DFA: trustworthy → walk back" in line
    frame = found.frame().set_index("name")
    assert frame.loc["growth", "low"] == pytest.approx(30, rel=1e-6)


def test_unknown_names_list_the_choices():
    with pytest.raises(CreditscopeError, match=r"name of a threshold, but got 'grwth'. Choices: .*growth"):
        audit(make_family()).sensitivity("grwth")


def test_it_judges_only_what_depends_on_the_threshold(monkeypatch):
    """Every check but CS009 is judged again for its own thresholds alone: CS007, which has none, never."""
    done, judged = audit(make_family()), []
    for code, check in CHECKS.items():
        judge = type(check).judge
        monkeypatch.setattr(type(check), "judge", lambda *args, c=code, j=judge: judged.append(c) or j(*args))
    monkeypatch.setattr(type(CHECKS["CS009"]), "judge", lambda self, *_: self.not_applicable("asks CS007 itself"))
    done.sensitivity()
    assert set(judged) == {"CS001", "CS002", "CS003", "CS004", "CS005", "CS006", "CS008", "CS010"}
