"""How far thresholds can move: records whose edges are known by hand."""

import pytest
from builders import make_family, make_record, make_snapshot, make_weights
from judging import CHECKS, blind_taps
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


@pytest.mark.slow
def test_a_probability_stays_between_0_and_1():
    """Cosines of 0.3 over three seeds with a null of 0.05 each: z = 10.4, so the level may fall to its p-value."""
    z = 0.3 / (0.05 / 3**0.5)
    found = range_of("orientation", make_family(taps={"cos": 0.3, "cos_F": 0.3}), mute=["CS008"])
    assert stats.norm.sf(z) < 1e-20  # beyond the scan
    assert (found.low, found.high) == (None, None)
    found = range_of("orientation", make_family(taps={"cos": 0.1, "cos_F": 0.1}), mute=["CS008"])
    assert found.low == pytest.approx(stats.norm.sf(0.1 / (0.05 / 3**0.5)), rel=1e-6)
    assert (found.below, found.high) == ("DFA: trustworthy → undecided", None)


def test_delta_has_its_edge_at_the_lower_bound_over_seeds():
    """Cosines of 0.09, 0.10 and 0.11 at every block tap."""
    spread, half = (-0.01, 0.0, 0.01), stats.t.ppf(0.95, 2) * 0.01 / 3**0.5
    narrow = {"null_sd": 0.001, "null_sd_F": 0.001, "stage_cos": 0.0}
    records = [r for r in make_family() if r.spec and (r.spec.frozen or r.spec.rule == "bp")]
    for seed, d in enumerate(spread, start=1):
        taps = {**narrow, "cos": (0.5, *[0.1 + d] * 4), "cos_F": 0.5}
        records.append(make_record(seed=seed, accuracy=0.7 + 0.002 * seed, taps=taps))
    found = range_of("alignment", records)
    assert (found.low, found.high) == (None, pytest.approx(0.1 - half, rel=1e-6))
    assert found.above == "DFA: trustworthy → undecided"


def test_a_confidence_has_an_edge_near_one():
    """Gains of 3, 4 and 5 pp against 2 pp: t = 2/(1/√3), so the bound leaves 2 pp at that confidence."""
    rest = [r for r in make_family() if r.spec and (r.spec.frozen or r.spec.rule == "bp")]
    own = [make_record(seed=s, accuracy=0.4 + 0.002 * s + g) for s, g in ((1, 0.03), (2, 0.04), (3, 0.05))]
    found = range_of("depth_confidence", rest + own)
    assert found.high == pytest.approx(stats.t.cdf(2 * 3**0.5, 2), rel=1e-6)
    assert found.above == "DFA: trustworthy → undecided"


def test_shares_end_at_0_and_1():
    """2 of 4 block taps carry credit; Γ hides them from a share of 0.5 on. The others fail by CS005 too: muted."""
    found = range_of("hidden_share", make_family(taps=blind_taps(3, 4)), mute=["CS005"])
    assert (found.low, found.high) == (pytest.approx(0.5, rel=1e-6), None)
    assert found.below == "DFA: walk back → trustworthy"


def test_counts_are_whole():
    found = range_of("seeds", make_family())
    assert (found.low, found.high) == (None, 3)  # a fourth seed is not on record
    assert found.above == "BP: trustworthy → not measured; DFA: trustworthy → not measured"


def test_the_share_of_seeds_has_its_edge_at_the_bound_of_the_share():
    """One seed of four: at most 0.751 and at least 0.013 of seeds have it."""
    records = make_family(seeds=(1, 2, 3, 4))
    dead = make_snapshot(accuracy=0.702, weights=make_weights(step_all_zero=1))
    records[0] = make_record(seed=1, snapshots=[dead])
    exact = stats.binomtest(1, 4).proportion_ci(0.9, method="exact")
    found = range_of("seed_share", records, mute=["CS009"])
    assert (found.low, found.high) == (pytest.approx(exact.low, rel=1e-6), pytest.approx(exact.high, rel=1e-6))
    assert (found.below, found.above) == ("DFA: undecided → walk back", "DFA: undecided → trustworthy")


def test_thresholds_of_tips_change_no_verdict():
    found = audit(make_family(taps={"common": 0.4, "g_norm": 1e-4}))
    assert {(r.low, r.high) for r in found.sensitivity("common", "floor")} == {(None, None)}


@pytest.mark.slow
def test_what_is_not_judged_stays_so():
    found = audit([make_record(seed=s, targets="random") for s in (1, 2, 3)]).sensitivity(
        "growth", "alignment", "seeds"
    )
    assert {(r.low, r.high) for r in found} == {(None, None)}


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
    with pytest.raises(CreditscopeError, match=r"name of a threshold, but got 'grwth'. Choices: .*growth"):
        audit(make_family()).sensitivity("grwth")


@pytest.mark.slow
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
