"""The strip: its facts are those of the audit, and every layout says all of them."""

import math
import re
from dataclasses import replace

import pytest
from builders import make_family, make_record

from creditscope.auditing import Audit, audit
from creditscope.auditing.strip import (
    HEIGHTS,
    StripAnswer,
    TapMark,
    draw_bar,
    draw_sparkline,
    lay_out,
    make_strip,
    write_key,
    write_lines,
    write_markdown,
    write_strips,
)
from creditscope.text import cells

COS = (0.14, 0.25, 0.03, -0.3, 0.06)


@pytest.fixture(scope="module")
def found() -> Audit:
    """BP, and DFA with a tap that is told, one below δ, one told the opposite, and one open."""
    return audit(make_family(accuracy=0.35, taps={"cos": COS, "cos_F": COS}))


def tap(cos: float | None, *, band: float | None = 0.02, exact: bool = False, below: bool = False) -> TapMark:
    return TapMark(1, "block", cos, band, exact=exact, below=below)


class TestFacts:
    def test_are_those_of_the_audit(self, found):
        for m in found.methods:
            strip = make_strip(m)
            assert (strip.name, strip.accuracy, strip.gamma, strip.word) == (
                m.method,
                m.accuracy,
                m.gamma,
                m.verdict.word,
            )
            assert [a.answer for a in strip.answers] == [line.answer for line in m.verdict.lines]
            assert [t.cos for t in strip.taps] == [t.cos.mean if t.cos else None for t in m.per_tap[1:]]
        dfa = make_strip(found.methods[1])
        assert dfa.frozen == max(b.mean for b in (found.methods[1].frozen_own, found.methods[1].frozen_bp) if b)
        assert [a.words for a in dfa.answers] == ["", "", "−5.0 pp"]

    def test_taps_are_those_of_gamma(self):
        """A net without a stem has its first block at tap 0."""
        runs = [make_record(seed=seed, facts={"stem_tap": False}) for seed in (1, 2, 3)]
        (method,) = audit(runs).methods
        assert [t.tap for t in make_strip(method).taps] == [0, 1, 2, 3, 4]

    def test_a_no_that_the_numbers_do_not_show_names_its_check(self, found):
        """Credit at every tap, and a block that overwrites the stream (CS001)."""
        grown = {"cos": (0.5,) * 5, "cos_F": (0.5,) * 5, "h_rms": (1.0, 900.0, 900.0, 900.0, 900.0)}
        dfa = make_strip(audit(make_family(taps=grown)).methods[1])
        assert (dfa.answers[1].answer, dfa.answers[1].words) == ("no", "CS001")
        assert make_strip(found.methods[1]).answers[1].words == ""

    def test_a_no_without_any_number_names_its_check(self):
        """At chance depth is not used, whatever the baselines would say, which are not there."""
        (method,) = audit([make_record(seed=s, accuracy=0.1, facts={"chance": 0.1}) for s in (1, 2, 3)]).methods
        (depth,) = [a for a in make_strip(method).answers if a.key == "depth"]
        assert (depth.answer, depth.words) == ("no", "CS010")

    def test_a_sign_says_no_more_than_is_known(self):
        """A large cosine inside a wide band of chance is none, and an exact tap is no measurement."""
        assert [tap(c).sign for c in (0.5, 0.019, -0.019, -0.5)] == ["▆", "▁", "▁", "↓"]
        assert (tap(0.5, band=0.6).sign, tap(0.04, below=True).sign, tap(None).sign) == ("▁", "▁", "·")
        assert tap(1.0, exact=True).sign == "="
        assert tap(0.03).sign == HEIGHTS[1]  # what is seen is never drawn as what is not

    @pytest.mark.parametrize("cos", [math.nan, math.inf, -math.inf])
    def test_a_cosine_that_is_no_number_is_unknown(self, cos):
        assert (tap(cos).sign, tap(cos).height, tap(cos, below=True).sign) == ("·", 0.0, "·")

    def test_a_sign_rises_with_the_cosine(self):
        signs = [tap(c / 100).sign for c in range(3, 101)]
        assert signs == sorted(signs, key=HEIGHTS.index)
        assert set(signs) == set(HEIGHTS[1:])

    def test_of_neighbours_that_share_a_sign_the_least_is_drawn(self):
        """One blind tap of sixty-four is seen in four signs."""
        taps = [tap(0.001 if i == 40 else 0.9) for i in range(64)]
        assert draw_sparkline(taps, 4) == "██▁█"
        assert len(draw_sparkline(taps, 7)) == 7
        assert draw_sparkline(taps) == draw_sparkline(taps, 64)

    def test_the_bar_has_a_tick_where_frozen_blocks_end(self, found):
        strip = make_strip(found.methods[1])
        assert draw_bar(strip).index("┼") == int(20 * 0.404)
        assert draw_bar(strip).count("━") == round(20 * 0.354)
        above = draw_bar(replace(strip, accuracy=replace(strip.accuracy, mean=0.469)))
        assert (above.index("┿"), above.count("━")) == (8, 8)  # a cell that is reached shows it under the tick
        assert draw_bar(replace(strip, accuracy=None)).strip() == ""

    @pytest.mark.parametrize(
        ("answer", "sign"), [("yes", "✓"), ("no", "✗"), ("open", "?"), ("not measured", "○"), ("not applicable", "–")]
    )
    def test_what_was_not_measured_is_no_answer(self, answer, sign):
        assert StripAnswer("depth", "depth", answer).sign == sign


class TestLines:
    @pytest.mark.parametrize("width", [40, 60, 80, 100, 150, 300])
    @pytest.mark.parametrize("name", ["DFA", "block FA, norm sample-mean", "規則規則規則規則"])
    def test_every_layout_says_all_and_fits(self, found, width, name):
        strips = [replace(make_strip(m), name=name) if m.method == "DFA" else make_strip(m) for m in found.methods]
        lines = write_lines(strips, width)
        said = " ".join(" ".join(lines).split())
        for strip in strips:
            assert [a for a in strip.answers if f"{a.sign} {a.label}" not in said] == []
            assert all(word in said for word in (strip.name, strip.word.upper(), draw_sparkline(strip.taps)))
        assert width < 60 or max(map(cells, lines)) <= width
        assert [line for line in lines if line != line.rstrip()] == []

    def test_a_line_each_where_there_is_room(self, found):
        strips = [make_strip(m) for m in found.methods]
        assert [len(own) for width in (80, 150) for own in lay_out(strips, width)] == [1] * 4
        assert len({line.index("│") for line in write_lines(strips, 80)}) == 1  # one looks down them
        wide, narrow = write_lines(strips, 150), write_lines(strips, 80)
        assert ("┿" in wide[0], "┿" in narrow[0]) == (True, False)
        assert ("┿" in write_key(wide), "┿" in write_key(narrow)) == (True, False)

    def test_nothing_to_say_is_no_line(self):
        assert write_strips([], 80) == []

    def test_a_single_run_has_dashes_and_circles(self):
        (line,) = write_strips(audit([make_record()]).methods, 100)
        assert ("○ depth" in line, "NOT MEASURED" in line, "±" in line) == (True, True, False)


def test_a_name_cannot_end_the_block_of_a_card(found):
    """Nor begin a line of its own."""
    strip = replace(make_strip(found.methods[1]), name="DFA\n````\n# trustworthy")
    first, *lines, last = write_markdown([strip]).splitlines()
    assert (first, last, len(lines)) == ("`````", "`````", 1)
    assert not [line for line in lines if re.match("`{5}", line)]


def test_it_leads_the_card(found):
    card = found.cards()[1]
    assert write_markdown([make_strip(found.methods[1])]) in card.to_markdown()
    assert card.to_dict()["strip"]["word"] == "walk back"
