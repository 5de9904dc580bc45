"""What the page says, against the audit it is about."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from builders import make_family, make_record, write_records
from networks import bad_moment, network_record
from reading import Page, cell, over_epochs, page_of, report_of, text_of

from creditscope.auditing import Thresholds, audit
from creditscope.auditing.columns import FINDINGS, METHODS
from creditscope.record import RuleFacts
from creditscope.report import build_report, judge_records, render
from creditscope.report.rows import name_questions
from creditscope.report.tables import check_rows
from creditscope.rule_styles import LOOKS
from creditscope.text import visible

HOSTILE = "</script><script>alert('x')</script><b onclick=\"y\">&"
BLIND = {"cos": (0.01, 0.01, 0.01, 0.01, 1.0), "cos_F": 0.01, "stage_cos": 0.0}
"""Credit that knows nothing but at the top tap."""


def mixed_records():
    """A method that passes, one that is walked back, one left open."""
    blind = make_family("block_fa", taps=BLIND)
    extra = [make_record(rule="fa", seed=s) for s in (1, 2)]
    return list({r.name: r for r in [*make_family("dfa"), *blind, *extra]}.values())


def test_verdicts_are_those_of_the_command(told, tmp_path):
    records = write_records(tmp_path / "records", mixed_records())
    methods = json.loads(told("audit", records, "--json"))["methods"]
    expected = [(m["method"], m["verdict"]["word"], m["verdict"]["codes"]) for m in methods]
    assert {word for _, word, _ in expected} == {"trustworthy", "walk back", "not measured"}
    assert "wrote" in told("report", "--records", records, "--out", tmp_path / "deep" / "report.html")
    page = Page((tmp_path / "deep" / "report.html").read_text(encoding="utf-8"))
    assert page.verdicts == [(method, word) for method, word, _ in expected]
    for row, (_, _, codes) in zip(page.all("tr", data_verdict="*"), expected, strict=True):
        said = [row.get(f"data-{kind}", "") for kind in ("fired", "open", "lacks")]
        assert set(codes) <= set(" ".join(said).split())
    linked = {row["href"][1:] for found in (page, page.behind) for row in found.all("a", href="*")}
    assert linked <= {found["id"] for found in page.all(id="*")}
    tiles = {found["data-word"] for found in page.all("button", data_word="*")}
    assert tiles == {"trustworthy", "walk back", "not measured"}


def test_another_threshold_changes_the_verdict_and_is_named():
    records = make_family("dfa", taps={"h_rms": (1.0, 10.0, 10.0, 10.0, 10.0)})
    assert ("DFA", "trustworthy") in page_of(records).verdicts
    page = page_of(records, limits=Thresholds().changed(growth=5))
    assert ("DFA", "walk back") in page.verdicts
    assert "growth 5 (usual 50)" in page.text


def test_nothing_is_loaded_from_elsewhere():
    text = text_of(mixed_records())
    page = Page(text)
    loading = [found for found in page.all() if {"src", "srcset", "poster", "data", "background"} & found.keys()]
    assert loading == []
    assert page.all("link") == page.all("iframe") == page.all("img") == []
    assert all(found["href"].startswith("#") for found in page.all("a", href="*"))
    assert set(re.findall(r"https?://[^\"'\s<]*", text)) <= {"http://www.w3.org/2000/svg"}
    assert [u for u in re.findall(r"url\(([^)]*)\)", text) if not u.startswith("#")] == []
    assert "@import" not in text


def test_hostile_names_are_text():
    label = RuleFacts(name="dfa", label=HOSTILE, variant=HOSTILE, formula=HOSTILE)
    facts = {"rule": label, "taps": ("stem", *(f"{HOSTILE}{i}" for i in range(4)))}
    options = {"net_options": {"x": HOSTILE}, "task_options": {"y": HOSTILE}}
    records = [make_record(seed=s, facts=facts, **options) for s in (1, 2)]
    records = [replace(r, provenance=replace(r.provenance, device=HOSTILE, commit=HOSTILE)) for r in records]
    material = judge_records(records, f"folder {HOSTILE}", Thresholds(), [f"Record {HOSTILE} is incomplete."])
    page = Page(render(build_report(material, against=material)))
    behind = page.behind
    assert (len(page.scripts), len(page.chunks), behind.scripts) == (3, 1, [])
    for found in (page, behind):
        assert [attributes for tag, attributes in found.elements if tag == "b" and attributes] == []
        assert [one for one in found.all() if any(name.startswith("on") for name in one)] == []
        assert found.text.count(HOSTILE) > 5
    assert page.values[0]["taps"][1] == f"{HOSTILE}0"
    assert "alert" not in page.scripts[-1]


def test_headings_are_in_order_and_tables_say_what_they_are():
    page = page_of(mixed_records(), against=mixed_records())
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert max(np.diff(levels)) <= 1
    assert levels.count(1) == 1
    for found in (page, page.behind):
        assert len(found.all("caption")) == len(found.all("table")) > 3
        assert all("scope" in one for one in found.all("th"))
    ids = [found["id"] for found in page.all(id="*")]
    assert len(ids) == len(set(ids))


class TestOneLabel:
    def test_settings_that_differ_are_not_merged(self):
        records = [make_record(rule=rule, data_version=version) for version in ("one", "two") for rule in ("bp", "dfa")]
        found = report_of(records).settings
        assert [s.name.rpartition(" · ")[2] for s in found] == ["data version one", "data version two"]
        assert [[part.found.method for part in s.methods] for s in found] == [["BP", "DFA"]] * 2
        assert [dict(s.spec)["data version"] for s in found] == ["one", "two"]

    @pytest.mark.parametrize(
        ("facts", "names"),
        [
            ([{"depth": 2}, {"depth": 5}], ["taps 3", "taps 6"]),
            ([{"depth": 1, "taps": ("stem", last)} for last in "ab"], ["tap names stem, a", "tap names stem, b"]),
        ],
    )
    def test_watched_models_are_told_apart_by_their_taps(self, facts, names):
        watched = [replace(make_record(facts=own), spec=None) for own in facts]
        assert [s.name.partition(" · ")[2] for s in report_of(watched).settings] == names

    def test_rules_of_one_name_and_another_source_are_told_apart(self):
        records = [make_record(rule_source=source) for source in ("abc", "def")]
        assert [m for m, _ in page_of(records).verdicts] == ["DFA, rule source abc", "DFA, rule source def"]


class TestAgainst:
    def test_what_came_and_went(self):
        before = [*make_family("dfa", taps=BLIND), make_record(rule="fa", seed=1)]
        page = page_of([*make_family("dfa", accuracy=0.65), *make_family("block_fa")[:6]], against=before)
        changes = {row["data-method"]: row["data-change"] for row in page.all("tr", data_change="*")}
        assert changes == {"BP": "no", "DFA": "yes"}
        assert "−0.050 ± 0.000 (n = 3)" in page.text
        assert re.search(r"Only in this report\s*block FA", page.text)
        assert re.search(r"Only in before\s*FA", page.text)

    def test_methods_of_one_label_are_matched_by_what_was_asked(self):
        first, second = (
            [make_record(seed=s, data_version=v, accuracy=a) for s in (1, 2)] for v, a in (("one", 0.6), ("two", 0.7))
        )
        found = report_of([*first, *second], against=[*second, *first]).comparison
        assert {change.difference for change in found.changes} == {"+0.000 ± 0.000 (n = 2)"}
        assert [(c.differs, c.after.setting.rpartition(" · ")[2]) for c in found.changes] == [
            ("", "data version one"),
            ("", "data version two"),
        ]

    def test_what_only_the_name_shares_says_in_what_it_differs(self):
        before, after = ([make_record(seed=1, rule_source=source)] for source in ("", "abc"))
        (change,) = report_of(after, against=before).comparison.changes
        assert change.differs == "rule source none → abc"
        assert "rule source none → abc" in page_of(after, against=before).text
        found = report_of([*after, make_record(rule_source="def")], against=before).comparison
        assert (len(found.changes), len(found.only_here), len(found.only_there)) == (0, 2, 1)

    def test_nothing_there_to_compare_with(self):
        report = report_of(make_family("dfa"), against=[])
        found, problems = report.comparison, report.against.problems
        assert (found.changes, found.only_there, len(problems)) == ([], [], 1)
        assert problems[0] in page_of(make_family("dfa"), against=[]).text


class TestCells:
    EPOCHS = (0, 1, 2, 5)

    def records(self):
        rng, drawn = (
            np.random.default_rng(0),
            {
                "cos": lambda _: tuple(rng.uniform(-0.4, 0.9, 5)),
                "g_norm": lambda _: tuple(10 ** rng.uniform(-9, 2, 5)),
                "rho": lambda epoch: () if epoch == 2 else tuple(rng.uniform(-1, 1, 5)),
                "rows_used": lambda _: tuple(int(n) for n in rng.integers(1, 1000, 5)),
            },
        )
        return [record for seed in (1, 2, 3) for record in over_epochs(self.EPOCHS, seeds=(seed,), **drawn)]

    def test_each_number_is_the_records_to_four_digits(self):
        records = self.records()
        method = page_of(records).values[0]
        assert (method["epochs"], method["seeds"]) == (list(self.EPOCHS), [1, 2, 3])
        for column in range(4):
            for tap in range(5):
                for i, record in enumerate(records):
                    taps = record.snapshots[column].taps
                    for name in ("cos", "g_norm", "h_norm"):
                        found = cell(method["values"][name], column, tap * 3 + i)
                        assert found == float(f"{getattr(taps, name)[tap]:.4g}")
                used = [r.snapshots[column].taps.rows_used[tap] for r in records]
                assert cell(method["rows_used"], column, tap) == min(used)

    def test_what_was_not_measured_is_none_and_not_zero(self):
        rho = page_of(self.records()).values[0]["values"]["rho"]
        assert rho[2] is None
        assert None not in rho[1]

    def test_seeds_that_were_thinned_leave_the_epochs_that_all_share(self):
        records = self.records()
        short = replace(records[1], snapshots=(records[1].snapshots[0], *records[1].snapshots[2:]))
        assert page_of([records[0], short, records[2]]).values[0]["epochs"] == [0, 2, 5]

    def test_diverged_seeds_are_left_out(self):
        records = self.records()
        gone = make_record(seed=9, epochs=5, diverged=1, snapshots=records[0].snapshots[:2])
        assert page_of([*records, gone]).values[0]["seeds"] == [1, 2, 3]
        page = page_of([gone])
        assert page.values[0]["seeds"] == [9]
        assert "diverged: seed 9 at epoch 1" in page.text

    def test_seeds_without_a_common_epoch_have_no_columns(self):
        one, other, _ = self.records()
        one, other = replace(one, snapshots=one.snapshots[:1]), replace(other, snapshots=other.snapshots[3:])
        page = page_of([one, other])
        assert page.values[0]["epochs"] == []
        assert page.behind.all("svg", data_heatmap="*") == []


def test_a_watched_model_has_a_page():
    page = page_of([replace(make_record(facts={"trainer": False}), spec=None)])
    assert "watched model" in page.text
    assert page.verdicts == [("DFA", "not measured")]


def test_every_value_of_a_check_stands_beside_what_it_is_compared_with():
    settings = report_of(mixed_records()).settings
    rows = [row for setting in settings for part in setting.methods for row in check_rows(part.found)]
    limits = {f.code: FINDINGS["limit"].cell(f) for f, *_ in rows if FINDINGS["value"].cell(f)}
    assert all(limits.values())
    assert limits["CS001"] == "growth 50"
    assert limits["CS005"] == "alignment 0.05"
    assert limits["CS010"].startswith("best constant 0.106")


def test_the_final_values_say_the_fewest_rows_used_and_the_most_without_gradient():
    counts = ((1, 2900, 0), (2, 1400, 30), (3, 2000, 7))
    each = [make_record(seed=s, taps={"rows_used": used, "rows_no_gradient": lost}) for s, used, lost in counts]
    (method,) = report_of(each).settings[0].methods
    assert "rows used 1,400, rows without gradient 30, n 3" in method.final.alike


def test_the_final_values_are_the_audits():
    records = make_family("dfa", taps={"cos": (0.1, 0.2, 0.3, 0.4, 0.51234)})
    found = next(m for m in audit(records).methods if m.method == "DFA")
    assert found.per_tap[4].cos is not None
    assert f"✓ {found.per_tap[4].cos.mean:+.3f} ± 0.000" in page_of(records).behind.text
    (setting,) = report_of(records).settings
    final = next(part.final for part in setting.methods if part.found.method == "DFA")
    top = dict(zip(final.head, final.rows[0], strict=True))
    assert (top["null sd"], top["cos of weights"]) == ("0.029", "+0.500 ± 0.000")  # 0.05/√3, over three seeds
    assert (top["lost, put back (pp)"], top["lost, skipped (pp)"]) == ("+5.0 ± 0.0", "+5.4 ± 0.5")
    assert [METHODS["trained_depth"].cell(part.found) for part in setting.methods] == ["4 of 4"] * 2


@pytest.mark.parametrize("number", [0, 1, 2])
def test_first_firing_is_said(number):
    page = page_of(over_epochs(range(4), seeds=(1, 2, 3), h_rms=lambda e: (1, 1, 1, 1, 99 if e >= number else 1)))
    assert f"epoch {max(number, 1)}" in page.behind.text


def test_a_row_leaves_out_what_all_settings_of_its_net_share():
    nets = [{"depth": depth, "width": 8, "norm": "none"} for depth in (2, 4, 6, 8)]
    nets.append({"depth": 4, "width": 8, "norm": "pair"})
    records = [make_record(seed=1, net_options=options) for options in nets]
    report = report_of(records)
    assert [row.recipe for row in report.rows] == ["norm none"] * 4 + ["norm pair"]
    assert [row.depth for row in report.rows] == [2, 4, 6, 8, 4]
    assert all("width 8" in dict(s.spec)["net options"] for s in report.settings)
    (alone,) = report_of(records[:1]).rows
    assert alone.recipe.startswith("width 8 · norm none · ")


@pytest.mark.parametrize(
    ("rho_at", "epochs", "drawn"), [((0, 4), 5, False), ((0, 2, 4), 5, True), ((0, 1), 2, True), ((1,), 2, False)]
)
def test_a_quantity_at_hardly_any_epoch_has_no_map_and_is_said(rho_at, epochs, drawn):
    records = over_epochs(range(epochs), rho=lambda e: (0.5,) * 5 if e in rho_at else ())
    page, (setting,) = page_of(records), report_of(records).settings
    assert [bool(page.behind.all("svg", data_quantity=name)) for name in ("cos", "rho")] == [True, drawn]
    assert [", ".join(map(str, rho_at)) in note for note in setting.layer_notes] == [True] * (not drawn)
    assert "rho" in page.values[0]["values"]


def test_the_protocol_comes_first_of_the_ways_of_judging():
    (_, dfa) = page_of(make_family("dfa", taps={**BLIND, "cos": 0.01})).methods.values()
    judged = re.findall(r"<li class=(j-\w\w)><small>([^<]*)</small> <b>(.)</b>", dfa["html"])
    assert judged[0] == ("j-wa", "Protocol", "✗")


def test_what_changed_comes_right_after_the_table():
    page = page_of(make_family("dfa"), against=make_family("dfa"))
    assert [found["id"] for found in page.all("section")][:3] == ["methods", "against", "missing"]
    links = [found["href"] for found in page.all("a", href="*")]
    assert links.index("#methods") < links.index("#against") < links.index("#missing")


@pytest.mark.parametrize("rules", [("dfa",), ("fa", "dfa", "block_fa", "bp")])
def test_a_rule_has_its_colour_in_any_company(rules):
    text = text_of([r for rule in rules for r in over_epochs(range(4), rule=rule)])
    light = dict(re.findall(r"--(c\d+):(#\w+);", text.split("@media screen and (prefers-color-scheme:dark)")[0]))
    charts = Page(text).chunks[0]["settings"][0]["charts"]
    drawn = {label: light[name] for name, label in re.findall(r'class="lead (c\d+)".*?<text[^>]*>([^<]*)<', charts)}
    assert drawn == {LOOKS[rule].label: LOOKS[rule].colour for rule in rules}


def test_labels_and_names_are_shown_and_are_no_markup():
    odd = "DFA\n\x1b <script>alert(1)</script> \u202e\udc80"
    records = [make_record(seed=s, facts={"rule": RuleFacts(name="mine", label=odd)}) for s in (1, 2)]
    page = page_of(records)
    assert visible(odd) in page.text
    assert len(page.scripts) == len(page_of(mixed_records()).scripts)
    assert all(c.isprintable() for c in page.text if c != "\n")


def test_a_network_has_a_page_that_speaks_of_it_and_of_no_rule():
    records = [network_record(bad_moment("CS106"))]
    (method,), page = audit(records).methods, page_of(records)
    assert "Is this network healthy?" in page.text
    assert all(row.name in page.behind.text for row in method.modules)
    assert "58 of 64 units" in page.text
    said = page.text + page.behind.text
    assert [word for word in ("mean cosine", "frozen b", "way of judging", "walk back", "CS001") if word in said] == []


def test_heads_are_true_of_networks_and_methods_in_one_table():
    network, methods = [network_record(bad_moment("CS106"))], make_family("dfa")
    alone = [name_questions(report_of(records).rows) for records in (network, methods)]
    assert alone == [["Task", "Signal", "Training"], ["Reference", "Credit", "Use of depth"]]
    for records, order in (([*network, *methods], (0, 1)), ([*methods, *network], (1, 0))):
        heads = name_questions(report_of(records).rows)
        assert [head.lower().split(" / ") for head in heads] == [
            [alone[kind][column].lower() for kind in order] for column in range(3)
        ]
        assert all(head in page_of(records).text for head in heads)
