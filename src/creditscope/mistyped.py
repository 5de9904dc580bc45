"""What is said of a command line that cannot be read: one line, with what comes nearest to what was typed."""

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tyro

from creditscope.errors import tell_nearest

KNOWN = (
    (r"invalid choice '(?P<got>.*?)' for argument '(?P<name>.*?)'. Expected one of \((?P<choices>.*?)\)", "{name}"),
    (r"Error parsing (?P<name>\S+?): .*?'(?P<got>[^']*)'.* (?P=name) (?P<kind>[A-Z]+)\b", "{name} to be {kind}"),
    (r"Missing value for argument '(?P<name>.*?)'", "a value of {name}"),
    (r"Missing from (?P<prog>.*?): (?P<name>\S+)", "{name} of {prog}"),
    (r"Unrecognized options: (?P<got>[^\s,]+)", "no further word of {prog}"),
)
"""What a parser's sentences tell, and what it had expected; others are passed on as they are."""
COLUMNS = "110"
"""Of a help that is read: in a wider one groups stand side by side."""


def explain_mistake(words: Sequence[str], commands: Sequence[str], said: str, prog: str, options: Sequence[str]) -> str:
    """Expected, got, nearest. `said` is what the parser has to say, its lines joined."""
    more = f"{prog} --help tells more."
    if prog == "creditscope":
        got = repr(words[0]) if words else f"none of {', '.join(commands)}"
        return f"Expected a command, but got {got}.{tell_nearest(words[0] if words else '', commands)} {more}"
    typed = [word.partition("=")[0].replace("_", "-") for word in words if re.match(r"--?[a-zA-Z]", word)]
    for word in typed:
        if word not in options:
            return f"Expected an option of {prog}, but got {word!r}.{tell_nearest(word, options)} {more}"
    for pattern, expected in KNOWN:
        if found := re.search(pattern, said):
            given = {"prog": prog, **found.groupdict()}
            choices = re.findall(r"'(.*?)'", given.get("choices", ""))
            wanted = expected.format(**given) + (f" to be one of {', '.join(choices)}" if choices else "")
            got = repr(given["got"]) if "got" in given else "none"
            return f"Expected {wanted}, but got {got}.{tell_nearest(given.get('got', ''), choices)} {more}"
    return f"{said.rstrip('.')}. {more}"


def list_options(command: Any, config: Sequence[Any]) -> list[str]:
    """All that the help of a command names, with two dashes or one."""
    shown = read_help(lambda: tyro.cli(command, args=["--help"], config=config))
    named = re.findall(r"^[│|]? *((?:-\w, )*--[\w-]+)", shown, re.MULTILINE)
    return [option for names in named for option in names.split(", ")]


def read_help(show: Callable[[], object]) -> str:
    """The help that `show` prints before it ends, with one group under the other, however wide the terminal is."""
    shown = io.StringIO()
    with _as_wide_as(COLUMNS), contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        show()
    return shown.getvalue()


@contextlib.contextmanager
def _as_wide_as(columns: str) -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = columns
    try:
        yield
    finally:
        del os.environ["COLUMNS"]
        if before is not None:
            os.environ["COLUMNS"] = before
