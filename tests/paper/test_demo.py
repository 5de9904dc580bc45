"""The demo a second time: what would be the same is not made again."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from documents import ROOT

from creditscope.files import write_whole
from creditscope.paper.commands import figure


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


@pytest.mark.slow
def test_a_figure_that_failed_is_tried_and_told_again_and_others_are_left(told, tmp_path, monkeypatch):
    """Two figures of shipped records, of which one cannot be drawn at first."""
    fails = {"normalisation"}

    def draw(names: Sequence[str], _: object, root: Path, out: Path, __: object) -> list[Path]:
        print(*(f"{name}: not drawn" for name in names if name in fails), sep="\n")
        return write_whole({out / f"{name}.png": "drawn" for name in names if name not in fails})

    monkeypatch.setattr(figure, "drawable", lambda: ["audit_hero", "normalisation"])
    monkeypatch.setattr(figure, "draw_figures", draw)
    for folder in ("records", "results/paper"):
        shutil.copytree(ROOT / "results" / "demo", tmp_path / folder)
    drawn = tmp_path / "figures" / "paper"

    def say_of_shipped() -> tuple[bool, bool, bool]:
        """Whether one is left, one failed, and the other one is left."""
        said = told("demo", "--out", tmp_path, "--shipped", tmp_path / "results")
        facts = (
            f"unchanged: {drawn / 'audit_hero.png'}",
            "normalisation: not drawn",
            f"unchanged: {drawn / 'normalisation.png'}",
        )
        first, failed, second = (fact in said for fact in facts)
        return first, failed, second

    assert say_of_shipped() == (False, True, False)
    assert say_of_shipped() == (True, True, False)
    fails.clear()
    assert say_of_shipped() == (True, False, False)
    assert say_of_shipped() == (True, False, True)
