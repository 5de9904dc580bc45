"""A run can be stopped at any moment and ends with the same bytes as one that was not."""

from pathlib import Path

import pytest
from stacking import record_run, stop_after

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, read_record, run_folder
from creditscope.train.checkpoint import NAME, load_checkpoint
from creditscope.train.execute import UnfinishedError, run_all
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.training import StoppedError

pytestmark = pytest.mark.slow


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


def test_lines_that_are_gone_make_the_checkpoint_useless(tmp_path):
    spec = spec_of()
    with pytest.raises(StoppedError):
        record_run(spec, tmp_path, should_stop=stop_after(3))
    lines = run_folder(tmp_path, spec) / "snapshots.jsonl"
    lines.write_text("".join(lines.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(CreditscopeError, match=f"damaged-{NAME}"):
        record_run(spec, tmp_path)
    record_run(spec, tmp_path)
    assert bytes_of(lines.parent) == whole(tmp_path, spec)


def test_a_half_written_checkpoint_is_ignored_and_a_damaged_one_named(tmp_path):
    spec = spec_of()
    with pytest.raises(StoppedError):
        record_run(spec, tmp_path, should_stop=stop_after(3))
    checkpoint = run_folder(tmp_path, spec) / NAME
    checkpoint.with_name(NAME + ".part").write_bytes(b"half")
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(CreditscopeError, match=f"damaged-{NAME}"):
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
    with pytest.raises(CreditscopeError, match="No space left"):
        run_all([spec], tmp_path, jobs=1)
    monkeypatch.undo()
    run_all([spec], tmp_path, jobs=1)
    assert bytes_of(run_folder(tmp_path, spec)) == whole(tmp_path, spec)


def test_the_time_limit_stops_cleanly_and_the_same_call_goes_on(tmp_path):
    """In this process, which gets to the first run alone, then in a worker for each, however slow they are to start."""
    specs = [spec_of(seed=seed, epochs=1_000_000, snapshot_every=0) for seed in (1, 2)]
    checkpoints = [run_folder(tmp_path, spec) / NAME for spec in specs]

    def stood_after(jobs: int, limit: float) -> list[int]:
        with pytest.raises(UnfinishedError, match=f"{limit} s: 0 of 2"):
            run_all(specs, tmp_path, jobs=jobs, time_limit=limit)
        begun = [(path, spec) for path, spec in zip(checkpoints, specs, strict=True) if path.exists()]
        return [load_checkpoint(path, build_run(spec)).epoch for path, spec in begun]

    (first,) = stood_after(jobs=1, limit=0.5)
    assert first > 0
    for limit in (3, 10, 100):
        found = stood_after(jobs=2, limit=limit)
        if len(found) == 2 and found[0] > first:
            break
    assert found[0] > first
    assert found[1] > 0
