"""A run can be stopped at any moment and ends with the same bytes as one that was not, alone or in any stack."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import load_file
from stacking import (
    SMALL,
    assert_near,
    assert_records_agree,
    end_alike,
    read,
    record_run,
    recorded,
    same_bytes,
    spec_of,
    stop,
    train_on,
)
from trained import record_runs

from creditscope.errors import CreditscopeError
from creditscope.measure import instruments
from creditscope.record import RecordWriter, RunSpec, Snapshot, run_folder
from creditscope.train import stacked, training
from creditscope.train.events import BUSY
from creditscope.train.execute import UnfinishedError, run_all
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.training import CHECKPOINT, DamagedCheckpointError, load_checkpoint

pytestmark = pytest.mark.slow

GRAPH = {"net": "gcn", "optimiser": "adam", "epochs": 8}
ALONE = (
    ("bp", {}),
    ("fa", {}),
    ("dfa", {}),
    ("block_fa", {"optimiser": "sgd"}),
    ("dfa", {"frozen": True}),
    ("fa", GRAPH),
    ("fa", {"tier": "standard"}),
    ("grape", {}),
    ("kaft", GRAPH),
    ("bp", GRAPH | {"decay_on": "first", "weight_decay": 0.1}),
)
RESUMED = (
    ("dfa", {}),
    ("fa", {"noise": True}),
    ("block_fa", {"optimiser": "sgd", "lr": 0.01, "credit_norm": "batch"}),
    ("bp", {"frozen": True, "penalty": 0.1}),
    ("fa", GRAPH),
    ("kaft", GRAPH),
    ("bp", GRAPH | {"decay_on": "first", "weight_decay": 0.1}),
)


def epoch_of(root: Path, spec: RunSpec) -> int:
    with safe_open(run_folder(root, spec) / CHECKPOINT, framework="pt") as file:
        return int(file.metadata()["epoch"])


def steps_of(root: Path, spec: RunSpec) -> int:
    """Steps that a run has done, of epochs of four."""
    with safe_open(run_folder(root, spec) / CHECKPOINT, framework="pt") as file:
        return 4 * int(file.metadata()["epoch"]) + int(file.metadata()["step"])


def stopped(root: Path, rule: str = "dfa", *, after: int = 3, **others) -> RunSpec:
    """A run alone that was stopped after so many of its eight epochs."""
    (spec,) = recorded((1,), rule, **{"epochs": 8, "snapshot_every": 1} | others)
    stop([spec], root, epochs=after, engine="loop")
    return spec


def ends_alike(root: Path, spec: RunSpec) -> bool:
    """Whether the run, gone on with, has the bytes of one that was never stopped."""
    assert [record_run(spec, place) for place in (root, root / "whole")] == ["complete"] * 2
    return same_bytes([spec], root, root / "whole")


def checkpoint_of(run: Run) -> str:
    """All that a checkpoint would put back, in short."""
    states = {f"{i}/{key}": t for i, state in run.optimiser_state().items() for key, t in state.items()}
    return training.content_digest({**run.tensors(), **states}, {})


def altered(content: bytes, rng: random.Random) -> bytes:
    """With a bit turned, some bytes gone, doubled, made zero, or two stretches exchanged."""
    kind, i = rng.randrange(5), rng.randrange(len(content) if rng.random() < 0.5 else 2000)
    n = rng.randint(1, 64)
    if kind == 0:
        return content[:i] + bytes([content[i] ^ (1 << rng.randrange(8))]) + content[i + 1 :]
    if kind == 1:
        return content[:i] + content[i + n :]
    if kind == 2:
        return content[: i + n] + content[i:]
    if kind == 3:
        return content[:i] + bytes(len(content[i : i + n])) + content[i + n :]
    return content[:i] + content[i + n : i + 2 * n] + content[i : i + n] + content[i + 2 * n :]


def second_fails(specs: list[RunSpec], root: Path) -> str:
    """Why, while the others of three complete."""
    first, why, third = train_on(specs, root)
    assert (first, third) == ("complete", "complete")
    return why


def full_disk(monkeypatch, seed: int, epoch: int) -> None:
    original = RecordWriter.append

    def full(self: RecordWriter, snapshot: Snapshot) -> None:
        if self.spec.seed == seed and snapshot.epoch == epoch:
            raise OSError(28, "No space left on device")
        original(self, snapshot)

    monkeypatch.setattr(RecordWriter, "append", full)


class TestAlone:
    @pytest.mark.parametrize(("rule", "others"), ALONE, ids=str)
    def test_a_stopped_run_goes_on_and_ends_alike(self, tmp_path, rule, others):
        *_, spec = [stopped(tmp_path, rule, after=2, **others) for _ in range(3)]
        assert ends_alike(tmp_path, spec)
        assert read(tmp_path, spec).provenance.resumes == 3
        assert not (run_folder(tmp_path, spec) / CHECKPOINT).exists()

    def test_lines_after_the_checkpoint_are_cut_and_measured_again(self, tmp_path):
        spec = stopped(tmp_path)
        lines = run_folder(tmp_path, spec) / "snapshots.jsonl"
        lines.write_text(lines.read_text() + lines.read_text().splitlines(keepends=True)[-1] + '{"epoch": 5, "st')
        assert ends_alike(tmp_path, spec)

    @pytest.mark.parametrize("harm", ["a line is gone", "it is cut"])
    def test_a_useless_checkpoint_is_named_and_set_aside_and_a_half_written_one_ignored(self, tmp_path, harm):
        spec = stopped(tmp_path)
        checkpoint = run_folder(tmp_path, spec) / CHECKPOINT
        checkpoint.with_name(CHECKPOINT + ".part").write_bytes(b"half")
        if harm == "it is cut":
            checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
        else:
            lines = checkpoint.with_name("snapshots.jsonl")
            lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:-1]))
        problems = []
        (record,) = run_all([spec], tmp_path, slots=1, problems=problems)
        (said,) = problems
        assert (str(checkpoint) in said, f"damaged-{CHECKPOINT}" in said) == (True, True)
        assert (record.provenance.status, record.provenance.resumes) == ("complete", 0)
        assert ends_alike(tmp_path, spec)
        assert checkpoint.with_name(f"damaged-{CHECKPOINT}").exists()

    def test_whatever_is_altered_in_a_checkpoint_is_noticed_or_has_no_effect(self, tmp_path):
        spec = stopped(tmp_path)
        path = run_folder(tmp_path, spec) / CHECKPOINT
        whole, rng = path.read_bytes(), random.Random(0)
        run = build_run(spec)
        stood, wanted = load_checkpoint(path, run), checkpoint_of(run)
        refused = 0
        for _ in range(250):
            path.write_bytes(altered(whole, rng))
            run = build_run(spec)
            try:
                assert load_checkpoint(path, run) == stood
                assert checkpoint_of(run) == wanted
            except DamagedCheckpointError:
                refused += 1
        assert refused >= 200

    def test_a_checkpoint_of_another_run_or_none_at_all_is_refused(self, tmp_path):
        spec, other = stopped(tmp_path), stopped(tmp_path, net_options={"width": 8})
        path, another = (run_folder(tmp_path, each) / CHECKPOINT for each in (spec, other))
        another.replace(path)
        assert ends_alike(tmp_path, spec)
        path.mkdir()
        with pytest.raises(DamagedCheckpointError):
            load_checkpoint(path, build_run(spec))

    def test_a_full_disk_fails_the_run_and_keeps_what_was_there(self, tmp_path, monkeypatch):
        spec = stopped(tmp_path)
        full_disk(monkeypatch, spec.seed, 6)
        with pytest.raises(CreditscopeError, match="No space left"):
            run_all([spec], tmp_path, slots=1)
        monkeypatch.undo()
        assert ends_alike(tmp_path, spec)

    def test_the_time_limit_stops_cleanly_and_the_same_call_goes_on(self, tmp_path):
        """In this process, which gets to the first run alone, then in a worker for each, however slow to start."""
        specs = [spec_of(seed=seed, epochs=1_000_000, snapshot_every=0) for seed in (1, 2)]

        def stood_after(slots: int, limit: float) -> list[int]:
            with pytest.raises(UnfinishedError, match="0 of 2"):
                run_all(specs, tmp_path, slots=slots, time_limit=limit)
            return [steps_of(tmp_path, spec) for spec in specs if (run_folder(tmp_path, spec) / CHECKPOINT).exists()]

        (first,) = stood_after(slots=1, limit=0.5)
        assert first > 0
        for limit in (3, 10, 100):
            found = stood_after(slots=2, limit=limit)
            if len(found) == 2 and found[0] > first:
                break
        assert found[0] > first
        assert found[1] > 0


class TestStacks:
    @pytest.mark.parametrize(("rule", "others"), RESUMED, ids=str)
    def test_stopped_stacks_go_on_and_end_alike(self, tmp_path, whole, rule, others):
        specs = recorded((1, 2, 3), rule, **others)
        for stood in (1, 2, 3):
            stop(specs, tmp_path, epochs=1)
            assert [epoch_of(tmp_path, spec) for spec in specs] == [stood] * 3
        assert end_alike(specs, tmp_path, whole(specs))
        for spec in specs:
            assert read(tmp_path, spec).provenance.resumes == 3
            assert not (run_folder(tmp_path, spec) / CHECKPOINT).exists()

    @pytest.mark.parametrize("engine", ["loop", "stacked"])
    @pytest.mark.parametrize(
        ("rule", "others"),
        [("fa", {"noise": True}), ("kp", {}), ("grape", {}), ("bp", {"tier": "standard", "snapshot_every": 1})],
        ids=str,
    )
    def test_stopped_within_epochs_they_go_on_and_end_alike(self, tmp_path, rule, others, engine):
        specs = recorded((1, 2), rule, **others)
        train_on(specs, tmp_path / "whole", engine=engine)
        stop(specs[:1], tmp_path, steps=1, engine=engine)  # before the first epoch is over
        for stood in (3, 6, 11):
            stop(specs[:1], tmp_path, steps=stood - steps_of(tmp_path, specs[0]), engine=engine)
            assert steps_of(tmp_path, specs[0]) == stood
        assert train_on(specs, tmp_path, engine=engine) == ["complete"] * 2
        assert same_bytes(specs, tmp_path, tmp_path / "whole")
        assert [read(tmp_path, spec).provenance.resumes for spec in specs] == [4, 0]

    def test_checkpoints_are_taken_within_epochs(self, tmp_path, whole, monkeypatch):
        specs, saved, save = recorded((1, 2)), [], training.save_checkpoint
        wanted = whole(specs)
        monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
        monkeypatch.setattr(training, "CHECKPOINT_SHARE", 0)
        monkeypatch.setattr(training, "save_checkpoint", lambda *a, **at: saved.append(a[1].step) or save(*a, **at))
        assert end_alike(specs, tmp_path, wanted)
        assert saved[::2] == [1, 2, 3, 0] * 4

    def test_a_stack_stays_one_when_its_last_digits_have_grown(self, tmp_path, whole, monkeypatch):
        """Of a stream that has exploded, stacked and lone gradients differ by more than a new net's may."""
        specs = recorded((1, 2))
        wanted = whole(specs)  # before no new stack is let through
        stop(specs, tmp_path, epochs=1)
        monkeypatch.setattr(stacked, "SLACK", -1)
        monkeypatch.setitem(stacked.TOLERANCE, "float32", -1.0)
        with pytest.raises(stacked.CannotStackError, match="learns otherwise"):
            stacked.stack_runs([build_run(spec) for spec in specs])
        assert train_on(specs, tmp_path) == ["complete"] * 2
        assert [read(tmp_path, spec).provenance.engine for spec in specs] == ["stacked"] * 2
        assert same_bytes(specs, tmp_path, wanted)

    def test_members_that_stand_at_different_epochs(self, tmp_path, whole):
        specs = recorded((1, 2, 3, 4))
        stop(specs[:2], tmp_path, epochs=1)
        stop(specs[2:], tmp_path, epochs=3)
        (run_folder(tmp_path, specs[1]) / CHECKPOINT).unlink()
        assert end_alike(specs, tmp_path, whole(specs))
        stacks = [read(tmp_path, spec).provenance.stack for spec in specs]
        assert stacks == [(1,), (2,), (3, 4), (3, 4)]

    def test_members_at_different_epochs_can_be_stopped_again(self, tmp_path, whole):
        specs = recorded((1, 2, 3))
        stop(specs, tmp_path, epochs=1)
        (run_folder(tmp_path, specs[1]) / CHECKPOINT).unlink()
        for _ in range(3):
            stop(specs, tmp_path, epochs=1)
        assert end_alike(specs, tmp_path, whole(specs))

    @pytest.mark.parametrize(("checkpoints", "long", "measured"), [(0.0, 0.0, 1), (1e9, 0.0, 3), (0.0, 1e9, 3)])
    def test_a_long_snapshot_is_given_up_if_something_was_kept(
        self, tmp_path, whole, monkeypatch, checkpoints, long, measured
    ):
        specs, taken = recorded((1, 2, 3), tier="full"), []
        wanted = whole(specs)
        measure = instruments.measure_battery
        monkeypatch.setattr(instruments, "measure_battery", lambda *given: taken.append(measure(*given)) or taken[-1])
        monkeypatch.setattr(training, "LONG_SNAPSHOT", long)
        monkeypatch.setattr(training, "CHECKPOINT_SECONDS", checkpoints)
        monkeypatch.setattr(training, "CHECKPOINT_SHARE", 0)
        with pytest.raises(training.StoppedError):  # asked to when the first seed is measured after two epochs
            record_runs(specs, tmp_path, engine="stacked", should_stop=lambda: len(taken) > 3)
        assert len(taken) == 3 + measured
        assert [epoch_of(tmp_path, spec) for spec in specs] == [1 if measured == 1 else 2] * 3
        monkeypatch.undo()
        assert end_alike(specs, tmp_path, wanted)

    def test_other_mates(self, tmp_path, whole):
        one, two, three, four = recorded((1, 2, 3, 4))
        stop([one, two, three], tmp_path)
        stop([three, four], tmp_path, epochs=1)
        assert train_on([one], tmp_path) == ["complete"]
        assert end_alike([four, three, two, one], tmp_path, whole(recorded((1, 2, 3, 4))))

    def test_one_whose_checkpoint_is_damaged_starts_over_and_the_others_go_on(self, tmp_path, whole):
        specs = recorded((1, 2, 3))
        stop(specs, tmp_path)
        checkpoint = run_folder(tmp_path, specs[1]) / CHECKPOINT
        checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
        assert end_alike(specs, tmp_path, whole(specs))
        assert [read(tmp_path, spec).provenance.resumes for spec in specs] == [1, 0, 1]
        assert checkpoint.with_name(f"damaged-{CHECKPOINT}").exists()
        assert not checkpoint.exists()

    def test_a_finished_member_is_reused(self, tmp_path, whole):
        one, two = recorded((1, 2))
        train_on([one], tmp_path)
        before = {p.name: p.read_bytes() for p in run_folder(tmp_path, one).iterdir()}
        heard = []
        outcomes = train_on([one, two], tmp_path, on_epoch=lambda event: heard.append(event.run))
        assert outcomes == ["complete", "complete"]
        assert set(heard) == {two.digest()}
        assert {p.name: p.read_bytes() for p in run_folder(tmp_path, one).iterdir()} == before
        assert read(tmp_path, two).provenance.stack == (2,)
        assert same_bytes([one, two], tmp_path, whole(recorded((1, 2, 3))))

    def test_a_member_that_another_process_writes_is_left_to_it(self, tmp_path):
        specs = recorded((1, 2, 3), epochs=1)
        with RecordWriter(tmp_path, specs[1]).open():
            assert second_fails(specs, tmp_path) == BUSY

    def test_a_record_that_cannot_be_written_fails_alone(self, tmp_path, monkeypatch, whole):
        specs = recorded((1, 2, 3))
        root = whole(specs)
        full_disk(monkeypatch, 2, 2)
        assert "[Errno 28]" in second_fails(specs, tmp_path)
        monkeypatch.undo()
        assert end_alike(specs, tmp_path, root)

    @pytest.mark.parametrize(("begun", "ended"), [("stacked", "loop"), ("loop", "stacked")])
    @pytest.mark.parametrize(("rule", "others"), [RESUMED[2], RESUMED[4]], ids=str)
    def test_what_one_engine_began_the_other_can_finish(self, tmp_path, rule, others, begun, ended):
        specs = recorded((1, 2), rule, **others | {"precision": "float64"})
        train_on(specs, tmp_path / "loop", engine="loop")
        for part in [specs] if begun == "stacked" else [[spec] for spec in specs]:
            stop(part, tmp_path, epochs=2, engine=begun)
        assert train_on(specs, tmp_path, engine=ended) == ["complete"] * 2
        for spec in specs:
            found = read(tmp_path, spec).provenance
            assert (found.engine, found.resumes) == (ended, 1)
            assert_records_agree(tmp_path, tmp_path / "loop", spec, 1e-7, 1e-9, 1e-12)

    def test_both_engines_write_the_same_checkpoints_but_for_rounding(self, tmp_path):
        (spec,) = recorded((1,), "fa", precision="float64")
        held = []
        for engine in ("loop", "stacked"):
            stop([spec], tmp_path / engine, engine=engine)
            held.append(load_file(run_folder(tmp_path / engine, spec) / CHECKPOINT))
        assert_near(*held, rtol=1e-8, atol=1e-12)


KILLS = 12
CODE = """
import os, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from pydantic import TypeAdapter
from creditscope.record import RunSpec
from creditscope.train import training
from creditscope.train.events import Ended
from creditscope.train.groups import RunGroup
from creditscope.train.run import build_run

root, engine, specs = Path(sys.argv[1]), sys.argv[2], TypeAdapter(list[RunSpec]).validate_json(sys.argv[3])
build_run(specs[0])  # what is loaded here need not be loaded in every child


def train(events):
    training.CHECKPOINT_SECONDS = training.CHECKPOINT_SHARE = 0
    save = training.save_checkpoint

    def save_and_tell(*args, **position):
        save(*args, **position)
        os.write(events, b".")

    training.save_checkpoint = save_and_tell
    told = training.train_group(RunGroup(tuple(specs), engine), root, device=torch.device("cpu"))
    return 0 if {event.status for event in told if isinstance(event, Ended)} == {"complete"} else 3


for line in sys.stdin:  # after so many checkpoints, and so many seconds later, the child is killed
    checkpoints, seconds = int(line.split()[0]), float(line.split()[1])
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(ours)
            code = train(theirs)
        finally:
            os._exit(code)
    os.close(theirs)
    while checkpoints and os.read(ours, 1):
        checkpoints -= 1
    if seconds >= 0:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    else:
        while os.read(ours, 1024):
            pass
    os.close(ours)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""
"""A process that trains in children, one after the other, and kills each when it is told to: one start for all."""


DIGITS = SMALL | {"batch": 700, "eval_rows": 64, "epochs": 100}
SBM = {"task": "sbm", "task_options": {"nodes": 160}, "net": "gcn", "net_options": {"width": 8, "dropout": 0.3}}


@pytest.mark.parametrize(
    ("engine", "seeds", "setting"), [("loop", (1,), DIGITS), ("stacked", (1, 2, 3), SBM | {"epochs": 50})]
)
def test_killed_at_random_moments_they_end_alike(tmp_path, engine, seeds, setting):
    fields = {"rule": "fa", "snapshot_every": 2, "noise": False, "tier": "quick", **setting}
    specs = [plan_run(seed=seed, **fields) for seed in seeds]
    killed, rng = tmp_path / "killed", random.Random(0)
    command = [sys.executable, "-c", CODE, str(killed), engine, json.dumps([asdict(spec) for spec in specs])]
    ends = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def attempt(checkpoints: int, seconds: float) -> None:
            process.stdin.write(f"{checkpoints} {seconds}\n")
            process.stdin.flush()
            ends.append(int(process.stdout.readline()))

        attempt(0, 0.02)  # before there is any checkpoint
        for _ in range(KILLS - 1):
            attempt(rng.randint(1, 7), rng.choice([0, rng.random() * 0.01]))
        attempt(0, -1)
        process.stdin.close()
    assert ends == [-signal.SIGKILL] * KILLS + [0]
    assert record_runs(specs, tmp_path / "whole", engine=engine) == {spec.digest(): "complete" for spec in specs}
    assert same_bytes(specs, killed, tmp_path / "whole")
    assert all(read(killed, spec).provenance.resumes >= 1 for spec in specs)
