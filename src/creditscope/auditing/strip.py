"""The strip: one row a method, the same in a terminal, the report, a notebook and a card.

DFA  .337 ± .010  Γ +.10 │ ✓ resolved  ✗ credit ▅▁▁▁  ✗ depth −5.3 pp │ WALK BACK
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from creditscope.auditing.stats import NULL_SDS, Interval
from creditscope.auditing.verdict import NETWORK_QUESTIONS, QUESTIONS, VerdictAnswer, VerdictLine, Word
from creditscope.text import cells, number, points, visible

if TYPE_CHECKING:
    from creditscope.auditing.audit import MethodAudit
    from creditscope.auditing.per_tap import TapAudit

HEIGHTS = "▁▂▃▄▅▆▇█"
EXACT, AGAINST, UNKNOWN = "=", "↓", "·"
OF_LINE: dict[VerdictAnswer, str] = {"yes": "✓", "no": "✗", "open": "?", "not measured": "○", "not applicable": "–"}
"""Of the answer to a question."""
LABELS = {"reference": "resolved", "credit": "credit", "depth": "depth"}
"""What a ✓ says yes to; questions of a network go by their own names."""
KEYS = {question: key for key, question in (QUESTIONS | NETWORK_QUESTIONS).items()}
FEWEST_SIGNS = 4
"""Of a sparkline; where there are more taps than room, a sign is the lowest of several."""
BAR = 20
"""Cells of the bar of accuracy, 0 to 1."""
INDENT = 4
"""Of what stands under a long name; a shorter one stands before it."""
KEY = (
    "accuracy ± 95 % over seeds{tick} · Γ mean cosine of block taps │ reference gradient resolved? · "
    "credit informative? a sign per block tap: ▁ chance or below δ, ▂ to █ its cosine, = exact, ↓ against · depth "
    "used? pp over frozen blocks │ ✓ yes, ✗ no, ? open, ○ not measured, – not asked"
)
"""What stands in a strip, said once."""


def write_key(lines: Iterable[str]) -> str:
    """What stands in these strips: the tick of frozen blocks only where one is drawn."""
    return KEY.format(tick=" (┿ or ┼ frozen blocks)" if any("┿" in line or "┼" in line for line in lines) else "")


@dataclass(frozen=True, slots=True)
class TapMark:
    """What a block tap is told."""

    tap: int
    name: str
    cos: float | None
    band: float | None
    """Half the width of what chance gives the mean cosine, 95 %."""
    exact: bool
    below: bool
    """Whether the seeds say that it is told less than δ."""

    @property
    def inside(self) -> bool:
        """Whether chance would give as much."""
        return self.cos is not None and self.band is not None and abs(self.cos) <= self.band

    @property
    def height(self) -> float:
        """Of its sign, 0 to 1: the root of the cosine, which leaves room for small ones; 0 where credit is not seen."""
        if self.cos is None or not math.isfinite(self.cos) or self.below or self.inside or self.cos < 0:
            return 0.0
        return min(1.0, math.sqrt(self.cos))

    @property
    def sign(self) -> str:
        if self.exact or self.cos is None or not math.isfinite(self.cos):
            return EXACT if self.exact else UNKNOWN
        if self.cos < 0 and not self.inside:
            return AGAINST
        steps = len(HEIGHTS)
        return HEIGHTS[max(1, min(steps - 1, int(steps * self.height)))] if self.height else HEIGHTS[0]


@dataclass(frozen=True, slots=True)
class StripAnswer:
    """One of the three questions: its sign, and the number that belongs to it."""

    key: str
    label: str
    answer: VerdictAnswer
    words: str = ""

    @property
    def sign(self) -> str:
        return OF_LINE[self.answer]


@dataclass(frozen=True, slots=True)
class Strip:
    """What a reader should see of a method first."""

    name: str
    accuracy: Interval | None
    frozen: float | None
    """The better frozen baseline: what accuracy is to be held against."""
    gamma: float | None
    taps: tuple[TapMark, ...]
    answers: tuple[StripAnswer, ...]
    word: Word


def make_strip(found: "MethodAudit") -> Strip:
    """Of a method, or of a watched network."""
    baselines = [baseline.mean for baseline in (found.frozen_own, found.frozen_bp) if baseline]
    return Strip(
        name=found.method if not found.network else found.setting,
        accuracy=found.accuracy,
        frozen=max(baselines, default=None),
        gamma=None if found.network else found.gamma,
        taps=() if found.network else tuple(_mark(found.per_tap[tap]) for tap in found.gamma_taps),
        answers=tuple(_answer(KEYS[line.question], line, found) for line in found.verdict.lines),
        word=found.verdict.word,
    )


def _mark(tap: "TapAudit") -> TapMark:
    return TapMark(
        tap=tap.tap,
        name=tap.name,
        cos=tap.cos.mean if tap.cos else None,
        band=None if tap.null_sd is None else NULL_SDS * tap.null_sd,
        exact=tap.exact,
        below=tap.answer == "below",
    )


def _answer(key: str, line: VerdictLine, found: "MethodAudit") -> StripAnswer:
    """With the check that says no, where the number beside it does not show that."""
    gain = found.gain.mean if key == "depth" and found.gain else None
    words = [f"{points(gain)} pp"] if gain is not None else []
    told = (found.per_tap[tap] for tap in found.gamma_taps)
    seen = any(tap.answer == "below" or (tap.cos and tap.cos.mean < 0) for tap in told)
    hidden = {"reference": True, "credit": not seen, "depth": gain is None or gain >= 0}
    if line.answer == "no" and hidden.get(key) and not found.network:
        words += [f.code for f in found.findings if f.is_issue and f.code in line.codes][:1]
    return StripAnswer(key, LABELS.get(key, key), line.answer, " ".join(words))


def draw_sparkline(taps: Sequence[TapMark], room: int | None = None) -> str:
    """A sign per tap; with less room, of neighbours together the one that is told least.

    >>> taps = [TapMark(i, "", cos, 0.02, exact=cos == 1, below=False) for i, cos in enumerate((0.31, 0.01, -0.2, 1))]
    >>> draw_sparkline(taps), draw_sparkline(taps, 2)
    ('▅▁↓=', '▁↓')
    """
    if room is None or len(taps) <= room:
        return "".join(tap.sign for tap in taps)
    bounds = [round(i * len(taps) / room) for i in range(room + 1)]
    parts = [taps[start:end] for start, end in pairwise(bounds)]
    return "".join(min(part, key=_told).sign for part in parts)


def _told(tap: TapMark) -> float:
    """How much, for an order; what is not known is no more than anything else."""
    if tap.exact:
        return 2.0
    return -2.0 if tap.cos is None else tap.cos if tap.cos < 0 else tap.height


class Piece(NamedTuple):
    """A padded part of a line, and the sign that colours it."""

    text: str
    sign: str = ""


def write_strips(found: Sequence["MethodAudit"], width: int = 80) -> list[str]:
    """The strips of some methods as lines of text, one under the other."""
    return write_lines([make_strip(m) for m in found], width)


def write_lines(strips: Sequence[Strip], width: int = 80) -> list[str]:
    """Strips as lines of text."""
    return ["".join(piece.text for piece in line) for lines in lay_out(strips, width) for line in lines]


def write_markdown(strips: Sequence[Strip], width: int = 100) -> str:
    """Strips as a block of code, so that columns stay under each other; no name in them ends it."""
    lines = write_lines(strips, width)
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *lines, fence])


class Layout(NamedTuple):
    """How strips are laid out; later ones of `LAYOUTS` need less width."""

    gap: str = " "
    """Between parts."""
    bar: bool = False
    """Whether accuracy is drawn, too."""
    above: bool = False
    """Whether a long name has a line of its own."""
    split: bool = False
    """Whether answers have a line of their own."""


LAYOUTS = (
    *(Layout("  ", bar=True), Layout("  "), Layout(), Layout(above=True)),
    *(Layout("  ", split=True), Layout(split=True, above=True)),
)


def lay_out(strips: Sequence[Strip], width: int) -> list[list[list[Piece]]]:
    """Of each strip its lines: one where there is room."""
    fewest, drawn = min(max((len(strip.taps) for strip in strips), default=0), FEWEST_SIGNS), []
    for layout in LAYOUTS:
        drawn = _draw(strips, layout, fewest)
        numbers = [line for lines in drawn for line in lines if len(line) > 1]
        room = width - max((sum(cells(piece.text) for piece in line) for line in numbers), default=0)
        if room >= 0:
            return _draw(strips, layout, fewest + room)
    return drawn


def _draw(strips: Sequence[Strip], layout: Layout, signs: int) -> list[list[list[Piece]]]:
    rows = [_pieces(strip, signs, bar=layout.bar) for strip in strips]
    names: list[list[list[Piece]]] = [[] for _ in rows]
    if layout.above:
        short = INDENT - len(layout.gap)
        names = [[[row[0]]] if cells(row[0].text) > short else [] for row in rows]
        rows = [
            [Piece(("" if name else row[0].text).ljust(short)), *row[1:]] for row, name in zip(rows, names, strict=True)
        ]
    if not layout.split:
        return [[*name, _join(row, layout.gap)] for name, row in zip(names, _pad(rows), strict=True)]
    heads, answers = _pad([[*row[:4], row[-1]] for row in rows]), _pad([row[4:-2] for row in rows])
    under = Piece(" " * INDENT)
    return [
        [*name, _join(head, layout.gap), [under, *_join(said, layout.gap)]]
        for name, head, said in zip(names, heads, answers, strict=True)
    ]


def _pieces(strip: Strip, room: int, *, bar: bool = False) -> list[Piece]:
    drawn = {"credit": draw_sparkline(strip.taps, room)}
    said = [(f"{a.sign} {a.label}", drawn.get(a.key, ""), a.words) for a in strip.answers]
    return [
        Piece(visible(strip.name)),
        Piece(f"{draw_bar(strip)} " * bar + short(strip.accuracy)),
        Piece("" if strip.gamma is None else f"Γ {short_number(strip.gamma, '+.2f')}"),
        Piece("│"),
        *(Piece(" ".join(filter(None, parts)), a.sign) for parts, a in zip(said, strip.answers, strict=True)),
        Piece("│"),
        Piece(strip.word.upper(), strip.word),
    ]


def _pad(rows: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
    widths = [max(cells(piece.text) for piece in column) for column in zip(*rows, strict=True)]
    return [
        [Piece(p.text + " " * (w - cells(p.text)), p.sign) for p, w in zip(row, widths, strict=True) if w]
        for row in rows
    ]


def _join(row: Sequence[Piece], gap: str) -> list[Piece]:
    """With one space beside a rule, a gap elsewhere, and none at the end."""
    line = list(row[:1])
    for before, piece in pairwise(row):
        line += [Piece(" " if "│" in (before.text, piece.text) else gap), piece]
    return [*line[:-1], Piece(line[-1].text.rstrip(), line[-1].sign)]


def draw_bar(strip: Strip) -> str:
    """Accuracy from 0 to 1 with a tick where frozen blocks end."""
    if strip.accuracy is None:
        return " " * BAR
    filled, tick = round(BAR * strip.accuracy.mean), -1
    if strip.frozen is not None:
        tick = min(BAR - 1, int(BAR * strip.frozen))
    return "".join(("━┿" if i < filled else "─┼")[i == tick] for i in range(BAR))


def short(interval: Interval | None) -> str:
    """As in a strip, without the zero before the point.

    >>> short(Interval(0.337, 0.327, 0.347, 20)), short(Interval(1.0, None, None, 1)), short(None)
    ('.337 ± .010', '1.000', '–')
    """
    if interval is None or interval.high is None:
        return short_number(interval.mean if interval else None, ".3f")
    return f"{short_number(interval.mean, '.3f')} ± {short_number(interval.high - interval.mean, '.3f')}"


def short_number(value: float | None, form: str) -> str:
    """Without the zero before the point, or those behind a whole cosine.

    >>> [short_number(value, "+.2f") for value in (0.1, -0.25, 0.9999, -0.001)]
    ['+.10', '−.25', '+1', '.00']
    """
    text = number(value, form)
    if text in ("+1.00", "−1.00"):
        return text[:2]
    if not text.strip("+−0."):
        text = text.lstrip("+−")  # no side of zero is seen
    sign, digits = (text[0], text[1:]) if text[:1] in "+−" else ("", text)
    return sign + (digits[1:] if digits.startswith("0.") else digits)
