"""From specs to records: in this process, in workers, and when runs fail; who asked hears of each finished run."""

import itertools
import re
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch
from stacking import LONG, ODD_RULES, SMALL, read, small_specs, spec_of, stop

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RecordWriter, RunSpec, bundle_finished, load_records, run_folder
from creditscope.record.finished import read_weights
from creditscope.record.stored import ended_meanwhile, status_of
from creditscope.train import execute
from creditscope.train.drive import Driver
from creditscope.train.events import Ended, Epoch, Event, Note, Planned, Recorded, Started, from_line, to_line
from creditscope.train.execute import run_all
from creditscope.train.places import here
from creditscope.train.plan import plan_run
from creditscope.train.progress import Silent
from creditscope.train.training import CHECKPOINT

pytestmark = pytest.mark.slow

TINY = SMALL | {"epochs": 1}


class Heard(Silent):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.begun, self.epochs, self.ended = (0, 0), [], {}

    def begin(self, runs: Sequence[RunSpec], reused: int, root: Path) -> None:
        self.begun = (len(runs), reused)

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        self.epochs.append((spec.digest(), done, loss))

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        self.ended[spec.digest()] = outcome


def snapshots(root: Path, spec: RunSpec) -> bytes:
    return (run_folder(root, spec) / "snapshots.jsonl").read_bytes()


class Crowd:
    """Six runs in two workers, three of which go wrong; made once."""

    def __init__(self, folder: Path):
        self.root, self.heard = folder / "records", Heard()
        self.first = plan_run(**TINY, rule="dfa", seed=1)
        self.dies = plan_run(**TINY, rule=f"{ODD_RULES}:Dies", seed=1)
        self.raises = plan_run(**TINY, rule=f"{ODD_RULES}:Raises", seed=1)
        self.diverges = plan_run(**TINY | {"epochs": 3}, optimiser="sgd", lr=1e20, seed=1)
        self.talks = plan_run(**TINY, rule=f"{ODD_RULES}:Talks", seed=1)
        self.second = plan_run(**TINY, rule="bp", seed=2)
        self.specs = [self.first, self.dies, self.raises, self.diverges, self.talks, self.second]
        with pytest.raises(CreditscopeError) as caught:
            run_all(self.specs, self.root, slots=2, readers=[self.heard.read])
        self.error = str(caught.value)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> Crowd:
    return Crowd(tmp_path_factory.mktemp("crowd"))


class TestWorkers:
    def test_progress_is_told_everything(self, crowd):
        good = [crowd.first, crowd.second, crowd.talks]
        ends = ["complete", "failed", "failed", "diverged", "complete", "complete"]
        assert (crowd.heard.begun, len(crowd.heard.ended)) == ((6, 0), 6)
        assert [crowd.heard.ended[spec.digest()] for spec in crowd.specs] == ends
        assert {(digest, done) for digest, done, _ in crowd.heard.epochs} == {(spec.digest(), 1) for spec in good}
        for spec in good:
            assert [s.epoch for s in read(crowd.root, spec).snapshots] == [0, 1]

    def test_a_rule_that_raises_and_a_worker_that_dies_cost_their_runs_alone(self, crowd):
        assert re.search(f"Run {crowd.raises.name()} failed: (?s:.*)broken", crowd.error)
        assert re.search(f"Run {crowd.dies.name()} failed: .* 3 times.*\\(9\\)", crowd.error)
        assert crowd.error.count("Run digits-") == 2
        problems: list[str] = []
        assert len(load_records(crowd.root, problems=problems)) == 4
        assert sorted(p.split()[1] for p in problems) == sorted([crowd.dies.name(), crowd.raises.name()])
        assert [crowd.raises.name() in p for p in problems if "broken" in p] == [True]

    def test_workers_and_this_process_agree_to_the_byte(self, crowd, tmp_path):
        """Whatever the number of jobs, equal specs give equal numbers, so their hash may name them."""
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            records = run_all([crowd.first, crowd.second], tmp_path, slots=1)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(threads)
        assert [r.spec for r in records] == [crowd.first, crowd.second]
        for spec in (crowd.first, crowd.second):
            assert snapshots(tmp_path, spec) == snapshots(crowd.root, spec)


class TestHere:
    """One job: no worker is started."""

    def test_runs_on_record_are_reused(self, crowd):
        heard, before = Heard(), snapshots(crowd.root, crowd.first)
        (record,) = run_all([crowd.first], crowd.root, slots=1, readers=[heard.read])
        assert (heard.begun, heard.ended) == ((0, 1), {})
        assert record == read(crowd.root, crowd.first)
        assert snapshots(crowd.root, crowd.first) == before

    def test_a_rule_that_raises_costs_its_run_alone_and_why_is_kept_until_it_is_run_again(self, crowd, tmp_path):
        heard, problems = Heard(), []
        with pytest.raises(CreditscopeError, match="broken"):
            run_all([crowd.raises, crowd.first], tmp_path, slots=1, readers=[heard.read])
        assert heard.ended == {crowd.raises.digest(): "failed", crowd.first.digest(): "complete"}
        assert [record.spec for record in load_records(tmp_path, problems=problems)] == [crowd.first]
        assert [crowd.raises.name() in problem and "broken" in problem for problem in problems] == [True]
        with RecordWriter(tmp_path, crowd.raises).open() as writer:
            assert not (writer.folder / "failure.txt").exists()

    def test_a_net_that_cannot_be_built_is_refused_before_anything_starts(self, crowd, tmp_path):
        flat, heard = plan_run(**TINY | {"net_options": {"depth": 0, "width": 8}}), Heard()
        with pytest.raises(CreditscopeError, match=r"ResMLP.*depth 0"):
            run_all([crowd.first, flat], tmp_path, slots=2, readers=[heard.read])
        assert (heard.begun, list(tmp_path.iterdir())) == ((0, 0), [])

    @pytest.mark.parametrize("limit", [-3, float("nan")])
    def test_a_time_limit_that_is_none_is_refused(self, crowd, tmp_path, limit):
        with pytest.raises(CreditscopeError, match="time_limit >= 0"):
            run_all([crowd.first], tmp_path, slots=1, time_limit=limit)

    def test_a_damaged_record_is_named_and_run_again(self, crowd, tmp_path):
        first, second = run_all([crowd.first, crowd.first], tmp_path, slots=1)
        assert first == second
        whole = snapshots(tmp_path, crowd.first)
        (run_folder(tmp_path, crowd.first) / "snapshots.jsonl").write_bytes(whole[:-50])
        problems: list[str] = []
        run_all([crowd.first], tmp_path, slots=1, problems=problems)
        assert snapshots(tmp_path, crowd.first) == whole
        assert len(problems) == 1
        assert f"damaged-0-{crowd.first.name()}" in problems[0]

    def test_a_batch_that_the_data_cannot_fill_stops_all(self, crowd, tmp_path):
        large = plan_run(**TINY, batch=1401)
        with pytest.raises(CreditscopeError, match=r"1400.*'digits'.*1401"):
            run_all([crowd.first, large], tmp_path, slots=1)
        assert not tmp_path.joinpath(crowd.first.name()).exists()


class EnoughError(Exception):
    """Raised by who hears of a finished run."""


def hearing(hear: Callable[[Record], None]) -> list[Callable[[Event], None]]:
    """A reader that hears of finished runs."""
    return [lambda event: hear(event.record) if isinstance(event, Recorded) else None]


def test_events_come_in_the_order_of_what_happens(tmp_path):
    """Each group is told of when it is done; what is on record is not trained, and equal specs are trained once."""
    first, second, third = small_specs(1, 2, 3)
    run_all([first], tmp_path, slots=1, device="cpu")
    told = list(execute.execute([first, second, second, third], tmp_path, slots=1, device="cpu"))
    assert told[0] == Planned((second, third), (first,), tmp_path)
    for spec, events in ((second, told[1:5]), (third, told[5:])):
        *epochs, ended, recorded = events
        assert [(event.run, event.done) for event in epochs] == [(spec.digest(), i + 1) for i in range(spec.epochs)]
        assert (ended, recorded) == (Ended(spec.digest(), "complete"), Recorded(read(tmp_path, spec)))
    assert list(execute.execute([first], tmp_path, slots=1, device="cpu")) == [Planned((), (first,), tmp_path)]


@pytest.mark.parametrize(
    "event", [Epoch("ab", 2, 0.5), Ended("ab", "failed", 'said "no"\ntwice'), Note("é"), Started("h", 1, ("ab",))]
)
def test_what_an_engine_tells_is_a_line(event):
    assert to_line(event).count("\n") == 1
    assert from_line(to_line(event)) == event


def test_who_reads_no_further_stops_the_run_it_stands_in(tmp_path):
    (spec,), threads = small_specs(LONG), torch.get_num_threads()
    with closing(execute.execute([spec], tmp_path, slots=1, device="cpu")) as events:
        assert [type(event) for event in itertools.islice(events, 3)] == [Planned, Epoch, Epoch]
    assert not (run_folder(tmp_path, spec) / "lock").exists()
    assert torch.get_num_threads() == threads


def test_a_finished_run_is_told_of_while_others_are_trained(tmp_path, launched):
    """And if who hears of it raises, the others end their epoch, leave checkpoints, and no process stays behind."""
    short, long = small_specs(1, LONG)

    def stop(record):
        assert record.spec == short
        raise EnoughError

    with pytest.raises(EnoughError):
        run_all([short, long], tmp_path, slots=2, device="cpu", readers=hearing(stop))
    assert (run_folder(tmp_path, long) / CHECKPOINT).exists()
    assert [process.is_running() for process in launched] == [False, False]


@pytest.mark.parametrize(("asked", "begun"), [("stacked", ""), ("stacked", "loop"), ("loop", "stacked"), ("auto", "")])
def test_what_is_trained_by_another_engine_than_was_asked_for_is_told(tmp_path, asked, begun):
    """Because it cannot be stacked, or because a run keeps the engine that it was begun with; once for all runs."""
    odd = {"batch": 35} if not begun else {}
    specs = [spec_of(seed=seed, epochs=2, **odd) for seed in (1, 2)]
    if begun:
        stop(specs, tmp_path, epochs=1, engine=begun)
    problems = []
    found = run_all(specs, tmp_path, slots=1, device="cpu", engine=asked, problems=problems)
    if asked == "auto":
        assert problems == []
        return
    used = found[0].provenance.engine
    assert (used, len(problems)) == (begun or "loop", 1)
    told = f"1 run trained by engine {used}" if begun == "loop" else f"2 runs trained by engine {used}"
    assert problems[0].startswith(f"{told}, not {asked}: ")
    assert ("choose batch" in problems[0]) == (not begun)


def test_those_that_end_while_all_are_stopping_are_told_of_too(tmp_path):
    (short,), (long,), told = small_specs(1, batch=1400), small_specs(LONG), []  # of one step, which is taken
    with pytest.raises(UnfinishedError, match="1 of 2"):
        run_all([short, long], tmp_path, slots=1, device="cpu", time_limit=1e-9, readers=hearing(told.append))
    assert [record.spec for record in told] == [short]


def test_the_limit_holds_while_someone_is_told_of_a_run(tmp_path):
    """Who hears of it goes on until the run that is stopped meanwhile has left its checkpoint."""
    short, long = small_specs(1, LONG)
    checkpoint, waited = run_folder(tmp_path, long) / CHECKPOINT, []

    def dawdle(record):
        for _ in range(600):
            waited.append(checkpoint.exists())
            if waited[-1]:
                break
            time.sleep(0.1)

    with pytest.raises(UnfinishedError, match="1 of 2"):
        run_all([short, long], tmp_path, slots=2, device="cpu", time_limit=20, readers=hearing(dawdle))
    assert waited[-1]


def test_workers_are_given_the_longest_first(tmp_path, monkeypatch):
    given = []
    nothing = (event for event in ())
    monkeypatch.setattr(Driver, "train_at", lambda driver, *_, **__: given.extend(driver.todo) or nothing)
    with pytest.raises(UnfinishedError):
        run_all(small_specs(1, 3, 2), tmp_path, slots=2, device="cpu")
    assert [attempt.group.specs[0].epochs for attempt in given] == [3, 2, 1]


def test_what_is_refused_ends_the_workers_that_were_getting_ready(tmp_path, launched):
    with pytest.raises(CreditscopeError, match="batch"):
        run_all(small_specs(1, 2, batch=10**6), tmp_path / "records", slots=2, device="cpu")
    assert [process.is_running() for process in launched] == [False, False]
    assert list(tmp_path.iterdir()) == []


def test_without_time_no_worker_is_launched(tmp_path, launched):
    with pytest.raises(UnfinishedError, match="0 of 2"):
        run_all(small_specs(1, 2), tmp_path, slots=2, device="cpu", time_limit=0)
    assert launched == []


def test_one_that_cannot_wake_its_device_says_so_of_its_runs(tmp_path, monkeypatch):
    """It does not die before it could be asked anything."""
    monkeypatch.setattr(here, "choose_device", lambda name: torch.device("cuda:99"))
    with pytest.raises(CreditscopeError, match=r"(?s)failed: .*CUDA"):
        run_all(small_specs(1, 2), tmp_path, slots=2)


class TestBundled:
    """Runs whose folders have gone into a bundle are on record, whoever asks."""

    def test_many_are_bundled_at_the_end_and_not_trained_again(self, tmp_path, monkeypatch):
        monkeypatch.setattr("creditscope.record.finished.MOST_FOLDERS", 1)
        specs = [plan_run(**TINY, seed=seed) for seed in (1, 2)]
        first = run_all(specs, tmp_path, slots=1)
        assert [path.suffix for path in tmp_path.iterdir() if not path.name.startswith(".")] == [".zip"]
        assert all(read_weights(record) for record in first)
        heard = Heard()
        again = run_all(specs, tmp_path, slots=1, readers=[heard.read])
        assert heard.begun == (0, 2)
        assert [r.snapshots for r in again] == [r.snapshots for r in first]

    def test_one_that_another_driver_bundled_meanwhile_is_not_begun_anew(self, tmp_path):
        (spec,) = [plan_run(**TINY, seed=1)]
        run_all([spec], tmp_path, slots=1)
        bundle_finished(tmp_path)
        with RecordWriter(tmp_path, spec).open() as writer:
            assert ended_meanwhile(writer) == "complete"
        assert not run_folder(tmp_path, spec).exists()
        assert status_of(tmp_path, spec) == "complete"

    def test_what_is_on_its_way_home_is_no_record(self, tmp_path):
        (spec,) = [plan_run(**TINY, seed=1)]
        run_all([spec], tmp_path, slots=1)
        shutil.copytree(run_folder(tmp_path, spec), tmp_path / ".work" / "token" / spec.name())
        assert len(load_records(tmp_path)) == 1
