"""One self-contained HTML page about a folder of records: verdicts, layers over training, checks, provenance."""

from creditscope.report.build import Material, build_report, gather, judge_records
from creditscope.report.page import render, write_report

__all__ = ["Material", "build_report", "gather", "judge_records", "render", "write_report"]
