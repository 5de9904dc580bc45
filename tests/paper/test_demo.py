"""The demo a second time: what would be the same is not made again."""

import shutil

import pytest
from documents import ROOT


@pytest.mark.slow
def test_a_second_demo_redraws_only_what_was_lost(told, tmp_path):
    shutil.copytree(ROOT / "results" / "demo", tmp_path / "records")
    words = ("demo", "--out", tmp_path, "--shipped", tmp_path / "nowhere")
    assert told(*words).count("wrote ") >= 3
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert "wrote " not in told(*words)
    assert {path: path.stat().st_mtime_ns for path in files} == files
    (tmp_path / "report.html").unlink()
    assert f"wrote {tmp_path / 'report.html'}" in told(*words)
