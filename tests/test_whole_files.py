"""Files for people: all of them are new, or none is."""

import os
import threading

import pytest

from creditscope.files import write_whole


def test_files_and_their_folders_are_written(tmp_path):
    files = {tmp_path / "a" / "one.md": "Γ\n", tmp_path / "b.png": b"\x89"}
    assert write_whole(files) == list(files)
    assert [(path.read_bytes()) for path in files] == ["Γ\n".encode(), b"\x89"]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b.png", "one.md"]


def test_if_one_fails_the_old_ones_stay_and_nothing_is_left_beside_them(tmp_path):
    first, second = tmp_path / "one.md", tmp_path / "two.md"
    first.write_text("old")
    (tmp_path / "two.md.part").mkdir()  # cannot be written
    with pytest.raises(IsADirectoryError):
        write_whole({first: "new", second: "new"})
    assert first.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.md", "two.md.part"]


def test_a_link_stays_one_and_what_it_leads_to_is_new(tmp_path):
    (tmp_path / "page.md").write_text("old")
    (tmp_path / "link.md").symlink_to("page.md")
    write_whole({tmp_path / "link.md": "new"})
    assert ((tmp_path / "link.md").is_symlink(), (tmp_path / "page.md").read_text()) == (True, "new")


def test_a_pipe_is_written_as_it_stands(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    read = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_whole({tmp_path / "pipe": "page"})
    reader.join(10)
    assert read == ["page"]
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_name_that_is_no_text_is_written_out(tmp_path):
    write_whole({tmp_path / "a.md": "odd\udc80"})
    assert (tmp_path / "a.md").read_text() == r"odd\udc80"
