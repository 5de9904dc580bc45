"""What is told of runs before and while they are trained: status, cancel, a dry run, settings of places, locks."""

import fcntl
import json
import os

import pytest
from stacking import small_specs, train_on

from creditscope.commands.doctor import examine_locks
from creditscope.errors import CreditscopeError
from creditscope.record import RecordWriter, bundle_finished, run_folder
from creditscope.record.locks import is_being_written
from creditscope.record.store import keep_failure
from creditscope.train.events import Ended, Epoch, Started, to_line
from creditscope.train.execute import execute
from creditscope.train.places import find_place
from creditscope.train.status import read_status
from creditscope.train.work import Tail, find_work, working

TINY = ("--task", "digits", "--width", "8", "--depth", "1", "--epochs", "1", "--tier", "quick", "--quiet")


@pytest.mark.slow
def test_status_counts_what_is_done_trained_waiting_and_failed(tmp_path, told):
    done, training, ended, _, failed = specs = [s for seed in range(5) for s in small_specs(4, seed=seed)]
    train_on([done, ended], tmp_path, engine="loop")
    for spec in (training, failed):
        with RecordWriter(tmp_path, spec).open() as writer:
            writer.begin()
    keep_failure(tmp_path, failed, "no luck")
    with working(tmp_path, "ray", [spec.name() for spec in specs]) as work:
        events = [Started("far", 7, (training.digest(), ended.digest())), Epoch(training.digest(), 3, 0.5)]
        events += [Ended(ended.digest(), "complete")]
        work.events(1).write_text("".join(map(to_line, events)) + '{"event": "Epo')
        os.utime(work.events(1), (0, 0))
        found = read_status(tmp_path)
        assert (found.done, found.waiting, found.failed) == (2, 1, {failed.name(): "no luck"})
        (run,) = found.training
        assert (run.run, run.place, run.host, run.epoch, run.epochs) == (training.name(), "ray", "far", 3, 4)
        assert run.age > 1e9
        assert json.loads(told("status", tmp_path, "--json"))["training"][0]["epoch"] == 3
        assert not work.is_stopped()
        told("cancel", tmp_path)
        assert work.is_stopped()
    assert find_work(tmp_path) == []


def test_status_of_no_folder_is_refused(refused, tmp_path):
    assert str(tmp_path / "none") in refused("status", tmp_path / "none")


def test_work_of_a_driver_that_died_is_removed_and_of_one_that_lives_is_not(tmp_path):
    with working(tmp_path, "here", ["a"]) as work:
        dead = work.folder.with_name("0000")
        dead.mkdir()
        (dead / "orders").write_text("0000\n")
        (dead / "driver.json").write_text((work.folder / "driver.json").read_text().replace(work.token, "0000"))
        assert [other.is_driven() for other in find_work(tmp_path)] in ([True, False], [False, True])
        with working(tmp_path, "here", ["b"]) as other:
            assert {found.token for found in find_work(tmp_path)} == {work.token, other.token}


@pytest.mark.slow
def test_a_dry_run_says_what_would_be_trained_and_trains_nothing(tmp_path, told):
    assert "not known" in told("run", *TINY, "--seeds", "2", "--out", tmp_path, "--dry-run")
    assert list(tmp_path.iterdir()) == []
    told("run", *TINY, "--seeds", "1", "--slots", "1", "--out", tmp_path)
    first, *groups, time = told("run", *TINY, "--seeds", "3", "--out", tmp_path, "--dry-run").splitlines()
    assert first.startswith("runs on record: 1, to train: 2 in 2 groups")
    assert (len(groups), time.startswith("time: about")) == (2, True)
    assert len(list((tmp_path / "records").iterdir())) == 1


@pytest.mark.parametrize(
    ("on", "settings", "named"),
    [("moon", {}, "moon"), ("here", {"here": {"a": "1"}}, "a"), ("here", {"slurm": {}}, "slurm")],
)
def test_a_place_or_a_setting_that_is_none_is_refused(on, settings, named):
    with pytest.raises(CreditscopeError, match=named):
        find_place(on, device="cpu", slots=1, settings=settings)


def test_settings_of_the_place_are_typed_by_its_name(refused, tmp_path):
    assert "partition" in refused("run", *TINY, "--out", tmp_path, "--set", "here.partition=gpu")
    assert "slurm.partition=gpu" in refused("run", *TINY, "--out", tmp_path, "--set", "slurm.partition=gpu")


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    assert examine_locks(tmp_path / "not" / "there").remedy == ""

    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert examine_locks(tmp_path).remedy


@pytest.mark.slow
def test_runs_in_a_bundle_are_done_and_nobody_waits_for_them(tmp_path):
    (spec,) = small_specs(1, seed=1)
    train_on([spec], tmp_path, engine="loop")
    bundle_finished(tmp_path)
    assert not is_being_written(run_folder(tmp_path, spec))
    with working(tmp_path, "slurm", [spec.name()], outlives=True):
        found = read_status(tmp_path)
        assert (found.done, found.waiting, found.training) == (1, 0, [])
    assert find_work(tmp_path) == []


@pytest.mark.slow
def test_a_run_in_this_very_process_is_seen_from_elsewhere(tmp_path):
    seen = []
    for event in execute(small_specs(3, seed=1), tmp_path, slots=1, device="cpu"):
        if isinstance(event, Epoch):
            seen += [run.epoch for run in read_status(tmp_path).training]
    assert seen == [1, 2, 3]


def test_half_a_line_that_a_kill_left_is_passed_by(tmp_path):
    path = tmp_path / "1.jsonl"
    path.write_text('{"event": "Epo\n' + to_line(Epoch("ab", 1, 0.5)))
    assert list(Tail(path).read()) == [Epoch("ab", 1, 0.5)]


def test_without_locks_the_folder_of_a_driver_that_lives_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("creditscope.train.work.try_lock", lambda file: True)
    with working(tmp_path, "here", ["a"]) as work:
        told = json.loads((work.folder / "driver.json").read_text()) | {"process": os.getppid()}
        (work.folder / "driver.json").write_text(json.dumps(told))
        with working(tmp_path, "here", ["b"]):
            assert not work.is_stopped()
