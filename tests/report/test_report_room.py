"""A page of many settings: what is drawn, what has a line, what is counted, and what draws the rest."""

from dataclasses import replace

from builders import make_family, make_record, write_records
from reading import Page, page_of, report_of, text_of

from creditscope.auditing import audit
from creditscope.report import build


def many(settings: int = 6):
    """Settings of a method that passes; the last two lack baselines, so that something is left open."""
    found = [r for i in range(settings - 2) for r in with_rate(make_family(), i)]
    return found + [make_record(lr=0.1 + i, seed=s) for i in (settings - 2, settings - 1) for s in (1, 2, 3)]


def with_rate(records, i: int):
    found = {r.name: r for r in records}.values()
    return [replace(r, spec=replace(r.spec, lr=0.1 + i)) for r in found if r.spec]


def test_with_room_for_all_nothing_is_in_brief():
    report = report_of(many())
    assert (len(report.settings), report.brief, report.counted) == (6, [], 0)
    assert isinstance(report.data["methods"], list)


def test_open_settings_are_drawn_first_and_the_others_have_a_line(monkeypatch):
    whole = report_of(many())
    monkeypatch.setattr(build, "MOST_BYTES", sum(build.weigh(whole.settings[i]) for i in (0, 4, 5)) + 100)
    report, page = report_of(many()), page_of(many())
    assert [s.name for s in report.settings] == [whole.settings[i].name for i in (0, 4, 5)]
    assert [name for name, _ in report.brief] == [whole.settings[i].name for i in (1, 2, 3)]
    assert sorted(page.verdicts) == sorted((m.method, m.verdict.word) for m in audit(many()).methods)
    heats = {found["data-heatmap"] for found in page.all("svg", data_heatmap="*")}
    assert heats == set(page.data["methods"])
    assert [s["methods"] for s in page.data["settings"]] == [[p.key for p in s.methods] for s in report.settings]
    assert {link["href"][1:] for link in page.all("a", href="*")} <= {found["id"] for found in page.all(id="*")}


def test_lines_are_bounded_too(monkeypatch):
    monkeypatch.setattr(build, "MOST_BYTES", 1)
    monkeypatch.setattr(build, "MOST_BRIEF", 3)
    report = report_of(many())
    total = len(audit(many()).methods)
    drawn = sum(len(s.methods) for s in report.settings)
    assert (len(report.settings), sum(len(methods) for _, methods in report.brief)) == (1, 3)
    assert report.counted == total - drawn - 3
    assert f"{report.counted} more methods" in Page(text_of(many())).text


def test_a_weight_is_about_what_the_page_grows_by():
    few, more = report_of(many(3)), report_of(many(8))
    grown = len(text_of(many(8)).encode()) - len(text_of(many(3)).encode())
    weighed = sum(map(build.weigh, more.settings)) - sum(map(build.weigh, few.settings))
    assert 0.7 < grown / weighed < 1.4


def test_the_command_draws_those_that_are_named(told, call, tmp_path):
    records = write_records(tmp_path / "records", many())
    told("report", records, "--out", tmp_path / "r.html", "--only", "lr 1.1")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert len(page.data["settings"]) == 1
    assert sorted(method for method, _ in page.verdicts) == ["BP", "DFA"]
    assert call("report", records, "--out", tmp_path / "r.html", "--only", "nowhere")[0] == 2
