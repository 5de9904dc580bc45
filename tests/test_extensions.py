"""What comes in from outside: a package whose files are entries, and the instrument without the paper."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
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


def run_python(*arguments: str, cwd: Path, path: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(path)}
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True)


def test_a_package_of_files_is_found_by_its_entry_point(tmp_path):
    package, about = tmp_path / "my_lab" / "figures", tmp_path / "my_lab-1.dist-info"
    package.mkdir(parents=True)
    about.mkdir()
    (tmp_path / "my_lab" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "ours.py").write_text(FIGURE, encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-lab\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text(
        "[creditscope.figures]\nmy_lab = my_lab.figures\nlost = not_there.figures\n", encoding="utf-8"
    )
    done = run_python("-c", ASK, cwd=tmp_path, path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Expected a new name for a figure, but 'ours'" in done.stdout


@pytest.fixture(scope="module")
def without_paper(tmp_path_factory) -> Path:
    """A copy of the package, the paper deleted."""
    root = tmp_path_factory.mktemp("instrument")
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__", "paper"))
    assert not (root / "src" / "creditscope" / "paper").exists()
    return root


class TestWithoutThePaper:
    def test_its_commands_are_not_offered(self, without_paper):
        done = run_python("-m", "creditscope", "--help", cwd=without_paper, path=without_paper / "src")
        assert done.returncode == 0, done.stderr
        assert "{run,audit,report,list,doctor}" in done.stdout

    def test_train_judge_draw_and_report(self, without_paper):
        words = ["run", "--task", "digits", "--epochs", "1", "--seeds", "2", "--depth", "2", "--width", "8", "--quiet"]
        made = run_python("-m", "creditscope", *words, cwd=without_paper, path=without_paper / "src")
        assert made.returncode == 0, made.stderr
        for command in (["audit", "out/records"], ["report", "out/records", "--out", "page.html"], ["list"]):
            done = run_python("-m", "creditscope", *command, cwd=without_paper, path=without_paper / "src")
            assert done.returncode == 0, (command, done.stderr)
        draw = "import creditscope as cs; cs.Runs(cs.load_records('out/records')).plot().savefig('runs.png')"
        done = run_python("-c", draw, cwd=without_paper, path=without_paper / "src")
        assert done.returncode == 0, done.stderr
        assert (without_paper / "page.html").stat().st_size > 10_000
        assert (without_paper / "runs.png").stat().st_size > 10_000


BROKEN = """
import warnings
warnings.simplefilter("error")
from creditscope.registry import RULES
try:
    RULES.names()
except UserWarning as warning:
    print(warning)
warnings.simplefilter("ignore")
assert "bp" in RULES.names()
RULES.register("broken")(type("Broken", (), {}))
assert RULES.is_local("broken")  # the entry point of that name is a package, and no rule
"""


def test_a_broken_package_costs_no_other(tmp_path):
    about = tmp_path / "broken-1.dist-info"
    about.mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "__init__.py").write_text("raise RuntimeError('no library')\n", encoding="utf-8")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[creditscope.rules]\nbroken = broken.rules\n", encoding="utf-8")
    done = run_python("-c", BROKEN, cwd=tmp_path, path=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Expected a package broken.rules with entries, but it fails: RuntimeError" in done.stdout
