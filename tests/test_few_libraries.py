"""Watching and judging a model takes torch and NumPy; every other library is imported where used, and declared."""

import ast
import re
import sys
import tomllib

import pytest
from builders import run_python
from documents import ROOT

PACKAGE = ROOT / "src" / "creditscope"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMES = {"sklearn": "scikit-learn", "pydantic_core": "pydantic", "IPython": "ipython", "pytorch_lightning": "lightning"}
NAMES |= {"PIL": "pillow"}
"""Packages by what is imported, where that differs."""
COMES_WITH_TORCH = {"triton"}
BLOCKED = '''
import importlib.metadata, re, sys

def closure(name, found):
    """A distribution and all that it requires, as far as it is installed."""
    if name not in found:
        found.add(name)
        try:
            required = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            return found
        for one in required:
            if "extra ==" not in one:
                closure(re.split(r"[^\\w.-]", one)[0].lower().replace("_", "-"), found)
    return found

distributions = closure("torch", set()) | {"numpy"}
owned = importlib.metadata.packages_distributions()
allowed = {top for top, owners in owned.items() for owner in owners if owner.lower().replace("_", "-") in distributions}
blocked = set(owned) - allowed - {"creditscope"}
assert {"rich", "scipy", "pydantic", "pandas", "safetensors", "annotated_types"} <= blocked

class Without:
    """A finder of modules that does not see those."""

    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in blocked else self.finder.find_spec(name, path, target)

for name in [name for name in sys.modules if name.partition(".")[0] in blocked]:
    del sys.modules[name]  # what an environment imports as it starts
sys.meta_path[:] = map(Without, sys.meta_path)
'''
USE = """
import torch
from torch import nn
import creditscope as cs

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), *[nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)], nn.Linear(8, 3))
x, y = torch.randn(60, 4), torch.arange(60) % 3
initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
scope = cs.watch(model, taps=["1", "2", "3"], stem="0", initial=initial)
optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    taken = scope.snapshot(x, y, epoch=epoch, tier="full" if epoch == 2 else "standard")
    optimiser.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimiser.step()
print(taken)
found = scope.audit()
verdict = found.methods[0].verdict
assert all(word in str(found) for word in (verdict.word, *verdict.codes))
found.show()
scope.save("saved")

watched = cs.watch(model, taps=["1", "2", "3"], stem="0", rule="dfa")
watched.snapshot(x, y, epoch=0, tier="full")
print(watched.audit())
trainer = cs.attach(model, rule="dfa", taps=["1", "2", "3"], stem="0")
trainer.backward(x, y).mean()
trainer.watch.snapshot(x, y, epoch=0)
print(trainer.watch.audit().methods[0].verdict.word)
"""


@pytest.mark.slow
def test_a_model_is_watched_judged_and_trained_with_torch_and_numpy_alone(tmp_path):
    said = run_python("-c", BLOCKED + USE, cwd=tmp_path)
    assert "pip install rich" in said
    assert list((tmp_path / "saved").iterdir())
    with pytest.raises(AssertionError, match="No module named 'pandas'"):
        run_python("-c", BLOCKED + "import pandas", cwd=tmp_path)


def test_every_library_that_is_imported_is_declared():
    """Under dependencies, or, imported in a function, under an extra."""
    extras = [line for name, lines in PROJECT["optional-dependencies"].items() if name != "dev" for line in lines]
    core, more = (
        {re.split(r"[^\w.-]", line)[0].replace("_", "-").lower() for line in lines}
        for lines in (PROJECT["dependencies"], extras)
    )
    known = {*sys.stdlib_module_names, "creditscope", *COMES_WITH_TORCH}
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for top in {name.partition(".")[0] for name in names} - known:
                found.setdefault(NAMES.get(top, top).replace("_", "-").lower(), set()).add(path.name)
    assert {name: files for name, files in found.items() if name not in core | more} == {}
    assert core - set(found) == set(), "Expected every dependency to be used."
