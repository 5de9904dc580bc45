"""Worker processes of this machine: what they run, what becomes of runs without memory, what ends them."""

import json

import pytest
from builders import run_python
from stacking import ODD_RULES, SMALL

from creditscope.errors import CreditscopeError
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow

TINY = SMALL | {"epochs": 1, "noise": False}
OWN = """
from helper import scale
from creditscope import TapRule

class Mine(TapRule):
    def credit(self, ctx):
        return [scale * h for h in ctx.states]
"""


def test_workers_run_no_file_of_the_current_folder_but_the_rule_that_was_named(tmp_path):
    """A module that lies beside downloaded records is not taken for the one of that name; a rule's own helper is."""
    for name in ("safetensors", "numpy", "pydantic", "random"):
        (tmp_path / f"{name}.py").write_text("open('was run', 'w')\nraise SystemExit(3)\n")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "mine.py").write_text(OWN)
    (tmp_path / "own" / "helper.py").write_text("scale = 0.5\n")
    words = ["run", "--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--seeds", "2", "--slots", "2"]
    words += ["--rule", "own/mine.py:Mine", "--tier", "quick", "--quiet", "--json"]
    code = f"from creditscope.cli import main; main({words})"
    said = run_python("-P", "-c", code, cwd=tmp_path)
    assert json.loads(said)["methods"][0]["seeds"] == [42, 123]
    assert not (tmp_path / "was run").exists()


def train_crowded(folder, *, times: int):
    rule = {"rule": f"{ODD_RULES}:Crowded", "rule_options": {"folder": str(folder), "times": times}}
    specs = [plan_run(**TINY, **rule, seed=seed) for seed in range(2)]
    return run_all(specs, folder / "records", slots=2, device="cpu")


def test_a_run_that_finds_no_memory_is_left_to_the_other_workers(tmp_path):
    records = train_crowded(tmp_path, times=1)
    assert [record.provenance.status for record in records] == ["complete", "complete"]
    assert (tmp_path / "tried").read_text() == "x"


def test_a_run_that_finds_no_memory_even_alone_fails_and_says_so(tmp_path):
    with pytest.raises(CreditscopeError, match=r"1 more.*memory on cpu"):
        train_crowded(tmp_path, times=99)
