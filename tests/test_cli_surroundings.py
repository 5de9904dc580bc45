"""The command line in its surroundings: terminals, readers that go, streams closed or full, read-only folders."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builders import make_family, write_records

from creditscope.auditing.strip import AGAINST, EXACT, HEIGHTS, OF_LINE, UNKNOWN
from creditscope.plain_signs import PLAIN_SIGNS
from creditscope.record import load_records

TINY = ("--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--slots", "1", "--tier", "quick")
MAIN = "import sys; from creditscope.cli import main; main(sys.argv[1:])"


def command(*words: str | Path, first: str = "", **streams: object) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, with its exit code and what it said."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    code = [sys.executable, "-c", f"{first}\n{MAIN}", *map(str, words)]
    return subprocess.run(code, text=True, **streams)  # pyright: ignore[reportCallIssue, reportArgumentType]


def on_terminal(*words: str, **environment: str) -> str:
    """What a command says on a terminal of its own."""
    pty = pytest.importorskip("pty")
    ours, its = pty.openpty()
    around = {**os.environ, "TERM": "xterm-256color", **environment}
    with subprocess.Popen([sys.executable, "-c", MAIN, *words], stdout=its, stderr=its, env=around):
        os.close(its)
        said = b""
        with contextlib.suppress(OSError):  # by which Linux says that the other end is closed
            while part := os.read(ours, 4096):
                said += part
    os.close(ours)
    return said.decode()


@pytest.fixture
def gone():
    """A pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.slow
class TestStreams:
    def test_nobody_reads_what_is_said_of_progress_and_all_is_trained(self, tmp_path, gone):
        done = command("run", *TINY, "--seeds", "2", "--out", tmp_path, stderr=gone)
        assert done.returncode == 0
        assert [r.provenance.status for r in load_records(tmp_path / "records")] == ["complete"] * 2
        assert "BP" in done.stdout

    def test_nobody_reads_the_error_and_it_is_one(self, gone):
        assert command("run", "--task", "nope", stderr=gone).returncode == 2

    @pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
    def test_nobody_reads_the_answer_and_the_exit_code_gives_it(self, tmp_path, gone, strict, code):
        records = write_records(tmp_path, make_family(taps={"h_rms": (1, 1, 60, 60, 60)}))
        done = command("audit", records, *strict, stdout=gone)
        assert (done.returncode, "Traceback" in done.stderr) == (code, False)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
    def test_an_answer_that_cannot_be_written_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = command("list", stdout=full)
        assert (done.returncode, done.stderr.count("\n"), "No space left" in done.stderr) == (2, 1, True)

    @pytest.mark.parametrize("stream", [1, 2])
    def test_a_closed_stream_is_as_good_as_none(self, tmp_path, stream):
        records = write_records(tmp_path, make_family())
        code = [sys.executable, "-c", MAIN, "audit", str(records)]
        done = subprocess.run(["sh", "-c", f'exec "$@" {stream}>&-', "sh", *code], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert bool(done.stdout) == (stream == 2)

    @pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
    def test_strips_are_as_wide_where_an_encoding_lacks_their_signs(self, tmp_path, encoding):
        records = write_records(tmp_path, make_family(taps={"cos": (0.1, 0.5, 0.2, -0.3, 0.01)}))
        encodings = ("utf-8", encoding)
        whole, plain = (command("audit", records, env=speaking(one), encoding=one) for one in encodings)
        assert (plain.returncode, plain.stderr) == (0, "")
        drawn, written = (
            [line for line in done.stdout.splitlines() if "resolved" in line and "accuracy" not in line]
            for done in (whole, plain)
        )
        assert [len(line) for line in written] == [len(line) for line in drawn]
        assert len(drawn) == 4
        assert not set("".join(written)) & {"\\", "✓"}

    def test_other_characters_that_an_encoding_lacks_are_written_by_their_codes(self):
        done = command("run", "--rule", "規", env=speaking("latin-1"), encoding="latin-1")
        assert (done.returncode, "got '\\u898f'" in done.stderr) == (2, True)


def speaking(encoding: str) -> dict[str, str]:
    """The environment of a process whose streams have this encoding."""
    return {**os.environ, "PYTHONIOENCODING": encoding}


def test_every_sign_of_a_strip_has_a_plain_one_of_its_own():
    """Of those that stand in one place."""
    for signs in (HEIGHTS + EXACT + AGAINST + UNKNOWN, "".join(OF_LINE.values()), "━─┿", "Γ±−│", "λδ"):
        plain = signs.encode("ascii", PLAIN_SIGNS)
        assert len({*plain}) == len(signs) == len(plain)


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}], ids=["colours", "no colours"])
@pytest.mark.parametrize(
    ("words", "fact"), [("run --optimiser adamm", "Nearest: adam."), ("run --epochs x", "INT"), ("figure", "NAME")]
)
def test_on_a_terminal_too_a_mistake_is_a_plain_line(words, fact, environment):
    said = on_terminal(*words.split(), **environment)
    assert (said.startswith("creditscope: Expected "), said.count("\n"), fact in said) == (True, 1, True)
    assert not set(said) & {"\x1b", "\\", "│", "─"}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of file sizes")
def test_files_that_may_not_grow_are_one_line_for_all_runs(tmp_path):
    """What a full disk does: the record's small files are written, the weights are not."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    words = ("run", *TINY, "--width", "64", "--seeds", "2", "--out", tmp_path, "--quiet")
    done = command(*words, first=limit)
    assert (done.returncode, done.stderr.count("\n"), done.stdout) == (2, 1, "")
    assert ("and 1 more" in done.stderr, "too large" in done.stderr) == (True, True)
    assert command(*words).returncode == 0


def test_a_folder_that_cannot_be_written_is_one_line(refused, tmp_path, monkeypatch):
    def read_only(path: Path, **_: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "mkdir", read_only)
    err = refused("run", *TINY, "--out", tmp_path, "--quiet")
    assert (err.count("\n"), f"'{tmp_path / 'records'}'" in err) == (1, True)


@pytest.mark.parametrize("words", [("run", "--task", "cora", "--net", "gcn"), ("doctor",)])
def test_no_home_is_one_line(refused, monkeypatch, words):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    for name in ("XDG_CACHE_HOME", "CREDITSCOPE_DATA"):
        monkeypatch.delenv(name, raising=False)
    err = refused(*words)
    assert (err.count("\n"), "--data-root" in err) == (1, True)
