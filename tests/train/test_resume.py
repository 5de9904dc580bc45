"""A run can be stopped or killed at any moment and ends with the same bytes as one that was not."""

import json
import random
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from stacking import record_run, stop_after

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, read_record, run_folder
from creditscope.train.checkpoint import NAME, load_checkpoint
from creditscope.train.plan import plan_run
from creditscope.train.recording import StoppedError
from creditscope.train.run import build_run
from creditscope.train.runner import UnfinishedError, run_all


def spec_of(rule: str = "dfa", **others) -> RunSpec:
    given = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 8, "eval_rows": 64, "tier": "quick"}
    return plan_run(rule=rule, **given | others)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("spec.json", "snapshots.jsonl", "weights.safetensors")}


def whole(tmp_path: Path, spec: RunSpec) -> dict[str, bytes]:
    """The bytes of an uninterrupted run."""
    record_run(spec, tmp_path / "whole")
    return bytes_of(run_folder(tmp_path / "whole", spec))


@pytest.mark.parametrize(
    "spec",
    [spec_of("bp"), spec_of("fa"), spec_of("dfa"), spec_of("block_fa", optimiser="sgd"), spec_of("dfa", frozen=True),
     plan_run(task="sbm", net="gcn", net_options={"dropout": 0.3, "width": 8}, rule="fa", epochs=8, optimiser="adam",
              tier="quick"), spec_of("fa", tier="standard"), spec_of("grape"),
     plan_run(task="sbm", net="gcn", net_options={"dropout": 0.3, "width": 8}, rule="kaft", epochs=8, optimiser="adam",
              tier="quick")],
    ids=lambda s: f"{s.net} {s.rule} {s.optimiser} {s.tier}{' frozen' * s.frozen}",
)  # fmt: skip
def test_a_stopped_run_goes_on_and_ends_alike(tmp_path, spec):
    for _ in range(3):
        with pytest.raises(StoppedError):
            record_run(spec, tmp_path, should_stop=stop_after(2))
    assert record_run(spec, tmp_path) == "complete"
    folder = run_folder(tmp_path, spec)
    assert bytes_of(folder) == whole(tmp_path, spec)
    assert read_record(folder).provenance.resumes == 3
    assert not (folder / NAME).exists()


def test_lines_after_the_checkpoint_are_cut_and_measured_again(tmp_path):
    spec = spec_of()
    with pytest.raises(StoppedError):
        record_run(spec, tmp_path, should_stop=stop_after(3))
    lines = run_folder(tmp_path, spec) / "snapshots.jsonl"
    lines.write_text(lines.read_text() + lines.read_text().splitlines(keepends=True)[-1] + '{"epoch": 5, "st')
    record_run(spec, tmp_path)
    assert bytes_of(lines.parent) == whole(tmp_path, spec)


def test_a_half_written_checkpoint_is_ignored_and_a_damaged_one_named(tmp_path):
    spec = spec_of()
    with pytest.raises(StoppedError):
        record_run(spec, tmp_path, should_stop=stop_after(3))
    checkpoint = run_folder(tmp_path, spec) / NAME
    checkpoint.with_name(NAME + ".part").write_bytes(b"half")
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(CreditscopeError, match=f"it is damaged; it was set aside as damaged-{NAME}"):
        record_run(spec, tmp_path)
    record_run(spec, tmp_path)
    assert bytes_of(checkpoint.parent) == whole(tmp_path, spec)
    assert (checkpoint.parent / f"damaged-{NAME}").exists()


def test_a_full_disk_fails_the_run_and_keeps_what_was_there(tmp_path, monkeypatch):
    from creditscope.record.store import RecordWriter

    spec = spec_of()
    with pytest.raises(StoppedError):
        record_run(spec, tmp_path, should_stop=stop_after(3))
    original = RecordWriter.append

    def full(self, snapshot):
        if snapshot.epoch == 6:
            raise OSError(28, "No space left on device")
        original(self, snapshot)

    monkeypatch.setattr(RecordWriter, "append", full)
    with pytest.raises(CreditscopeError, match="No space left on device"):
        run_all([spec], tmp_path, jobs=1)
    monkeypatch.undo()
    run_all([spec], tmp_path, jobs=1)
    assert bytes_of(run_folder(tmp_path, spec)) == whole(tmp_path, spec)


CODE = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from pydantic import TypeAdapter
from creditscope.record import RunSpec
from creditscope.train import recording
spec = TypeAdapter(RunSpec).validate_json(sys.argv[2])
print("ready", flush=True)
recording.CHECKPOINT_SECONDS = 0.0
recording.record_runs([spec], Path(sys.argv[1]))
"""


def test_killed_at_random_moments_it_ends_alike(tmp_path):
    spec = spec_of("fa", epochs=150, snapshot_every=2)
    command = [sys.executable, "-c", CODE, str(tmp_path), json.dumps(asdict(spec))]
    rng, kills, starts = random.Random(0), 0, 0
    while True:
        starts += 1
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        if kills < 10:
            try:
                process.wait(0.05 + rng.random() * 0.25)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                kills += 1
        process.communicate()
        if process.returncode == 0 or starts > 30:
            break
    assert (kills, process.returncode) == (10, 0)
    assert bytes_of(run_folder(tmp_path, spec)) == whole(tmp_path, spec)


def test_the_time_limit_stops_cleanly_and_the_same_call_goes_on(tmp_path):
    specs = [spec_of(seed=seed, epochs=100_000, snapshot_every=0) for seed in (1, 2)]
    stood = []
    for _ in range(2):
        with pytest.raises(UnfinishedError, match=r"Stopped at the time limit of 4 s: 0 of 2 runs are finished"):
            run_all(specs, tmp_path, jobs=2, time_limit=4)
        positions = [load_checkpoint(run_folder(tmp_path, spec) / NAME, build_run(spec)) for spec in specs]
        stood.append(min(position.epoch for position in positions))
    assert 0 < stood[0] < stood[1]
