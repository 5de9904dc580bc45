"""The command line. Importing it imports no torch; commands import what they use when they run."""

import contextlib
import io
import os
import sys
from typing import Annotated, Any, Union, cast

import tyro

import creditscope
from creditscope.errors import CreditscopeError
from creditscope.registry import COMMANDS

FIRST, LAST = ("demo", "run", "audit", "figure", "report"), ("list", "doctor")
"""Commands that help names first and last, of those there are."""


def parse(arguments: list[str] | None = None) -> Any:
    """The command that was typed, with its options; what cannot be read ends the program with 2.

    A command is imported when it is called; all of them only for help, or where none is named.
    """
    words = sys.argv[1:] if arguments is None else arguments
    how = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)
    if words and words[0] in COMMANDS.names():
        return tyro.cli(COMMANDS.get(words[0]), prog=f"creditscope {words[0]}", args=words[1:], config=how)
    known = COMMANDS.names()
    others = [name for name in known if name not in (*FIRST, *LAST)]
    names = [name for name in (*FIRST, *others, *LAST) if name in known]
    commands = [Annotated[COMMANDS.get(name), tyro.conf.subcommand(name)] for name in names]
    return tyro.cli(
        cast("Any", Union[tuple(commands)]),  # noqa: UP007 (made of a list)
        prog="creditscope",
        description="An instrument for credit assignment in deep networks. creditscope COMMAND --help tells more, "
        "creditscope --version which this is. "
        "Exit codes: 0 done, 1 not trustworthy (audit --strict), 2 cannot be done, 130 Ctrl-C.",
        args=words,
        config=how,
    )


def parse_or_refuse(arguments: list[str]) -> Any:
    """`parse`, but what cannot be read is said as every other refusal is, without a box around it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parse(arguments)
    except SystemExit:
        if text := unbox(said.getvalue()):
            print(f"creditscope: {text}", file=sys.stderr)
        raise


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


def flush_output() -> None:
    """Let out all that was printed; a reader who has gone, as `head` does, is no error, and the exit code stays."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains as it ends


def main(arguments: list[str] | None = None) -> None:
    """Parse, run, and turn errors into one clear line."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        if words == ["--version"]:
            print(f"creditscope {creditscope.__version__}")
            return
        command = parse_or_refuse(words)
        if getattr(command, "data_root", None):
            os.environ["CREDITSCOPE_DATA"] = str(command.data_root.resolve())
        command.run()
    except CreditscopeError as error:
        print(f"creditscope: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print(
            "creditscope: stopped. The same command goes on: finished runs are on record, those that were begun "
            "continue at their last checkpoint.",
            file=sys.stderr,
        )
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(0) from None
    except OSError as error:
        print(f"creditscope: Expected files and folders that can be read and written, but {error}.", file=sys.stderr)
        raise SystemExit(2) from None
    finally:
        flush_output()
