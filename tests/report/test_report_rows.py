"""The rows of the table: names that stay, strips, complete reasons, and what to run next."""

import re
import shlex
from dataclasses import replace
from itertools import pairwise

import pytest
from builders import make_family, make_record
from reading import Page, page_of, report_of

from creditscope.auditing import Outcome, Thresholds, audit
from creditscope.auditing.strip import TapMark, make_strip
from creditscope.cli import parse
from creditscope.commands.run import parse_settings
from creditscope.report import build_report, judge_records
from creditscope.report.next_run import ENOUGH, find_hopeless, list_needs, write_command
from creditscope.report.rows import list_next, name_rows
from creditscope.report.sparkline import draw_sparkline, tell_taps


def rows_of(records):
    return {row.found.method: row for row in report_of(records).rows}


def open_records(count: int = 3):
    """DFA whose third tap is told so little, and so unevenly, that its seeds allow both answers."""
    cosines = (0.02, 0.09, 0.06, 0.04, 0.03)
    found = []
    for seed, cos in zip(range(1, count + 1), cosines, strict=False):
        taps = {"cos": (0.5, 0.5, 0.5, cos, 0.5), "cos_F": (0.5, 0.5, 0.5, cos, 0.5), "stage_cos": 0.05}
        found += [r for r in make_family("dfa", taps=taps) if r.spec and r.spec.seed == seed]
    return found


def test_the_title_of_a_row_is_that_which_the_audit_knows():
    """What tells settings of one title apart on the page is not known there."""
    records = [make_record(data_version=version) for version in ("one", "two")]
    rows = report_of(records).rows
    assert [row.title for row in rows] == [m.setting for m in audit(records).methods]
    assert len({row.title for row in rows}) < len({row.found.setting for row in rows}) == 2


class TestNames:
    def test_are_the_same_whatever_else_is_on_record(self):
        few, more = rows_of(make_family("dfa")), rows_of([*make_family("block_fa"), *make_family("dfa")])
        other = rows_of(make_family("dfa", accuracy=0.3, taps={"cos": 0.01}))
        assert few["DFA"].id == more["DFA"].id == other["DFA"].id
        assert len({row.id for row in more.values()}) == 3

    def test_differ_with_what_was_asked(self):
        names = {rows_of([make_record(**spec)])["DFA"].id for spec in ({}, {"lr": 0.5}, {"task": "digits"})}
        assert len(names) == 3

    def test_of_twins_are_counted(self):
        (method,) = audit([make_record()]).groups
        first, second = name_rows([method, method])
        assert second == f"{first}-2"

    def test_of_watched_models_go_by_their_folder_and_not_where_it_lies(self, tmp_path):
        watched = replace(make_record(), spec=None)
        names = [audit([replace(watched, path=tmp_path / place)]).groups for place in ("a/one", "b/one", "b/two")]
        one, moved, two = (name_rows(groups)[0] for groups in names)
        assert one == moved != two

    def test_of_watched_models_in_folders_of_one_name_stay_when_another_is_added(self, tmp_path):
        def ids(root, *places):
            records = [replace(make_record(), spec=None, path=tmp_path / root / place) for place in places]
            return dict(zip(places, name_rows(audit(records).groups, str(tmp_path / root)), strict=True))

        alone, more, moved = ids("lab", "b/one"), ids("lab", "a/one", "b/one"), ids("new", "b/one", "a/one")
        assert alone.items() <= more.items()
        assert moved == more
        assert len(set(more.values())) == 2

    def test_of_watched_models_are_written_so_on_the_page(self, tmp_path):
        watched = [replace(make_record(), spec=None, path=tmp_path / place / "one") for place in "ab"]
        both, second = (
            [row.id for row in build_report(judge_records(list(own), str(tmp_path), Thresholds(), [])).rows]
            for own in (watched, watched[1:])
        )
        assert both[1:] == second


class TestStrip:
    TAPS = tuple(TapMark(i + 1, "b", c, 0.04, exact=c == 1, below=False) for i, c in enumerate((0.25, 0.01, -0.3, 1)))

    def test_bars_are_as_high_as_the_root_of_the_cosine(self):
        svg = Page(draw_sparkline(self.TAPS))
        drawn = {found["class"]: found["d"] for found in svg.all("path")}
        assert list(drawn) == ["band", "exact", "told", "low"]
        assert re.findall(r"v([\d.]+)", drawn["told"]) == ["7"]  # √0.25 of 14
        assert [float(v) for v in re.findall(r"v([\d.]+)", drawn["low"])] == [1.4, 4]  # √0.01; below zero, cut
        assert re.findall(r"v([\d.]+)", drawn["band"]) == ["5.6"] * 3  # ±√0.04, none where it is exact

    def test_the_label_tells_every_tap(self):
        told = tell_taps(self.TAPS).split("; ")
        assert [part.split()[1] for part in told] == ["1", "2", "3", "4"]
        assert "+.250" in told[0]
        assert told[3].endswith("exact")
        assert tell_taps([TapMark(1, "b", None, None, exact=False, below=False)]).endswith("not measured")

    def test_a_row_holds_the_strip_of_the_audit(self):
        records = make_family("dfa", taps={"h_rms": (1, 1, 60, 60, 60)})
        page, methods = page_of(records), audit(records).methods
        for row, found in zip(page.all("tr", data_verdict="*"), methods, strict=True):
            strip = make_strip(found)
            assert row["data-answers"] == "".join(answer.sign for answer in strip.answers)
        bars = [found["style"] for found in page.all("td", style="*")]
        assert bars == [f"--a:{100 * m.accuracy.mean:.1f}%;--f:{100 * m.frozen_bp.mean:.1f}%" for m in methods]

    def test_a_row_without_accuracy_or_taps_is_a_row(self):
        record = replace(make_record(facts={"depth": 0}), spec=None)
        (row,) = report_of([record]).rows
        assert (row.spark, row.task, row.depth) == ("", "–", 0)


class TestReasons:
    def test_every_check_behind_the_word_is_named_with_its_message(self):
        blind = {"cos": 0.01, "cos_F": 0.01, "stage_cos": 0.0, "h_rms": (1, 1, 60, 60, 60)}
        row = rows_of(make_family("dfa", taps=blind))["DFA"]
        messages = {f.code: f.message.rstrip(".") for f in row.found.findings}
        assert len(row.found.verdict.codes) > 1
        assert {code: said for code, _, said in row.reasons} == {c: messages[c] for c in row.found.verdict.codes}
        page = page_of(make_family("dfa", taps=blind))
        assert all(messages[code].replace("`", "") in page.text for code in row.found.verdict.codes)

    def test_what_is_open_or_lacking_is_named_behind_the_divergence(self):
        gone = make_record(seed=9, diverged=1)
        for records in (open_records(), [make_record(seed=s) for s in (1, 2, 3)]):
            row = rows_of([*records, gone])["DFA"]
            (code, said, _), *behind = row.reasons
            assert (code, "seed 9 at epoch 1" in said) == ("", True)
            assert {code for code, _, _ in behind} == set(row.found.verdict.codes) != set()
        (row,) = rows_of([gone]).values()
        assert [code for code, _, _ in row.reasons] == [""]  # nothing could be looked at

    def test_codes_that_fired_are_not_those_left_open(self):
        (row,) = [row for row in rows_of(open_records()).values() if row.found.verdict.word == "undecided"]
        assert (row.fired, "CS005" in row.open) == ("", True)


class TestWhatToRun:
    def test_more_seeds_for_what_is_open_as_many_as_the_check_says(self):
        row = rows_of(open_records())["DFA"]
        message = next(f.message for f in row.found.findings if f.code == "CS005" and f.outcome == Outcome.UNDECIDED)
        (needed,) = (int(n.replace(",", "")) for n in ENOUGH.findall(message))
        words = shlex.split(row.command)
        seeds = words[words.index("--seeds") + 1 : words.index("--seeds") + 1 + needed]
        assert [int(seed) for seed in seeds[:3]] == [1, 2, 3]
        assert len({int(seed) for seed in seeds}) == needed

    def test_seeds_that_diverged_are_none_of_those_asked_for(self):
        gone = [make_record(seed=seed, diverged=1) for seed in range(50, 90)]
        row, more = rows_of(open_records())["DFA"], rows_of([*open_records(), *gone])["DFA"]
        asked = [set(map(int, parse(shlex.split(one.command)[1:]).seeds)) - set(one.method.runs) for one in (row, more)]
        assert len(asked[1]) == len(asked[0]) > len(gone)

    def test_nothing_where_only_divergence_stands_against_it(self):
        row = rows_of([*make_family("dfa"), make_record(seed=9, diverged=1)])["DFA"]
        assert (row.found.verdict.word, row.found.verdict.codes, row.command) == ("undecided", (), "")
        page = page_of([*make_family("dfa"), make_record(seed=9, diverged=1)])
        assert page.behind.text.count("seed 9 at epoch 1") > 1

    @pytest.mark.parametrize(
        ("said", "helps"),
        [
            ("about 20 seeds would decide", True),
            ("about 900 seeds would decide, or more rows", False),
            ("over 1,000 seeds would decide, or more rows", False),
            ("more seeds would not decide: a few rows decide cos_F", False),
        ],
    )
    def test_no_seeds_where_a_check_says_that_they_would_not_do(self, said, helps):
        found = audit(open_records())
        (place,) = (i for i, m in enumerate(found.methods) if m.verdict.word == "undecided")
        method, own = found.groups[place], found.methods[place]
        told = replace(own, findings=[replace(f, message=said) if f.code == "CS005" else f for f in own.findings])
        assert (bool(write_command(method, told)), find_hopeless(told.findings) is None) == (helps, helps)

    def test_why_more_seeds_would_not_do_stands_where_the_command_would(self, monkeypatch):
        monkeypatch.setattr("creditscope.report.next_run.MOST_SEEDS", 3)
        row = rows_of(open_records())["DFA"]
        (opened,) = (m["html"] for m in page_of(open_records()).methods.values() if m["name"] == "DFA")
        advice = Page(opened.partition("class=next")[2].partition("</div>")[0])
        assert row.command == ""
        assert row.hopeless
        assert row.hopeless.message in advice.text

    def test_options_that_the_checks_name_for_what_is_missing(self):
        row = rows_of([make_record(seed=s, net_options={"depth": 4, "x y": "a b"}, lr=0.5) for s in (1, 2, 3)])["DFA"]
        assert row.found.verdict.word == "not measured"
        assert list_needs(row.found.findings) == ["--baselines"]
        words = shlex.split(row.command)
        asked = words[words.index("--set") + 1]
        assert parse_settings((asked,))["net_options"] == {"x y": "a b"}
        assert {"--baselines", "--lr", "0.5", "--depth", "4"} <= set(words)

    def test_noise_that_was_turned_off_is_measured(self):
        row = rows_of([make_record(seed=s, noise=False) for s in (1, 2, 3)])["DFA"]
        assert parse(shlex.split(row.command)[1:]).recipe.noise

    def test_the_command_is_one_that_the_parser_takes(self):
        for row in (rows_of(open_records())["DFA"], rows_of([make_record(rule="fa", tier="quick", noise=False)])["FA"]):
            asked = parse(shlex.split(row.command)[1:])
            assert (asked.task, asked.net, asked.rule) == (row.task, row.net, (row.method.spec.rule,))
            assert asked.recipe.epochs == row.method.spec.epochs

    def test_names_from_elsewhere_stay_one_word_of_the_shell(self):
        hostile = "x; rm -rf ~ $(y)"
        row = rows_of([make_record(seed=s, task=hostile) for s in (1, 2, 3)])["DFA"]
        assert hostile in shlex.split(row.command)

    @pytest.mark.parametrize(("folder", "out"), [("lab/records", ["lab"]), ("results/paper", [])])
    def test_records_are_found_again(self, folder, out):
        found = audit([make_record(seed=s) for s in (1, 2, 3)])
        words = shlex.split(write_command(found.groups[0], found.methods[0], folder))
        assert [word for before, word in pairwise(words) if before == "--out"] == out

    def test_nothing_where_all_is_decided_or_watched(self):
        assert {row.command for row in rows_of(make_family("dfa")).values()} == {""}
        assert rows_of([replace(make_record(), spec=None)])["DFA"].command == ""

    def test_the_head_counts_what_is_missing(self):
        rows = report_of([make_record(rule=rule, seed=s) for rule in ("dfa", "fa") for s in (1, 2, 3)]).rows
        (need,) = list_next(rows)
        assert (need.option, need.methods, need.command) == ("--baselines", 2, rows[0].command)

    def test_the_head_passes_over_what_no_command_measures(self):
        watched = replace(make_record(), spec=None)
        rows = report_of([watched, *(make_record(rule="fa", seed=s) for s in (1, 2, 3))]).rows
        assert [bool(row.command) for row in rows] == [False, True]
        assert [(need.methods, need.command) for need in list_next(rows)] == [(1, rows[1].command)]
        assert list_next(rows[:1]) == []
