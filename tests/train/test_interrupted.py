"""Ctrl-C: the epoch ends, what was done is on record, and the same call goes on and ends with the same bytes."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from stacking import LONG, ODD_RULES, read, same_bytes, small_specs

from creditscope.record import RunSpec, run_folder
from creditscope.train.events import Event, Recorded
from creditscope.train.execute import run_all
from creditscope.train.progress import Silent
from creditscope.train.stopping import STOPPING
from creditscope.train.training import CHECKPOINT

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def listening():
    """A process that a shell started in the background ignores Ctrl-C; here it is taken as at a prompt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def specs_of(epochs: int, rule: str = "dfa", **others) -> list[RunSpec]:
    return [spec for seed in (1, 2) for spec in small_specs(epochs, rule=rule, seed=seed, **others)]


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class Presses(Silent):
    """Presses Ctrl-C when the first run has trained so many epochs, and again one epoch later if asked to."""

    def __init__(self, epoch: int, *, times: int = 1):
        super().__init__()
        self.left = [epoch + i for i in range(times)]

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        if spec.seed == 1 and self.left and done >= self.left[0]:
            self.left.pop(0)
            press()


def test_in_this_process_the_epoch_ends_and_the_same_call_goes_on(tmp_path, capsys):
    specs, before = specs_of(6), signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path / "parts", slots=1, readers=[Presses(2).read])
    assert STOPPING in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
    assert (run_folder(tmp_path / "parts", specs[0]) / CHECKPOINT).exists()
    assert not run_folder(tmp_path / "parts", specs[1]).exists()
    first, second = run_all(specs, tmp_path / "parts", slots=1)
    assert (first.provenance.resumes, second.provenance.resumes) == (1, 0)
    run_all(specs, tmp_path / "whole", slots=1)
    assert same_bytes(specs, tmp_path / "parts", tmp_path / "whole")


def test_twice_stops_at_once(tmp_path, capsys):
    specs = specs_of(LONG)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path, slots=1, readers=[Presses(2, times=2).read])
    assert capsys.readouterr().err.count(STOPPING) == 1
    assert not run_folder(tmp_path, specs[1]).exists()


def press_when_told(event: Event) -> None:
    if isinstance(event, Recorded):
        press()


@pytest.mark.parametrize("reader", [Presses(3).read, press_when_told], ids=["in its last epoch", "when it is told of"])
def test_a_finished_run_is_on_record_and_the_next_is_not_begun(tmp_path, reader):
    specs = specs_of(3)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path, slots=1, readers=[reader])
    assert read(tmp_path, specs[0]).provenance.status == "complete"
    assert not run_folder(tmp_path, specs[1]).exists()


def test_where_signals_cannot_be_handled_runs_are_trained_all_the_same(tmp_path):
    specs, found = specs_of(1), []
    thread = threading.Thread(target=lambda: found.extend(run_all(specs, tmp_path, slots=1)))
    thread.start()
    thread.join()
    assert [record.provenance.status for record in found] == ["complete"] * 2


def test_where_the_shell_says_so_it_is_ignored(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert len(run_all(specs_of(3), tmp_path, slots=1, readers=[Presses(2).read])) == 2


def test_workers_end_their_epoch_and_leave_checkpoints(tmp_path, capsys):
    specs = specs_of(LONG)
    with pytest.raises(KeyboardInterrupt):
        run_all(specs, tmp_path, slots=2, readers=[Presses(2).read])
    assert capsys.readouterr().err.count(STOPPING) == 1
    assert (run_folder(tmp_path, specs[0]) / CHECKPOINT).exists()


class PressesWhileOneWaits(Silent):
    """Presses Ctrl-C when one worker trains and the other waits; a little later comes what comes then."""

    def __init__(self, waits: Path, then: Callable[[], None]):
        super().__init__()
        self.waits, self.then, self.pressed = waits, then, False

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        if self.waits.exists() and not self.pressed:
            self.pressed = True
            press()
            threading.Timer(0.5, self.then).start()


@pytest.mark.parametrize("twice", [False, True])
def test_who_is_within_an_epoch_is_waited_for_or_killed_if_asked_twice(tmp_path, capfd, launched, twice):
    rule = {"rule": f"{ODD_RULES}:Waits", "rule_options": {"folder": str(tmp_path)}}
    (_, other), (waiting, _) = specs_of(LONG), specs_of(LONG, **rule)
    then = press if twice else (tmp_path / "go").touch
    progress = PressesWhileOneWaits(tmp_path / "waits", then)
    with pytest.raises(KeyboardInterrupt):
        run_all([waiting, other], tmp_path / "records", slots=2, device="cpu", readers=[progress.read])
    assert [process.is_running() for process in launched] == [False, False]
    assert (run_folder(tmp_path / "records", waiting) / CHECKPOINT).exists() is not twice
    said = capfd.readouterr().err
    assert (said.count(STOPPING), "Traceback" in said) == (1, False)
