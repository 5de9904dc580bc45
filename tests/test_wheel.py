"""The wheel, built and installed in an environment of its own, far from the repository, and used there.

Other libraries come from the environment of the tests; that the declared ones suffice is tested by their names.
"""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest
from builders import run_python
from documents import ROOT

from creditscope.addresses import HOME

pytestmark = pytest.mark.slow
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FAR = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CREDITSCOPE"))}
WATCH = """
import torch
import creditscope as cs
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
scope = cs.watch(model, taps="1", stem="0")
scope.snapshot(torch.randn(20, 4), torch.arange(20) % 3, epoch=0)
scope.save("mine")
print(cs.__file__, scope.audit().methods[0].verdict.word, sep="\\n")
"""
TYPES = """
import creditscope as cs
from torch import nn

scope = cs.watch(nn.Linear(2, 2), taps="0")
reveal_type(scope)
reveal_type(scope.snapshots[0].taps.g_norm)
reveal_type(cs.audit("out").methods[0].verdict.codes)
reveal_type(cs.run(rule="dfa"))
reveal_type(cs.attach(nn.Linear(2, 2), taps="0"))
reveal_type(cs.Thresholds().growth)
cs.wacth
"""
REVEALED = ["Scope", "tuple[float | None, ...]", "tuple[str, ...]", "Runs", "Trainer", "float"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run_python("-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT)
    (found,) = out.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def home(wheel, tmp_path_factory) -> Iterator[Path]:
    """An environment that holds the wheel and nothing else of its own."""
    home = tmp_path_factory.mktemp("far") / "env"
    venv.create(home, symlinks=True)
    python = home / "bin" / "python"
    run_python("-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", wheel, env=FAR)
    (own,) = home.glob("lib/python*/site-packages")
    (own / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home


@pytest.fixture
def use(home, tmp_path):
    """Run a command of that environment in an empty folder; gives what it prints."""

    def run(*words: str | Path) -> str:
        command = [home / "bin" / words[0], *words[1:]]
        done = subprocess.run(command, env=FAR, cwd=tmp_path, text=True, capture_output=True)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="module")
def about(wheel) -> Message:
    """Its metadata, as an index reads them."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(file.read(name))


def text_of(about: Message) -> str:
    """The README as an index page has it."""
    content = about.get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode("utf-8")


def test_every_file_of_the_package_is_in_it_and_no_other(wheel):
    with zipfile.ZipFile(wheel) as file:
        held = {name for name in file.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT / "src", capture_output=True, text=True
    )
    assert held == {name for name in listed.stdout.splitlines() if (ROOT / "src" / name).is_file()}
    assert {"creditscope/py.typed", "creditscope/paper/shipped.toml", "creditscope/report/templates/page.html"} <= held


class TestIndexPage:
    def test_versions_links_and_classifiers(self, about):
        assert (about["Name"], about["Version"]) == (PROJECT["name"], PROJECT["version"])
        assert (about["License-Expression"], about["Requires-Python"]) == ("MIT", ">=3.11")
        links = dict(line.split(", ") for line in about.get_all("Project-URL") or [])
        assert links["Source"] == HOME
        classifiers = about.get_all("Classifier") or []
        assert {"Typing :: Typed", *(f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13))} <= set(
            classifiers
        )
        assert set(PROJECT["optional-dependencies"]) == set(about.get_all("Provides-Extra") or [])

    def test_links_and_images_of_the_readme_are_addresses_of_files_that_exist(self, about):
        text = text_of(about)
        assert about["Description-Content-Type"] == "text/markdown"
        links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        assert len(links) > 20
        for image, link in links:
            base = f"{HOME}/{'raw' if image else 'blob'}/v{PROJECT['version']}/"
            assert link.startswith(base)
            assert (ROOT / link.removeprefix(base).partition("#")[0]).is_file()
        assert sum(bool(image) for image, _ in links) == (ROOT / "README.md").read_text(encoding="utf-8").count("![")

    def test_the_rest_is_the_readme(self, about):
        plain = (ROOT / "README.md").read_text(encoding="utf-8")
        assert re.findall("```.*?```", text_of(about), re.DOTALL) == re.findall("```.*?```", plain, re.DOTALL)
        without = [re.sub(r"\]\([^)\s]+\)", "]", page.strip()) for page in (text_of(about), plain)]
        assert without[0] == without[1]


class TestUse:
    def test_commands_of_paper_and_instrument_are_there(self, use):
        said = use("creditscope", "--help")
        assert all(f"{name} " in said for name in ("run", "audit", "report", "figure", "fetch", "demo", "doctor"))
        listed = json.loads(use("creditscope", "list", "--json"))
        assert {"dfa", "bp"} <= set(listed["rules"])
        assert "audit_hero" in listed["figures"]
        assert use("creditscope", "--version").split()[1] == PROJECT["version"]

    def test_run_audit_report(self, use, tmp_path):
        options = ["--task", "digits", "--rule", "dfa", "--epochs", "1", "--depth", "1", "--width", "8", "--seeds", "1"]
        use("creditscope", "run", *options, "--tier", "quick", "--quiet")
        judged = json.loads(use("creditscope", "audit", "--json"))
        assert [method["method"] for method in judged["methods"]] == ["DFA"]
        use("creditscope", "report", "--out", "page.html")
        assert "DFA" in (tmp_path / "page.html").read_text(encoding="utf-8")

    def test_watch(self, use, home, tmp_path):
        file, _ = use("python", "-c", WATCH).splitlines()
        assert Path(file).is_relative_to(home)
        assert "network mine" in use("creditscope", "audit", "mine")

    def test_shipped_records_are_fetched_judged_and_drawn(self, use, tmp_path):
        use("creditscope", "fetch", "demo", "--from", ROOT / "results")
        assert "trustworthy" in use("creditscope", "audit", "results/demo")
        use("creditscope", "figure", "audit_hero", "results/demo", "--scale", "demo", "--out", "drawn")
        assert (tmp_path / "drawn" / "audit_hero.png").stat().st_size > 10_000

    def test_what_it_says_names_no_file_of_a_checkout(self, use):
        for words in (["audit", "--explain"], ["audit", "--help"], ["figure", "--help"], ["run", "--help"]):
            said = use("creditscope", *words)
            assert not re.search(r"(?<![\w/])(docs|tests|bench)/\w|Makefile|\bmake (test|docs)\b", said), words


def test_a_type_checker_sees_types(home, tmp_path):
    (tmp_path / "user.py").write_text(TYPES, encoding="utf-8")
    (tmp_path / "pyrightconfig.json").write_text("{}", encoding="utf-8")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", home / "bin" / "python", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, env=FAR, text=True, capture_output=True)
    found = json.loads(done.stdout)["generalDiagnostics"]
    revealed = [one["message"].rpartition(" is ")[2].strip('"') for one in found if one["severity"] == "information"]
    assert revealed == REVEALED
    (wrong,) = [one for one in found if one["severity"] == "error"]
    assert '"wacth"' in wrong["message"]
