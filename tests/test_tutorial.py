"""The shell commands of the tutorial do what it says; its Python is run as a doctest."""

import re
import shlex
from pathlib import Path

from builders import make_family, write_record

TUTORIAL = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TUTORIAL, re.DOTALL) for line in block.splitlines()]


def test_commands(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for record in make_family("dfa"):
        write_record(tmp_path / "out" / "records", record)
    for command in COMMANDS:
        program, *words = shlex.split(command)
        code, out, err = call(*words)
        assert (program, code) == ("creditscope", 0), err
        assert out or err
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert {path.suffix for path in (tmp_path / "cards").iterdir()} == {".md", ".json"}
    assert [command.split()[1] for command in COMMANDS] == ["audit", "report", "audit"]
