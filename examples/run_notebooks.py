"""Run the notebooks of this folder and keep what they show. Example: python examples/run_notebooks.py mend_a_net."""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).parent
SECONDS = 120
"""That a cell may take."""


def main(names: list[str]) -> None:
    """Those named, or all."""
    for path in [FOLDER / f"{name}.ipynb" for name in names] or sorted(FOLDER.glob("*.ipynb")):
        notebook = run(nbformat.read(path, as_version=4))
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size:,} bytes")


def run(notebook: NotebookNode) -> NotebookNode:
    """The same with what its cells show; what libraries say on standard error holds paths of this machine, and goes."""
    place = {"metadata": {"path": str(FOLDER)}}
    NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources=place, record_timing=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    main(sys.argv[1:])
