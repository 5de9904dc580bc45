"""The league's table and its outcomes against computations from the bare records; a rule of one's own among them."""

import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from documents import ROOT, load_script
from scipy.stats import spearmanr
from scipy.stats import t as student_t

from creditscope.auditing.depth import DepthUse
from creditscope.auditing.stats import Interval
from creditscope.cli import main
from creditscope.paper.headlines import HEADLINES, Claim, find_interval, stands
from creditscope.paper.predictions import outcomes
from creditscope.paper.predictions.outcomes import BLOCKS, Held, Outcome, best_pairs, judge, read_predictions
from creditscope.paper.standings import Standing, count_missing, find_block, write_share
from creditscope.record import Record, load_records

pytestmark = pytest.mark.slow

PAGE = load_script(ROOT / "docs" / "make_league.py")
SHIPPED = ROOT / "results" / "league"
BY_ID = {one.id: one for one in read_predictions()}
RULE = '''
from creditscope.rules import TapRule


class Half(TapRule):
    """a_l = h_l / 2."""

    label = "half"

    def credit(self, ctx):
        return [h / 2 for h in ctx.states]
'''


@pytest.fixture(scope="module")
def records(league_records) -> list[Record]:
    return league_records


@pytest.fixture(scope="module")
def held(records) -> Held:
    return Held(records)


def accuracies(records: list[Record], rule: str, **fields) -> np.ndarray:
    """At the end, by seed, of runs without a variant."""
    wanted = {"rule": rule, "penalty": 0.0, "frozen": False} | fields
    found = [r for r in records if r.spec and all(getattr(r.spec, n) == v for n, v in wanted.items())]
    return np.array([r.last.accuracy for r in sorted(found, key=lambda r: r.spec.seed) if not r.facts.rule.variant])


def share_by_hand(records: list[Record], rule: str) -> tuple[float, float]:
    """Δ/Δ_BP and half its interval: the delta method for a ratio of means, from covariances."""
    bp_frozen, own_frozen = accuracies(records, "bp", frozen=True), accuracies(records, rule, frozen=True)
    better = max(bp_frozen, own_frozen, key=np.mean)
    gain, bp = accuracies(records, rule) - better, accuracies(records, "bp") - bp_frozen
    cov, n, share = np.cov(gain, bp), len(gain), gain.mean() / bp.mean()
    variance = (cov[0, 0] - 2 * share * cov[0, 1] + share**2 * cov[1, 1]) / bp.mean() ** 2
    return share, student_t.ppf(0.975, n - 1) * np.sqrt(variance / n)


class TestShare:
    def test_is_a_ratio_with_the_interval_of_the_delta_method(self, records, held):
        own = find_block(BLOCKS["D"], records)
        for rule in ("sign_fa", "wm", "fa", "kp"):
            share, half = share_by_hand(own, rule)
            found = held.standings("D")[rule].share
            assert found.mean == pytest.approx(share)
            assert found.high - found.mean == pytest.approx(half)
            assert found.n == 5

    def test_gains_that_go_together_make_it_sharp_and_bp_has_no_spread(self):
        bp = (0.2, 0.3, 0.4)
        half = DepthUse((1, 2, 3), "BP-frozen", tuple(g / 2 for g in bp), 0.0, bp).share_interval
        assert (half.mean, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5))
        assert write_share(half) == ".50"
        assert DepthUse((1, 2), "BP-frozen", (0.1, 0.1), 0.0, (-0.1, 0.0)).share_interval is None

    def test_there_is_none_where_bps_gain_may_be_nothing(self, held):
        """A ratio over what may be 0; on Cora BP loses by its blocks, and may gain."""
        sure = DepthUse((1, 2, 3), "BP-frozen", (0.1, 0.1, 0.12), 0.0, (0.2, 0.21, 0.22))
        assert sure.share_interval
        assert replace(sure, bp_gains=(0.2, 0.01, -0.1)).share_interval is None
        assert replace(sure, seeds=(1,), gains=(0.1,), bp_gains=(0.2,)).share_interval is None
        assert not any(s.share for s in held.standings("E6").values())

    def test_a_row_over_its_own_twin_is_marked(self, records, held):
        own = find_block(BLOCKS["D"], records)
        for name, standing in held.standings("D").items():
            if name in ("fa", "dfa", "local", "wm"):
                twins = [accuracies(own, rule, frozen=True).mean() for rule in (name, "bp")]
                assert standing.over_own_twin == (twins[0] > twins[1])
        assert {s.over_own_twin for s in held.standings("D").values()} == {True, False}


class TestTable:
    def test_seconds_are_those_that_were_written_down(self, held):
        took = json.loads((ROOT / "bench" / "results" / "h200_league.json").read_text(encoding="utf-8"))
        for block in ("D", "E6"):
            for name, standing in held.standings(block).items():
                assert standing.seconds == pytest.approx(took[block]["rows"][name]["worker_seconds"])

    def test_rows_are_ordered_by_share_or_else_by_accuracy(self, held):
        shares = [s.share.mean for s in held.standings("D").values()]
        assert shares == sorted(shares, reverse=True)
        assert all(s.share is None for s in held.standings("E6").values())
        means = [s.found.accuracy.mean for s in held.standings("E6").values()]
        assert means == sorted(means, reverse=True)

    def test_convolutions_in_tf32_are_told(self, records):
        by_net = defaultdict(list)
        for r in records:
            if r.spec.rule == "bp" and not r.spec.frozen and r.snapshots[0].epoch == 0:
                by_net[r.spec.net] += [noise for noise in r.snapshots[0].taps.g_noise if noise is not None]
        assert max(by_net["resmlp"] + by_net["gcn"]) < 1e-6
        assert max(by_net["lenet"]) > 1e-3
        coarse = [name for name in ("A", "B", "D", "E2", "E6") if PAGE.is_coarse(find_block(BLOCKS[name], records))]
        assert coarse == ["D"]

    @pytest.mark.parametrize(("rule", "label"), [("fa", "FA"), ("wm", "WM"), ("local", "local")])
    def test_a_share_and_blocks_at_twelve_blocks_by_hand(self, records, rule, label):
        own = find_block(BLOCKS["L12"], records)
        share, half = share_by_hand(own, rule)
        runs = [r for r in own if (r.spec.rule, r.spec.penalty, r.spec.frozen) == (rule, 0.0, False)]
        lost = np.array([[r.last.accuracy - after for after in r.last.taps.rewind[1:]] for r in runs])
        reach = student_t.ppf(0.95, len(lost) - 1) * lost.std(axis=0, ddof=1) / len(lost) ** 0.5
        low, high = ((lost.mean(axis=0) + side * reach >= 0.01).sum() for side in (-1, 1))
        blocks = f"{low}" if low == high else f"{low}–{high}"
        *_, page = PAGE.make_depths(Held(records))
        head, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
        (found,) = [line for line in lines if line[0] == label]
        assert len(runs) == 10
        cell = found[head.index("L = 12")].replace("−", "-")
        wanted = f"{share:.2f} ± {half:.2f} · {blocks} of 12".replace("0.", ".").replace("1.00 ± .", "1.00 ± .")
        assert cell == wanted

    def test_of_depths_that_are_not_complete_nothing_is_told(self, records):
        lost = Held([r for r in records if r.spec.seed != 42])
        _, _, left = PAGE.make_depths(lost)
        assert all(f"L = {depth} (" in left for depth in (2, 4, 6, 8, 10, 12))

    def test_every_block_is_complete(self, records):
        league = ("A", "B", "C", "D", "E2", "E6")
        assert [count_missing(BLOCKS[name], records)[0] for name in league] == [0] * len(league)


class TestOutcomes:
    def test_cosine_and_accuracy_by_hand(self, records, held):
        cosines = defaultdict(list)
        for r in find_block(BLOCKS["A"], records):
            if not r.spec.frozen and not r.facts.rule.variant and not r.spec.penalty:
                cosines[r.spec.rule].append(np.mean([r.last.taps.cos[t] for t in r.facts.inexact_taps or (0,)]))
        found = held.outcome(BY_ID["league-3"])
        assert found.values == {"forward_gradient": pytest.approx(np.mean(cosines["forward_gradient"]))}
        graphs = find_block(BLOCKS["E6"], records)
        apart = accuracies(graphs, "wm").mean() - accuracies(graphs, "bp").mean()
        assert held.outcome(BY_ID["league-26"]).values["wm"] == pytest.approx(apart)

    def test_ranks_are_scipys(self, held):
        rows = [s for s in held.standings("A").values() if s.rule != "bp"]
        shares = [row.share.mean for row in rows]
        cosines = [np.mean([at(r, -1, "cos") for r in row.method.runs.values()]) for row in rows]
        assert judge(rows, "cos", -1) == pytest.approx(spearmanr(cosines, shares).statistic)
        grown = [np.mean([np.log(grew(r, 1)) for r in row.method.runs.values()]) for row in rows]
        by_hand = -spearmanr(grown, shares).statistic
        assert held.outcome(BY_ID["judges-3"]).values[""] == pytest.approx(by_hand)
        assert (held.outcome(BY_ID["judges-3"]).state == "hit") == (by_hand >= 0.5)
        assert len(best_pairs(rows, 4)) == 3  # ρ and descent are not measured then

    def test_what_is_not_on_record_is_open(self, records):
        of_one = Held(find_block(BLOCKS["B"], records))
        for name in ("league-23", "league-24"):
            assert of_one.outcome(BY_ID[name]).state == "open", name
        images = [r for r in records if r.spec.net == "lenet"]
        lost = [r for r in images if not (r.spec.rule == "sign_fa" and r.spec.frozen and r.spec.seed == 42)]
        assert len(lost) < len(images)
        assert Held(images).outcome(BY_ID["league-21"]).state == "hit"
        without = Held(lost).outcome(BY_ID["league-21"])
        assert without.values["sign_fa"] is None
        assert without.state == "open"

    @pytest.mark.parametrize("spoil", ["diverged", "not measured"])
    def test_a_seed_that_says_nothing_is_not_on_record(self, records, spoil):
        """Else one seed of five would decide, and a rule that diverges would be judged by those that did not."""
        name = {"diverged": "league-21", "not measured": "league-3"}[spoil]
        block, rule = BY_ID[name].block, BY_ID[name].rows[-1] if spoil == "not measured" else "wm"
        own = find_block(BLOCKS[block], records)
        hit = [r for r in own if r.spec.rule == rule and not r.spec.frozen and not r.spec.penalty and r.spec.seed == 42]
        lost = [r for r in hit if not r.facts.rule.variant]
        assert len(lost) == 1
        said = replace(lost[0], provenance=replace(lost[0].provenance, status="diverged", diverged_epoch=3))
        taps = replace(lost[0].last.taps, cos=(None,) * len(lost[0].last.taps.cos))
        mute = replace(lost[0], snapshots=(*lost[0].snapshots[:-1], replace(lost[0].last, taps=taps)))
        other = {"diverged": said, "not measured": mute}[spoil]
        found = Held([other if r is lost[0] else r for r in own]).outcome(BY_ID[name])
        assert found.values[rule] is None
        assert found.state == "open"
        assert Held(own).outcome(BY_ID[name]).state == "hit"

    def test_numbers_explained_are_a_share_and_another_norm_with_more_refutes(self, shipped_records, monkeypatch):
        asked = BY_ID["phase-6"]
        few = replace(BLOCKS["phase"], seeds=(42, 123, 456))
        monkeypatch.setitem(outcomes.BLOCKS, "phase", few)
        found = Held(shipped_records).outcome(asked)
        assert found.values == {"dfa, norm sample": pytest.approx(8 / 11)}
        assert found.detail == "none 8 of 11, batch 6 of 11, sample 8 of 11"
        assert found.state == "hit"
        worse = Held(shipped_records).outcome(replace(asked, rows=("dfa, norm batch",)))
        assert (worse.values["dfa, norm batch"], worse.state) == (pytest.approx(6 / 11), "miss")
        without = [r for r in shipped_records if r.spec and not (r.spec.credit_norm == "batch" and r.spec.seed == 42)]
        assert Held(without).outcome(asked).state == "open"

    def test_a_miss_is_one_before_all_is_known_and_a_hit_is_not(self):
        asked = replace(BY_ID["league-22"], rows=("fa", "dfa"))
        assert Outcome(asked, {"fa": 0.5, "dfa": None}).state == "open"
        assert Outcome(asked, {"fa": 0.51, "dfa": None}).state == "miss"
        assert Outcome(asked, {"fa": 0.5, "dfa": 0.1}).state == "hit"
        spared = replace(asked, allowed_misses=1)
        assert Outcome(spared, {"fa": 0.51, "dfa": 0.1}).state == "hit"
        assert Outcome(spared, {"fa": 0.51, "dfa": 0.6}).missed == ("fa", "dfa")
        assert Outcome(asked, {}).state == "open"

    def test_a_pair_without_the_measure_misses_whatever_it_reaches(self):
        assert Outcome(BY_ID["judges-6"], {"": 0.95}).state == "hit"
        assert Outcome(BY_ID["judges-6"], {"": 0.95}, refuted=True).state == "miss"


class TestHeadlines:
    def test_intervals_are_those_of_the_records(self, records, held):
        claim = Claim("D", "sign_fa", "share", low=0.75)
        share, half = share_by_hand(find_block(BLOCKS["D"], records), "sign_fa")
        found = find_interval(held, claim)
        assert (found.low, found.high, found.n) == (pytest.approx(share - half), pytest.approx(share + half), 5)
        runs = [r for r in find_block(BLOCKS["A"], records) if r.spec.rule == "ep" and r.spec.rule_options]
        cosines = [at(r, -1, "cos") for r in runs if not r.spec.frozen and r.facts.rule.variant == "beta 0.1"]
        reach = student_t.ppf(0.975, 19) * np.std(cosines, ddof=1) / np.sqrt(20)
        assert find_interval(held, Claim("A", "ep, beta 0.1", "cos")).low == pytest.approx(np.mean(cosines) - reach)

    @pytest.mark.parametrize(
        ("quantity", "by_hand"),
        [("growth", lambda r: grew(r, 60)), ("accuracy", lambda r: r.last.accuracy)],
    )
    def test_other_quantities_are_of_the_records_too(self, records, held, quantity, by_hand):
        runs = [r for r in find_block(BLOCKS["nudging"], records) if r.facts.rule.variant == "beta 0.5"]
        values = [by_hand(r) for r in runs]
        found = find_interval(held, Claim("nudging", "ep, beta 0.5", quantity))
        reach = student_t.ppf(0.975, 4) * np.std(values, ddof=1) / np.sqrt(5)
        assert (found.mean, found.high) == (pytest.approx(np.mean(values)), pytest.approx(np.mean(values) + reach))

    def test_all_stand_by_their_whole_interval(self, held):
        answers = {c: stands(c, find_interval(held, c)) for headline in HEADLINES for c in headline.claims}
        assert set(answers.values()) == {True}
        ends = Interval(0.5, 0.4, 0.6, 5)
        for low, high, answer in ((0.3, 0.7, True), (0.45, 0.7, False), (0.3, 0.55, False)):
            assert stands(Claim("A", "bp", "share", low, high), ends) is answer
        assert stands(Claim("A", "bp", "share"), Interval(0.5, None, None, 1)) is None
        assert find_interval(held, Claim("C", "drtp", "share")) is None  # a row that the block does not have


def at(record: Record, epoch: int, name: str) -> float:
    """Mean over taps without exact credit."""
    snapshot = record.last if epoch == -1 else next(s for s in record.snapshots if s.epoch == epoch)
    return float(np.mean([getattr(snapshot.taps, name)[tap] for tap in record.facts.inexact_taps]))


def grew(record: Record, epoch: int) -> float:
    """The largest step of the stream's size over a block."""
    sizes = next(s for s in record.snapshots if s.epoch == epoch).taps.h_rms
    return max(above / below for below, above in pairwise(sizes))


class TestCommand:
    def test_shows_a_block_in_order(self, capsys, held: Held):
        main(["league", "show", "--block", "D", "--records", str(SHIPPED)])
        lines = capsys.readouterr().out.splitlines()
        rows: list[Standing] = list(held.standings("D").values())
        assert [line.split("  ")[0] for line in lines[-len(rows) :]] == [write_share(row.share) for row in rows]

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (["add"], "my_rule.py:Rule"),
            (["add", "dfa"], "built-in"),
            (["add", "nowhere.py:Rule"], "does not exist"),
            (["add", "HERE:Whole"], "Rule classes there: TapRule, Half"),
            (["add", "HERE:Half", "--block", "B"], "Choices: A"),
            (["add", "HERE:Half", "--scale", "vast"], "demo"),
            (["add", "HERE:Half", "--penalty", "-1"], "penalty >= 0"),
            (["show", "dfa"], "league add"),
            (["show", "--block", "Z"], "E6"),
            (["show"], "creditscope fetch league"),
        ],
    )
    def test_refuses_what_it_cannot_do(self, words, said, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own.py").write_text(RULE, encoding="utf-8")
        with pytest.raises(SystemExit) as ended:
            main(["league", *(word.replace("HERE", "own.py") for word in words)])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err

    def test_adds_a_rule_and_trains_it_again_when_it_was_edited(self, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        file, words = tmp_path / "own.py", ["league", "add", "own.py:Half", "--scale", "test", "--quiet"]
        file.write_text(RULE, encoding="utf-8")
        main([*words, "--device", "cpu", "--slots", "1"])
        out = capsys.readouterr().out
        marked = [line for line in out.splitlines() if line.startswith("▶") and "half" in line]
        assert len(marked) == 1
        assert "BP" in out
        assert "**half**" in (tmp_path / "out/league/league.md").read_text(encoding="utf-8")
        (card,) = (tmp_path / "out/league/cards").glob("*.json")
        assert json.loads(card.read_text(encoding="utf-8"))["method"] == "half"
        assert len(load_records(tmp_path / "out/league/records")) == 4  # it, BP and both twins, one seed
        file.write_text(RULE.replace("h / 2", "h / 4"), encoding="utf-8")
        main([*words, "--device", "cpu", "--slots", "1"])
        assert len(load_records(tmp_path / "out/league/records")) == 6
        assert sum(line.startswith("▶") for line in capsys.readouterr().out.splitlines()[1:]) == 1


def test_the_table_needs_no_torch():
    """Asked of a fresh interpreter."""
    code = "import sys, creditscope.paper.predictions.outcomes, creditscope.paper.commands.league"
    subprocess.run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules"], check=True)
