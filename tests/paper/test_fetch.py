"""Shipped records without a checkout: from a folder, from an address, and not at all."""

import functools
import hashlib
import http.server
import threading
import tomllib

import pytest
from documents import ROOT

from creditscope import addresses
from creditscope.paper.shipped import LISTED, list_shipped, write_list

RESULTS = ROOT / "results"


class Mirror(http.server.SimpleHTTPRequestHandler):
    asked: list[str] = []  # noqa: RUF012 (of one server at a time)

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, format, *args):
        pass


@pytest.fixture
def mirror():
    """The repository's records on an address of this machine, and what was asked of it."""
    Mirror.asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Mirror, directory=RESULTS))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Mirror.asked
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_list_is_that_of_the_repository():
    assert LISTED.read_text(encoding="utf-8") == write_list(RESULTS), "Expected shipped.toml as made by make docs."
    listed = {
        f"{folder}/{name}": checksum for folder, names in list_shipped().items() for name, checksum in names.items()
    }
    there = {str(path.relative_to(RESULTS)): path for path in RESULTS.glob("*/**/*") if path.is_file()}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in there.items()} == listed


def test_addresses_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Source"] == addresses.HOME
    assert all(url.startswith(addresses.HOME) for url in project["urls"].values())
    assert addresses.shipped("demo/x") == f"{addresses.HOME}/raw/v{project['version']}/results/demo/x"
    page = addresses.manual("checks.md").removeprefix(f"{addresses.HOME}/blob/v{project['version']}/")
    assert (ROOT / page).is_file()


def test_from_an_address_by_checksum_and_only_what_is_missing(mirror, tmp_path, told):
    url, asked = mirror
    told("fetch", "demo", "rules", "--from", url, "--out", tmp_path)
    for name in ("demo/demo.jsonl.xz", "rules/side_by_side.jsonl.xz"):
        assert (tmp_path / name).read_bytes() == (RESULTS / name).read_bytes()
    assert "trustworthy" in told("audit", tmp_path / "demo")
    (tmp_path / "demo" / "demo.jsonl.xz").unlink()
    del asked[:]
    told("fetch", "demo", "rules", "--from", url, "--out", tmp_path)
    assert asked == ["/demo/demo.jsonl.xz"]


def test_from_a_folder(tmp_path, told):
    told("fetch", "paper", "--from", RESULTS, "--out", tmp_path)
    got = {str(path.relative_to(tmp_path / "paper")) for path in (tmp_path / "paper").rglob("*") if path.is_file()}
    assert got == set(list_shipped()["paper"])


def test_other_content_is_refused_and_not_kept(tmp_path, refused):
    (tmp_path / "bad" / "demo").mkdir(parents=True)
    (tmp_path / "bad" / "demo" / "demo.jsonl.xz").write_bytes(b"other")
    said = refused("fetch", "demo", "--from", tmp_path / "bad", "--out", tmp_path / "out")
    assert list_shipped()["demo"]["demo.jsonl.xz"] in said
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]


def test_what_is_there_and_differs_is_left_alone(tmp_path, refused):
    (tmp_path / "demo").mkdir()
    mine = tmp_path / "demo" / "demo.jsonl.xz"
    mine.write_bytes(b"mine")
    assert hashlib.sha256(b"mine").hexdigest() in refused("fetch", "demo", "--from", RESULTS, "--out", tmp_path)
    assert mine.read_bytes() == b"mine"


@pytest.mark.parametrize("source", ["http://127.0.0.1:9", "no/such/folder"])
def test_without_a_network_it_says_what_else_to_do(source, tmp_path, refused):
    said = refused("fetch", "demo", "--from", source, "--out", tmp_path)
    assert f"{source}/demo/demo.jsonl.xz" in said
    assert "creditscope fetch demo --from DIR" in said
    assert said.splitlines()[-1].startswith("creditscope: Expected")


def test_an_address_without_the_file_is_told_with_its_status(mirror, tmp_path, refused):
    assert "404" in refused("fetch", "demo", "--from", f"{mirror[0]}/nothing", "--out", tmp_path)


def test_unknown_records_are_refused(refused):
    assert "demo, league, paper, rules" in refused("fetch", "nope")
