"""What comes in from outside: a package whose files are entries, and the instrument without the paper."""

import os
import shutil
import subprocess

import pytest
from builders import run_python
from documents import ROOT

pytestmark = pytest.mark.slow

FIGURE = '''"""A figure of a lab."""
from creditscope.registry import FIGURES

@FIGURES.register("ours")
def plot_ours(records):
    return "drawn"
'''
ASK = """
import sys
from creditscope.registry import FIGURES
assert "ours" in FIGURES.names()
assert FIGURES.summary("ours") == "A figure of a lab."
assert "my_lab.figures.ours" not in sys.modules  # read, not imported
assert FIGURES.get("ours")([]) == "drawn"
try:
    FIGURES.register("ours")(lambda records: None)
except Exception as error:
    print(error)
"""


@pytest.fixture
def extended(tmp_path):
    """Run Python beside an installed distribution of these entry points and files."""

    def run(*arguments: str, points: str, **files: str) -> str:
        for name, text in {"lab-1.dist-info/entry_points.txt": points, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / "lab-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 1\n")
        path = os.pathsep.join([str(tmp_path), str(ROOT / "src")])
        return run_python(*arguments, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.STDOUT)

    return run


def test_a_package_of_files_is_found_by_its_entry_point(extended):
    points = "[creditscope.figures]\nmy_lab = my_lab.figures\nlost = not_there.figures\n"
    files = {"my_lab/__init__.py": "", "my_lab/figures/__init__.py": "", "my_lab/figures/ours.py": FIGURE}
    assert "'ours'" in extended("-c", ASK, points=points, **files)  # a second figure of that name is refused


BROKEN = """
from creditscope.registry import RULES
assert "bp" in RULES.names()
RULES.register("broken")(type("Broken", (), {}))
assert RULES.is_local("broken")  # the entry point of that name is a package, and no rule
"""


@pytest.mark.parametrize(
    ("point", "files", "said"),
    [
        ("broken.rules", {"broken/__init__.py": "raise RuntimeError('no library')\n"}, "RuntimeError"),
        ("plain", {"plain.py": "class Mine: ...\n"}, "plain:Thing"),
    ],
)
def test_what_is_no_package_of_entries_costs_a_warning(extended, point, files, said):
    found = extended("-c", BROKEN, points=f"[creditscope.rules]\nbroken = {point}\n", **files)
    assert found.count("UserWarning") == 1
    assert said in found


@pytest.mark.parametrize(
    ("point", "file"),
    [("theirs = lab.command:Mine", "lab/command.py"), ("lab = lab.commands", "lab/commands/theirs.py")],
)
def test_a_command_that_cannot_be_imported_costs_a_warning(extended, point, file):
    files = {"lab/__init__.py": "", "lab/commands/__init__.py": "", file: "import not_there\n"}
    shown = extended("-m", "creditscope", "--help", points=f"[creditscope.commands]\n{point}\n", **files)
    assert "{run,audit," in shown or "{demo,run,audit," in shown
    assert "Warning: Expected the command 'theirs'" in shown
    assert "not_there" in shown


def test_a_rule_that_cannot_be_imported_is_listed_with_the_reason(extended):
    points = "[creditscope.rules]\ntheirs = lab.rule:Mine\n"
    shown = extended("-m", "creditscope", "list", "rules", points=points, **{"lab/rule.py": "import not_there\n"})
    assert [line.split()[0] for line in shown.splitlines() if "not_there" in line] == ["theirs"]


def test_without_the_paper_its_commands_are_not_offered_and_the_others_work(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "paper"))
    alone = {"cwd": tmp_path, "env": os.environ | {"PYTHONPATH": str(tmp_path / "src")}}
    assert "{run,audit,report,bundle,cancel,clinic,export,status,list,doctor}" in run_python(
        "-m", "creditscope", "--help", **alone
    )
    for words in (
        "run --task digits --epochs 1 --seeds 2 --depth 2 --width 8 --quiet",
        "audit out/records",
        "report out/records --out page.html",
        "list",
    ):
        run_python("-m", "creditscope", *words.split(), **alone)
    draw = "import creditscope as cs; cs.Runs(cs.load_records('out/records')).plot().savefig('runs.png')"
    run_python("-c", draw, **alone)
    assert (tmp_path / "page.html").stat().st_size > 10_000
    assert (tmp_path / "runs.png").stat().st_size > 10_000
