"""What is said of the speed: nothing before it is known, then that of training without what comes before it."""

import re
from pathlib import Path

import pytest
from builders import make_record

from creditscope.text import cells
from creditscope.train.events import Ended, Epoch, Note, Planned, Started
from creditscope.train.plan import plan_run
from creditscope.train.progress import Lines, LiveBar, Silent, choose_progress, duration

EPOCHS = 100


def facts_of(said: str) -> list[str]:
    """What the first line says: runs on record, runs to train, their seeds and epochs, and the folder."""
    return re.findall(r"(?:record: |train: |seeds |epochs |records in )([^\s,()]+)", said.splitlines()[0])


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr("creditscope.train.progress.time.monotonic", lambda: now[0])
    return now


def specs(count: int) -> list:
    return [plan_run(task="digits", epochs=EPOCHS, seed=seed) for seed in range(count)]


def test_start_and_first_measurement_are_not_in_the_speed(clock, tmp_path):
    tally, (spec,) = Silent(), specs(1)
    tally.begin([spec], 0, tmp_path)
    for epoch in range(1, EPOCHS // 2 + 1):
        clock[0] += 500 if epoch == 1 else 2
        tally.epoch(spec, epoch, 1.0)
        assert (tally.speed is None) == (epoch < 4)  # two to start the clock, two to read it
    assert (tally.speed, tally.epochs - tally.trained) == (0.5, 50)
    assert duration(100) in tally.pace()


def test_seeds_that_are_trained_as_one_come_at_once(clock, tmp_path):
    tally, stack = Silent(), specs(20)
    tally.begin(stack, 0, tmp_path)
    for epoch in range(1, 11):
        clock[0] += 500 if epoch == 1 else 2
        for spec in stack:
            tally.epoch(spec, epoch, 1.0)
    assert tally.speed == pytest.approx(10)


@pytest.mark.parametrize(("first", "then"), [(1, 1), (41, 41), (1, 31)], ids=["anew", "resumed", "from a checkpoint"])
def test_epochs_that_are_trained_again_are_counted_again(first, then, clock, tmp_path):
    """Memory ran out after epoch 50, and the run began once more: what is left is what it has not done since."""
    tally, (spec, other) = Silent(), specs(2)
    tally.begin([spec, other], 0, tmp_path)
    for epoch in [*range(first, 51), *range(then, EPOCHS + 1)]:
        clock[0] += 1
        tally.epoch(spec, epoch, 1.0)
        assert tally.epochs - tally.trained == EPOCHS - epoch + EPOCHS
    tally.end_run(spec, "complete")
    assert (tally.speed, tally.epochs - tally.trained) == (1, EPOCHS)


@pytest.mark.parametrize("outcome", ["complete", "diverged", "failed"])
@pytest.mark.parametrize("epochs", [range(0), range(1, 41)], ids=["measured only", "stopped early"])
def test_a_run_that_has_ended_has_nothing_left(outcome, epochs, tmp_path):
    """It may have been stopped after its last epoch, before it was measured, and had none to train now."""
    tally, (spec,) = Silent(), specs(1)
    tally.begin([spec], 0, tmp_path)
    for epoch in epochs:
        tally.epoch(spec, epoch, 1.0)
    tally.end_run(spec, outcome)
    assert tally.epochs == tally.trained


@pytest.mark.parametrize("progress", [Lines, LiveBar])
def test_what_is_on_record_and_where_is_said_even_if_nothing_is_left(progress, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    progress().begin([], 30, tmp_path)
    assert facts_of(capsys.readouterr().err) == ["30", "0", str(tmp_path)]


def test_what_is_printed_under_the_bar_goes_where_it_would(capsys, tmp_path, monkeypatch):
    """To a file, say, although the bar is on a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar = LiveBar()
    bar.begin(specs(1), 0, tmp_path)
    print("drawn")
    bar.close()
    out, err = capsys.readouterr()
    assert (out, "drawn" in err) == ("drawn\n", False)


def test_events_are_told_as_runs_and_the_bar_is_closed_however_they_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    (spec,) = specs(1)
    bar = LiveBar(reused=2)
    told = Planned((spec,), (make_record(),), tmp_path), Epoch(spec.digest(), 3, 0.5), Ended(spec.digest(), "failed")
    for event in (Note("none of its business"), *told):
        bar.read(event)
    assert (bar.trained, bar.ended, bar.bar.live.is_started) == (1, 1, True)
    with pytest.raises(ZeroDivisionError), bar:
        raise ZeroDivisionError
    assert not bar.bar.live.is_started
    said = capsys.readouterr().err
    assert facts_of(said) == ["3", "1", "1", str(EPOCHS), str(tmp_path)]
    assert f"{spec.name()}: failed" in said


class TestTwoRuns:
    """Six epochs of two runs, the second resumed in its third epoch and diverged after it."""

    def told(self, progress) -> None:
        first, second = (plan_run(task="digits", epochs=4, seed=seed) for seed in (1, 2))
        progress.begin([first, second], 3, Path("here"))
        for done in range(1, 5):
            progress.epoch(first, done, 0.5)
        progress.end_run(first, "complete")
        progress.epoch(second, 3, 0.25)
        progress.end_run(second, "diverged")
        progress.close()

    def test_in_a_log_there_are_lines_between_where_runs_take_long(self, capsys):
        lines = Lines()
        lines.interval = 0.0
        self.told(lines)
        said = capsys.readouterr().err
        assert facts_of(said) == ["3", "2", "2", "8", "here"]
        between = [re.findall(r"[\d./]+", line)[:5] for line in said.splitlines() if "loss" in line]
        assert between[0] == ["0/2", "1", "1/4", "0.500", "1/8"]
        assert between[-1] == ["1/2", "2", "3/4", "0.250", "5/6"]  # two were trained before
        assert (lines.trained, lines.epochs) == (5, 5)  # and one never will be

    def test_a_bar_ends_with_all_epochs_done_and_names_what_went_wrong(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        self.told(LiveBar())
        said = capsys.readouterr().err
        assert facts_of(said) == ["3", "2", "2", "8", "here"]
        assert "5/5 epochs" in " ".join(said.split())
        assert "100 %" in said
        assert (said.count("diverged"), "complete" in said) == (1, False)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_narrow_bar_keeps_percent_bar_and_time_left(columns, clock, capsys, tmp_path, monkeypatch):
    """A third of a run that takes hours, with a long name, on a terminal of this width."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    bar, runs = LiveBar(), specs(3)
    bar.begin(runs, 0, tmp_path)
    for epoch in range(1, EPOCHS + 1):
        clock[0] += 100
        bar.epoch(runs[0], epoch, 1.0)
    bar.close()
    frames = re.split(r"\x1b\[(?=[^m]*[A-Za-ln-z])|\r|\n", capsys.readouterr().err)
    *_, line = [re.sub(r"\x1b\[[\d;]*m", "", frame) for frame in frames if "%" in frame]
    line = line[line.index("33") :] if "33" in line else line
    assert len(line.rstrip()) <= columns
    assert line.split()[0] == "33"
    assert sum(line.count(sign) for sign in "━╸╺") >= 15
    assert "5 h 33 min left" in line


def test_a_bar_of_wide_letters_stays_in_its_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    bar = LiveBar()
    bar.begin(specs(1), 0, tmp_path)
    bar.latest = "規則" * 40
    said = bar.said()
    bar.close()
    assert (said.endswith(("則…", "規…")), "0/1 runs" in said) == (True, True)
    assert cells(said) in (80 - bar.cells - 8, 80 - bar.cells - 7)


def test_who_wants_to_hear_nothing_does_not(capsys):
    progress = choose_progress(quiet=True)
    TestTwoRuns().told(progress)
    assert (type(progress), capsys.readouterr().err) == (Silent, "")


@pytest.mark.parametrize("progress", [Lines, LiveBar])
def test_a_path_is_no_markup(progress, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    shown = progress()
    shown.begin(specs(1), 0, tmp_path / "[/odd]\x1b")
    shown.show()
    shown.close()
    assert rf"{tmp_path}/[/odd]\x1b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("devices", "facts"),
    [(["cpu"], []), (["cpu"] * 3, ["3"]), (["cuda"] * 4, ["4", "1/4"]), (["cuda:0", "cuda:1"] * 2, ["4", "2/4"])],
)
def test_who_trains(devices, facts, tmp_path):
    tally, runs = Silent(), specs(len(devices))
    tally.read(Planned(tuple(runs), (), tmp_path))
    for process, (spec, device) in enumerate(zip(runs, devices, strict=True)):
        tally.read(Started("host", process, (spec.digest(),), device))
    assert re.findall(r"[0-9/]+", tally.crew()) == facts
