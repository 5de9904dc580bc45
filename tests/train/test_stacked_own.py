"""Nets and rules of one's own in a stack: as they are alone, or trained by the loop."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from stacking import RULES, Normed, assert_engines_agree, build, recorded, same_bytes, stack, stop, train, train_on
from torch import Tensor, nn

from creditscope.record import RunSpec, read_record, run_folder
from creditscope.registry import NETS
from creditscope.train.groups import group_runs
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.stacked import CannotStackError, stack_runs

pytestmark = pytest.mark.slow


class Shuffles(Normed):
    """With a tensor of its own that is no buffer: the inputs in an order drawn for each net."""

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16):
        super().__init__(input_shape, classes, width=width)
        self.order = torch.randperm(math.prod(input_shape))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(1)[:, self.order])


class Drops(Normed):
    """With torch's own dropout, which draws from the global stream."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(nn.functional.dropout(x, 0.1, self.training))


class TestNetsOfOnesOwn:
    def specs(self, monkeypatch, net: type, **others: Any) -> list[RunSpec]:
        monkeypatch.setitem(NETS._registered, "own", net)
        fields = {"task": "digits", "net": "own", "epochs": 2, "eval_rows": 32, **others}
        return [plan_run(**{"rule": "bp", **fields}, seed=seed) for seed in (1, 2)]

    @pytest.mark.parametrize("rule", RULES)
    def test_batch_norm_and_tied_weights(self, monkeypatch, rule):
        specs = self.specs(monkeypatch, Normed, rule=rule, precision="float64")
        for spec, found in zip(specs, train(stack(specs)), strict=True):
            (wanted,) = train(build_run(spec))
            assert "blocks.1.0.weight" in wanted.tensors
            assert int(wanted.tensors["blocks.0.1.num_batches_tracked"]) == 20
            for name, tensor in wanted.tensors.items():
                torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-9, atol=1e-11, msg=name)
            assert found.snapshots[-1].accuracy == wanted.snapshots[-1].accuracy

    def test_a_tensor_that_is_no_buffer_is_not_taken_from_another_seed(self, monkeypatch, tmp_path):
        specs = self.specs(monkeypatch, Shuffles)
        assert_engines_agree(specs, tmp_path)

    def test_dropout_from_the_global_stream_is_not_stacked(self, monkeypatch):
        with pytest.raises(CannotStackError, match="random"):
            stack_runs([build_run(spec) for spec in self.specs(monkeypatch, Drops)])


OWN_RULES = '''
import torch
from creditscope import TapRule


class Reads(TapRule):
    """Reads a number on the host."""

    def credit(self, ctx):
        size = ctx.error.square().mean().item()
        return [h * size for h in ctx.states]


class Draws(TapRule):
    """Draws from the global stream."""

    def credit(self, ctx):
        return [h + 0.1 * torch.randn_like(h) for h in ctx.states]


class Decides(TapRule):
    """Chooses by what it sees."""

    def credit(self, ctx):
        return [h if bool(h.sum() > 0) else -h for h in ctx.states]


class Keeps(TapRule):
    """Keeps its feedback to itself."""

    def draw_feedback(self, tap_shapes, classes, generator):
        self.matrices = [torch.randn(shape[-1], classes, generator=generator) for shape in tap_shapes]
        return []

    def credit(self, ctx):
        return [ctx.error @ B.T for B in self.matrices]


class Plain(TapRule):
    """Without feedback; nothing that cannot be mapped."""

    def credit(self, ctx):
        return [torch.zeros_like(h) + ctx.error[:, :1] * ctx.target[:, None] for h in ctx.states]
'''


class TestRulesOfOnesOwn:
    def specs(self, folder: Path, name: str) -> list[RunSpec]:
        (folder / "rules.py").write_text(OWN_RULES)
        return recorded((1, 2), f"{folder}/rules.py:{name}", epochs=2)

    @pytest.mark.parametrize(
        ("name", "why"), [("Reads", r"\.item\(\)"), ("Draws", "random"), ("Decides", "data-dependent control flow")]
    )
    def test_one_that_cannot_be_mapped_is_trained_by_the_loop_and_says_why(self, tmp_path, name, why):
        specs = self.specs(tmp_path, name)
        with pytest.raises(CannotStackError, match=why):
            stack(specs)
        for engine in ("loop", "stacked"):
            torch.manual_seed(0)
            assert train_on(specs, tmp_path / engine, engine=engine) == ["complete"] * 2
        assert same_bytes(specs, tmp_path / "stacked", tmp_path / "loop")
        for spec in specs:
            provenance = read_record(run_folder(tmp_path / "stacked", spec)).provenance
            assert (provenance.engine, provenance.stack) == ("loop", ())
            assert "vmap" in provenance.note
            assert len(provenance.note) <= 300

    def test_one_that_cannot_be_mapped_can_be_stopped_and_goes_on(self, tmp_path):
        specs = self.specs(tmp_path, "Reads")
        stop(specs, tmp_path, epochs=1)
        assert train_on(specs, tmp_path) == ["complete"] * 2
        train_on(specs, tmp_path / "loop", engine="loop")
        assert same_bytes(specs, tmp_path, tmp_path / "loop")
        (group,) = group_runs(specs[:1], tmp_path / "new", device=torch.device("cpu"), engine="stacked")
        assert group.engine == "stacked"

    def test_one_that_keeps_its_feedback_to_itself_is_not_given_that_of_another_seed(self, tmp_path):
        assert_engines_agree(self.specs(tmp_path, "Keeps"), tmp_path)

    def test_one_without_feedback_is_stacked(self, tmp_path):
        specs = self.specs(tmp_path, "Plain")
        for spec, found in zip(specs, train(stack(specs)), strict=True):
            (wanted,) = train(build(spec))
            for name, tensor in wanted.tensors.items():
                torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
