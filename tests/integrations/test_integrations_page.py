"""Every example of docs/integrations.md runs as it stands, and what the page says of files and names is so."""

import re

import pytest
from documents import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore:The `srun` command is available on your system:UserWarning",
        "ignore:The '.*_dataloader' does not have many workers:UserWarning",
        "ignore:The number of training batches:UserWarning",
        "ignore:`isinstance\\(treespec, LeafSpec\\)` is deprecated:FutureWarning",
        "ignore:Starting from v1.9.0, `tensorboardX` has been removed:UserWarning",
        "ignore:You defined a `validation_step`:UserWarning",
        "ignore:'pin_memory' argument is set as true but no accelerator:UserWarning",
    ),
]
PAGE = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
LIBRARIES = ("lightning", "accelerate", "tensorboard", "wandb")
"""What each example needs, in their order."""


@pytest.mark.parametrize("place", range(len(EXAMPLES)), ids=LIBRARIES)
def test_example_runs(place, tmp_path, monkeypatch, capsys):
    pytest.importorskip(LIBRARIES[place])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    found: dict = {"__name__": "page"}
    exec(compile(EXAMPLES[place], f"docs/integrations.md, example {place + 1}", "exec"), found)
    scope = found["scope"] if "scope" in found else found["callback"].scope
    assert scope.snapshots
    assert (scope.audit().methods[0].verdict.word in capsys.readouterr().out) == ("callback" in found)


def test_there_are_as_many_examples_as_libraries():
    assert len(EXAMPLES) == len(LIBRARIES)
