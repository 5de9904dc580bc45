"""The sparkline of a strip: a bar per block tap, as high as the root of its cosine, against what chance would give."""

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from creditscope.auditing.strip import TapMark, short_number
from creditscope.text import visible

WIDTH, ABOVE, BELOW = 72.0, 14, 4
"""Of the drawing, above and below the line of zero."""
WIDEST = 9.0
THINNEST = 1.2
"""Of a bar that would hardly be seen."""
SHARE = 0.8
"""Of its place that a bar fills."""


def draw_sparkline(taps: Sequence[TapMark]) -> Markup:
    """As SVG, a path for each kind of bar that there is; its label tells every tap, one after the other."""
    if not taps:
        return Markup("")
    step = min(WIDEST, WIDTH / len(taps))
    kinds: dict[str, Callable[[TapMark], bool]] = {
        "exact": lambda tap: tap.exact,
        "told": lambda tap: bool(not tap.exact and tap.height),
        "low": lambda tap: not tap.exact and tap.cos is not None and not tap.height,
        "unknown": lambda tap: not tap.exact and tap.cos is None,
    }
    paths = {"band": "".join(_band(i * step, step, tap) for i, tap in enumerate(taps))}
    for kind, has in kinds.items():
        paths[kind] = "".join(_bar(i * step, step, tap) for i, tap in enumerate(taps) if has(tap))
    drawn = "".join(f'<path class="{kind}" d="{path}"/>' for kind, path in paths.items() if path)
    width, height = f"{step * len(taps):.4g}", ABOVE + BELOW
    return Markup(
        f'<svg class="spark" role="img" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'aria-label="{escape(tell_taps(taps))}">{drawn}</svg>'
    )


def tell_taps(taps: Sequence[TapMark]) -> str:
    """What each tap is told, in words that the page shows beside the pointer."""
    return "; ".join(map(_tell, taps))


def _tell(tap: TapMark) -> str:
    name = f"tap {tap.tap} ({visible(tap.name).replace(';', ',')})"
    if tap.exact or tap.cos is None:
        return f"{name} {'exact' if tap.exact else 'not measured'}"
    chance = "" if tap.band is None else f", chance ±{short_number(tap.band, '.2f')}"
    return f"{name} cos {short_number(tap.cos, '+.3f')}{chance}{', below δ' if tap.below else ''}"


def _band(x: float, step: float, tap: TapMark) -> str:
    if tap.band is None or tap.exact:
        return ""
    return _box(x, step, _height(tap.band), min(_height(tap.band), BELOW))


def _bar(x: float, step: float, tap: TapMark) -> str:
    left, wide = x + step * (1 - SHARE) / 2, step * SHARE
    if tap.exact:
        return _box(left, wide, ABOVE - 0.5, 0)
    high = max(_height(tap.cos or 0.0), THINNEST)
    return _box(left, wide, 0, min(high, BELOW)) if (tap.cos or 0.0) < 0 else _box(left, wide, high, 0)


def _height(cos: float) -> float:
    return ABOVE * math.sqrt(min(abs(cos), 1.0))


def _box(x: float, wide: float, up: float, down: float) -> str:
    return f"M{x:.4g} {ABOVE - up:.3g}h{wide:.3g}v{up + down:.3g}h{-wide:.3g}z"
