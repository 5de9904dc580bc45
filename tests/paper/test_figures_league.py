"""Figures of the league: what is drawn is what NumPy and SciPy make of the records, and titles are true of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from builders import make_record
from drawn import head, line, stated, words
from matplotlib.text import Text
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import judges, league, trained_depth
from creditscope.paper.figures._layout import Page
from creditscope.paper.figures._league import find_boards, name_settings
from creditscope.paper.studies import find_wanted, resolve_study
from creditscope.record import Record, RunSpec

pytestmark = pytest.mark.slow
BLOCKS = {
    "A": {"task": "mnist1d", "net": "resmlp"},
    "B": {"task": "cifar10", "net": "resmlp"},
    "C": {"task": "cifar10", "net": "vit"},
    "D": {"task": "cifar10", "net": "lenet"},
}


@pytest.fixture(scope="module")
def records(league_records) -> list[Record]:
    return find_wanted(resolve_study("league", "league"), league_records)


@pytest.fixture(scope="module")
def many(league_records) -> list[Record]:
    return find_wanted(resolve_study("judges", "league"), league_records)


@pytest.fixture(scope="module")
def fig(records):
    return league.plot_league(records)


@pytest.fixture(scope="module")
def courts(many):
    return judges.find_courts(many)[0]


@pytest.fixture(scope="module")
def rewound(many):
    return trained_depth.plot_trained_depth(many).axes, trained_depth.describe(many)


def runs(records, block: str, rule: str, variant: str = "", penalty: float = 0.0, frozen: bool = False):
    """By seed."""
    wanted = {**BLOCKS[block], "rule": rule, "penalty": penalty, "frozen": frozen}
    own = [r for r in records if all(getattr(r.spec, name) == value for name, value in wanted.items())]
    return {r.spec.seed: r for r in own if r.facts.rule.variant == variant}


def share_of(records, block: str, rule: str, variant: str = "", penalty: float = 0.0) -> tuple[float, float]:
    """Δ/Δ_BP and half its interval, by the formula of a ratio of paired means."""

    def accuracy(*asked, **how):
        found = runs(records, block, *asked, **how)
        return np.array([found[seed].last.accuracy for seed in sorted(found)])

    frozen = [accuracy(rule, variant, frozen=True), accuracy("bp", frozen=True)]
    if rule == "bp" and penalty:
        frozen[0] = accuracy("bp", penalty=penalty, frozen=True)
    gains = accuracy(rule, variant, penalty) - max(frozen, key=np.mean)
    bp = accuracy("bp") - accuracy("bp", frozen=True)
    share = gains.mean() / bp.mean()
    apart = gains - share * bp
    return share, stats.t.ppf(0.975, len(bp) - 1) * apart.std(ddof=1) / len(bp) ** 0.5 / bp.mean()


def cosine_of(found: dict[int, Record]) -> float:
    return float(np.mean([[r.last.taps.cos[tap] for tap in r.facts.inexact_taps] for r in found.values()]))


class TestLeague:
    @pytest.mark.parametrize(
        ("block", "panel", "name", "asked"),
        [
            ("A", 0, "EP, beta 0.1", ("ep", "beta 0.1")),
            ("A", 0, "DFA, λ 0.01", ("dfa", "", 1e-2)),
            ("B", 1, "forward gradient", ("forward_gradient",)),
            ("C", 2, "WM", ("wm",)),
            ("D", 3, "KP, decay 0.01", ("kp", "decay 0.01")),
        ],
    )
    def test_a_mark_is_at_its_cosine_and_share(self, fig, records, block, panel, name, asked):
        share, half = share_of(records, block, *asked)
        (x,), (y,) = line(fig.axes[panel], name)
        assert (x, y) == pytest.approx((cosine_of(runs(records, block, *asked)), share))
        assert line(fig.axes[panel], f"{name} bar")[1] == pytest.approx([share - half, share + half])

    def test_growth_is_the_largest_over_a_block_and_has_its_colour(self, records):
        boards, _ = find_boards(records)
        (dfa,) = [entry for entry in boards[0].entries if entry.name == "DFA"]
        rms = np.array([r.last.taps.h_rms for r in runs(records, "A", "dfa").values()])
        growth = stats.gmean((rms[:, 1:] / rms[:, :-1]).max(axis=1))
        assert dfa.growth == pytest.approx(growth)
        assert 10 < growth < 100
        assert league.colour(growth) == league.GROWTHS[100.0]
        assert league.colour(float("nan")) == "white"

    def test_titles_name_rules_that_the_cosine_ranks_wrongly(self, fig, records):
        boards, _ = find_boards(records)
        for board in boards[:4]:
            found = league.find_misled(board)
            assert found
            low, high = found
            assert low.cos < high.cos
            assert board.stands(low).low > board.stands(high).high
            assert {low.short, high.short, "DFA", *["FA"] * (board is not boards[3])} <= set(
                words(fig.axes[boards.index(board)])
            )  # named in the panel, too
        assert "−.73 at cosine .76" in head(fig.axes[0])[1]

    @pytest.mark.parametrize("width", [5.5, 3.25])
    def test_a_line_to_a_mark_passes_over_no_other(self, records, width):
        drawn = league.plot_league(records, page=Page(width=width))
        drawn.canvas.draw()
        lines = passed = 0
        for ax in drawn.axes[:5]:
            marks = [ax.transData.transform(m.get_xydata()[0]) for m in ax.lines if m.get_marker() in "*^DsvoP"]
            for label in ax.texts:
                if label.get_gid() != "label" or getattr(label, "arrow_patch", None) is None:
                    continue
                end, box = ax.transData.transform(label.xy), Text.get_window_extent(label)  # without the line
                start = np.array([box.x0 + box.width / 2, box.y0 + box.height / 2])
                others = [m for m in marks if np.hypot(*(m - end)) > 0.06 * drawn.dpi]  # those under it cannot be told
                way = np.linspace(start, end, 200)[:, None] - np.array(others)
                near = np.hypot(*way.transpose(2, 0, 1))
                ahead = near.argmin(axis=0) < 199  # what is nearest at the end lies behind it, or beside
                assert (near.min(axis=0)[ahead] > 0.035 * drawn.dpi).all(), label.get_text()
                lines, passed = lines + 1, passed + int(ahead.sum())
        assert lines > 2
        assert passed > lines

    def test_where_bp_gains_nothing_there_are_no_shares(self, fig, records):
        boards, gaps = find_boards(records)
        own = {b.name.replace("\u00a0", " "): b for b in boards}["GCN, Cora, L = 6"]
        assert not own.shared
        assert own.bp_gain.low < 0
        assert fig.axes[4].get_ylabel() == "gain over frozen, pp"
        assert "no gain" in head(fig.axes[4])[1]
        assert any("L\u00a0=\u00a02" in gap for gap in gaps)
        assert boards[0].name == "ResMLP, mnist1d"  # of one depth

    def test_the_table_has_all(self, records):
        said = stated(league.describe(records), "A")
        assert len([key for key in said if key[0] == "share of BP's gain"]) == 47
        share, half = share_of(records, "A", "pc", "inputs settled")
        value = said["share of BP's gain", "PC, inputs settled"].value
        assert (value.mean, value.high - value.mean) == pytest.approx((share, half))

    def test_records_without_twins_are_refused(self):
        with pytest.raises(CreditscopeError, match="frozen twins"):
            find_boards([make_record()])

    def test_settings_of_one_name_are_told_apart_by_what_differs(self):
        kinds = [("resmlp", 4, 30), ("resmlp", 4, 100), ("lenet", None, 15), ("lenet", None, 15), ("vit", 4, 5)]
        options = [{"depth": depth} if depth else {} for _, depth, _ in kinds]
        asked = zip(kinds, options, strict=True)
        specs = [
            RunSpec(task="cifar10", net=net, rule="bp", net_options=own, epochs=epochs)
            for (net, _, epochs), own in asked
        ]
        deeper = RunSpec(task="cifar10", net="vit", rule="bp", net_options={"depth": 8}, epochs=5)
        assert [name.replace("\u00a0", " ") for name in name_settings([*specs, deeper])] == [
            "ResMLP, CIFAR-10, 30 epochs",
            "ResMLP, CIFAR-10, 100 epochs",
            "LeNet, CIFAR-10, no. 3",
            "LeNet, CIFAR-10, no. 4",
            "ViT-Mini, CIFAR-10, L = 4",
            "ViT-Mini, CIFAR-10, L = 8",
        ]


class TestJudges:
    def test_correlations_are_those_of_scipy(self, courts, many):
        asked = {(e.rule, e.method.facts.rule.variant, e.penalty) for e in courts[0].board.others}
        assert len(asked) == 45
        shares = [share_of(many, "A", *row)[0] for row in asked]
        found = [runs(many, "A", *row) for row in asked]
        cosines = [cosine_of(own) for own in found]
        growths = [
            np.mean([np.log(np.divide(r.last.taps.h_rms[1:], r.last.taps.h_rms[:-1]).max()) for r in own.values()])
            for own in found
        ]
        by_cosine, by_growth = (stats.spearmanr(values, shares).statistic for values in (cosines, growths))
        assert courts[0].judge(("cosine",), -1).rank.mean == pytest.approx(by_cosine)
        assert courts[0].judge(("small growth",), -1).rank.mean == pytest.approx(-by_growth)
        ranks = stats.rankdata(cosines) - stats.rankdata(growths)
        pair = courts[0].judge(("cosine", "small growth"), -1)
        assert pair.rank.mean == pytest.approx(stats.spearmanr(ranks, shares).statistic)
        best = judges.judge_pairs(courts[0], courts, -1)[judges.PAIR]
        assert best.rank.mean >= pair.rank.mean

    def test_a_draw_of_rules_is_spearman_of_their_repeated_rows(self):
        stream = np.random.default_rng(1)
        one, other, weights = stream.integers(5, size=12), stream.normal(size=12), stream.integers(3, size=(4, 12))
        found = judges.spearman(one.astype(float), other, weights.astype(float))
        for drawn, times in zip(found, weights, strict=True):
            assert drawn == pytest.approx(stats.spearmanr(np.repeat(one, times), np.repeat(other, times)).statistic)

    def test_rows_of_a_rule_are_drawn_together(self, courts):
        rules = [entry.rule for entry in courts[0].board.others]
        for rule in set(rules):
            own = courts[0].weights[:, [name == rule for name in rules]]
            assert (own == own[:, :1]).all()

    def test_the_end_is_not_judged_by_itself(self, courts):
        assert courts[0].judge((judges.ACCURACY,), -1) is None
        assert all(judges.ACCURACY not in judges.best_pair(courts, epoch) for epoch in judges.EPOCHS)

    def test_a_pair_chosen_elsewhere_is_the_best_there_and_no_better_than_the_best_here(self, courts):
        for epoch in judges.EPOCHS:
            here, there = (judges.judge_pairs(court, courts, epoch) for court in courts)
            for one, other in ((here, there), (there, here)):
                assert one[judges.ELSEWHERE].measures == other[judges.PAIR].measures
                assert one[judges.ELSEWHERE].rank.mean <= one[judges.PAIR].rank.mean
        assert set(judges.judge_pairs(courts[0], courts[:1], -1)) == {judges.PAIR}

    def test_what_is_drawn_is_what_is_stated(self, courts, many):
        ax = judges.plot_judges(many).axes[1]
        rank = courts[1].judge(("weight cosine",), 1).rank
        assert line(ax, "weight cosine 1")[0] == pytest.approx([rank.mean])
        assert line(ax, "weight cosine 1 bar")[0] == pytest.approx([rank.low, rank.high])
        said = stated(judges.describe(many), "B")
        assert said["rank correlation at epoch 1", "weight cosine"].value == rank
        best = max(
            (courts[1].judge((name,), 1) for name in ("cosine", "weight cosine", "accuracy")), key=lambda v: v.rank.mean
        )
        assert f"after one epoch {best.name} at" in head(ax)[1]


class TestTrainedDepth:
    @pytest.mark.parametrize(
        ("block", "task", "name", "asked"),
        [
            ("A", "mnist1d", "DFA, λ 0.01", ("dfa", "", 1e-2)),
            ("B", "CIFAR-10", "EP, steps 4", ("ep", "steps 4")),
            ("B", "CIFAR-10", "BP", ("bp",)),
        ],
    )
    def test_what_a_block_is_worth(self, many, rewound, block, task, name, asked):
        own = runs(many, block, *asked).values()
        lost = np.array([r.last.accuracy - r.last.taps.rewind[3] for r in own]) * 100
        (ax,) = rewound[0]  # nets of as many blocks share a panel
        step = float(ax.get_xlabel().split()[-2])
        named = [label.get_text() for label in ax.get_xticklabels()]
        assert named == ["1", "2", "3", "4"] * 2
        column = ax.get_xticks()[2 + 4 * (block == "B")]
        assert column == pytest.approx(2 if block == "A" else 2 + 4 + trained_depth.APART)
        (x,), _ = line(ax, f"{task} {name} 3")
        half = stats.t.ppf(0.975, len(lost) - 1) * stats.sem(lost)
        assert (x - column) * step == pytest.approx(lost.mean())
        bar = line(ax, f"{task} {name} 3 bar")[0]
        assert (bar - column) * step == pytest.approx([lost.mean() - half, lost.mean() + half])
        said = stated(rewound[1])
        assert said[f"accuracy lost on {task} without block 3, pp", name].value.mean == pytest.approx(lost.mean())

    def test_a_row_is_a_rule_and_bp_is_first(self, many):
        boards, _ = find_boards(many)
        rows = trained_depth.pick_rows(boards[0])
        assert next(iter(rows)) == "bp"
        assert [own.entry.name for own in rows["dfa"]] == ["DFA", "DFA, λ 0.01"]  # not its signs
        best = [max(share_of(many, "A", rule, "", own.entry.penalty)[0] for own in both) for rule, both in rows.items()]
        assert best[1:] == sorted(best[1:], reverse=True)

    def test_a_rule_has_one_row_for_both_tasks(self, rewound):
        (ax,) = rewound[0]
        rows = [label.get_text() for label in ax.get_yticklabels()]
        assert len(rows) == len(set(rows)) == 21
        heights = {line(ax, f"{task} WM {tap}")[1][0] for task in ("mnist1d", "CIFAR-10") for tap in (1, 4)}
        assert heights == {rows.index("WM")}

    def test_a_panel_for_each_depth(self, league_records):
        found, _ = find_boards(find_wanted(resolve_study("trained_depth", "league"), league_records))
        depths = [trained_depth.count_blocks(beside.boards[0]) for beside in trained_depth.place_beside(found)]
        assert depths == [4, 8, 12]

    def test_other_nets_of_as_many_blocks_have_a_panel_of_their_own(self):
        facts = SimpleNamespace(residual=(False, True, True))
        boards = [SimpleNamespace(net=n, entries=[SimpleNamespace(method=SimpleNamespace(facts=facts))]) for n in "aba"]
        assert [[b.net for b in one.boards] for one in trained_depth.place_beside(boards)] == [["a", "a"], ["b"]]

    def test_the_title_counts_blocks_by_their_lower_bounds(self, many, rewound):
        for block in ("A", "B"):
            own = runs(many, block, "bp").values()
            lost = np.array([[r.last.accuracy - after for after in r.last.taps.rewind[1:]] for r in own])
            low = lost.mean(axis=0) - stats.t.ppf(0.95, len(lost) - 1) * stats.sem(lost)
            assert (low > 0.01).all()
        assert head(rewound[0][0])[1].count("all 4 blocks under BP on") == 2


def test_too_few_rows_are_not_ranked(many):
    """Runs that other studies share with it: axes without a mark would look like a result."""
    few = [r for r in many if r.spec.rule in ("bp", "fa", "dfa") and not r.facts.rule.variant]
    with pytest.raises(CreditscopeError, match="10 rows or more"):
        judges.plot_judges(few)
