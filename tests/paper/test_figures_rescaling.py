"""Figure `rescaling`: marks and statements are the numbers of the records measured at each c."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from builders import make_record
from drawn import head
from matplotlib.figure import Figure
from pages import assert_clear

from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures.rescaling import ALARM, MIXED, QUIET, describe, plot_rescaling
from creditscope.paper.studies.rescaling import FACTORS, DerivedRecord
from creditscope.record import Record

pytestmark = pytest.mark.slow


def made(seed: int, c: float, **last) -> DerivedRecord:
    """A rescaled BP run: ‖h‖ = 10c, ‖g‖ = 0.1/c."""
    taps = {"h_norm": 10 * c, "g_norm": 0.1 / c, "g_noise": 1e-6, **last.pop("taps", {})}
    record = make_record(rule="bp", seed=seed, taps=taps, **{"accuracy": 0.7, **last})
    return DerivedRecord(record.spec, record.provenance, record.snapshots, None, c)


def family(seeds=(1, 2, 3), factors=(1.0, 1e3, 1e6), **last) -> list[Record]:
    frozen = [make_record(rule="bp", seed=seed, frozen=True, accuracy=0.4 + 0.001 * seed) for seed in seeds]
    return [*(made(seed, c, **last) for seed in seeds for c in factors), *frozen]


def marks(fig: Figure, name: str) -> list[tuple[str, str]]:
    """Of a row of panel C, by c."""
    found = [mark for mark in fig.axes[2].lines if (mark.get_gid() or "").startswith(name)]
    return [(str(mark.get_marker()), str(mark.get_color())) for mark in found]


def told(records: list[Record], quantity: str, group: str = "BP"):
    """What is stated of a quantity; None if nothing is."""
    found = [s.value for s in describe(records).statements if s.quantity.startswith(quantity) and s.group == group]
    return found[0] if found else None


class TestFigure:
    def test_curves_are_means_of_log10_over_seeds(self):
        fig = plot_rescaling([*family(seeds=(1,)), *family(seeds=(2,), taps={"g_norm": 1e-3})])
        drawn = {line.get_gid(): line.get_ydata() for ax in fig.axes[:2] for line in ax.lines}
        assert drawn["‖h₄‖ line"] == pytest.approx([10, 1e4, 1e7])
        assert drawn["‖g₄‖ line"] == pytest.approx(np.sqrt([0.1 * 1e-3, 1e-4 * 1e-3, 1e-7 * 1e-3]))
        assert drawn["accuracy line"] == pytest.approx([0.7] * 3)
        assert drawn["g_noise line"] == pytest.approx([1e-6] * 3)
        assert drawn["limit of g_noise (CS002)"] == pytest.approx([0.1, 0.1])
        assert drawn["published floor"] == pytest.approx([PUBLISHED_FLOOR] * 2)

    def test_titles_are_findings_where_the_data_show_them(self):
        titles = [head(ax)[1] for ax in plot_rescaling(family()).axes]
        assert titles[0] == "‖h₄‖ goes with c, ‖g₄‖ with 1/c"
        assert titles[2].endswith("trustworthy at every c")
        other = [head(ax)[1] for ax in plot_rescaling(family(taps={"g_norm": 1.0})).axes]
        assert "1/c" not in other[0]
        assert "trustworthy" not in other[2]  # no alarm at any c: nothing to tell

    def test_statements_are_those_of_the_records(self):
        records = family()
        assert told(records, "exponent of c in ‖h₄‖").mean == pytest.approx(1)
        assert told(records, "exponent of c in ‖g₄‖").mean == pytest.approx(-1)
        assert told(family(taps={"g_norm": 1.0}), "exponent of c in ‖g₄‖").mean == 0
        zero = ["largest change of accuracy", "largest change of g_rel", "largest distance of cos"]
        assert [told(records, name) for name in zero] == [0, 0, 0]
        assert told(records, "largest g_noise") == 1e-6
        alarms = [told(records, "seeds with ‖g₄‖", f"c = {c}") for c in ("1", "10³", "10⁶")]
        assert alarms == ["0 of 3", "0 of 3", "3 of 3"]
        assert {s.value for s in describe(records).statements if s.quantity == "verdict"} == {"trustworthy"}
        moved = [made(1, 1.0), made(1, 1e6, accuracy=0.6, taps={"g_rel": 2.0})]
        assert told(moved, "largest change of accuracy") == pytest.approx(10)
        assert told(moved, "largest change of g_rel") == pytest.approx(100)

    def test_rows_answered_differently_are_counted_where_they_are_kept(self):
        def answered(c: float, wrong: int) -> DerivedRecord:
            bits = np.arange(1000) >= wrong
            correct = base64.b64encode(np.packbits(bits).tobytes()).decode()
            record = made(1, c)
            return replace(record, snapshots=tuple(replace(s, correct=correct) for s in record.snapshots))

        assert told([answered(1.0, 5), answered(10.0, 5)], "test rows") == "0 of 1,000"
        assert told([answered(1.0, 5), answered(10.0, 8)], "test rows") == "3 of 1,000"
        assert told(family(), "test rows") is None

    def test_marks_of_the_verdicts(self):
        fig = plot_rescaling(family())
        assert marks(fig, "‖g₄‖") == [QUIET, QUIET, ALARM]
        assert marks(fig, "growth") == marks(fig, "CS002") == marks(fig, "verdict") == [QUIET] * 3
        mixed = [r for r in family() if not (isinstance(r, DerivedRecord) and r.spec.seed == 1)]
        mixed += [made(1, c, taps={"g_norm": 1e-9}) for c in (1.0, 1e3, 1e6)]
        assert marks(plot_rescaling(mixed), "‖g₄‖") == [MIXED, MIXED, ALARM]
        noisy = plot_rescaling(family(taps={"g_noise": 0.5}))
        assert marks(noisy, "CS002") == marks(noisy, "verdict") == [ALARM] * 3

    def test_without_frozen_baselines_the_verdict_is_open(self):
        records = [r for r in family() if isinstance(r, DerivedRecord)]
        assert marks(plot_rescaling(records), "verdict") == [MIXED] * 3
        assert "frozen baselines: not on record" in describe(records).gaps
        assert describe(family()).gaps == ()

    def test_one_seed_and_seeds_that_lack_a_factor(self):
        records = [*family(seeds=(1,)), made(9, 1.0)]
        assert_clear(plot_rescaling(records))
        assert told(records, "exponent of c in ‖h₄‖").n == 1
        assert [gap for gap in describe(records).gaps if "seed 9" in gap]

    def test_refusals(self):
        with pytest.raises(CreditscopeError, match="rescaling, but got none among 1"):
            plot_rescaling([make_record(rule="bp")])
        with pytest.raises(CreditscopeError, match="differ in lr"):
            plot_rescaling([*family(), made(4, 1.0, lr=0.1)])

    def test_no_text_leaves_the_page_or_covers_another(self):
        assert_clear(plot_rescaling(family(factors=FACTORS)))
