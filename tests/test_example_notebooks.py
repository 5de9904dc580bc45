"""The notebooks in examples/: they run, what they say is so, and what is stored of them is small and of no machine."""

import json
import re
import sys

import pytest
from documents import ROOT, load_script

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
FACTS = {
    "invent_a_rule": "{m.method: [m.accuracy.mean, m.frozen_own.mean, m.verdict.word] for m in audit.methods}",
    "review_a_claim": "{m.method: [m.gamma, m.verdict.word] for m in audit.methods}",
    "mend_a_net": "[verdict.word, first.code, first.where, losses, mended.audit().methods[0].verdict.word]",
    "your_loop": "[all(same), len(callback.scope.snapshots), gpt2_callback.scope.audit().methods[0].verdict.word]",
}
"""What is asked of each once it has run, an expression."""
MOST_BYTES = 100_000


def read(name: str):
    return nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)


@pytest.fixture
def asked(monkeypatch):
    """Run a notebook and one more cell; gives what that says."""
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")  # of the libraries that it shows
    monkeypatch.setenv("PYTHONPATH", ":".join(path for path in sys.path if path))

    def ask(name: str):
        notebook = read(name)
        notebook.cells.append(nbformat.v4.new_code_cell(f"import json\nprint(json.dumps({FACTS[name]}))"))
        found = load_script(ROOT / "examples" / "run_notebooks.py").run(notebook)
        return json.loads(found.cells[-1].outputs[0].text)

    return ask


@pytest.mark.slow
class TestRun:
    def test_a_rule_that_is_above_chance_is_walked_back(self, asked):
        facts = asked("invent_a_rule")
        accuracy, frozen, word = facts["sign DFA"]
        assert 0.1 < accuracy < frozen
        assert (word, facts["BP"][2]) == ("walk back", "trustworthy")

    def test_a_claim_is_reviewed(self, asked):
        facts = asked("review_a_claim")
        assert all(gamma > 0 for gamma, _ in facts.values())
        assert {name: word for name, (_, word) in facts.items()} == {
            "BP": "trustworthy", "FA": "trustworthy", "block FA": "undecided", "DFA": "walk back",
        }  # fmt: skip

    def test_a_net_is_mended(self, asked):
        word, code, where, losses, then = asked("mend_a_net")
        assert (word, code, then) == ("ill", "CS105", "healthy")
        assert re.fullmatch(r"1\.1[3-5](\.0)?", where)  # the top of the net: from there down it vanishes
        assert min(losses["broken"]) > 2.2
        assert losses["mended"][-1] < 0.5

    def test_other_peoples_loops_are_left_as_they_are(self, asked):
        assert asked("your_loop") == [True, 4, "healthy"]


@pytest.mark.parametrize("name", FACTS)
class TestStored:
    def test_was_run_from_top_to_bottom(self, name):
        cells = [cell for cell in read(name).cells if cell.cell_type == "code"]
        assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
        assert {output.output_type for cell in cells for output in cell.outputs} <= {"stream", "execute_result"}

    def test_is_small_and_says_nothing_of_a_machine(self, name):
        text = (ROOT / "examples" / f"{name}.ipynb").read_text(encoding="utf-8")
        assert len(text.encode()) < MOST_BYTES
        assert str(ROOT) not in text
        assert not re.search(r"/(root|home|tmp|usr)/|\\u001b|20\d\d-\d\d-\d\d", text)


def test_every_notebook_is_asked_something():
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == set(FACTS)
