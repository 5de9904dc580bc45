"""A page of the manual per check: pages, codes, thresholds and messages stay together."""

import re
from pathlib import Path
from typing import Any

import pytest
from builders import make_facts, make_record, make_snapshot, make_weights
from judging import CHECKS, blind_taps, judge, judge_method, judge_seeds, make_moments

from creditscope.auditing import Finding, Outcome, Thresholds
from creditscope.auditing.manual import describe_checks
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import DRAWS
from creditscope.auditing.thresholds import table
from creditscope.auditing.verdict import QUESTIONS
from creditscope.record import RuleFacts

DOCS = Path(__file__).parents[2] / "docs"
SECTIONS = ["How it is found", "Why it matters", "What to do", "Example", "Thresholds"]


def no_gain() -> Method:
    """1 pp over the BP-frozen runs, where BP gains 30."""

    def runs(rule: str, accuracies: tuple[float, ...], frozen: bool = False):
        return {s: make_record(rule=rule, seed=s, accuracy=a, frozen=frozen) for s, a in enumerate(accuracies)}

    return Method(
        "DFA",
        "here",
        runs("dfa", (0.41, 0.405, 0.415)),
        runs("dfa", (0.3, 0.3, 0.3), True),
        runs("bp", (0.7, 0.7, 0.7)),
        runs("bp", (0.4, 0.4, 0.4), True),
    )


def idle() -> Method:
    """One block of four learned something, where BP needs all four."""

    def runs(rule: str, *after: float):
        found = {s: [None, *(value - 0.002 * s for value in after)] for s in range(3)}
        return {s: make_record(rule=rule, seed=s, taps={"rewind": rewind}) for s, rewind in found.items()}

    return Method("DFA", "here", runs("dfa", 0.702, 0.702, 0.702, 0.41), bp=runs("bp", 0.6, 0.6, 0.5, 0.4))


BAD: dict[str, Any] = {
    "CS001": {"h_rms": (2, 2, 1388, 1388, 1388)},
    "CS002": {"g_noise": (1e-7, 1e-7, 0.3, 1e-7, 1e-7)},
    "CS003": {"common": (0.41, 0.2, 0.1, 0.1, 0.1)},
    "CS009": {"probe": (0.15, 0.48, 0.44, 0.3, 0.1)},
}
"""Per-tap values of one run."""
OVER_SEEDS: dict[str, Any] = {
    "CS005": [
        {**blind_taps(2), "null_sd": 0.005, "cos": (0.3, 0.3, c, 0.3, 0.3), "cos_F": (0.3, 0.3, c, 0.3, 0.3)}
        for c in (0.028, 0.031, 0.034)
    ],
    "CS006": [blind_taps(2, 3, 4)] * 3,
    "CS008": [{"cos": 0.21, "cos_F": 0.2, "descent": (0.4, 0.4, 0.4, d, 0.4)} for d in (0.010, 0.011, 0.012)],
    "CS012": [{"descent_stage": share} for share in (0.01, 0.013, 0.014)],
}
"""The same of three seeds, for checks that judge them together."""


def example(code: str) -> Finding:
    """A bad case of each check, or for CS003 its tip."""
    facts, dead = make_facts(), make_weights(step_all_zero=(1, 0))
    if code in ("CS004", "CS011"):
        return judge_method(code, no_gain() if code == "CS004" else idle())
    if code in OVER_SEEDS:
        aim = RuleFacts(name="pc", label="PC", approximates="equilibrium")
        facts = make_facts(rule=aim) if code == "CS012" else facts
        return judge_seeds(code, make_moments(facts, taps=OVER_SEEDS[code], gamma=0.1))
    moment = make_snapshot(
        facts,
        taps=BAD.get(code),
        accuracy=0.1 if code == "CS010" else 0.7,
        weights=dead if code in ("CS007", "CS009") else make_weights(),
    )
    return judge(code, facts, moment, untrained=make_snapshot(facts, epoch=0, taps={"probe": 0.15}))


@pytest.mark.parametrize("code", CHECKS)
def test_every_check_has_a_bad_case(code):
    assert example(code).outcome == (Outcome.TIP if code == "CS003" else Outcome.ISSUE)


def page(code: str) -> str:
    return (DOCS / "checks" / f"{code}.md").read_text(encoding="utf-8")


def test_every_check_has_a_page_and_every_page_a_check():
    assert sorted(path.stem for path in (DOCS / "checks").glob("*.md")) == list(CHECKS)
    assert [check.page for check in CHECKS.values()] == [f"docs/checks/{code}.md" for code in CHECKS]


@pytest.mark.parametrize("code", CHECKS)
def test_a_page_has_its_title_line_and_sections(code):
    text, check = page(code), CHECKS[code]
    assert text.startswith(f"# {code}: {check.title}\n")
    assert QUESTIONS[check.line] in text
    assert re.findall("^## (.*)$", text, re.M) == SECTIONS
    assert all(body.strip() for body in re.split("^## .*$", text, flags=re.M))


def section(code: str, title: str) -> str:
    found = re.search(rf"^## {title}$(.*?)(?=^## )", page(code), re.M | re.S)
    assert found
    return " ".join(found[1].split())


@pytest.mark.parametrize("code", CHECKS)
def test_a_check_says_why_and_what_to_do_as_its_page_does(code):
    check = CHECKS[code]
    assert check.remedy == section(code, "What to do")
    assert check.why
    assert section(code, "Why it matters").startswith(check.why)


@pytest.mark.parametrize("code", CHECKS)
def test_who_has_no_pages_can_read_the_same_in_the_terminal(code):
    said = "\n".join(describe_checks([code]))
    assert said.startswith(f"{code} {CHECKS[code].title}\n")
    assert f"Why it matters: {CHECKS[code].why}\n" in said
    assert f"What to do: {CHECKS[code].remedy}\n" in said
    assert all(f"Threshold {row['name']} {row['value']:g}" in said for row in table() if code in row["checks"])


@pytest.mark.parametrize("code", CHECKS)
def test_a_check_that_gives_a_value_says_what_it_is_and_what_it_is_compared_with(code):
    check, compared = CHECKS[code], CHECKS[code].compared_with(make_facts(), Thresholds())
    assert (example(code).value is not None) == bool(check.value_is) == bool(compared)
    assert check.value_limit in ("", *(row["name"] for row in table() if code in row["checks"]))


@pytest.mark.parametrize("code", CHECKS)
def test_a_page_has_the_thresholds_in_use_and_the_published_ones(code):
    rows = [row for row in table() if code in row["checks"]]
    listed = re.findall(r"^\| `(\w+)` \|.*$", page(code), re.M)
    assert listed == [row["name"] for row in rows]
    for row in rows:
        line = f"| `{row['name']}` | {row['value']:g} | {row['meaning']} | {row['published'] or '–'} |"
        assert line in page(code).splitlines()


@pytest.mark.parametrize("code", CHECKS)
def test_a_page_shows_a_message_as_the_check_says_it(code):
    assert f"> {example(code).message}\n" in page(code)


def test_the_index_links_every_page_and_names_every_outcome_and_line():
    text = (DOCS / "checks.md").read_text(encoding="utf-8")
    for code, check in CHECKS.items():
        assert f"| [{code}](checks/{code}.md) | {check.title} |" in text
    assert [str(outcome) for outcome in Outcome if f"| {outcome} |" not in text] == []
    for line, question in QUESTIONS.items():
        codes = ", ".join(code for code, check in CHECKS.items() if check.line == line)
        assert f"*{question}* ({codes})" in text
    assert f"`seed_share` ({Thresholds().seed_share:g})" in text
    assert f"({DRAWS:,} draws, seeded)" in text
