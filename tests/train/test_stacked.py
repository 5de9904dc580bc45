"""The stacked engine: a seed ends as it would alone, whatever its mates, and measuring changes nothing."""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from stacking import (
    EVERY_NET,
    EVERY_RULE,
    FEWER,
    ODD_RULES,
    RULES,
    SETTINGS,
    Ended,
    Normed,
    assert_engines_agree,
    assert_equal,
    assert_near,
    assert_snapshots_agree,
    build,
    read,
    recorded,
    same_bytes,
    spec_of,
    stack,
    stop,
    train,
    train_on,
)
from torch import Tensor

from creditscope.record import RunSpec
from creditscope.registry import NETS
from creditscope.train import stacked
from creditscope.train.groups import group_runs
from creditscope.train.plan import plan_run
from creditscope.train.run import Run, build_run
from creditscope.train.stacked import LEAD, LEAST_AHEAD, CannotStackError, Pace, StackedRun, stack_runs

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
            assert_snapshots_agree(found.snapshots, wanted.snapshots, measures, skipped)

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

    def check(self, spec: RunSpec) -> None:
        stacks = ((7,), (7, 1), (2, 7, 3), (1, 2, 3, 4, 7))
        runs = [stack([replace(spec, seed=seed) for seed in seeds]) for seeds in stacks]
        first, *others = (train(run)[seeds.index(7)] for run, seeds in zip(runs, stacks, strict=True))
        for other in others:
            assert_equal(other, first)

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
        with pytest.raises(CannotStackError, match=r"multiple of 16 bytes; .*width"):
            self.check(spec_of(net, "bp", net_options={"width": width}, epochs=3 if net == "gcn" else 1))

    @pytest.mark.parametrize(("rows", "option"), [({"eval_rows": 33}, "eval_rows"), ({"batch": 35}, "batch")])
    def test_where_the_rows_are_why_it_is_not_the_width_that_is_advised(self, rows, option):
        """The outputs for ten classes are what does not fit; states of sixteen features do."""
        (count,) = rows.values()
        with pytest.raises(CannotStackError, match=rf"\({10 * count} numbers\).* choose {option} as a multiple of 4$"):
            stack([spec_of("resmlp", "bp", seed=seed, **rows) for seed in (1, 2)])

    def test_they_do_not_matter_where_rows_are_left_over_of_those_a_cpu_takes_at_a_time(self):
        fields = {"eval_rows": 36, "batch": 36, "net_options": {"width": 12}}
        self.check(spec_of("resmlp", "fa", epochs=1, **fields))


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
        for parameter in run.trained.values():
            parameter.data.mul_(1 + 1e-6 * torch.randn(parameter.shape, generator=draw))
        found = GRADIENTS(run)
        for name, parameter in run.trained.items():
            parameter.data.copy_(weights[name])
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
        gradients, before = GRADIENTS(runs[0]), [p.detach().clone() for p in runs[0].trained.values()]
        monkeypatch.setattr(stacked, "_gradients", lambda run: 1 / 0)
        with pytest.raises(ZeroDivisionError):
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
    stream = torch.get_rng_state()
    audited = train(stack(specs))
    assert torch.equal(stream, torch.get_rng_state())
    torch.manual_seed(1)  # the global stream must not matter
    plain = train(stack(specs), audit=False)
    for a, b in zip(audited, plain, strict=True):
        assert len(a.snapshots) == 3
        assert_equal(Ended(a.tensors, []), b)


class Device:
    """One that takes so many seconds for what is given between two marks; the clock is the host's."""

    def __init__(self, seconds: float):
        self.seconds, self.now, self.free, self.waited = seconds, 0.0, 0.0, 0.0


class Mark:
    def __init__(self, device: Device):
        self.device, self.done = device, 0.0

    def record(self) -> None:
        self.device.free = self.done = max(self.device.free, self.device.now) + self.device.seconds

    def query(self) -> bool:
        return self.done <= self.device.now

    def synchronize(self) -> None:
        self.device.waited += max(0.0, self.done - self.device.now)
        self.device.now = max(self.done, self.device.now)

    def elapsed_time(self, later: "Mark") -> float:
        return 1e3 * (later.done - self.done)


@pytest.mark.parametrize(("seconds", "waits"), [(0.3, True), (2.5, True), (0.001, False)])
def test_the_host_is_not_far_ahead_of_the_device(seconds, waits):
    """Else a checkpoint, or the end at a time limit, would wait for a whole epoch of dear steps; cheap ones go."""
    device = Device(seconds)
    pace, ahead = Pace(), list[float]()
    for _ in range(200):
        device.now += 0.0001
        pace.keep(Mark(device))
        ahead.append(device.free - device.now)
    assert max(ahead) <= max(LEAD, LEAST_AHEAD * seconds) + seconds
    assert (device.waited > 10 * seconds) is waits
    if not waits:
        assert max(ahead) > 100 * seconds  # the next epoch is drawn meanwhile
    device.seconds = 0.001  # others have gone
    for _ in range(2000):
        pace.keep(Mark(device))
    assert device.free - device.now > 0.9 * LEAD


def test_stacking_leaves_the_runs_as_they_were():
    runs = [build(spec_of("gcn", "dfa", seed=seed, epochs=3)) for seed in (1, 2)]
    stack_runs(runs)
    for run in runs:
        assert_equal(train(run)[0], train(build(run.spec))[0])


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
        return super().forward(torch.nn.functional.dropout(x, 0.1, self.training))


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
            assert_near(found.tensors, wanted.tensors, 1e-9, 1e-11)
            assert found.snapshots[-1].accuracy == wanted.snapshots[-1].accuracy

    def test_a_tensor_that_is_no_buffer_is_not_taken_from_another_seed(self, monkeypatch, tmp_path):
        specs = self.specs(monkeypatch, Shuffles)
        assert_engines_agree(specs, tmp_path)

    def test_dropout_from_the_global_stream_is_not_stacked(self, monkeypatch):
        with pytest.raises(CannotStackError, match="random"):
            stack_runs([build_run(spec) for spec in self.specs(monkeypatch, Drops)])


class TestRulesOfOnesOwn:
    def specs(self, name: str) -> list[RunSpec]:
        return recorded((1, 2), f"{ODD_RULES}:{name}", epochs=2)

    @pytest.mark.parametrize(
        ("name", "why"), [("Reads", r"\.item\(\)"), ("Draws", "random"), ("Decides", "data-dependent control flow")]
    )
    def test_one_that_cannot_be_mapped_is_trained_by_the_loop_and_says_why(self, tmp_path, name, why):
        specs = self.specs(name)
        with pytest.raises(CannotStackError, match=why):
            stack(specs)
        for engine in ("loop", "stacked"):
            torch.manual_seed(0)
            assert train_on(specs, tmp_path / engine, engine=engine) == ["complete"] * 2
        assert same_bytes(specs, tmp_path / "stacked", tmp_path / "loop")
        for spec in specs:
            provenance = read(tmp_path / "stacked", spec).provenance
            assert (provenance.engine, provenance.stack) == ("loop", ())
            assert "vmap" in provenance.note
            assert len(provenance.note) <= 300

    def test_one_that_cannot_be_mapped_can_be_stopped_and_goes_on(self, tmp_path):
        specs = self.specs("Reads")
        stop(specs, tmp_path, epochs=1)
        assert train_on(specs, tmp_path) == ["complete"] * 2
        train_on(specs, tmp_path / "loop", engine="loop")
        assert same_bytes(specs, tmp_path, tmp_path / "loop")
        (group,) = group_runs(specs[:1], tmp_path / "new", device=torch.device("cpu"), engine="stacked")
        assert group.engine == "stacked"

    def test_one_that_keeps_its_feedback_to_itself_is_not_given_that_of_another_seed(self, tmp_path):
        assert_engines_agree(self.specs("Keeps"), tmp_path)

    def test_one_without_feedback_is_stacked(self, tmp_path):
        specs = self.specs("Plain")
        for spec, found in zip(specs, train(stack(specs)), strict=True):
            (wanted,) = train(build(spec))
            assert_near(found.tensors, wanted.tensors, 1e-4, 1e-6)
