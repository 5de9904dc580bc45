"""Data files: missing, truncated, altered, or out of reach; and pickles that would run something."""

import hashlib
import http.server
import os
import pickle
import tarfile
import threading
from collections import defaultdict

import numpy as np
import pooch
import pytest
import requests
import scipy.sparse as sp

from creditscope.errors import CreditscopeError
from creditscope.tasks import load_task
from creditscope.tasks._files import DataFiles, data_root, read_pickle


def files_of(checksums: dict[str, str], archive: str = "") -> DataFiles:
    return DataFiles("toy", "toy-data", checksums, "https://example.invalid/toy", archive)


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """Addresses that were asked for, none of which can be reached."""
    found: list[str] = []

    def unreachable(url, **kwargs):
        found.append(url)
        raise requests.ConnectionError("no route")

    monkeypatch.setattr(pooch, "retrieve", unreachable)
    return found


def sha(text: bytes) -> str:
    return f"sha256:{hashlib.sha256(text).hexdigest()}"


def test_data_root(monkeypatch, tmp_path):
    monkeypatch.setenv("CREDITSCOPE_DATA", str(tmp_path / "here"))
    assert data_root() == tmp_path / "here"
    monkeypatch.delenv("CREDITSCOPE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_root() == tmp_path / "cache" / "creditscope"


@pytest.mark.parametrize("kind", ["sha256", "md5"])
def test_whole_files_are_accepted_and_others_named(root, kind):
    wanted, found = (hashlib.new(kind, text).hexdigest() for text in (b"whole", b"whol"))
    folder = root / "toy-data"
    folder.mkdir()
    (folder / "a").write_bytes(b"whole")
    good = files_of({"a": f"{kind}:{wanted}"})
    assert good.require() == folder
    with pytest.raises(CreditscopeError, match="toy-data/b"):
        files_of({**good.checksums, "b": sha(b"x")}).require()
    (folder / "a").write_bytes(b"whol")
    with pytest.raises(CreditscopeError, match=f"with {kind} {wanted}, but got {found} .4 bytes"):
        good.require()


@pytest.mark.parametrize("archive", ["", "md5:0"])
def test_without_a_network_the_folder_to_fill_is_named(root, asked, archive):
    with pytest.raises(CreditscopeError, match=r"toy-data.*--data-root"):
        files_of({"a": sha(b"x")}, archive).require()
    assert len(asked) == 1


@pytest.mark.parametrize("task", ["cifar10", "cora"])
def test_real_tasks_say_what_is_missing(root, asked, task):
    with pytest.raises(CreditscopeError, match=f"Expected the files of task '{task}' in {root}"):
        load_task(task)
    assert [url.startswith("https://") for url in asked] == [True]


def test_another_folder_can_be_named_on_the_command_line(root, asked, call, tmp_path):
    words = ("run", "--task", "cora", "--net", "gcn", "--out", tmp_path / "out", "--data-root")
    code, _, err = call(*words, tmp_path / "elsewhere")
    assert (code, f"'cora' in {tmp_path}/elsewhere/" in err) == (2, True)
    assert data_root() == tmp_path / "elsewhere"


@pytest.fixture
def server(tmp_path, monkeypatch):
    """The files of a folder over HTTP; what is asked for is noted."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    asked, folder = [], tmp_path / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, format, *args):
            asked.append(self.path)

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{served.server_port}", asked
        served.shutdown()
        thread.join()


@pytest.mark.parametrize("packed", [True, False], ids=["archive", "files"])
def test_missing_files_are_fetched_once_and_checked(root, server, packed):
    folder, url, asked = server
    content = {"a": b"first", "b": b"second"}
    for name, data in content.items():
        (folder / name).write_bytes(data)
    archive = ""
    if packed:
        with tarfile.open(folder / "toy.tar.gz", "w:gz") as tar:
            for name in content:
                tar.add(folder / name, arcname=f"toy-data/{name}")
        archive, url = sha((folder / "toy.tar.gz").read_bytes()), f"{url}/toy.tar.gz"
    files = DataFiles("toy", "toy-data", {name: sha(data) for name, data in content.items()}, url, archive)
    assert {path.name: path.read_bytes() for path in files.require().iterdir()} == content
    assert files.require() == root / "toy-data"
    assert asked == (["/toy.tar.gz"] if packed else ["/a", "/b"])


class Creates:
    """What a hostile file would hold."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_create_a_file_is_refused(tmp_path, protocol):
    target, hostile = tmp_path / "created", tmp_path / "hostile.pkl"
    hostile.write_bytes(pickle.dumps({"data": Creates(target)}, protocol=protocol))
    with pytest.raises(CreditscopeError, match=r"names .*system"):
        read_pickle(hostile)
    assert not target.exists()
    pickle.loads(hostile.read_bytes())  # the file is a real one: plain unpickling does create it
    assert target.exists()


@pytest.mark.parametrize("thing", [print, eval, np.load, pickle.loads])
def test_other_callables_are_refused(tmp_path, thing):
    (tmp_path / "f").write_bytes(pickle.dumps(thing))
    with pytest.raises(CreditscopeError, match="names"):
        read_pickle(tmp_path / "f")


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_arrays_matrices_and_containers_are_read(tmp_path, protocol):
    graph = defaultdict(list)
    graph[3].append(4)
    held = {"a": np.arange(6.0).reshape(2, 3), "m": sp.csr_matrix(np.eye(3)), "g": graph, "n": [1, "x", (2.5, None)]}
    (tmp_path / "f").write_bytes(pickle.dumps(held, protocol=protocol))
    found = read_pickle(tmp_path / "f")
    np.testing.assert_array_equal(found["a"], held["a"])
    np.testing.assert_array_equal(found["m"].toarray(), np.eye(3))
    assert found["g"] == {3: [4]}
    assert found["n"] == held["n"]


@pytest.mark.parametrize("text", [b"", b"nonsense", pickle.dumps({"a": np.arange(100)})[:200]])
def test_damaged_pickles_are_named(tmp_path, text):
    (tmp_path / "f").write_bytes(text)
    with pytest.raises(CreditscopeError, match="damaged"):
        read_pickle(tmp_path / "f")
