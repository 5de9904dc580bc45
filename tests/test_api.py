"""The public names: what `creditscope` exports, and the page that describes it."""

import ast
import builtins
import doctest
import inspect
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from builders import run_python
from documents import ROOT, load_script

import creditscope
from creditscope import testing

NO_TORCH = ("Audit", "CreditscopeError", "Runs", "Task", "Thresholds", "audit", "load_records", "register_net", "run")
SCRIPT = load_script(ROOT / "docs" / "make_api.py")
ENTRIES = [
    (module, name)
    for modules in SCRIPT.SECTIONS.values()
    for module, names in modules.items()
    for name in names.split()
]


def free_names(code: str) -> set[str]:
    """What an example uses without having imported or defined it."""
    known = set(dir(builtins))
    nodes = list(ast.walk(ast.parse(code)))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} - known


class TestPage:
    def test_is_what_the_script_writes(self):
        page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
        assert page == SCRIPT.make_page(), "Expected docs/api.md as made by python docs/make_api.py, but it differs."

    def test_has_every_public_name(self):
        public = {("creditscope", name) for name in creditscope.__all__} - {("creditscope", "__version__")}
        kit = {
            ("creditscope.testing", name)
            for name, thing in inspect.getmembers(testing, inspect.isfunction)
            if thing.__module__ == "creditscope.testing" and not name.startswith("_")
        }
        assert public | kit <= set(ENTRIES)
        assert len(set(ENTRIES)) == len(ENTRIES)

    @pytest.mark.parametrize(("module", "name"), ENTRIES, ids=lambda word: word)
    def test_every_name_has_an_example_that_imports_what_it_uses(self, module, name):
        """That the examples run is tested where they stand, in the docstrings."""
        assert hasattr(import_module(module), name)
        docstring = ast.get_docstring(SCRIPT.find(module, name)) or ""
        code = "".join(example.source for example in doctest.DocTestParser().get_examples(docstring))
        assert code
        assert free_names(code) == set()

    def test_free_names_are_found(self):
        assert free_names("from a import b\nx = [b(c) for c in d]\ndef f(e): return e + g") == {"d", "g"}


class TestNames:
    def test_each_comes_from_where_type_checkers_see_it(self):
        tree = ast.parse(Path(str(creditscope.__file__)).read_text(encoding="utf-8"))
        (block,) = [node for node in tree.body if isinstance(node, ast.If)]
        seen = {alias.name: node.module for node in block.body for alias in node.names}
        assert sorted([*seen, "__version__"]) == sorted(creditscope.__all__) == sorted(dir(creditscope))
        for name, module in seen.items():
            assert getattr(creditscope, name) is getattr(import_module(module), name)

    def test_unknown_ones_are_refused(self):
        with pytest.raises(AttributeError, match="has no attribute 'nope'"):
            _ = creditscope.nope

    @pytest.mark.slow
    def test_those_that_read_records_need_no_torch(self):
        gets = f"[getattr(creditscope, name) for name in {NO_TORCH}]"
        run_python("-c", f"import creditscope, sys; {gets}; assert 'torch' not in sys.modules")

    def test_version_is_that_of_the_package(self):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert creditscope.__version__ == project["version"]
