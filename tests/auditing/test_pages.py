"""A page of the manual per check: pages, codes, thresholds and messages stay together."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import make_facts, make_record, make_snapshot, make_weights
from judging import CHECKS, judge_method, judge_seeds, make_moments
from networks import bad_moment

from creditscope.auditing import Finding, Outcome, Thresholds
from creditscope.auditing.checks import describe_checks
from creditscope.auditing.columns import OF_WORD
from creditscope.auditing.methods import Method
from creditscope.auditing.stats import DRAWS
from creditscope.auditing.thresholds import table
from creditscope.auditing.verdict import MEANINGS, NETWORK_QUESTIONS, QUESTIONS
from creditscope.record import Record, RuleFacts

DOCS = Path(__file__).parents[2] / "docs"
ALL_QUESTIONS = QUESTIONS | NETWORK_QUESTIONS
SECTIONS = ["How it is found", "Why it matters", "What to do", "Example", "Thresholds"]
SEEDS = (1, 2, 3)
TURNED = {"descent_stage": 0.02, "descent_stage_null": 0.01, "descent_stage_null_sd": 0.01}
BAD: dict[str, Any] = {
    "CS001": {"h_rms": (2, 2, 1388, 1388, 1388)},
    "CS002": {"g_noise": (1e-7, 1e-7, 0.3, 1e-7, 1e-7)},
    "CS003": {"common": (0.41, 0.2, 0.1, 0.1, 0.1)},
    "CS008": {"cos": 0.21, "cos_F": 0.2, "descent": (0.4, 0.4, 0.4, 0.018, 0.4)},
    "CS009": {"probe": (0.15, 0.48, 0.44, 0.3, 0.1)},
    "CS012": TURNED,
}
"""Per-tap values of a bad case, the same in every seed."""


def bad_taps(code: str, seed: int) -> Any:
    """The same for checks that need a spread over seeds: one tap, or three, hardly aligned."""
    low, stage = 0.029 + 0.001 * seed, {"stage_cos": 0.02, "null_sd": 0.04}
    few = {"CS005": (0.3, 0.3, low, 0.3, 0.3), "CS006": (0.3, 0.3, low, low, low)}.get(code)
    return BAD.get(code) if few is None else {"cos": few, "cos_F": few, **stage}


def runs(rule: str, accuracies: Sequence[float], **others: Any) -> dict[int, Record]:
    return {s: make_record(rule=rule, seed=s, accuracy=a, **others) for s, a in zip(SEEDS, accuracies, strict=True)}


def no_gain() -> Method:
    """1 pp over the BP-frozen runs, where BP gains 30."""
    own, frozen = runs("dfa", (0.41, 0.405, 0.415)), runs("dfa", (0.3, 0.3, 0.3), frozen=True)
    return Method("DFA", "here", own, frozen, runs("bp", (0.7,) * 3), runs("bp", (0.4,) * 3, frozen=True))


def one_block() -> Method:
    """Only the last block costs anything to put back; all of BP's do."""
    idle, bp = {"rewind": (None, 0.7, 0.7, 0.698, 0.45)}, {"rewind": (None, 0.5, 0.5, 0.5, 0.5)}
    accuracies = (0.7, 0.702, 0.704)
    return Method("DFA", "here", runs("dfa", accuracies, taps=idle), {}, runs("bp", accuracies, taps=bp))


def example(code: str) -> Finding:
    """A bad case of each check, or for CS003 its tip."""
    if CHECKS[code].network:
        return replace(
            judge_seeds(code, [bad_moment(code)]), limit=CHECKS[code].compared_with(make_facts(), Thresholds())
        )
    if code in ("CS004", "CS011"):
        return judge_method(code, no_gain() if code == "CS004" else one_block())
    rule = RuleFacts(name="own", label="own", approximates="target states") if code == "CS012" else "dfa"
    facts, several = make_facts(rule=rule), code in ("CS005", "CS006", "CS008", "CS012")
    moments = make_moments(
        facts,
        taps=[bad_taps(code, seed) for seed in (SEEDS if several else SEEDS[:1])],
        gamma=0.1,
        accuracy=0.1 if code == "CS010" else 0.7,
        weights=make_weights(step_all_zero=(1, 0)) if code in ("CS007", "CS009") else make_weights(),
    )
    untrained = make_snapshot(facts, epoch=0, taps={"probe": 0.15})
    return judge_seeds(code, [replace(moment, untrained=untrained) for moment in moments])


def page(code: str) -> str:
    return (DOCS / "checks" / f"{code}.md").read_text(encoding="utf-8")


def test_every_check_has_a_page_and_every_page_a_check():
    assert sorted(path.stem for path in (DOCS / "checks").glob("*.md")) == list(CHECKS)
    assert [check.page for check in CHECKS.values()] == [f"docs/checks/{code}.md" for code in CHECKS]


@pytest.mark.parametrize("code", CHECKS)
def test_a_page_has_its_title_line_and_sections_and_says_why_and_what_to_do_as_its_check(code):
    text, check = page(code), CHECKS[code]
    assert text.startswith(f"# {code}: {check.title}\n")
    assert ALL_QUESTIONS[check.line] in text
    assert re.findall("^## (.*)$", text, re.M) == SECTIONS
    _, *bodies = (" ".join(part.split()) for part in re.split("^## .*$", re.sub("<!-- .*? -->", "", text), flags=re.M))
    sections = dict(zip(SECTIONS, bodies, strict=True))
    assert all(sections.values())
    assert sections["What to do"] == check.remedy
    assert check.why
    assert sections["Why it matters"].startswith(check.why)


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
    found = example(code)
    assert found.outcome == (Outcome.TIP if code == "CS003" else Outcome.ISSUE)
    assert f"> {found.message}\n" in page(code)


def test_the_index_links_every_page_and_names_every_outcome_and_line():
    text = (DOCS / "checks.md").read_text(encoding="utf-8")
    for code, check in CHECKS.items():
        assert f"| [{code}](checks/{code}.md) | {check.title} |" in text
    assert [str(outcome) for outcome in Outcome if f"| {outcome} |" not in text] == []
    for line, question in ALL_QUESTIONS.items():
        codes = ", ".join(code for code, check in CHECKS.items() if check.line == line)
        assert f"*{question}* ({codes})" in text
    assert f"`seed_share` ({Thresholds().seed_share:g})" in text
    assert [word for word in MEANINGS if f"| {OF_WORD[word]} | {word} |" not in text] == []
    assert f"({DRAWS:,} draws, seeded)" in text
