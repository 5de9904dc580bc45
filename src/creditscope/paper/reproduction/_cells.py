"""Cells of the page's tables: a published number, and ours beside it."""

from creditscope.paper.reproduction._readings import Values, shared_seeds
from creditscope.paper.reproduction._settings import OURS
from creditscope.paper.reproduction._shelf import Shelf
from creditscope.paper.reproduction._words import size
from creditscope.paper.reproduction.compare import Comparison, Published, compare
from creditscope.paper.reproduction.joint import Row
from creditscope.text import DASH, count, number

DECIMALS = 4


def say_published(published: Published) -> str:
    """As printed, with its sd and number of seeds."""
    if published.kind == "claim":
        return published.said[0]
    said = [f"−{text[1:]}" if text.startswith("-") else text for text in published.said]
    text = (", " if published.kind == "seeds" else "–").join(said)
    text += f" ± {published.sd}" if published.sd else ""
    known = published.n is not None or published.kind == "seeds"
    return f"{text} (m = {published.seeds})" if known else text


def say_under(published: Published, found: Comparison) -> str:
    """Mean and interval, and whether the published number is inside."""
    if not found.values.seeds:
        return DASH
    return f"{_measured(published, found)}; {_inside(published, found)}"


def say_ours(row: Row, shelf: Shelf) -> str:
    """Ours on all its seeds, where these are more than those compared."""
    found = compare(row.published, row.published.reading(shelf))
    if found.values == row.under[OURS].values:
        return ""
    return f"{_measured(row.published, found)}, n = {found.n}; {_inside(row.published, found)}"


def say_others(row: Row, shelf: Shelf) -> str:
    """Where ours is not inside: the same number under other conditions, those that were run, on the same seeds.

    Where another has an answer on fewer of them, ours on these follows.
    """
    others = row.published.alternatives if row.under[OURS].inside is not True else ()
    said = [(other.label, _beside(row, other.reading(shelf))) for other in others]
    return "<br>".join(f"{label}: {text}" for label, text in said if text)


def _beside(row: Row, values: Values) -> str:
    ours = row.under[OURS].values
    seeds = shared_seeds((ours, values))
    found = compare(row.published, values.on(seeds, row.run))
    if not found.values.seeds:
        return ""
    text = _answer(row.published, found)
    fewer = seeds < ours.answered and found.values.answered
    return f"{text}; ours on these {_answer(row.published, compare(row.published, ours.on(seeds)))}" if fewer else text


def _answer(published: Published, found: Comparison) -> str:
    answer = {True: "inside", False: "not inside", None: "no interval"}[found.inside]
    return f"{_measured(published, found)}, n = {found.n}, {answer}{_away(found)}"


def _number(published: Published, value: float) -> str:
    """Sizes with two digits, shares and cosines with four decimals, other numbers with one more than published."""
    if published.scale == "log10":
        return size(value)
    decimals = max(len(text.partition(".")[2]) for text in published.said)
    return number(value, f".{DECIMALS if decimals > 1 else decimals + 1}f")


def _measured(published: Published, found: Comparison) -> str:
    lacking = f" ({found.values.words()})" if found.values.lacking else ""
    if not found.n:
        return f"no value{lacking}"
    if published.kind == "claim":
        return f"holds for {sum(found.values.numbers):.0f} of {count(found.n, 'seed')}{lacking}"
    if found.mean is None:
        return f"0 in some seeds{lacking}"
    text = _number(published, found.mean)
    if found.half is not None and published.scale == "log10":
        ends = (found.mean * 10.0**sign for sign in (-found.half, found.half))
        text += f" [{', '.join(size(end) for end in ends)}]"
    elif found.half is not None:
        text += f" ± {_number(published, found.half)}"
    return text + lacking


def _inside(published: Published, found: Comparison) -> str:
    if found.inside is None:
        return "one seed, no interval" if found.n else DASH
    answer = "yes" if found.inside else "**no**"
    if found.low is not None and found.high is not None:
        answer += f" [{_number(published, found.low)}, {_number(published, found.high)}]"
    return answer + _away(found)


def _away(found: Comparison) -> str:
    return ", more than 1.5 pp away" if found.far else ""
