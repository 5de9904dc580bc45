"""Numbers and lists as text: said once, for audits, figures, the report and the pages."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from itertools import accumulate

DASH = "–"
"""Stands for what is not there."""
MILLION = 1e6
"""From here on a power of ten is easier to read than all digits."""
LONG = 8
"""Letters from which on an option is shortened."""
HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Kinds of characters that a reader does not see and a terminal obeys: controls, turned writing, broken lines."""
_MARKUP = re.compile(
    r"""(`[^`]+`)  # code stays as it is
    | \\(?=[!-/:-@\[-`{-~])  # would escape what follows
    | (?<![^\W_])_(?!\s) | [*~$](?!\s) | (?<!\s)[*~$]  # emphasis, struck out, mathematics
    | <(?=[a-zA-Z/!?]) | &(?=\#?\w+;) | (?<=\])\( | (?<=\s)\#(?=\#*\s*$) | `""",
    re.VERBOSE,
)
_PADDED = re.compile(r"e\+?(-?)0*(\d+)$")
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_LOWERED = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def visible(text: str) -> str:
    """One line as it is printed: what a reader would not see, or a terminal would obey, is written out.

    >>> print(visible("DFA \\x1b[31m\\nall is well"), visible("λ‖f‖²"))
    DFA \\x1b[31m\\nall is well λ‖f‖²
    """
    if text.isprintable():
        return text
    hidden = {c for c in text if unicodedata.category(c) in HIDDEN}
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in hidden})


def cells(text: str) -> int:
    """How many columns of a terminal it takes.

    >>> cells("DFA"), cells("規則")
    (3, 4)
    """
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def pad(text: str, width: int) -> str:
    """With blanks behind it, as wide as so many columns.

    >>> pad("DFA", 5), pad("規則", 5)
    ('DFA  ', '規則 ')
    """
    return text + " " * (width - cells(text))


def clip(text: str, room: int) -> str:
    """Cut where it takes more than so many columns.

    >>> clip("DFA, norm", 5), clip("規則規則", 5), clip("規則", 5)
    ('DFA,…', '規則…', '規則')
    """
    if cells(text) <= room:
        return text
    ends = accumulate(map(cells, text))
    return f"{text[: sum(end < room for end in ends)]}…"


def wrap(text: str, width: int) -> list[str]:
    """In lines of at most so many columns, but for a word that is longer.

    >>> wrap("more seeds would not decide", 10), wrap("規則 規則 DFA", 9)
    (['more seeds', 'would not', 'decide'], ['規則 規則', 'DFA'])
    """
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and cells(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def markdown(text: str) -> str:
    """One line that Markdown shows as it is; words between backticks are code.

    >>> print(markdown("*DFA* [x](y) <b>, a_l, `--tier full`"))
    \\*DFA\\* [x]\\(y) \\<b>, a_l, `--tier full`
    """
    return _MARKUP.sub(lambda found: found[1] or f"\\{found[0]}", visible(text))


def number(value: float | None, form: str) -> str:
    """As in a table: a true minus (none before an unsigned zero), a short exponent, a dash for what is not there.

    >>> number(-0.25, "+.2f"), number(1.2e-05, ".1e"), number(1844.0, ".3g"), number(3.7e12, ".3g"), number(None, "g")
    ('−0.25', '1.2e-5', '1,840', '3.7e12', '–')
    >>> number(-0.001, ".2f"), number(-0.2, ".0%")
    ('0.00', '−20%')
    """
    if value is None:
        return DASH
    text = format(value, form)
    if value == 0 and form.endswith("e"):
        text = "0"
    elif "e+" in text and form.endswith("g") and abs(value) < MILLION:
        text = f"{float(text):,.0f}"
    text = _PADDED.sub(r"e\1\2", text)
    if text.startswith("-"):
        return text[1:] if not form.startswith("+") and not text.strip("-0.%") else f"−{text[1:]}"
    return text


def amount(value: float, digits: int = 3) -> str:
    """As in a sentence: the digits that count, with a power of ten for what is very large or small.

    >>> amount(1844.0), amount(0.0123), amount(3.74e12, 2), amount(1e-7), amount(-2.5), amount(0.0)
    ('1,840', '0.0123', '3.7×10¹²', '10⁻⁷', '−2.5', '0')
    """
    if not math.isfinite(value) or value == 0 or 1e-3 <= abs(value) < MILLION:
        return number(value, f".{digits}g")
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    return _times_ten(mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa, int(exponent))


def points(share: float) -> str:
    """A difference of shares in percentage points.

    >>> points(0.0234), points(-0.1)
    ('+2.3', '−10.0')
    """
    return number(100 * share, "+.1f")


def drift(share: float) -> str:
    """What accuracy does, by the largest change of a share.

    >>> drift(0.0123), drift(1e-6), drift(0.0), drift(math.nan)
    ('changes by at most 1.23 pp', 'changes by less than 0.01 pp', 'does not change', 'is unmeasured')
    """
    if math.isnan(share):
        return "is unmeasured"
    if not share:
        return "does not change"
    return f"changes by at most {100 * share:.2f} pp" if share >= 5e-5 else "changes by less than 0.01 pp"


def power(value: float, *, digits: int = 0) -> str:
    """A mantissa of so many decimals and a power of ten.

    >>> power(1.28e-5, digits=2), power(100.0), power(2e-7), power(0.0)
    ('1.28×10⁻⁵', '10²', '2×10⁻⁷', '0')
    """
    if not math.isfinite(value) or value == 0:
        return "unmeasured" if math.isnan(value) else f"{value:g}"
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    return _times_ten(mantissa, int(exponent))


def _times_ten(mantissa: str, exponent: int) -> str:
    """A mantissa of 1 is left out."""
    return (f"{mantissa}×" if float(mantissa) != 1 else "").replace("-", "−") + f"10{superscript(exponent)}"


def superscript(number: int) -> str:
    """The number raised, in plain Unicode.

    >>> "10" + superscript(-12)
    '10⁻¹²'
    """
    return str(number).translate(_RAISED)


def subscript(symbol: str, index: int) -> str:
    """The symbol with a lowered index, in plain Unicode.

    >>> subscript("h", 12)
    'h₁₂'
    """
    return symbol + str(index).translate(_LOWERED)


def count(number: int, noun: str, plural: str = "") -> str:
    """How many.

    >>> count(1, "run"), count(2079, "run"), count(2, "study", "studies")
    ('1 run', '2,079 runs', '2 studies')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def name_all(noun: str, items: Sequence[object]) -> str:
    """Which ones.

    >>> name_all("seed", [1]), name_all("tap", [2, 3])
    ('seed 1', 'taps 2, 3')
    """
    return f"{noun}{'s' if len(items) > 1 else ''} {', '.join(map(str, items))}"


def join_words(words: Sequence[str]) -> str:
    """In a sentence.

    >>> join_words(["a", "b", "c"]), join_words(["a"]), join_words([])
    ('a, b and c', 'a', '')
    """
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def first_few(words: Sequence[str], most: int) -> str:
    """With commas, the rest as a count.

    >>> first_few(["a", "b", "c"], 2), first_few(["a"], 2)
    ('a, b and 1 more', 'a')
    """
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def span(first: object, last: object, to: str = "–") -> str:
    """From one to another, or the one that both are.

    >>> span(3, 5), span(3, 3)
    ('3–5', '3')
    """
    return f"{first}" if first == last else f"{first}{to}{last}"


def name_options(options: Mapping[str, object]) -> str:
    """Names with their values.

    >>> name_options({"depth": 10, "dropout": 0.0, "gain": 2**0.5})
    'depth 10, dropout 0.0, gain 1.41421'
    """
    return ", ".join(f"{name} {option_text(value)}" for name, value in options.items())


def option_text(value: object) -> str:
    """A value as it is typed; of a long number the first digits."""
    return f"{value:g}" if isinstance(value, float) and len(str(value)) > LONG else str(value)


def with_options(name: str, options: Mapping[str, object]) -> str:
    """A name with its options behind it, if it has any.

    >>> with_options("resmlp", {"depth": 4}), with_options("vit", {})
    ('resmlp (depth 4)', 'vit')
    """
    return f"{name} ({name_options(options)})" if options else name
