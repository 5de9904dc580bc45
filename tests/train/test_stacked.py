"""The stacked engine: a seed ends as it would alone, whatever its mates, and measuring changes nothing."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from stacking import (
    EVERY_NET,
    EVERY_RULE,
    FEWER,
    SETTINGS,
    Ended,
    assert_equal,
    assert_snapshots_agree,
    build,
    spec_of,
    stack,
    train,
)
from torch import Tensor, nn

from creditscope.nets._layers import HashDropout, seed_dropout, set_dropout_step
from creditscope.record import RunSpec
from creditscope.stack import StackedNet
from creditscope.train import stacked
from creditscope.train.run import Run
from creditscope.train.snapshots import snapshot_run
from creditscope.train.stacked import CannotStackError, StackedRun, stack_runs

pytestmark = pytest.mark.slow

GRADIENTS = stacked._gradients


class TestLoopAndStackAgree:
    """Nothing but rounding is between the engines: float32 after 20 steps, float64 after all of them."""

    SEEDS = (1, 2)

    def check(self, spec: RunSpec, weights: float, measures: float, places: Sequence[int] = (0, 1)) -> None:
        """Largest relative difference of a weight tensor, and of a number in a snapshot, of seeds by their place."""
        specs = [replace(spec, seed=seed) for seed in self.SEEDS]
        run = stack(specs)
        assert run.engine == "stacked"
        ended = train(run)
        for own, found in ((specs[place], ended[place]) for place in places):
            (wanted,) = train(build(own))
            assert found.tensors.keys() == wanted.tensors.keys()
            for name, tensor in wanted.tensors.items():
                if not tensor.is_floating_point():
                    assert torch.equal(found.tensors[name], tensor), name
                elif not rounding_alone(own, name):
                    far = float((found.tensors[name] - tensor).norm())
                    assert far <= weights * float(tensor.norm()), f"{name}: {far / float(tensor.norm()):.1e}"
            skipped = [i for i, w in enumerate(run.facts.weights) if rounding_alone(own, w.name, measured=True)]
            assert [s.epoch for s in found.snapshots] == [s.epoch for s in wanted.snapshots]
            for a, b in zip(found.snapshots, wanted.snapshots, strict=True):
                assert_snapshots_agree(a, b, measures, skipped)

    @EVERY_NET
    @EVERY_RULE
    def test_in_float32_after_20_steps(self, net, rule):
        spec = spec_of(net, rule, snapshot_every=10 if net == "gcn" else 0, noise=rule != "fa")
        assert spec.epochs * build(spec).data.steps == 20
        self.check(spec, 1e-4, 2e-3)

    @EVERY_NET
    @EVERY_RULE
    def test_in_float64_after_3_epochs(self, net, rule):
        fields = {"epochs": 3, "snapshot_every": 0, "precision": "float64", **FEWER.get(net, {})}
        self.check(spec_of(net, rule, **fields), 1e-10, 1e-7)

    VARIANTS = (
        ("resmlp", "bp", {"penalty": 0.1}),
        ("resmlp", "fa", {"penalty": 0.1, "rule_options": {"head": "exact"}}),
        ("resmlp", "dfa", {"penalty": 0.1, "credit_norm": "sample"}),
        ("resmlp", "dfa", {"credit_norm": "batch", "optimiser": "adam"}),
        ("resmlp", "block_fa", {"credit_norm": "sample", "schedule": "constant"}),
        ("resmlp", "block_fa", {"credit_norm": "sample-mean", "targets": "redrawn"}),
        ("resmlp", "dfa", {"credit_norm": "sample-mean", "rule_options": {"index": "input"}}),
        ("resmlp", "dfa", {"targets": "random"}),
        ("resmlp", "bp", {"frozen": True}),
        ("resmlp", "dfa", {"frozen": True, "net_options": {"terminal_norm": False}}),
        ("resmlp", "fa", {"frozen": True, "optimiser": "sgd", "lr": 0.1, "weight_decay": 0.1}),
        ("gcn", "dfa", {"task_options": {"normalisation": "row"}, "optimiser": "adam"}),
        ("gcn", "bp", {"net_options": {"residual": True, "norm": "pair"}, "optimiser": "adam", "decay_on": "first"}),
        ("vit", "dfa", {"rule_options": {"tokens": "class"}, "credit_norm": "batch"}),
        ("vit", "bp", {"optimiser": "sgd", "lr": 0.1}),
        ("vit", "fa", {"optimiser": "sgd", "lr": 0.01}),
        ("resmlp", "grape", {"rule_options": {"rate": 0.5}}),
        ("vit", "grape", {"optimiser": "sgd", "lr": 0.01}),
        ("gcn", "grape", {}),
        ("gcn", "dfa_gnn", {"task_options": {"normalisation": "row"}}),
        ("gcn", "dfa_gnn", {"rule_options": {"pseudo": False}, "optimiser": "adam"}),
        ("gcn", "kaft", {"task_options": {"normalisation": "row"}, "rule_options": {"probes": 2, "K": 1}}),
        ("gcn", "kaft", {"rule_options": {"spread": True}, "optimiser": "adam"}),
    )

    @pytest.mark.parametrize(("net", "rule", "others"), VARIANTS, ids=lambda v: str(v))
    def test_whatever_the_recipe(self, net, rule, others):
        fields = {"snapshot_every": 0, "noise": False, **others}
        self.check(spec_of(net, rule, **fields), 1e-4, 2e-3, places=[1])
        fields |= {"epochs": 3, "precision": "float64", **FEWER.get(net, {})}
        self.check(spec_of(net, rule, **fields), 1e-10, 1e-7, places=[1])


def rounding_alone(spec: RunSpec, name: str, *, measured: bool = False) -> bool:
    """Whether all that a tensor is told is rounding.

    The softmax of attention does not change when one vector is added to all keys, so the gradient of the key bias is
    zero but for rounding. Adam divides it by its own size and so makes steps of it; SGD leaves it too small to matter.
    Its direction, in a snapshot, means nothing in either case.
    """
    return name.endswith("attention.k.bias") and (measured or spec.optimiser != "sgd")


class TestMates:
    """A seed's weights and snapshots are the same to the last bit whichever seeds share its stack."""

    STACKS = ((7,), (7, 1), (2, 7, 3), (1, 2, 3, 4, 7))

    def check(self, spec: RunSpec) -> None:
        ended = []
        for seeds in self.STACKS:
            run = stack([replace(spec, seed=seed) for seed in seeds])
            ended.append(train(run)[seeds.index(7)])
        for other in ended[1:]:
            assert_equal(other, ended[0])

    @pytest.mark.parametrize(
        ("net", "rule"),
        [
            *itertools.product(SETTINGS, ("fa", "block_fa")),
            ("resmlp", "grape"),
            ("gcn", "grape"),
            ("gcn", "dfa_gnn"),
            ("gcn", "kaft"),
        ],
    )
    def test_they_do_not_matter(self, net, rule):
        depth = 4 if rule in ("grape", "kaft") else 2
        fields = {"epochs": 3 if net == "gcn" else 1, "net_options": {"depth": depth}, **FEWER.get(net, {})}
        self.check(spec_of(net, rule, **fields, noise=net != "vit"))

    def test_they_do_not_matter_to_a_norm_over_nodes(self):
        self.check(spec_of("gcn", "bp", epochs=3, net_options={"residual": True, "norm": "pair"}))

    @pytest.mark.parametrize(("net", "width"), [("student", 9), ("gcn", 10)])
    def test_a_seed_s_share_that_is_not_aligned_in_memory_is_not_stacked(self, net, width):
        with pytest.raises(CannotStackError, match="multiple of 16 bytes"):
            self.check(spec_of(net, "bp", net_options={"width": width}, epochs=3 if net == "gcn" else 1))


class TestComparedWithLoneRuns:
    """A deep net in which units stand at ReLU's kink: rounding alone moves its gradients by more than a plain net's."""

    @pytest.fixture
    def runs(self) -> list[Run]:
        options = {"depth": 32, "width": 32, "dropout": 0.0}
        return [build(spec_of("gcn", "bp", seed=seed, net_options=options)) for seed in (1, 8)]

    def bend(self, monkeypatch, change: Callable[[Run], dict[str, Tensor]]) -> None:
        """What a stack's gradients are taken to be; lone runs keep theirs."""

        def choose(run: Run) -> dict[str, Tensor]:
            return change(run) if isinstance(run, StackedRun) else GRADIENTS(run)

        monkeypatch.setattr(stacked, "_gradients", choose)

    def nudged(self, run: Run) -> dict[str, Tensor]:
        """Gradients at weights that are off by some rounding errors."""
        weights = {name: parameter.detach().clone() for name, parameter in run.trained.items()}
        draw = torch.Generator().manual_seed(4)
        with torch.no_grad():
            for parameter in run.trained.values():
                parameter.mul_(1 + 1e-6 * torch.randn(parameter.shape, generator=draw))
        found = GRADIENTS(run)
        with torch.no_grad():
            for name, parameter in run.trained.items():
                parameter.copy_(weights[name])
        return found

    def test_what_rounding_does_to_them_is_no_fault(self, monkeypatch, runs):
        self.bend(monkeypatch, self.nudged)
        before = [{name: t.clone() for name, t in run.tensors().items()} for run in runs]
        stack_runs(runs)
        for run, kept in zip(runs, before, strict=True):
            assert all(torch.equal(t, kept[name]) for name, t in run.tensors().items())
        monkeypatch.setattr(stacked, "SLACK", 0)
        with pytest.raises(CannotStackError, match="learns otherwise"):
            stack_runs(runs)

    def test_weights_are_put_back_whatever_happens(self, monkeypatch, runs):
        def fail(run: Run) -> dict[str, Tensor]:
            raise RuntimeError("no memory")

        gradients, before = GRADIENTS(runs[0]), [p.detach().clone() for p in runs[0].trained.values()]
        monkeypatch.setattr(stacked, "_gradients", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            stacked._sensitivity(runs[0], gradients)
        assert all(torch.equal(p, kept) for p, kept in zip(runs[0].trained.values(), before, strict=True))

    def test_another_seed_s_are_one(self, monkeypatch, runs):
        self.bend(monkeypatch, lambda run: {name: g.flip(0) for name, g in GRADIENTS(run).items()})
        with pytest.raises(CannotStackError, match="learns otherwise"):
            stack_runs(runs)


@EVERY_NET
@pytest.mark.parametrize("rule", ["fa", "dfa"])
def test_audited_and_unaudited_stacks_end_bit_identical(net, rule):
    penalty = 0.0 if net == "gcn" else 0.01
    fields = {"epochs": 2, "penalty": penalty, **FEWER.get(net, {})}
    specs = [spec_of(net, rule, seed=seed, **fields) for seed in (1, 2, 3)]
    audited = train(stack(specs))
    torch.manual_seed(1)  # the global stream must not matter
    plain = train(stack(specs), audit=False)
    for a, b in zip(audited, plain, strict=True):
        assert len(a.snapshots) == 3
        assert_equal(Ended(a.tensors, []), b)


def test_building_stacking_and_training_leave_the_global_stream_alone():
    specs = [spec_of("gcn", "fa", seed=seed, epochs=2) for seed in (1, 2)]
    stream = torch.get_rng_state()
    train(stack(specs))
    assert torch.equal(stream, torch.get_rng_state())


def test_a_snapshot_changes_nothing():
    run = stack([spec_of("vit", "fa", seed=seed) for seed in (1, 2)])
    run.train_epoch(0, keep_last=False)
    before = [{name: t.clone() for name, t in run.tensors(seed).items()} for seed in range(2)]
    first, second = (snapshot_run(run, 1) for _ in range(2))
    assert first == second
    for seed in range(2):
        assert all(torch.equal(t, before[seed][name]) for name, t in run.tensors(seed).items())


class Masks(nn.Module):
    """Two dropout layers on a parameter of ones: what comes out is the masks."""

    def __init__(self):
        super().__init__()
        self.ones = nn.Parameter(torch.ones(40, 30))
        self.first, self.second = HashDropout(0.3, 0), HashDropout(0.6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.first(self.ones), self.second(self.ones)]) * x


class TestDropout:
    def test_a_seed_in_a_stack_has_the_masks_it_has_alone(self):
        nets = [Masks() for _ in range(3)]
        for seed, net in enumerate(nets):
            seed_dropout(net, seed)
            set_dropout_step(net, 5)
        output = StackedNet.of(nets)(torch.ones(()))
        for seed, net in enumerate(nets):
            assert torch.equal(output[seed], net(torch.ones(())))
        assert not torch.equal(output[0], output[1])

    @pytest.mark.parametrize("net", ["gcn", "vit"])
    def test_through_a_net_at_every_step_of_training(self, net):
        specs = [spec_of(net, "bp", seed=seed, precision="float64", net_options={"dropout": 0.5}) for seed in (1, 2, 3)]
        run, alone = stack(specs), [build(spec) for spec in specs]
        inputs = run.data.snapshot_batch().inputs
        run.net.train()
        seen = []
        for step in (0, 3):
            run._dropout_step.fill_(step)
            output = run.net(inputs)
            for seed, single in enumerate(alone):
                single.net.train()
                set_dropout_step(single.net, step)
                wanted = single.net(*inputs) if isinstance(inputs, tuple) else single.net(inputs)
                torch.testing.assert_close(output[seed], wanted, rtol=1e-10, atol=1e-12)
            seen.append(output)
        assert not torch.allclose(seen[0], seen[1])

    def test_steps_are_counted_through_epochs(self):
        specs = [spec_of("vit", "bp", seed=seed) for seed in (1, 2)]
        run = stack(specs)
        for epoch in (0, 1, 4):
            run.train_epoch(epoch, keep_last=True)
            steps = {name: t for name, t in run.tensors(1).items() if name.endswith(".step")}
            assert len(steps) == 4
            assert all(int(t) == 4 * epoch + 3 for t in steps.values())


def test_stacking_leaves_the_runs_as_they_were():
    runs = [build(spec_of("gcn", "dfa", seed=seed, epochs=3)) for seed in (1, 2)]
    stack_runs(runs)
    for run in runs:
        assert_equal(train(run)[0], train(build(run.spec))[0])
