"""What is let in from a file: regular ones of bounded size and depth, with exactly the keys, types and ranges of a
dataclass; and the digests by which an alteration shows.
"""

import hashlib
import json
import os
import reprlib
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from creditscope.errors import CreditscopeError

LARGEST_FILE = 2**30
"""Bytes of a file beyond which it is none of ours."""
LONGEST_LINE = 2**26
"""The same of a line."""


def open_regular(path: Path) -> BinaryIO:
    """A plain file to read; what is none (a FIFO would wait for a writer, a device never ends) is refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise CreditscopeError(f"Expected {path.name} to be a regular file, but got something else.")
    return open(path, "rb")


def read_file(path: Path, *, most: int = LARGEST_FILE) -> bytes:
    """What is in a plain file of bounded size."""
    with open_regular(path) as file:
        content = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    if len(content) > most:
        raise CreditscopeError(f"Expected {path.name} to have at most {most} bytes, but got more.")
    return content


def read_lines(path: Path) -> Iterator[bytes]:
    """Line by line, each of bounded length; the whole is, too."""
    left = LARGEST_FILE
    with open_regular(path) as file:
        while line := file.readline(LONGEST_LINE):
            left -= len(line)
            if len(line) == LONGEST_LINE or left < 0:
                raise CreditscopeError(
                    f"Expected {path.name} to have lines shorter than {LONGEST_LINE} bytes and at most {LARGEST_FILE} "
                    "in all, but got more."
                )
            yield line


def split_lines(content: bytes) -> list[bytes]:
    """The lines of a file that was read whole, each of bounded length."""
    lines = content.split(b"\n")
    if max(map(len, lines)) >= LONGEST_LINE:
        raise CreditscopeError(f"Expected lines shorter than {LONGEST_LINE} bytes, but got more.")
    return lines if lines[-1] else lines[:-1]


def parse(text: bytes) -> Any:
    """JSON of bounded depth; of a key that comes twice the last counts."""
    from pydantic_core import from_json

    try:
        return from_json(text)
    except ValueError as error:
        raise CreditscopeError(f"Expected JSON of some depth, but got: {error}.") from None


def check(kind: Any, raw: Any) -> Any:
    """Parsed JSON as a dataclass: its keys and no others, types as they are (1.0 is no count), finite numbers."""
    from pydantic_core import ValidationError

    try:
        return _validator(kind).validate_python(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where, got = ".".join(map(str, fault["loc"])), reprlib.repr(fault["input"])
        raise CreditscopeError(
            f"Expected {where or 'the file'} of the schema: {fault['msg']}, but got {got}."
        ) from None


@cache
def _validator(kind: Any) -> Any:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

    return SchemaValidator(_strict(TypeAdapter(kind).core_schema))


def _strict(schema: Any) -> Any:
    """The same, but strict in all that JSON can say; and a list ends at its first fault, else a small file with a
    million of them would fill the memory with their descriptions."""
    if isinstance(schema, list | tuple):
        return type(schema)(_strict(part) for part in schema)
    if not isinstance(schema, dict):
        return schema
    found = {name: _strict(part) for name, part in schema.items()}
    if found.get("type") == "tuple":
        found |= {"strict": False, "fail_fast": True}  # JSON has lists only
    if found.get("type") == "dataclass":
        config = {"strict": True, "allow_inf_nan": False, "extra_fields_behavior": "forbid"}
        found |= {"strict": False, "config": config}  # and no instances
    return found


def digest(content: bytes) -> str:
    """SHA-256."""
    return hashlib.sha256(content).hexdigest()


def digest_value(value: Any) -> str:
    """The same of plain data, whatever the order of keys and the white space of the file it was in."""
    return digest(json.dumps(value, sort_keys=True, separators=(",", ":")).encode())


def digest_file(path: Path) -> str:
    """The same of a file that may be too large to hold."""
    found = hashlib.sha256()
    with open_regular(path) as file:
        while part := file.read(2**20):
            found.update(part)
    return found.hexdigest()


def first_words(error: Exception) -> str:
    """What an error says, in one line of bounded length."""
    return printable(" ".join(str(error).split()) or type(error).__name__)[:300].rstrip(".")


def printable(text: str) -> str:
    """Without characters that a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)
