"""What loggers are told, read back by the libraries that wrote it."""

import json
import math
import time
from itertools import pairwise

import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.integrations import _told

pytestmark = pytest.mark.slow


@pytest.fixture
def scope(own_stream):
    """Three snapshots of a net that is trained a little."""
    model = nn.Sequential(
        nn.Linear(4, 8), *[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)], nn.Linear(8, 3)
    )
    return cs.watch(model, taps=["1", "2", "3", "4"], stem="0")


def train(scope, writer, steps=(0, 10, 25)) -> None:
    x, y = torch.randn(24, 4), torch.arange(24) % 3
    optimiser = torch.optim.SGD(scope.model.parameters(), lr=0.1)
    for now, following in pairwise([*steps, steps[-1]]):
        scope.snapshot(x, y, step=now, tier="quick")
        writer.write(scope)
        for _ in range(following - now):
            optimiser.zero_grad()
            nn.functional.cross_entropy(scope.model(x), y).backward()
            optimiser.step()


def test_tensorboard_reads_what_was_seen(scope, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from creditscope.integrations.tensorboard import TensorBoardWriter

    writer = TensorBoardWriter(tmp_path)
    train(scope, writer)
    writer.tell(scope.audit(), step=25)
    writer.board.close()
    board = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0, "tensors": 0}).Reload()
    assert [(e.step, e.value) for e in board.Scalars("creditscope/loss")] == [
        (s.step, pytest.approx(s.loss, rel=1e-6)) for s in scope.snapshots
    ]
    for tap in range(5):
        last = board.Scalars(f"creditscope/taps/{tap}/g_norm")[-1].value
        assert last == pytest.approx(scope.snapshots[-1].taps.g_norm[tap], rel=1e-6)
    spread = board.Histograms("creditscope/over_taps/log10_g_norm")[-1].histogram_value
    logs = [math.log10(g) for g in scope.snapshots[-1].taps.g_norm]
    assert spread.num == 5
    assert (spread.min, spread.max, spread.sum) == pytest.approx((min(logs), max(logs), sum(logs)), rel=1e-6)
    text = board.Tensors("creditscope/verdict/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert str(scope.audit().methods[0].verdict) in text


def read_log(data: bytes) -> list[bytes]:
    """Records of a log as LevelDB has them: blocks of 32 KiB, each part with checksum, length and kind."""
    records, part, at = [], b"", 7
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if at + 7 + length > len(data):  # not all of it is there yet
            break
        part += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part
            records.append(part)
            part = b""
    return records


def test_wandb_keeps_what_was_seen(scope, tmp_path, monkeypatch):
    """Offline: read back from the file that would be sent. The steps of others are not moved."""
    wandb = pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    from creditscope.integrations.wandb import WandbWriter

    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(mode="offline", dir=tmp_path, project="creditscope")
    run.log({"own": 1.0})
    writer = WandbWriter(run)
    train(scope, writer)
    run.log({"own": 2.0})
    writer.tell(scope.audit(), step=25)
    run.finish()
    (path,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    records, until = [], time.monotonic() + 20
    while not any(record.HasField("exit") for record in records) and time.monotonic() < until:
        records = [Record.FromString(data) for data in read_log(path.read_bytes())]  # written by a process of its own
    history, summary = [], {}
    for record in records:
        if record.HasField("history"):
            history.append({".".join(i.nested_key) or i.key: json.loads(i.value_json) for i in record.history.item})
        if record.HasField("summary"):
            summary |= {i.key or i.nested_key[0]: json.loads(i.value_json) for i in record.summary.update}
    ours = [row for row in history if "creditscope/loss" in row]
    assert [row["creditscope/step"] for row in ours] == [0, 10, 25]
    assert [row["creditscope/loss"] for row in ours] == [s.loss for s in scope.snapshots]
    assert ours[-1]["creditscope/taps/3/h_rms"] == scope.snapshots[-1].taps.h_rms[3]
    assert sum(ours[-1]["creditscope/over_taps/log10_g_norm.values"]) == 5
    assert [row["_step"] for row in history] == list(range(5))
    assert [row["own"] for row in history if "own" in row] == [1.0, 2.0]
    assert summary["creditscope/verdict"] == str(scope.audit().methods[0].verdict)


def test_wandb_asks_for_a_run(monkeypatch):
    wandb = pytest.importorskip("wandb")
    from creditscope.integrations.wandb import WandbWriter

    monkeypatch.setattr(wandb, "run", None)
    with pytest.raises(cs.CreditscopeError, match=r"wandb\.init"):
        WandbWriter()


def test_credit_is_logged_where_it_is_a_question(own_stream):
    """A cosine that is 1 by construction is not; that of a rule is."""
    model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
    x, y = torch.randn(24, 4), torch.arange(24) % 3
    logged = {}
    for rule in ("bp", "dfa"):
        scope = cs.watch(model, taps="1", stem="0", rule=rule)
        scope.snapshot(x, y, tier="quick")
        logged[rule] = _told.name_scalars(scope)
    assert logged["dfa"].keys() - logged["bp"].keys() == {
        f"creditscope/{name}" for name in ("gamma", "gamma_inexact", "gamma_null_sd", "taps/0/cos", "taps/1/cos")
    }
    assert logged["dfa"]["creditscope/taps/1/cos"] == scope.snapshots[0].taps.cos[1]


def test_what_is_not_finite_or_zero_is_left_out(scope):
    x, y = torch.randn(24, 4), torch.arange(24) % 3
    with torch.no_grad():
        scope.model[2][0].weight.zero_()
        scope.model[2][0].bias.fill_(-1.0)  # every unit dead: nothing goes down
    taken = scope.snapshot(x, y, tier="quick")
    assert (taken.taps.g_norm[0], taken.taps.h_rms[2]) == (None, 0.0)
    spread = _told.spread_over_layers(taken)
    assert len(spread["creditscope/over_taps/log10_g_norm"]) == 3
    assert len(spread["creditscope/over_taps/log10_h_rms"]) == 4
    assert "creditscope/taps/0/g_norm" not in _told.name_scalars(scope)
