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


def test_with_room_for_all_every_row_opens():
    report, page = report_of(many()), page_of(many())
    assert (len(report.settings), report.counted) == (6, 0)
    assert list(page.methods) == [row.id for row in report.rows]


def test_open_settings_are_drawn_first_and_the_others_have_a_row(monkeypatch):
    whole = report_of(many())
    wanted = sum(build.weigh(whole.settings[i]) for i in (0, 4, 5)) + sum(row.weight for row in whole.rows)
    monkeypatch.setattr(build, "MOST_BYTES", wanted + 100)
    report, page = report_of(many()), page_of(many())
    assert [s.name for s in report.settings] == [whole.settings[i].name for i in (0, 4, 5)]
    assert page.verdicts == [(m.method, m.verdict.word) for m in audit(many()).methods]
    drawn = [part.row.id for setting in report.settings for part in setting.methods]
    assert list(page.methods) == drawn
    assert [row["id"] for row in page.all("tr", data_verdict="*", data_chunk="*")] == drawn
    assert {link["href"][1:] for link in page.all("a", href="*")} <= {found["id"] for found in page.all(id="*")}


def test_rows_are_bounded_too(monkeypatch):
    monkeypatch.setattr(build, "MOST_BYTES", 1)
    monkeypatch.setattr(build, "MOST_ROWS", 3)
    report = report_of(many())
    assert (len(report.settings), len(report.rows)) == (1, 3)
    assert report.counted == len(audit(many()).methods) - 3
    assert f"{report.counted} more methods" in Page(text_of(many())).text


def test_a_weight_is_no_less_than_what_the_page_grows_by():
    """Settings that are much alike, as here, are packed smaller together."""
    few, more = report_of(many(3)), report_of(many(8))
    grown = len(text_of(many(8)).encode()) - len(text_of(many(3)).encode())
    weights = [sum(map(build.weigh, r.settings)) + sum(row.weight for row in r.rows) for r in (few, more)]
    assert 0.3 < grown / (weights[1] - weights[0]) < 1.1


def test_the_weight_of_a_row_is_about_what_it_takes():
    for taps in (5, 60):
        records = [make_record(seed=s, facts={"depth": taps - 1}, net_options={"depth": taps - 1}) for s in (1, 2)]
        (row,), text = report_of(records).rows, text_of(records)
        drawn = text[text.index("<tr id=") : text.index("</table>", text.index("<tr id="))]
        assert 0.8 < len(drawn.encode()) / row.weight < 1.2


def test_long_rows_are_fewer(monkeypatch):
    rows = report_of(many()).rows
    monkeypatch.setattr(build, "MOST_ROW_BYTES", rows[0].weight + rows[1].weight)
    assert [row.id for row in report_of(many()).rows] == [row.id for row in rows[:2]]


def test_the_command_draws_those_that_are_named(told, call, tmp_path):
    records = write_records(tmp_path / "records", many())
    told("report", records, "--out", tmp_path / "r.html", "--only", "lr 1.1")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert len(page.chunks[0]["settings"]) == 1
    assert sorted(method for method, _ in page.verdicts) == ["BP", "DFA"]
    assert call("report", records, "--out", tmp_path / "r.html", "--only", "nowhere")[0] == 2
