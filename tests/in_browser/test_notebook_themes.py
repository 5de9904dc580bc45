"""What notebooks show, in the themes of JupyterLab: readable on both grounds, and inside a narrow cell."""

import pytest
from builders import make_family
from looking import outside, violations

from creditscope.auditing import audit
from creditscope.runs import Runs

pytestmark = pytest.mark.slow
THEMES = {"true": "background:#fff;color:#000", "false": "background:#111;color:#e0e0e0"}
"""`data-jp-theme-light` of the body, and what JupyterLab then sets."""


@pytest.fixture
def notebook(tmp_path):
    """A page with an output each, as JupyterLab puts them there."""

    def write(light: str):
        records = make_family("dfa", taps={"h_rms": (1, 1, 60, 60, 60)})
        outputs = [records[0].last, audit(records), Runs(records)]
        cells = "".join(f"<div>{one._repr_html_()}</div>" for one in outputs)
        head = '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Notebook</title></head>'
        body = (
            f'<body data-jp-theme-light="{light}" style="{THEMES[light]}"><main><h1>Outputs</h1>{cells}</main></body>'
        )
        (tmp_path / "notebook.html").write_text(f"{head}{body}</html>", encoding="utf-8")
        return tmp_path / "notebook.html"

    return write


@pytest.mark.parametrize("light", THEMES)
def test_is_readable(visit, notebook, light, axe):
    """Contrast among them: colours of verdicts and of soft text follow the theme."""
    page = visit(notebook(light))
    assert page.locator(".verdict").count() >= 4
    assert violations(page) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_stays_inside(visit, notebook, width):
    assert outside(visit(notebook("true"), viewport={"width": width, "height": 800})) == []


def test_two_outputs_do_not_meet(visit, notebook):
    """Nothing has an id, and styles touch nothing outside of an output."""
    page = visit(notebook("true"))
    assert page.evaluate("document.querySelectorAll('[id]').length") == 0
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).fontFamily") != page.evaluate(
        "getComputedStyle(document.querySelector('.creditscope p')).fontFamily"
    )
