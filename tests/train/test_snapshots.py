"""Blocks of runs put back: every seed's by its own beginning, built again at the end; what tier quick measures."""

import copy
from dataclasses import fields, replace

import pytest
from stacking import Normed, build, snapshots_of, spec_of, stack, train
from torch import Tensor, nn

from creditscope.record import Snapshot, TapMeasures
from creditscope.registry import NETS
from creditscope.train import snapshots
from creditscope.train.run import Run
from creditscope.train.snapshots import evaluate

pytestmark = pytest.mark.slow

LEARNS = {"epochs": 4, "lr": 1e-2, "snapshot_every": 0, "noise": False}


class Bumpy(Normed):
    """Residual blocks with batch norm, each with a layer of its own."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16):
        super().__init__(input_shape, classes, width=width)
        self.blocks[1][0] = nn.Linear(width, width)


def by_hand(run: Run, began: dict[str, Tensor], block: str) -> float:
    """Accuracy of the trained run with one block of the kept weights; the run stays as it was."""
    assert isinstance(run.net, nn.Module)
    now = copy.deepcopy(run.net.state_dict())
    run.net.load_state_dict({**now, **{name: t for name, t in began.items() if name.startswith(f"{block}.")}})
    _, right = evaluate(run)
    run.net.load_state_dict(now)
    return right.sum().item() / right.numel()


def filled(snapshot: Snapshot) -> set[str]:
    """Series that are there although a snapshot need not have them."""
    return {f.name for f in fields(TapMeasures) if f.default == () and getattr(snapshot.taps, f.name)}


@pytest.mark.parametrize(
    ("net", "rule", "blocks", "others"),
    [
        *(("resmlp", rule, ["blocks.0", "blocks.1"], {}) for rule in ("bp", "fa", "dfa")),
        ("gcn", "bp", ["layers.1"], {"epochs": 60}),
        ("vit", "bp", ["blocks.0", "blocks.1"], {"epochs": 5}),
    ],
)
def test_the_last_snapshot_knows_where_each_block_began(net, rule, blocks, others):
    run = build(spec_of(net, rule, **LEARNS | others))
    began = copy.deepcopy(run.net.state_dict())
    first, last = snapshots_of(run)
    wanted = [by_hand(run, began, block) for block in blocks]
    assert first.taps.rewind == ()
    assert last.taps.rewind == (None, *wanted)
    assert (last.taps.rewind_refit, last.accuracy_refit) == ((), None)
    assert net == "vit" or last.accuracy not in wanted


@pytest.mark.parametrize("rule", ["bp", "fa", "dfa"])
def test_every_seed_of_a_stack_has_its_own_beginning(rule):
    specs = [spec_of(rule=rule, seed=seed, precision="float64", **LEARNS) for seed in (1, 2, 3)]
    alone = [snapshots_of(build(spec))[-1].taps.rewind for spec in specs]
    together = [ended.snapshots[-1].taps.rewind for ended in train(stack(specs))]
    assert together == alone
    assert len(set(alone)) == 3


@pytest.mark.parametrize("stacked", [False, True])
def test_batch_norms_of_a_run_are_estimated_anew(monkeypatch, stacked):
    monkeypatch.setitem(NETS._registered, "bumpy", Bumpy)
    plain = [spec_of(rule="bp", seed=seed, **LEARNS) for seed in (1, 2)]
    specs = [replace(spec, net="bumpy", net_options={}) for spec in plain]
    runs = [build(spec) for spec in specs]
    began = [copy.deepcopy(run.net.state_dict()) for run in runs]
    ends = [train(run)[0] for run in runs]
    found = train(stack(specs)) if stacked else ends
    for run, start, ended in zip(runs, began, found, strict=True):
        taps = ended.snapshots[-1].taps
        wanted = [by_hand(run, start, f"blocks.{i}") for i in range(2)]
        assert taps.rewind == (None, *(pytest.approx(value, abs=0.01) for value in wanted))
        assert taps.rewind_refit[0] is None
        assert all(0 <= value <= 1 for value in taps.rewind_refit[1:])
        assert taps.rewind_refit != taps.rewind
        assert ended.snapshots[-1].accuracy_refit is not None
        assert ended.snapshots[0].accuracy_refit is None


def test_nets_are_built_again_once_a_seed_and_only_at_the_end(monkeypatch):
    built, before = [], snapshots.build_run
    monkeypatch.setattr(snapshots, "build_run", lambda spec, *given: built.append(spec.seed) or before(spec, *given))
    run = stack([spec_of(seed=seed, epochs=2) for seed in (1, 2)])
    at = [(snapshots.snapshot_run(run, epoch), list(built))[1] for epoch in (0, 1, 2)]
    assert at == [[], [], [1, 2]]


class TestQuick:
    def test_a_ladder_s_rung_puts_back_what_it_trains(self):
        last = snapshots_of(build(spec_of(train_last=1, **LEARNS)))[-1]
        assert last.taps.rewind[:2] == (None, None)
        assert last.taps.rewind[2] is not None
        assert last.taps.rewind[2] != last.accuracy

    @pytest.mark.parametrize("net", ["resmlp", "gcn"])
    def test_of_a_frozen_run_only_accuracy_is_read(self, net, monkeypatch):
        monkeypatch.delattr(snapshots, "build_run")
        spec = spec_of(net, "dfa", frozen=True, epochs=2)
        for taken in snapshots_of(build(spec)):
            assert filled(taken) <= {"null_sd_F", "null_q99"}
            assert taken.layers is None
            assert taken.taps.g_noise == (None,) * len(taken.taps.cos)
            assert taken.accuracy is not None
        monkeypatch.undo()
        first, *_, last = snapshots_of(build(spec_of(net, "dfa", epochs=2)))
        assert last.taps.common
        assert None not in last.taps.g_noise
        assert (first.layers is None) == (net == "resmlp")

    def test_a_frozen_run_of_another_tier_has_no_block_to_put_back(self):
        run = build(spec_of(frozen=True, tier="standard", epochs=1, noise=False))
        run.net.eval()
        (taken,) = snapshots.snapshot_run(run, 1)
        assert taken.taps.rewind == (None,) * 3
        assert taken.taps.descent_stage

    def test_noise_is_measured_at_the_end_unless_it_is_not_wanted(self):
        for noise in (True, False):
            run = build(spec_of(epochs=2, noise=noise))
            found = [snapshots.snapshot_run(run, epoch)[0].taps.g_noise[0] is not None for epoch in range(3)]
            assert found == [False, False, noise]
