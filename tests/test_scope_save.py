"""A watched model on disk: what is written, replaced, refused, and read by the commands."""

import pytest
import torch
from torch import nn

import creditscope as cs

pytestmark = pytest.mark.usefixtures("own_stream")


def watched(snapshots: int = 2) -> cs.Scope:
    scope = cs.watch(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), taps="0")
    for epoch in range(snapshots):
        scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3, epoch=epoch, tier="quick")
    return scope


def test_what_is_saved_is_judged_and_drawn_from_the_command_line(told, tmp_path):
    scope = watched()
    assert scope.save(tmp_path / "mine") == tmp_path / "mine"
    (record,) = cs.load_records(tmp_path)
    assert (record.spec, record.snapshots) == (None, tuple(scope.snapshots))
    assert (record.provenance.status, record.provenance.engine, record.name) == ("complete", "watch", "mine")
    assert "network mine" in told("audit", tmp_path / "mine")
    told("report", "--records", tmp_path, "--out", tmp_path / "page.html")
    assert "network mine" in (tmp_path / "page.html").read_text()


def test_a_later_save_replaces_an_earlier_one(tmp_path):
    watched(2).save(tmp_path / "mine")
    watched(3).save(tmp_path / "mine")
    assert [s.epoch for s in cs.load_records(tmp_path)[0].snapshots] == [0, 1, 2]


def test_a_run_is_not_overwritten_and_a_watched_model_is_drawn_as_a_report(tmp_path):
    runs = cs.run(task="digits", rule="bp", seeds=1, depth=1, width=8, epochs=1, tier="quick", out=tmp_path)
    folder = runs.records[0].path
    with pytest.raises(cs.CreditscopeError, match="holds a run"):
        watched().save(folder)
    assert cs.load_records(folder)[0].spec == runs.records[0].spec
    runs = cs.Runs(watched().records)
    assert repr(runs) == "Runs(1: watched model)"
    with pytest.raises(cs.CreditscopeError, match=r"scope\.save\(folder\).*creditscope report"):
        runs.plot()


def test_two_models_are_two_methods_each_with_its_name(tmp_path):
    for name in ("before", "after"):
        watched().save(tmp_path / name)
    assert [m.setting for m in cs.audit(tmp_path).methods] == ["network after", "network before"]


def test_several_snapshots_of_an_epoch_are_saved_and_read_in_order(tmp_path):
    scope = cs.watch(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), taps="0")
    rows = torch.randn(30, 4), torch.arange(30) % 3
    for place in ({"step": 0}, {"step": 10}, {"epoch": 1, "step": 20}, {"step": 30}, {"epoch": 2}, {}):
        scope.snapshot(*rows, **place, tier="quick")
    for place in ({"epoch": 2}, {"step": 0}, {"epoch": 3, "step": 0}, {"epoch": 3, "step": -1}, {"step": 1.5}):
        with pytest.raises(cs.CreditscopeError):
            scope.snapshot(*rows, **place, tier="quick")
    (record,) = cs.load_records(scope.save(tmp_path / "mine"))
    assert [(s.epoch, s.step) for s in record.snapshots] == [(0, 0), (0, 10), (1, 20), (1, 30), (2, 0), (3, 0)]
    assert [s.untrained for s in record.snapshots] == [True, False, False, False, False, False]
