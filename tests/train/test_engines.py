"""Which engine trains which runs, on which device, and in how many workers."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from stacking import Normed, build, image_task, record_run, recorded, same_bytes, spec_of, stop, task_of

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, run_folder
from creditscope.registry import NETS
from creditscope.train import groups
from creditscope.train.device import choose_device, matrix_products
from creditscope.train.execute import run_all
from creditscope.train.groups import CPU_CHUNK, CPU_SEEDS, CPU_WORK, count_parameters, group_runs
from creditscope.train.plan import plan_run

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


class TestEngines:
    def specs(self, count: int, **others: Any) -> list[RunSpec]:
        return [spec_of("resmlp", "bp", seed=seed, **others) for seed in range(count)]

    def test_runs_are_grouped_by_everything_but_the_seed(self, tmp_path):
        others = [{}, {"lr": 0.1}, {"frozen": True}, {"net_options": {"width": 8}}, {"precision": "float64"}]
        kinds = [{"rule": rule, **other} for rule in ("bp", "dfa") for other in others]
        specs = [spec_of("resmlp", **kind, seed=seed) for seed in (1, 2) for kind in kinds]
        groups = group_runs(specs, tmp_path, device=CUDA)
        assert len(groups) == len(kinds)
        for group in groups:
            assert group.engine == "stacked"
            assert [spec.seed for spec in group.specs] == [1, 2]
            assert replace(group.specs[0], seed=2) == group.specs[1]
        assert sorted(s.digest() for g in groups for s in g.specs) == sorted(s.digest() for s in specs)

    def test_on_a_cpu_many_seeds_of_a_small_net_are_stacked(self, tmp_path):
        few = group_runs(self.specs(CPU_SEEDS - 1), tmp_path, device=CPU)
        assert [(len(group.specs), group.engine) for group in few] == [(1, "loop")] * (CPU_SEEDS - 1)
        (many,) = group_runs(self.specs(CPU_SEEDS), tmp_path, device=CPU)
        assert (len(many.specs), many.engine) == (CPU_SEEDS, "stacked")

    @pytest.mark.parametrize("net", ["resmlp", "gcn"])
    def test_on_a_cpu_small_means_parameters_times_rows(self, tmp_path, monkeypatch, net):
        specs = [spec_of(net, "bp", seed=seed) for seed in range(CPU_SEEDS)]
        task = task_of(specs[0])
        rows = len(task.y) if net == "gcn" else specs[0].batch
        work = count_parameters(specs[0], task) * rows
        assert work <= CPU_WORK
        for limit, engine in ((work, "stacked"), (work - 1, "loop")):
            monkeypatch.setattr(groups, "CPU_WORK", limit)
            assert {group.engine for group in group_runs(specs, tmp_path, device=CPU)} == {engine}

    def test_the_engine_can_be_chosen(self, tmp_path):
        specs = self.specs(3)
        assert [g.engine for g in group_runs(specs, tmp_path, device=CPU, engine="stacked")] == ["stacked"]
        assert [g.engine for g in group_runs(specs, tmp_path, device=CUDA, engine="loop")] == ["loop"] * 3

    @pytest.mark.parametrize(
        ("count", "workers", "sizes"), [(3, 8, [3]), (6, 4, [4, 2]), (10, 2, [5, 5]), (11, 2, [6, 5]), (9, 1, [9])]
    )
    def test_stacks_are_split_over_workers_but_not_too_small(self, tmp_path, count, workers, sizes):
        assert CPU_CHUNK == 4
        specs = self.specs(count)
        groups = group_runs(specs, tmp_path, device=CPU, engine="stacked", workers=workers)
        assert [len(group.specs) for group in groups] == sizes
        assert [spec for group in groups for spec in group.specs] == specs
        assert len(group_runs(specs, tmp_path, device=CUDA, workers=workers)) == 1

    @pytest.mark.parametrize("asked", ["auto", "loop", "stacked"])
    def test_a_run_that_was_begun_keeps_its_engine(self, tmp_path, asked):
        specs = recorded((1, 2, 3, 4), epochs=3)
        stop(specs[:2], tmp_path, epochs=1)
        stop(specs[2:3], tmp_path, epochs=1, engine="loop")
        groups = group_runs(specs, tmp_path, device=CPU, engine=asked)
        chosen = {spec.seed: group.engine for group in groups for spec in group.specs}
        new = "loop" if asked == "auto" else asked
        assert chosen == {1: "stacked", 2: "stacked", 3: "loop", 4: new}
        assert (1, 2) in [tuple(s.seed for s in group.specs)[:2] for group in groups]

    def test_counting_parameters_draws_nothing_and_is_right(self):
        spec = spec_of("vit", "bp")
        stream = torch.get_rng_state()
        counted = count_parameters(spec, image_task())
        assert torch.equal(stream, torch.get_rng_state())
        assert counted == sum(p.numel() for p in build(spec).net.parameters())

    def test_a_net_that_reads_numbers_while_it_is_built_can_be_grouped(self, tmp_path, monkeypatch):
        class Reads(Normed):
            def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 16):
                super().__init__(input_shape, classes, width=width)
                self.rates = [rate.item() for rate in torch.linspace(0, 0.1, 3)]

        monkeypatch.setitem(NETS._registered, "reads", Reads)
        specs = [plan_run(task="digits", net="reads", seed=seed) for seed in range(CPU_SEEDS)]
        groups = group_runs(specs, tmp_path, device=CPU)
        assert sum(len(group.specs) for group in groups) == CPU_SEEDS

    def test_a_net_that_cannot_be_built_is_refused_before_anything_is_trained(self, tmp_path):
        flat = self.specs(CPU_SEEDS, net_options={"depth": 0}, epochs=1)
        (good,) = recorded((1,), epochs=1)
        with pytest.raises(CreditscopeError, match="Expected a ResMLP"):
            run_all([good, *flat], tmp_path, jobs=1)
        assert not list(tmp_path.iterdir())

    def test_unknown_names_are_refused(self, tmp_path, monkeypatch):
        with pytest.raises(CreditscopeError, match=r"engine.*'captured'"):
            group_runs(self.specs(1), tmp_path, device=CPU, engine="captured")
        with pytest.raises(CreditscopeError, match=r"engine.*'fast'"):
            run_all(self.specs(1), tmp_path, engine="fast")
        for name in ("tpu", "meta", ""):
            with pytest.raises(CreditscopeError, match=f"auto, cpu or cuda.*'{name}'"):
                choose_device(name)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(CreditscopeError, match="torch finds none"):
            choose_device("cuda")

    def test_devices(self, monkeypatch):
        for available, name in ((True, "cuda"), (False, "cpu")):
            monkeypatch.setattr(torch.cuda, "is_available", lambda available=available: available)
            assert choose_device("auto") == torch.device(name)
            assert choose_device("cpu") == CPU
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert choose_device("cuda:1") == torch.device("cuda", 1)

    def test_tf32_needs_cuda(self, tmp_path):
        (spec,) = recorded((1,), precision="tf32")
        message = "CUDA.*'tf32'.*'cpu'"
        with pytest.raises(CreditscopeError, match=message):
            record_run(spec, tmp_path, engine="stacked")
        with pytest.raises(CreditscopeError, match=message):
            run_all([spec], tmp_path, jobs=1, device="cpu")
        assert not run_folder(tmp_path, spec).exists()

    @pytest.mark.parametrize("before", [True, False])
    def test_the_product_s_precision_is_put_back(self, before):
        products = torch.backends.cuda.matmul
        found, products.allow_tf32 = products.allow_tf32, before
        try:
            for precision in ("float32", "float64", "tf32"):
                with matrix_products(precision, CUDA):
                    assert products.allow_tf32 == (precision == "tf32")
                assert products.allow_tf32 == before
        finally:
            products.allow_tf32 = found


@pytest.mark.slow
def test_workers_stack_too_and_end_with_the_same_bytes(tmp_path):
    specs = recorded(range(CPU_SEEDS), epochs=1)
    one = run_all(specs, tmp_path / "one", jobs=1, device="cpu", engine="stacked")
    two = run_all(specs, tmp_path / "two", jobs=2, device="cpu")
    assert {record.provenance.stack for record in one} == {tuple(range(8))}
    assert {record.provenance.stack for record in two} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert {record.provenance.engine for record in two} == {"stacked"}
    assert [record.spec for record in two] == specs
    assert same_bytes(specs, tmp_path / "two", tmp_path / "one")
