"""Which runs are trained together, by which engine, and which groups are begun first."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from stacking import Normed, build, image_task, record_run, recorded, same_bytes, spec_of, stop, task_of

from creditscope.errors import CreditscopeError
from creditscope.record import RunSpec, run_folder
from creditscope.registry import NETS
from creditscope.train import groups
from creditscope.train.execute import run_all
from creditscope.train.groups import (
    CPU_CHUNK,
    CPU_SEEDS,
    CPU_WORK,
    RunGroup,
    count_parameters,
    group_runs,
    longest_first,
)
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

    def test_the_engine_can_be_chosen_if_it_is_one(self, tmp_path):
        specs = self.specs(3)
        assert [g.engine for g in group_runs(specs, tmp_path, device=CPU, engine="stacked")] == ["stacked"]
        assert [g.engine for g in group_runs(specs, tmp_path, device=CUDA, engine="loop")] == ["loop"] * 3
        with pytest.raises(CreditscopeError, match=r"engine.*'captured'"):
            group_runs(specs, tmp_path, device=CPU, engine="captured")

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

    @pytest.mark.parametrize(("net", "sizes"), [("lenet", [1, 1, 1]), ("resnet", [1, 1, 1]), ("vit", [3])])
    def test_on_cuda_seeds_of_nets_that_convolve_are_stacks_of_their_own(self, tmp_path, net, sizes):
        image, options = {"image": True}, {"padded": True} if net == "lenet" else {}
        kind = {"task": "digits", "task_options": image, "net": net, "net_options": options}
        specs = [plan_run(**kind, seed=seed) for seed in range(3)]
        alone = group_runs(specs, tmp_path, device=CUDA, workers=2)
        assert [(len(group.specs), group.engine) for group in alone] == [(size, "stacked") for size in sizes]
        assert len(group_runs(specs, tmp_path, device=CUDA)) == 1  # one worker would train them one after the other
        assert len(group_runs(specs, tmp_path, device=CUDA, engine="stacked")) == 1

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

    def test_tf32_needs_cuda(self, tmp_path):
        (spec,) = recorded((1,), precision="tf32")
        message = "CUDA.*'tf32'.*'cpu'"
        with pytest.raises(CreditscopeError, match=message):
            record_run(spec, tmp_path, engine="stacked")
        with pytest.raises(CreditscopeError, match=message):
            run_all([spec], tmp_path, slots=1, device="cpu")
        assert not run_folder(tmp_path, spec).exists()


@pytest.mark.slow
def test_workers_stack_too_and_end_with_the_same_bytes(tmp_path):
    specs = recorded(range(CPU_SEEDS), epochs=1)
    one = run_all(specs, tmp_path / "one", slots=1, device="cpu", engine="stacked")
    two = run_all(specs, tmp_path / "two", slots=2, device="cpu")
    assert {record.provenance.stack for record in one} == {tuple(range(8))}
    assert {record.provenance.stack for record in two} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    assert {record.provenance.engine for record in two} == {"stacked"}
    assert [record.spec for record in two] == specs
    assert same_bytes(specs, tmp_path / "two", tmp_path / "one")


MLP: dict[str, Any] = {"task": "mnist1d", "net": "resmlp", "net_options": {"depth": 2, "width": 8}, "epochs": 10}
QUICK = {"snapshot_every": 0, "tier": "quick", "noise": False}
GRAPH = {**QUICK, "task": "sbm", "net": "gcn", "epochs": 10}
VIT = {**QUICK, "task": "digits", "net": "vit"}


PLAIN = MLP | QUICK
CIFAR = {"task": "cifar10", "net": "resmlp", "net_options": {"depth": 4}, "epochs": 100}


def group(seeds: int = 1, **fields: Any) -> RunGroup:
    return RunGroup(tuple(plan_run(seed=seed, **fields) for seed in range(seeds)), "stacked")


@pytest.mark.parametrize(
    "ordered",
    [
        # transformers, then what is measured in full
        [VIT | {"epochs": 1}, MLP | {"tier": "full", "epochs": 1}, MLP | {"seeds": 20, "epochs": 100}],
        [PLAIN | {"epochs": 11}, PLAIN],
        [PLAIN | {"batch": 64}, PLAIN],
        [PLAIN | {"net_options": {"depth": 3}}, PLAIN],
        [PLAIN | {"seeds": 3}, PLAIN],
        # settling takes passes, and takes fewer where it is shorter
        [VIT | {"rule": "pc", "epochs": 10}, VIT | {"rule": "pc", "rule_options": {"steps": 5}, "epochs": 10}]
        + [VIT | {"rule": rule, "epochs": 10} for rule in ("wm", "fa")],
        # each seed is measured on its own before and after training: ten of them would be waited for at the end
        [CIFAR | {"seeds": 10, "epochs": 30}, CIFAR | {"seeds": 3}, CIFAR | QUICK | {"seeds": 3}],
        # an epoch of a graph is one step
        [PLAIN, GRAPH | {"net_options": {"depth": 64}}, GRAPH],
    ],
)
def test_the_longest_come_first_whatever_order_they_are_given_in(ordered):
    expected = [group(**fields) for fields in ordered]
    assert longest_first(expected) == longest_first(expected[::-1]) == expected


def test_a_rule_that_cannot_be_made_is_its_run_s_failure_not_the_order_s():
    bad = [
        replace(group(**MLP).specs[0], rule="pc", rule_options={"steps": "x"}),
        replace(group(**MLP).specs[0], rule="none"),
    ]
    groups = [group(**MLP), *(RunGroup((spec,), "stacked") for spec in bad)]
    assert longest_first(groups) == groups


def test_those_of_one_length_stay_in_order():
    groups = [group(**MLP, rule=rule) for rule in ("fa", "bp", "dfa")]  # no pass more than another
    assert longest_first(groups) == groups
