"""What is there is left alone only if nothing behind it changed, and it neither."""

import os
from pathlib import Path

import pytest
from builders import make_family, write_records

from creditscope.paper import made
from creditscope.paper.made import Made, digest_code, digest_records


@pytest.fixture
def drawn(tmp_path) -> Path:
    """A folder with a figure that was made from something."""
    (tmp_path / "a.png").write_bytes(b"picture")
    Made(tmp_path).keep("figure", "source", [tmp_path / "a.png"])
    return tmp_path


def test_what_did_not_change_is_left(drawn):
    assert Made(drawn).unchanged("figure", "source") == [drawn / "a.png"]
    assert (drawn / "made.json").is_file()


@pytest.mark.parametrize("change", ["source", "name", "missing", "altered", "no stamp", "odd stamp", "broken stamp"])
def test_what_did_is_made_again(drawn, change):
    """An output altered to as many bytes at the same time would fool a look at sizes and times."""
    path, stamp = drawn / "a.png", drawn / "made.json"
    at = path.stat().st_mtime_ns
    if change == "missing":
        path.unlink()
    elif change == "altered":
        path.write_bytes(b"erutcip")
        os.utime(path, ns=(at, at))
    elif change == "no stamp":
        stamp.unlink()
    elif change in ("odd stamp", "broken stamp"):
        stamp.write_text("[]" if change == "odd stamp" else "{")
    name, source = ("other" if change == "name" else "figure"), ("other" if change == "source" else "source")
    assert Made(drawn).unchanged(name, source) == []


def test_a_record_that_is_altered_in_place_is_seen_and_weights_are_not_asked(tmp_path):
    """With its size and its time as they were."""
    write_records(tmp_path, make_family())
    before, path = digest_records(tmp_path), next(tmp_path.rglob("snapshots.jsonl"))
    (tmp_path / "weights.safetensors").write_bytes(b"w")
    assert digest_records(tmp_path) == before
    text, at = path.read_bytes(), path.stat().st_mtime_ns
    path.write_bytes(text.replace(b"1", b"2", 1))
    os.utime(path, ns=(at, at))
    assert digest_records(tmp_path) != before
    path.write_bytes(text)
    assert digest_records(tmp_path) == before
    path.rename(path.with_name("moved.jsonl"))
    assert digest_records(tmp_path) != before


def test_other_code_and_other_libraries_draw_again(tmp_path, monkeypatch):
    before = digest_code()
    assert digest_code() == before
    monkeypatch.setattr(made, "version", lambda name: "99" if name == "matplotlib" else "1")
    assert digest_code() != before
    (tmp_path / "__init__.py").write_text("")
    monkeypatch.setattr(made.creditscope, "__file__", str(tmp_path / "__init__.py"))
    one = digest_code()
    (tmp_path / "style.css").write_text("")
    assert digest_code() != one
