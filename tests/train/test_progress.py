"""What is said of the speed: nothing before it is known, then that of training without what comes before it."""

import pytest
from builders import make_record

from creditscope.train.events import Ended, Epoch, Note, Planned
from creditscope.train.plan import plan_run
from creditscope.train.progress import Lines, LiveBar, Tally

EPOCHS = 100


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    now = [0.0]
    monkeypatch.setattr("creditscope.train.progress.time.monotonic", lambda: now[0])
    return now


def specs(count: int) -> list:
    return [plan_run(task="digits", epochs=EPOCHS, seed=seed) for seed in range(count)]


def test_start_and_first_measurement_are_not_in_the_speed(clock, tmp_path):
    tally, (spec,) = Tally(), specs(1)
    tally.begin([spec], 0, tmp_path)
    for epoch in range(1, EPOCHS // 2 + 1):
        clock[0] += 500 if epoch == 1 else 2
        tally.epoch(spec, epoch, 1.0)
        assert (tally.pace() == "speed not known yet") == (epoch < 4)  # two to start the clock, two to read it
    assert tally.pace() == "0.5 epochs/s, about 1 min 40 s left"


def test_seeds_that_are_trained_as_one_come_at_once(clock, tmp_path):
    tally, stack = Tally(), specs(20)
    tally.begin(stack, 0, tmp_path)
    for epoch in range(1, 11):
        clock[0] += 500 if epoch == 1 else 2
        for spec in stack:
            tally.epoch(spec, epoch, 1.0)
    told = tally.pace()
    assert told.startswith("10 epochs/s, about 3 min 0 s left")


@pytest.mark.parametrize(("first", "then"), [(1, 1), (41, 41), (1, 31)], ids=["anew", "resumed", "from a checkpoint"])
def test_epochs_that_are_trained_again_are_counted_again(first, then, clock, tmp_path):
    """Memory ran out after epoch 50, and the run began once more: what is left is what it has not done since."""
    tally, (spec, other) = Tally(), specs(2)
    tally.begin([spec, other], 0, tmp_path)
    for epoch in [*range(first, 51), *range(then, EPOCHS + 1)]:
        clock[0] += 1
        tally.epoch(spec, epoch, 1.0)
        assert tally.epochs - tally.trained == EPOCHS - epoch + EPOCHS
    tally.end_run(spec, "complete")
    assert tally.pace() == "1 epochs/s, about 1 min 40 s left"


@pytest.mark.parametrize("outcome", ["complete", "diverged", "failed"])
@pytest.mark.parametrize("epochs", [range(0), range(1, 41)], ids=["measured only", "stopped early"])
def test_a_run_that_has_ended_has_nothing_left(outcome, epochs, tmp_path):
    """It may have been stopped after its last epoch, before it was measured, and had none to train now."""
    tally, (spec,) = Tally(), specs(1)
    tally.begin([spec], 0, tmp_path)
    for epoch in epochs:
        tally.epoch(spec, epoch, 1.0)
    tally.end_run(spec, outcome)
    assert tally.epochs == tally.trained


@pytest.mark.parametrize("progress", [Lines, LiveBar])
def test_what_is_on_record_and_where_is_said_even_if_nothing_is_left(progress, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    progress().begin([], 30, tmp_path)
    assert capsys.readouterr().err == f"runs on record: 30, to train: 0, records in {tmp_path}\n"


def test_what_is_printed_under_the_bar_goes_where_it_would(capsys, tmp_path, monkeypatch):
    """To a file, say, although the bar is on a terminal."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    bar = LiveBar()
    bar.begin(specs(1), 0, tmp_path)
    print("a figure was drawn")
    bar.close()
    out, err = capsys.readouterr()
    assert (out, "drawn" in err) == ("a figure was drawn\n", False)


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
    assert f"runs on record: 3, to train: 1 (seeds 1, epochs {EPOCHS}), records in {tmp_path}" in said
    assert f"{spec.name()}: failed" in said
