"""The command line. Importing it imports no torch; commands import what they use when they run."""

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn, Union

import tyro

import creditscope
from creditscope.errors import CreditscopeError
from creditscope.registry import COMMANDS
from creditscope.text import visible

FIRST, LAST = ("demo", "run", "audit", "figure", "report"), ("list", "doctor")
"""Commands that help names first and last, of those there are."""
ABOUT = (
    "An instrument for credit assignment in deep networks. creditscope COMMAND --help tells more, "
    "creditscope --version which this is. "
    "Exit codes: 0 done, 1 not trustworthy (audit --strict), 2 cannot be done, 130 Ctrl-C."
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
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(command, prog=prog, description=about, args=words, config=HOW)
    except SystemExit:
        if lines := unbox(said.getvalue()).splitlines():
            print("creditscope:", "\n".join(map(visible, lines)), file=sys.stderr)
        raise


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
    """The parts of a box, without its title and its lines, a line each.

    >>> unbox("╭─ Title ─╮\\n│ one     │\\n│ more    │\\n│ ─────── │\\n│ two     │\\n╰─────────╯\\n")
    'one more\\ntwo'
    """
    parts = [[]]
    for line in text.splitlines():
        inside = line.strip("│ ")
        if set(inside) == {"─"}:
            parts.append([])
        elif inside and inside[0] not in "╭╰":
            parts[-1].append(inside)
    return "\n".join(" ".join(part) for part in parts if part)


def open_output() -> None:
    """Streams that take every character, written out where an encoding lacks it; a closed one is not written to."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (to the end)
    if sys.stdout is None:
        end(2, "Expected an open standard output, but it is closed. Send it to a file, or to /dev/null.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def leave_output() -> None:
    """Let out all that was printed; what cannot be let out any more changes nothing, and the exit code stays."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains as it ends


def end(code: int, message: str) -> NoReturn:
    """Say why, and end the program."""
    print(f"creditscope: {visible(message)}", file=sys.stderr)
    raise SystemExit(code) from None


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, and turn errors into one clear line."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        open_output()
        os.environ["MPLBACKEND"] = "agg"  # commands draw files, whatever windows a caller may like
        if words == ["--version"]:
            print(f"creditscope {creditscope.__version__}")
        else:
            command = parse(words)
            if getattr(command, "data_root", None):
                os.environ["CREDITSCOPE_DATA"] = str(command.data_root.resolve())
            command.run()
        sys.stdout.flush()
    except CreditscopeError as error:
        end(2, f"{error}")
    except KeyboardInterrupt:
        goes_on = "finished runs are on record, those that were begun continue at their last checkpoint."
        end(130, f"stopped. The same command goes on: {goes_on}")
    except BrokenPipeError:
        raise SystemExit(0) from None
    except OSError as error:
        end(2, f"Expected files and folders that can be read and written, but {error}.")
    finally:
        leave_output()
