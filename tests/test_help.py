"""The help of every command is complete, and its example works; so do the tutorial's commands."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields

import pytest
from builders import make_family, run_python, write_records
from documents import ROOT

from creditscope.cli import parse
from creditscope.commands._options import HowToTrain
from creditscope.commands.run import Run
from creditscope.record.spec import Recipe

COMMANDS = ["demo", "run", "audit", "figure", "report", "bundle", "cancel", "clinic", "export", "fetch"]
COMMANDS += ["league", "pack", "reproduce", "reproduction", "status", "list", "doctor"]
TRAIN_NOTHING = ["audit", "report", "list", "doctor"]


@pytest.fixture
def help_of(call):
    """The help that a command prints."""

    def show(*words: str) -> str:
        code, out, err = call(*words, "--help")
        assert (code, err) == (0, "")
        return out

    return show


def read_example(name: str, shown: str) -> list[str]:
    """The words of the one example in a command's help, without the program's name."""
    (line,) = re.findall(r"\bExample: (.*)$", shown, re.MULTILINE)
    program, *words = shlex.split(line)
    assert (program, words[0]) == ("creditscope", name)
    return words


def read_options(shown: str) -> dict[str, str]:
    """What the boxes of a help, drawn or plain, say of each option and positional argument."""
    found, name = {}, ""
    for line in re.findall(r"^[│ ] (.*?)[│ ]*$", shown, re.MULTILINE):
        if re.match(r"-\w|--\w|\[?[A-Z]+\]?(  |$)|\[?\{", line):
            name, _, said = line.partition("  ")
            found[name] = said
        elif line.startswith("  ") and name:
            found[name] += f" {line}"
    return {name: " ".join(said.split()) for name, said in found.items() if "--help" not in name}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [("run --help", 0), ("list checks", 0), ("--version", 0), ("audit nowhere", 2)],
)
def test_a_reader_who_has_read_enough_is_no_error(words, code):
    """As in `creditscope run --help | head`, whether the reader goes before or while something is printed."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as gone:
        done = subprocess.run(
            [sys.executable, "-m", "creditscope", *words.split()], stdout=gone, stderr=subprocess.PIPE
        )
    assert (done.returncode, b"BrokenPipe" in done.stderr, bool(done.stderr)) == (code, False, code > 0)


def test_commands_are_listed_in_the_order_of_use(help_of):
    assert re.findall(r"• (\w+)", help_of()) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
class TestEveryCommand:
    def test_its_example_is_read(self, help_of, name):
        words = read_example(name, help_of(name))
        assert type(parse(words)).__name__.lower() == name

    def test_every_option_says_what_it_does_and_what_holds_without_it(self, help_of, name):
        options = read_options(help_of(name))
        assert options
        for option, said in options.items():
            text, _, default = said.rpartition("(")
            assert re.fullmatch(r"[A-ZΑ-ω].* .*\. ", text), option
            assert re.fullmatch(r"default: .+\)|required\)", default), option


def test_options_are_read_off_the_boxes(help_of):
    """Those of nested parts too, long names, choices, and positional arguments."""
    options = read_options(help_of("run"))
    assert {"--task STR", "--epochs INT", "--optimiser {adamw,adam,sgd}", "--time-limit SECONDS", "--quiet"} <= {
        *options
    }
    assert options["--weight-decay FLOAT"].endswith("(default: 0.01)")
    own = {field.name for part in (Run, Recipe, HowToTrain) for field in fields(part)} - {"recipe", "training"}
    assert {re.sub(r"^-\w, |--(no-)?| \[?[A-Z{].*", "", option).replace("-", "_") for option in options} == own
    assert next(iter(read_options(help_of("figure")))) == "NAME"
    assert "What to list. (default: all)" in read_options(help_of("list")).values()


@pytest.fixture
def beside_records(tmp_path, monkeypatch):
    """In a folder with records where runs leave them."""
    write_records(tmp_path / "out" / "records", make_family("dfa"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("beside_records")
@pytest.mark.parametrize("name", TRAIN_NOTHING)
def test_examples_that_train_nothing_work(call, help_of, name):
    code, out, err = call(*read_example(name, help_of(name)))
    assert (code, err) == (0, "")
    assert out


@pytest.mark.usefixtures("beside_records")
def test_the_tutorials_commands_do_what_it_says(told, tmp_path):
    """Its Python is run as a doctest."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    for line in lines:
        program, *words = shlex.split(line)
        assert program == "creditscope"
        told(*words)
    assert [line.split()[1] for line in lines] == ["audit", "report", "audit"]
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert {path.suffix for path in (tmp_path / "cards").iterdir()} == {".md", ".json"}


@pytest.mark.usefixtures("beside_records")
def test_the_commands_of_readme_work(told, help_of):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = "".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).splitlines()
    (trains, *others) = (shlex.split(line, comments=True)[1:] for line in lines)
    assert [word for word in trains if word.startswith("--") and word not in help_of("run")] == []
    assert all(told(*words) for words in others)
    assert [words[0] for words in (trains, *others)] == ["run", "audit", "report"]


def test_no_help_imports_what_is_slow():
    code = f"""
import sys
from creditscope.cli import main
for words in [], *([name] for name in {COMMANDS}):
    try:
        main([*words, "--help"])
    except SystemExit as end:
        assert end.code == 0
    assert not {{"torch", *["matplotlib", "pandas", "xarray"] * (not words)}} & set(sys.modules), words
"""
    assert run_python("-c", code).count("Example: creditscope") == 2 * len(COMMANDS)  # all are in the first one, too


def test_a_switch_that_turns_off_says_what_it_turns_off(help_of):
    said = read_options(help_of("run"))["--no-noise"]
    assert said.startswith("Do not")
    assert "True" not in said
