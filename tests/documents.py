"""What tests ask of the pages of the documentation: their tables and the numbers in them."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GALLERY = (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")
MANUAL = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
NUMBER = r"[+-]?\d*\.\d+"


def load_script(path: Path) -> ModuleType:
    """A script that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_table(first: str, page: str = README) -> list[dict[str, str]]:
    """The rows of the page's table whose header line begins so, by column."""
    lines = page.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(first))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end]]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def assert_says(cell: str, *values: float | None) -> None:
    """The numbers of a cell are these, rounded to the digits that it has."""
    numbers = re.findall(NUMBER, cell.replace("−", "-"))
    assert len(numbers) == len(values), cell
    for text, value in zip(numbers, values, strict=True):
        unit = 10.0 ** -len(text.partition(".")[2])
        assert float(text) == pytest.approx(value, rel=0, abs=0.5001 * unit), cell
