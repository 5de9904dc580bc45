"""The signs that are drawn, in ASCII for streams whose encoding lacks them: as wide, so that columns stay columns."""

import codecs

DRAWN = "✓✗○◌–│─━┼┿▁▂▃▄▅▆▇█↓·…→▶−±×ΓΔδλ‖"
PLAIN = "+xo,-|-=++01234567v._>>-~xGDdl|"
"""One character each. What does not keep its meaning so is told by its code, as any other: 10⁻⁷ is not 10-7."""
BY_SIGN = dict(zip(DRAWN, PLAIN, strict=True))
PLAIN_SIGNS = "creditscope.plain_signs"
"""The name under which a stream is told to write so (`errors=`)."""


def write_plainly(error: UnicodeError) -> tuple[str, int]:
    """What is written in the place of characters that cannot be, all but the signs by their codes.

    >>> "▅▁ ✓ 規".encode("ascii", PLAIN_SIGNS)
    b'40 + \\\\u898f'
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(BY_SIGN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in lacking), error.end


codecs.register_error(PLAIN_SIGNS, write_plainly)
