"""The picture in docs/architecture.md is that of the code: what it names exists, and imports point one way."""

import ast
import re

import pytest
from documents import ROOT

PACKAGE = ROOT / "src" / "creditscope"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ORDER = ("tasks", "nets", "stack", "taps", "anatomy", "losses", "rules", "measure", "train")
"""Upstream first, among the parts that need torch or feed it; train calls measure, which knows nothing of train."""
READERS = ("record", "auditing", "plots", "report", "paper/figures", "paper/exports", "paper/published")
"""Parts that go by records alone."""
MAKERS = ("torch", *ORDER[1:])


def imports_of(part: str, *, everywhere: bool = False) -> dict[str, list[str]]:
    """What a part imports, at module level or everywhere: torch or a part of ours → the files that do it."""
    found: dict[str, list[str]] = {}
    paths = sorted((PACKAGE / part).rglob("*.py")) or [PACKAGE / f"{part}.py"]
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree) if everywhere else tree.body:
            names: list[str] = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                first, _, rest = name.partition(".")
                target = rest.split(".")[0] if first == "creditscope" else first
                found.setdefault(target, []).append(path.name)
    return found


class TestImports:
    @pytest.mark.parametrize("part", READERS)
    def test_readers_of_records_need_no_maker(self, part):
        found = imports_of(part)
        assert {name: found[name] for name in MAKERS if name in found} == {}

    @pytest.mark.parametrize(("at", "part"), list(enumerate(ORDER)))
    def test_makers_know_nothing_downstream(self, at, part):
        found = imports_of(part)
        later = [*ORDER[at + 1 :], *(name for name in READERS if name != "record"), "paper"]
        assert {name: found[name] for name in later if name in found} == {}

    def test_measuring_does_not_judge_nor_judging_draw_and_tasks_are_plain_arrays(self):
        assert "auditing" not in imports_of("measure", everywhere=True)
        assert {"plots", "report"} & set(imports_of("auditing")) == set()
        assert "torch" not in imports_of("tasks", everywhere=True)

    def test_the_instrument_does_not_know_the_paper(self):
        """Not by name either: the paper comes in by entry points."""
        others = [path for path in PACKAGE.rglob("*.py") if "paper" not in path.relative_to(PACKAGE).parts]
        assert len(others) > 100
        assert [path.name for path in others if "creditscope.paper" in path.read_text(encoding="utf-8")] == []

    def test_only_commands_import_commands(self):
        parts = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
        assert {part for part in parts if "commands" in imports_of(part, everywhere=True)} == {"commands", "paper"}

    def test_imports_are_seen(self):
        """The reader of imports finds some of each kind."""
        assert {"torch", "rules", "record"} <= set(imports_of("measure"))
        assert "train" in imports_of("runs", everywhere=True)
        assert "train" not in imports_of("runs")


def named_files() -> list[tuple[str, str]]:
    """What the page names, with the folder that its item of a list names first."""
    found = []
    for item in re.split(r"\n(?=- |\n|\d\. )", PAGE):
        names = re.findall(r"`([\w/]+(?:\.py|/))(?=[`:])", item)
        folder = next((name for name in names if name.endswith("/")), "")
        found += [(folder, name) for name in names]
    return found


class TestPage:
    @pytest.mark.parametrize(("folder", "name"), named_files())
    def test_file_exists(self, folder, name):
        assert (PACKAGE / name).exists() or (PACKAGE / folder / name).exists()

    @pytest.mark.parametrize(("file", "names"), re.findall(r"`([\w/]+\.py): ([\w.]+)`", PAGE))
    def test_function_exists(self, file, names):
        tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
        for name in names.split("."):
            held = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
            assert name in held
            tree = held[name]

    def test_names_are_found(self):
        assert {("train/", "stacked.py"), ("", "taps.py"), ("measure/", "observation.py")} <= set(named_files())

    def test_every_package_is_named(self):
        packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
        assert {name for name in packages if f"`{name}/" not in PAGE} == set()


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_tests_and_benchmarks_that_a_page_names_exist(page):
    named = re.findall(r"\b(?:tests|bench)/[a-z\d_/]+\.\w+", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).is_file()] == []
