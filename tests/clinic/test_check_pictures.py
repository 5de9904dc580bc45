"""Pictures of the checks: every check has one, and what is drawn is what the check says; nets of the clinic here."""

import re
import sys
from importlib import import_module
from typing import Any

import pytest
from documents import ROOT

from creditscope.auditing.checks import all_checks
from creditscope.auditing.checks._check import Finding, Outcome
from creditscope.errors import CreditscopeError

sys.path.insert(0, str(ROOT / "docs"))

PICTURES, CHOSEN, READ = map(import_module, ("make_checks", "check_examples", "check_readings"))
EXAMPLES, READINGS, FOLDER, Mark = CHOSEN.EXAMPLES, READ.READINGS, PICTURES.FOLDER, READ.Mark
CODES = [check.code for check in all_checks()]
NETWORK = [check.code for check in all_checks() if check.network]


def make_example(outcome: Outcome, *marks: Any) -> Any:
    return CHOSEN.Example("made up", Finding(code="CS005", title="", outcome=outcome, message=""), marks)


def test_every_check_has_its_examples_its_numbers_its_picture_and_its_place_on_the_page():
    assert sorted(EXAMPLES) == sorted(READINGS) == sorted(path.stem for path in FOLDER.iterdir()) == CODES
    for code in CODES:
        page = (ROOT / "docs" / "checks" / f"{code}.md").read_text(encoding="utf-8")
        assert re.search(rf"^!\[[^]]{{20,}}\]\(\.\./images/checks/{code}\.svg\)$", page, re.M)


def test_pictures_are_small_and_their_text_is_text():
    for code in CODES:
        drawn = (FOLDER / f"{code}.svg").read_text(encoding="utf-8")
        assert len(drawn.encode()) <= 40_000
        assert ">✓ does not fire</text>" in drawn
        assert READINGS[code].quantity.split("'")[0] in drawn


@pytest.mark.parametrize("code", NETWORK)
def test_what_is_drawn_of_a_net_is_what_the_check_says(code):
    fires, passes = CHOSEN.make_examples(code, {})
    assert (fires.finding.outcome, passes.finding.outcome) == ("issue", "passed")
    beyond = [m for m in fires.marks if m.fired]
    assert beyond
    assert not [m for m in passes.marks if m.fired]
    sign = 1 if READINGS[code].side == "above" else -1
    assert all(sign * (m.value - m.limit) > 0 for m in beyond if None not in (m.value, m.limit))
    calm = [*passes.marks, *(m for m in fires.marks if not m.fired)]
    assert all(sign * (m.value - m.limit) <= 0 for m in calm if None not in (m.value, m.limit))


def test_marks_that_fire_are_crosses_beyond_the_limit_and_others_dots():
    told, untold = Mark("h₁", 0.3, 0.05, False, 0.28, 0.32), Mark("h₂", 0.02, 0.05, True, 0.01, 0.03)
    fig = PICTURES.draw_pair("CS005", make_example(Outcome.ISSUE, told, untold), make_example(Outcome.PASSED, told))
    drawn = [{line.get_marker(): line.get_xdata()[0] for line in ax.lines} for ax in fig.axes]
    assert [{k: v for k, v in own.items() if k in "oX"} for own in drawn] == [{"o": 0.3, "X": 0.02}, {"o": 0.3}]
    assert all([0.05, 0.05] in [list(line.get_xdata()) for line in ax.lines] for ax in fig.axes)
    assert [label.get_text() for label in fig.axes[0].get_yticklabels()] == ["h₁", "h₂"]


@pytest.mark.parametrize(
    ("outcome", "fired", "fires"),
    [
        (Outcome.UNDECIDED, True, True),
        (Outcome.ISSUE, False, True),
        (Outcome.ISSUE, True, False),
        (Outcome.SKIPPED, False, False),
    ],
)
def test_an_example_that_says_something_else_is_refused(outcome, fired, fires):
    with pytest.raises(CreditscopeError, match="CS005"):
        CHOSEN.check_example(make_example(outcome, Mark("h₁", 0.1, 0.05, fired)), fires=fires)
