"""What notebooks show: plain HTML with the numbers of the objects, in which no name is obeyed."""

from dataclasses import replace

import pytest
from builders import make_facts, make_family, make_record, make_snapshot, run_python, write_records
from reading import Page

from creditscope.auditing import audit
from creditscope.auditing.checks import all_checks
from creditscope.record import Record
from creditscope.record.schema import RuleFacts
from creditscope.report import notebook
from creditscope.runs import Runs

HOSTILE = "</style></div><script>alert('x')</script><b onclick=\"y\">&"


def shown(thing) -> Page:
    """As a reader sees it: one element, without anything that runs or is fetched."""
    text = thing._repr_html_()
    page = Page(text)
    assert text.startswith('<div class="creditscope">')
    assert text.count("<div") == text.count("</div>")
    assert page.scripts == []
    assert {"script", "link", "img", "iframe"}.isdisjoint(tag for tag, _ in page.elements)
    assert not [name for _, found in page.elements for name in found if name.startswith(("on", "id", "href", "src"))]
    assert "url(" not in text
    return page


def watched(**taps) -> Record:
    """A record of a watched model."""
    record = make_record(
        rule="bp", facts={"trainer": False}, snapshots=[make_snapshot(make_facts(rule="bp"), taps=taps)]
    )
    return replace(record, spec=None)


def test_snapshot_has_a_row_per_tap():
    snapshot = make_snapshot(taps={"g_norm": (1e-3, 2e-3, 3e-3, 4e-3, 5e-3)}, notes=("rows <i> interact",))
    page = shown(snapshot)
    assert [tag for tag, _ in page.elements].count("tr") == 6
    assert all(f"{n}.0e-3" in page.text for n in range(1, 6))
    assert "rows <i> interact" in page.text


def test_audit_tells_verdict_reason_and_remedy():
    """Of a method that fails and of one that does not: each with its own word, and only what fired has a remedy."""
    found = audit(make_family("dfa", taps={"h_rms": (1, 1, 60, 60, 60)}))
    page, judged = shown(found), {m.method: m for m in found.methods}
    assert {name: m.verdict.codes for name, m in judged.items()} == {"DFA": ("CS001",), "BP": ()}
    for m in judged.values():
        assert f"{m.method}" in page.text
        assert m.verdict.word in page.text
        assert all(code in page.text for code in m.verdict.codes)
    remedies = {check.code: check.remedy for check in all_checks()}
    assert remedies["CS001"].replace("`", "") in page.text
    assert remedies["CS005"].replace("`", "") not in page.text


def test_runs_show_their_audit_and_problems():
    runs = Runs(make_family("bp"), problems=("Record x holds no snapshot; left out.",))
    page = shown(runs)
    assert repr(runs) in page.text
    assert runs.problems[0] in page.text
    assert "trustworthy" in page.text


def test_layers_are_drawn_in_colours_of_their_own():
    epochs = [make_snapshot(epoch=e, taps={"g_norm": [10.0 ** (-t - e) for t in range(5)]}) for e in range(4)]
    record = make_record(epochs=3, snapshots=epochs)
    page = shown(Runs([record]))
    strokes = [found["stroke"] for tag, found in page.elements if tag == "path" and "stroke" in found]
    assert len(set(strokes)) >= 8  # g_norm has a decade for each of 8 places
    assert all(stroke.startswith("#") for stroke in strokes)


def test_a_watched_model_has_no_columns_that_say_nothing():
    page = shown(audit([watched()]))
    assert "frozen, own stem" not in page.text
    assert "Γ" not in page.text
    assert "frozen, own stem" in shown(audit(make_family("dfa"))).text


def test_hostile_names_are_text():
    facts = {"rule": RuleFacts(name="dfa", label=HOSTILE), "taps": ("stem", *(f"{HOSTILE}{i}" for i in range(4)))}
    record = make_record(rule="dfa", facts=facts, net_options={"x": HOSTILE})
    record = replace(record, spec=replace(record.spec, rule="dfa"))
    page = shown(Runs([record], problems=(HOSTILE,)))
    assert page.text.count(HOSTILE) >= 3
    shown(replace(record.last, notes=(HOSTILE,)))


@pytest.mark.parametrize("settings", [2, 5])
def test_of_many_settings_the_first_are_shown(settings):
    found = audit([make_record(rule="bp", task=f"task{i}") for i in range(settings)])
    page = shown(found)
    assert [f"task{i} ·" in page.text for i in range(settings)] == [i < notebook.MOST_SETTINGS for i in range(settings)]
    assert ("2 more settings" in page.text) == (settings == 5)


def test_what_cannot_be_judged_is_named():
    frozen = Runs([make_record(frozen=True)])
    assert "frozen baselines" in shown(frozen).text
    assert shown(Runs([])).text.strip() == "Runs(0: )"


def test_many_runs_are_not_judged_for_a_look(monkeypatch):
    monkeypatch.setattr(notebook, "MOST_RECORDS", 5)
    runs = Runs(make_family("bp"))
    assert shown(runs).text.strip() == repr(runs)


@pytest.mark.slow
def test_stored_records_need_no_torch(tmp_path):
    write_records(tmp_path, make_family("bp"))
    code = "import creditscope as cs, sys; found = cs.audit(sys.argv[1]); found._repr_html_(); "
    code += "found.groups[0].records[0].last._repr_html_(); assert 'torch' not in sys.modules"
    run_python("-c", code, tmp_path)
