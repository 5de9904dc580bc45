"""From specs to records: in this process, in workers, and when runs fail; who asked hears of each finished run."""

import itertools
import re
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch

from creditscope.errors import CreditscopeError, UnfinishedError
from creditscope.record import Record, RecordWriter, RunSpec, load_records, read_record, run_folder
from creditscope.train import execute
from creditscope.train.events import Done, Ended, Epoch, Event, Planned, Recorded, from_line, to_line
from creditscope.train.execute import run_all
from creditscope.train.plan import plan_run
from creditscope.train.progress import Silent
from creditscope.train.training import CHECKPOINT

pytestmark = pytest.mark.slow

TINY = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "epochs": 1, "tier": "quick"}
RULES = '''
import os
from creditscope import TapRule


class Raises(TapRule):
    def credit(self, ctx):
        raise RuntimeError("this rule is broken")


class Dies(TapRule):
    def credit(self, ctx):
        os._exit(9)


class Talks(TapRule):
    """Prints what looks like the runner's own events."""

    def credit(self, ctx):
        print('{"event": "end", "outcome": "from the rule"}', flush=True)
        return [h.clone() for h in ctx.states]
'''


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
        (folder / "rules.py").write_text(RULES)
        self.root, self.heard = folder / "records", Heard()
        self.first = plan_run(**TINY, rule="dfa", seed=1)
        self.dies = plan_run(**TINY, rule=f"{folder}/rules.py:Dies", seed=1)
        self.raises = plan_run(**TINY, rule=f"{folder}/rules.py:Raises", seed=1)
        self.diverges = plan_run(**TINY | {"epochs": 3}, optimiser="sgd", lr=1e20, seed=1)
        self.talks = plan_run(**TINY, rule=f"{folder}/rules.py:Talks", seed=1)
        self.second = plan_run(**TINY, rule="bp", seed=2)
        self.specs = [self.first, self.dies, self.raises, self.diverges, self.talks, self.second]
        with pytest.raises(CreditscopeError) as caught:
            run_all(self.specs, self.root, jobs=2, readers=[self.heard.read])
        self.error = str(caught.value)

    def read(self, spec: RunSpec) -> Record:
        return read_record(run_folder(self.root, spec))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> Crowd:
    return Crowd(tmp_path_factory.mktemp("crowd"))


class TestWorkers:
    def test_the_good_runs_finish(self, crowd):
        for spec in (crowd.first, crowd.second, crowd.talks):
            assert crowd.heard.ended[spec.digest()] == "complete"
            assert [s.epoch for s in crowd.read(spec).snapshots] == [0, 1]

    def test_a_rule_that_raises_costs_its_run_alone(self, crowd):
        assert crowd.heard.ended[crowd.raises.digest()] == "failed"
        assert f"Run {crowd.raises.name()} failed: " in crowd.error
        assert "broken" in crowd.error

    def test_a_worker_that_dies_costs_its_run_alone(self, crowd):
        assert crowd.heard.ended[crowd.dies.digest()] == "failed"
        assert re.search(f"{crowd.dies.name()} failed: .* 9\\.", crowd.error)

    def test_only_what_failed_is_in_the_error(self, crowd):
        assert crowd.error.count("Run digits-") == 2
        problems: list[str] = []
        assert len(load_records(crowd.root, problems=problems)) == 4
        assert sorted(p.split()[1] for p in problems) == sorted([crowd.dies.name(), crowd.raises.name()])
        assert [crowd.raises.name() in p for p in problems if "broken" in p] == [True]
        assert crowd.heard.ended[crowd.diverges.digest()] == "diverged"

    def test_progress_is_told_everything(self, crowd):
        assert (crowd.heard.begun, len(crowd.heard.ended)) == ((6, 0), 6)
        told = {(digest, done) for digest, done, _ in crowd.heard.epochs}
        assert told == {(spec.digest(), 1) for spec in (crowd.first, crowd.second, crowd.talks)}

    def test_workers_and_this_process_agree_to_the_byte(self, crowd, tmp_path):
        """Whatever the number of jobs, equal specs give equal numbers, so their hash may name them."""
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            records = run_all([crowd.first, crowd.second], tmp_path, jobs=1)
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
        (record,) = run_all([crowd.first], crowd.root, jobs=1, readers=[heard.read])
        assert (heard.begun, heard.ended) == ((0, 1), {})
        assert record == crowd.read(crowd.first)
        assert snapshots(crowd.root, crowd.first) == before

    def test_a_rule_that_raises_costs_its_run_alone(self, crowd, tmp_path):
        heard = Heard()
        with pytest.raises(CreditscopeError, match="broken"):
            run_all([crowd.raises, crowd.first], tmp_path, jobs=1, readers=[heard.read])
        assert heard.ended == {crowd.raises.digest(): "failed", crowd.first.digest(): "complete"}

    def test_a_net_that_cannot_be_built_is_refused_before_anything_starts(self, crowd, tmp_path):
        flat, heard = plan_run(**TINY | {"net_options": {"depth": 0, "width": 8}}), Heard()
        with pytest.raises(CreditscopeError, match=r"ResMLP.*depth 0"):
            run_all([crowd.first, flat], tmp_path, jobs=2, readers=[heard.read])
        assert (heard.begun, list(tmp_path.iterdir())) == ((0, 0), [])

    @pytest.mark.parametrize("limit", [-3, float("nan")])
    def test_a_time_limit_that_is_none_is_refused(self, crowd, tmp_path, limit):
        with pytest.raises(CreditscopeError, match="time_limit >= 0"):
            run_all([crowd.first], tmp_path, jobs=1, time_limit=limit)

    def test_why_a_run_failed_is_kept_until_it_is_run_again(self, tmp_path):
        file, problems = tmp_path / "mine.py", []
        file.write_text(RULES)
        spec = plan_run(**TINY, rule=f"{file}:Raises", seed=1)
        with pytest.raises(CreditscopeError, match="broken"):
            run_all([spec], tmp_path, jobs=1)
        assert load_records(tmp_path, problems=problems) == []
        (problem,) = problems
        assert spec.name() in problem
        assert "broken" in problem
        with RecordWriter(tmp_path, spec).open() as writer:
            assert not (writer.folder / "failure.txt").exists()

    def test_a_damaged_record_is_named_and_run_again(self, crowd, tmp_path):
        run_all([crowd.first], tmp_path, jobs=1)
        whole = snapshots(tmp_path, crowd.first)
        (run_folder(tmp_path, crowd.first) / "snapshots.jsonl").write_bytes(whole[:-50])
        problems: list[str] = []
        run_all([crowd.first], tmp_path, jobs=1, problems=problems)
        assert snapshots(tmp_path, crowd.first) == whole
        assert len(problems) == 1
        assert f"damaged-0-{crowd.first.name()}" in problems[0]

    def test_equal_specs_are_trained_once(self, crowd, tmp_path):
        heard = Heard()
        records = run_all([crowd.first, crowd.first], tmp_path, jobs=1, readers=[heard.read])
        assert (heard.begun, records[0]) == ((1, 0), records[1])

    def test_a_batch_that_the_data_cannot_fill_stops_all(self, crowd, tmp_path):
        large = plan_run(**TINY, batch=1401)
        with pytest.raises(CreditscopeError, match=r"1400.*'digits'.*1401"):
            run_all([crowd.first, large], tmp_path, jobs=1)
        assert not tmp_path.joinpath(crowd.first.name()).exists()


SMALL = {"batch": 700, "eval_rows": 32, "snapshot_every": 0}
LONG = 200_000


class EnoughError(Exception):
    """Raised by who hears of a finished run."""


def specs_of(*epochs: int, **others) -> list[RunSpec]:
    return [plan_run(**{**TINY, **SMALL, "epochs": count, **others}) for count in epochs]


def hearing(hear: Callable[[Record], None]) -> list[Callable[[Event], None]]:
    """A reader that hears of finished runs."""
    return [lambda event: hear(event.record) if isinstance(event, Recorded) else None]


def test_in_this_process_each_group_is_told_of_when_it_is_done(tmp_path):
    specs, told = specs_of(1, 2, 3), []
    records = run_all(specs, tmp_path, jobs=1, device="cpu", readers=hearing(told.append))
    assert told == records


def test_events_come_in_the_order_of_what_happens(tmp_path):
    first, second = specs_of(1, 2)
    (record,) = run_all([first], tmp_path, jobs=1, device="cpu")
    told = list(execute.execute([first, second, second], tmp_path, jobs=1, device="cpu"))
    planned, one, two, ended, recorded = told
    assert planned == Planned((second,), (record,), tmp_path)
    assert [(event.run, event.done) for event in (one, two)] == [(second.digest(), 1), (second.digest(), 2)]
    assert ended == Ended(second.digest(), "complete")
    assert recorded.record.spec == second
    assert list(execute.execute([first], tmp_path, jobs=1, device="cpu")) == [Planned((), (record,), tmp_path)]


@pytest.mark.parametrize("event", [Epoch("ab", 2, 0.5), Ended("ab", "failed", 'said "no"\ntwice'), Done()])
def test_what_an_engine_tells_is_a_line(event):
    assert to_line(event).count("\n") == 1
    assert from_line(to_line(event)) == event


def test_who_reads_no_further_stops_the_run_it_stands_in(tmp_path):
    (spec,), threads = specs_of(LONG), torch.get_num_threads()
    with closing(execute.execute([spec], tmp_path, jobs=1, device="cpu")) as events:
        assert [type(event) for event in itertools.islice(events, 3)] == [Planned, Epoch, Epoch]
    assert not (run_folder(tmp_path, spec) / "lock").exists()
    assert torch.get_num_threads() == threads


def test_a_finished_run_is_told_of_while_others_are_trained(tmp_path, launched):
    """And if who hears of it raises, the others end their epoch, leave checkpoints, and no process stays behind."""
    short, long = specs_of(1, LONG)

    def stop(record):
        assert record.spec == short
        raise EnoughError

    with pytest.raises(EnoughError):
        run_all([short, long], tmp_path, jobs=2, device="cpu", readers=hearing(stop))
    assert (run_folder(tmp_path, long) / CHECKPOINT).exists()
    assert [process.poll() is None for process in launched] == [False, False]


def test_those_that_end_while_all_are_stopping_are_told_of_too(tmp_path):
    short, long = specs_of(1, LONG)
    told = []
    with pytest.raises(UnfinishedError, match="1 of 2"):
        run_all([short, long], tmp_path, jobs=1, device="cpu", time_limit=1e-9, readers=hearing(told.append))
    assert [record.spec for record in told] == [short]


def test_the_limit_holds_while_someone_is_told_of_a_run(tmp_path):
    """Who hears of it goes on until the run that is stopped meanwhile has left its checkpoint."""
    short, long = specs_of(1, LONG)
    checkpoint, waited = run_folder(tmp_path, long) / CHECKPOINT, []

    def dawdle(record):
        for _ in range(600):
            waited.append(checkpoint.exists())
            if waited[-1]:
                break
            time.sleep(0.1)

    with pytest.raises(UnfinishedError, match="1 of 2"):
        run_all([short, long], tmp_path, jobs=2, device="cpu", time_limit=10, readers=hearing(dawdle))
    assert waited[-1]


def test_workers_are_given_the_longest_first(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(
        execute, "train_in_workers", lambda groups, *_, **__: given.extend(groups) or (event for event in ())
    )
    with pytest.raises(UnfinishedError):
        run_all(specs_of(1, 3, 2), tmp_path, jobs=2, device="cpu")
    assert [group.specs[0].epochs for group in given] == [3, 2, 1]


def test_what_is_refused_ends_the_workers_that_were_getting_ready(tmp_path, launched):
    with pytest.raises(CreditscopeError, match="batch"):
        run_all(specs_of(1, 2, batch=10**6), tmp_path / "records", jobs=2, device="cpu")
    assert [process.poll() is None for process in launched] == [False, False]
    assert list(tmp_path.iterdir()) == []


def test_without_time_no_worker_is_launched(tmp_path, launched):
    with pytest.raises(UnfinishedError, match="0 of 2"):
        run_all(specs_of(1, 2), tmp_path, jobs=2, device="cpu", time_limit=0)
    assert launched == []


def test_one_that_cannot_wake_its_device_says_so_of_its_runs(tmp_path, monkeypatch):
    """It does not die before it could be asked anything."""
    monkeypatch.setattr(execute, "choose_device", lambda name: torch.device("cuda:99"))
    monkeypatch.setattr(execute, "choose_jobs", lambda device: 2)
    with pytest.raises(CreditscopeError, match=r"(?s)failed: .*CUDA"):
        run_all(specs_of(1, 2), tmp_path)
