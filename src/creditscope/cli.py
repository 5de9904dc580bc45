"""The command line. Importing it imports no torch; commands import what they use when they run."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, NoReturn, TextIO, Union, cast

import tyro

import creditscope
from creditscope.errors import CreditscopeError
from creditscope.mistyped import explain_mistake, list_options
from creditscope.plain_signs import PLAIN_SIGNS
from creditscope.registry import COMMANDS
from creditscope.text import visible

FIRST, LAST = ("demo", "run", "audit", "figure", "report"), ("list", "doctor")
"""Commands that help names first and last, of those there are."""
ABOUT = (
    "An instrument for credit assignment in deep networks. creditscope COMMAND --help tells more, "
    "creditscope --version which this is. "
    "Exit codes: 0 done, 1 not trustworthy (audit --strict), 2 cannot be done, 130 Ctrl-C, 143 terminated."
)
HOW = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)


def parse(words: Sequence[str]) -> Any:
    """The command that was typed, with its options; what cannot be read is said in a line, and ends the program with 2.

    A command is imported when it is called; all of them only for help, or where none is named.
    """
    known = COMMANDS.names()
    if words and words[0] in known:
        command, prog, about, words = COMMANDS.get(words[0]), f"creditscope {words[0]}", None, words[1:]
    else:
        others = [name for name in known if name not in (*FIRST, *LAST)]
        command = _any_of([name for name in (*FIRST, *others, *LAST) if name in known])
        prog, about = "creditscope", ABOUT
    read = partial(tyro.cli, command, prog=prog, description=about, args=words, config=HOW)
    said = io.StringIO()
    try:
        # both, because a mistake is told on the one in boxes and colours if the other is a terminal
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
            return read()
    except SystemExit as ended:
        if not ended.code:
            return read()  # help, which a terminal may colour
        first = unbox(said.getvalue()).partition("\nFor full helptext")[0].replace("\n", " ")
        options = list_options(command, HOW) if prog != "creditscope" else []
        end(2, explain_mistake(words, known, first, prog, options))


def _any_of(names: Sequence[str]) -> Any:
    """The type of all commands; one of somebody else's that cannot be imported is left out, with a warning."""
    found = []
    for name in names:
        try:
            found.append(Annotated[COMMANDS.get(name), tyro.conf.subcommand(name)])
        except CreditscopeError as error:
            warnings.warn(str(error), stacklevel=2)
    return Union[tuple(found)]  # noqa: UP007 (made of a list)


def unbox(text: str) -> str:
    """The parts of what the parser says where it cannot draw a box, without the title, a line each.

    >>> unbox(" Title \\n ------ \\n  one \\n  more \\n  ---- \\n  two \\n")
    'one more\\ntwo'
    """
    parts = [[]]
    for line in map(str.strip, text.splitlines()):
        if set(line) == {"-"}:
            parts.append([])
        elif line:
            parts[-1].append(line)
    return "\n".join(" ".join(part) for part in parts[1:] if part)


class Heedless:
    """A stream of text whose reader may go, as `head` does: what is said then is lost, and no work.

    What the stream's encoding lacks is written in its place by a plainer sign, or by its code.
    """

    def __init__(self, stream: TextIO | None):
        self._stream = stream or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (of a closed one; it stays open)
        if isinstance(self._stream, io.TextIOWrapper):
            self._stream.reconfigure(errors=PLAIN_SIGNS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self.forget()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self.forget()

    def forget(self) -> None:
        """From here on all that is written goes nowhere, also what is still to be let out, as Python ends."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def end(code: int, message: str) -> NoReturn:
    """Say why, and end the program."""
    print(f"creditscope: {visible(message)}", file=sys.stderr)
    raise SystemExit(code) from None


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, and turn errors into one clear line."""
    words = sys.argv[1:] if arguments is None else arguments
    out, aside = Heedless(sys.stdout), Heedless(sys.stderr)
    with contextlib.redirect_stdout(cast(TextIO, out)), contextlib.redirect_stderr(cast(TextIO, aside)):
        try:
            try:
                _obey(words)
            finally:
                out.flush()
        except CreditscopeError as error:
            end(2, f"{error}")
        except KeyboardInterrupt:
            goes_on = "finished runs are on record, those that were begun continue at their last checkpoint."
            end(130, f"stopped. The same command goes on: {goes_on}")
        except OSError as error:
            end(2, f"Expected files and folders that can be read and written, but {error}.")
        finally:
            try:
                out.flush()
            except OSError:  # which was said
                out.forget()


def _obey(words: Sequence[str]) -> None:
    if words == ["--version"]:
        print(f"creditscope {creditscope.__version__}")
        return
    os.environ["MPLBACKEND"] = "agg"  # commands draw files, whatever windows a caller may like
    command = parse(words)
    if getattr(command, "data_root", None):
        os.environ["CREDITSCOPE_DATA"] = str(command.data_root.resolve())
    command.run()
