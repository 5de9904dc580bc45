"""Write docs/commands.md from the help that every command prints; no torch is imported.

Example: python docs/make_commands.py
"""

import re
from pathlib import Path

from creditscope.cli import ABOUT, FIRST, LAST, parse
from creditscope.mistyped import read_help
from creditscope.registry import COMMANDS

HEAD = f"""# Command line

Made from `creditscope COMMAND --help` by `make docs`; `creditscope list` says what there is to choose from.
{ABOUT[ABOUT.index("Exit codes") :]}

"""
GROUP = re.compile(r"^ (\w.*?) *\n -+ *\n((?:  .*\n)*)", re.MULTILINE)
"""A title, a line under it, and what is indented below."""


def make_page() -> str:
    """The page as text."""
    known = COMMANDS.names()
    others = [name for name in known if name not in (*FIRST, *LAST)]
    return HEAD + "\n".join(describe(name) for name in (*FIRST, *others, *LAST) if name in known)


def describe(name: str) -> str:
    """One command: what it does, an example, and its options by group."""
    text = read_help(lambda: parse([name, "--help"])) + "\n"
    first = GROUP.search(text)
    about = " ".join(text[: first.start() if first else None].partition("\n\n")[2].split())
    said, _, example = about.partition("Example: ")
    groups = [write_group(title, body) for title, body in GROUP.findall(text)]
    return "\n".join([f"## {name}\n", f"{said.strip()}\n", f"```sh\n{example}\n```\n", *filter(None, groups)])


def write_group(title: str, body: str) -> str:
    """A table of options under the group's title, where it has a line of its own to say."""
    about, line, rest = body.rpartition("  --------")
    entries = read_entries(rest.partition("\n")[2] if line else body)
    if not entries:
        return ""
    rows = [f"| `{name}` | {meaning} | {default} |" for name, meaning, default in entries]
    lead = [f"{' '.join(about.strip(' -').split()).strip(' -')}\n"] if line else []
    what = "argument" if title.startswith("positional") else "option"
    return "\n".join([*lead, f"| {what} | meaning | default |", "| --- | --- | --- |", *rows, ""])


def read_entries(body: str) -> list[tuple[str, str, str]]:
    """Name, meaning and default of every option but --help; what is indented further belongs to the one above."""
    found: list[list[str]] = []
    for line in body.splitlines():
        name, _, said = line.strip().partition("  ") if re.match(r"  \S", line) else ("", "", line)
        if name:
            found.append([name])
        if found:
            found[-1].append(said)
    entries = []
    for name, *said in found:
        whole = " ".join(" ".join(said).split()).replace("|", "\\|")
        meaning, _, default = re.sub(r" ?\((?:default: (.*)|(required))\)$", r"\n\1\2", whole).partition("\n")
        entries.append((name.replace("|", "\\|"), meaning, "" if default == "False" else default))
    return [entry for entry in entries if "--help" not in entry[0]]


if __name__ == "__main__":
    Path(__file__).with_name("commands.md").write_text(make_page(), encoding="utf-8")
