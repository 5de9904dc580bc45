"""Errors speak in one voice, and mistakes on the command line end without a traceback."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from builders import make_record, write_record

PACKAGE = Path(__file__).parents[1] / "src" / "creditscope"
OWNER = r"\S.* (?:cannot be read|cannot be used|failed): "
FORM = re.compile(rf"(?:{OWNER})?Expected .+, but .+[.?]", re.DOTALL)
WRITTEN = re.compile(rf"(?:{FORM.pattern}|{OWNER}·\.)(?: ?·)?", re.DOTALL)
"""The same as it stands in the code: others' words are a dot, and what could not be read may follow."""
CLAUSES = {"train/stacked.py": 3, "train/training.py": 3, "tasks/_files.py": 1, "paper/published/numbers.py": 2}
"""Raised to be caught again: reasons that another message is made of; or another's words with a full stop of theirs."""
NO_MISTAKES = ("train/execute.py", "paper/commands/reproduce.py", "__init__.py", "plots/__init__.py")
"""Unfinished runs, failures told by others, and Python's own words for a missing attribute."""
RULES = """
from creditscope import TapRule

class NoCredit(TapRule):
    pass

class NoTensors(TapRule):
    def credit(self, ctx):
        return [None for _ in ctx.states]
"""


def spoken(node: ast.expr, names: dict[str, ast.expr]) -> str:
    """The text of a message as far as it is written down; what is computed is a dot."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(spoken(part, names) for part in node.values)
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
        return spoken(names[node.value.id], names) if node.value.id in names else "·"
    if isinstance(node, ast.Name) and node.id in names:
        return spoken(names[node.id], names)
    if isinstance(node, ast.Call) and node.args and ast.unparse(node.func) == "with_problems":
        return spoken(node.args[0], names)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("' '.join", '" ".join'):
        parts = node.args[0].elts if isinstance(node.args[0], ast.List) else []
        return " ".join(spoken(part, names) for part in parts if not isinstance(part, ast.Starred))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "rstrip":
        return spoken(node.func.value, names)
    return "·"


def messages(path: Path) -> list[tuple[int, str]]:
    """Line and text of every error that is raised in a file; names without a choice of their own words are left out."""
    found = []
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef):
            continue
        nodes = list(ast.walk(function))
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        names = {
            ast.unparse(node.targets[0]): node.value for node in assigned if ast.unparse(node.targets[0]) == "message"
        }
        for node in nodes:
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
                kind = ast.unparse(node.exc.func)
                if kind.endswith("Error") and kind not in ("UnknownNameError", "NotMeasuredError"):
                    found.append((node.lineno, spoken(node.exc.args[0], names)))
    return sorted(set(found))


@pytest.fixture(scope="module")
def said_in() -> dict[str, list[tuple[int, str]]]:
    """The messages of every file."""
    return {str(path.relative_to(PACKAGE)): messages(path) for path in sorted(PACKAGE.rglob("*.py"))}


class TestVoice:
    def test_what_was_expected_what_came_what_to_do(self, said_in):
        others = {
            file: [(line, text) for line, text in said if not WRITTEN.fullmatch(text) and text != "·"]
            for file, said in said_in.items()
            if file not in NO_MISTAKES
        }
        assert {file: len(found) for file, found in others.items() if found} == CLAUSES, others

    def test_most_messages_are_found(self, said_in):
        said = [text for found in said_in.values() for _, text in found]
        assert len(said) > 150
        assert sum(text == "·" for text in said) <= 4

    def test_others_are_told_apart(self):
        assert FORM.fullmatch("Expected a, but got b. Do c.")
        assert FORM.fullmatch("Record r cannot be read: Expected a, but got b.")
        assert not FORM.fullmatch("it is wrong")
        assert not FORM.fullmatch("Expected a, but got b")
        assert not FORM.fullmatch("Expected something else.")


MISTAKES = {
    "audit nowhere": "nowhere",
    "audit file.txt": "file.txt is a file",
    "audit empty": "empty, but got none",
    "audit records --mute CS999": "CS999",
    "audit records --set growth": "'growth'",
    "audit records --set growth=-1": "-1",
    "audit records --set growth=big": "'big'",
    "audit records --set depth_gain=2": "got 2",
    "audit records --set nope=1": "threshold, but got 'nope'.*depth_gain.*growth",
    "audit records --strict nope": "method, but got 'nope'. Choices: DFA",
    "audit records --only '7 epochs'": "'7 epochs'",
    "audit --explain CS099": "CS099",
    "audit --explain CS5": r"'CS5'\. Nearest: CS005\. Choices: CS001",
    "audit records --strict dfa": r"'dfa'\. Nearest: DFA\. Choices: DFA",
    "audit records --card file.txt": "file.txt",
    "report --records nowhere": "nowhere",
    "report --records records --against nowhere": "nowhere",
    "report --records records --out file.txt/report.html": "file.txt",
    "report --records records --set grwth=3": "grwth",
    "figure nope": "figure, but got 'nope'.*audit_hero",
    "figure all --records nowhere --no-train": "nowhere",
    "figure audit_hero --scale nope --no-train": "'nope'",
    "figure audit_hero --records empty --no-train": "empty",
    "reproduce --only nope --no-train": "'nope'",
    "reproduce --scale nope --no-train": "'nope'",
    "reproduction --records empty": "empty",
    "export nope --records records": "'nope'",
    "export --records empty": "empty",
    "pack --records empty --out packed": "empty",
    "pack --records records --scale nope --out packed": "'nope'",
    "run --rule nope": "rule, but got 'nope'.*block_fa, bp, .*dfa, .*fa",
    "run --rule dffa": r"'dffa'\. Nearest: dfa\. Choices: block_fa",
    "run --rule DFA": r"'DFA'\. Nearest: dfa\. Choices: block_fa",
    "run --task mnst1d": r"'mnst1d'\. Nearest: mnist1d\. Choices: ",
    "figure audit_her": r"'audit_her'\. Nearest: audit_hero\. Choices: audit_hero",
    "run --rule": "at least one rule, but got none",
    "run --rule --dry-run": "at least one rule, but got none",
    "run --net nope": "net, but got 'nope'.*resmlp",
    "run --task nope": "task, but got 'nope'.*digits, .*mnist1d",
    "run --set net.nope=1": "net 'resmlp', but got 'nope'. Choices: depth, .*terminal_norm, .*width",
    "run --rule fa --set rule.nope=1": "rule 'fa', but got 'nope'. Choices: head, .*scale",
    "run --set task.nope=1": "task 'mnist1d', but got 'nope'. Choices: none",
    "run --device nope": "'nope'",
    "run --slots 0": "0",
    "run --snapshot-at soon": "'soon'",
    "run --controls nope": "'nope'",
    "run --rule file.txt:Mine": "file.txt",
    "run --rule mine.py": "mine.py",
    "run --rule nowhere.py:Mine": "'nowhere.py'",
    "run --rule mine.py:Mine": "'Mine'.*there: TapRule, NoCredit, NoTensors",
    "run --task digits --net gcn": "gcn",
    "run --task digits --net vit": "vit",
    "run FEW --rule kaft": "kaft",
    "run FEW --rule mine.py:NoCredit": "NoCredit",
    "run FEW --rule mine.py:NoTensors": "NoTensors",
    "run FEW --train-last 9 --depth 2": "9",
    "run FEW --frozen --ladder": "--frozen or --ladder",
    "run FEW --out file.txt": "file.txt",
    "run FEW --epochs 0": "epochs >= 1, but got 0",
    "run FEW --seeds 1 2 1": "1 more than once",
    "run --seeds": "got none",
    "run FEW --seeds x": "'x'",
    "run FEW --seeds 1 2.5": "'1 2.5'",
    "run FEW --seeds ,": "got none",
    "run FEW --batch 1401": "1400 .*, but got 1401",
    "run FEW --batch 0": "batch >= 1, but got 0",
    "run FEW --lr 0": "lr > 0, but got 0.0",
    "run FEW --lr inf": "inf",
    "run FEW --lr nan": "lr > 0, but got nan",
    "run FEW --depth 0": "depth 0",
    "run FEW --set net.terminal_norm=x": "bool .*, but got 'x'",
    "run FEW --set depth=3": "'depth=3'",
    "run FEW --set net.depth": "'net.depth'",
}
"""Commands, and what must be said of each."""


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_told_in_one_line_and_nothing_is_trained(refused, tmp_path, monkeypatch, words):
    """It begins with the program's name; a traceback would be an error in the test."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("no rule and no record\n")
    (tmp_path / "mine.py").write_text(RULES)
    write_record(tmp_path / "records", make_record())
    said = refused(*shlex.split(words.replace("FEW", "--task digits --seeds 1 --slots 1 --quiet"))).splitlines()
    assert [line for line in said if not line.startswith("creditscope: ")] == []
    assert FORM.fullmatch(said[-1].removeprefix("creditscope: ")), said
    assert re.search(MISTAKES[words], said[-1]), said
    left = [*tmp_path.glob("out/**/snapshots.jsonl"), *tmp_path.rglob("*.safetensors")]
    assert [path for path in left if path.stat().st_size] == []
