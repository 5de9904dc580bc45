"""One self-contained HTML page about a folder of records: verdicts, layers over training, checks, provenance."""

from pathlib import Path

from creditscope.report.build import build_report
from creditscope.report.gather import Material, gather, judge_records
from creditscope.report.page import render

__all__ = ["Material", "build_report", "gather", "judge_records", "render", "write_report"]


def write_report(material: Material, path: Path, *, against: Material | None = None) -> int:
    """Write the page; gives its size in bytes."""
    text = render(build_report(material, against=against))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path.stat().st_size
