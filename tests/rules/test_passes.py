"""What a step runs is what a rule says that it costs; nets that cannot be run again are refused; seeds stay apart."""

from typing import Any

import pytest
import torch
from credited import CLASSES, INPUTS, ROWS, SHAPES, at_work, close, learn, stream
from safetensors.torch import load_file
from torch import Tensor, nn
from trained import record_runs

from creditscope.errors import CreditscopeError
from creditscope.losses import errors_function, row_errors
from creditscope.record import RunSpec, run_folder
from creditscope.rng import generator
from creditscope.rules import apply_rule, rule_class
from creditscope.stack import StackedNet
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.stacked import StackedRun, stack_runs

RULES = {
    "pc": ("pc", {"steps": 5}),
    "pc settled": ("pc", {"steps": 5, "inputs": "settled"}),
    "ep": ("ep", {"steps": 4}),
    "ep one-sided": ("ep", {"steps": 4, "centred": False}),
    "forward gradient": ("forward_gradient", {"probes": 3}),
    "forward gradient, joint": ("forward_gradient", {"probes": 3, "joint": True}),
    "pepita": ("pepita", {}),
    "fdfa": ("fdfa", {}),
}
PLAIN = {"drtp": ("drtp", {}), "dkp": ("dkp", {}), "sign": ("dfa", {"error": "sign"})}
"""Those that run the net once."""


class Count(torch.autograd.Function):
    """The identity, which counts how often it is gone through, and back."""

    generate_vmap_rule = True
    forwards = backwards = 0

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        pass

    @staticmethod
    def backward(ctx, *grad_outputs):
        Count.backwards += 1
        return grad_outputs[0]

    @staticmethod
    def jvp(ctx, *tangents):
        return tangents[0].clone()


class Counted(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        Count.forwards += 1
        return Count.apply(h)  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("name", [*RULES, *PLAIN])
def test_passes_are_those_of_a_step(name):
    """Beyond the one forward: forwards, and two for each backward through the whole net."""
    rule, options = (RULES | PLAIN)[name]
    net, x, y = stream()
    net.head = nn.Sequential(Counted(), net.head)
    applied = at_work(rule, net, x, **options)
    Count.forwards = Count.backwards = 0
    learn(applied, x, y)
    assert Count.forwards - 1 + 2 * Count.backwards == applied.rule.passes


@pytest.mark.parametrize(
    ("layer", "named"), [(nn.BatchNorm1d(8), "blocks.1"), (nn.Sequential(nn.Tanh(), nn.Dropout(0.5)), "blocks.1.1")]
)
@pytest.mark.parametrize("name", [*RULES, *PLAIN])
def test_batch_norm_and_dropout_are_refused_by_name_where_the_net_is_run_again(name, layer, named):
    rule, options = (RULES | PLAIN)[name]
    net = nn.Sequential()
    net.add_module("stem", nn.Linear(INPUTS, 8))
    net.add_module("blocks", nn.Sequential(nn.Linear(8, 8), layer))
    net.add_module("head", nn.Linear(8, CLASSES))
    x, y = torch.randn(ROWS, INPUTS), torch.arange(ROWS) % CLASSES
    if name in PLAIN:
        applied = at_work(rule, net, x, ("stem", "blocks"), **options)
        learn(applied, x, y)
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in net.parameters())
        return
    with pytest.raises(CreditscopeError, match=rf"'{rule}'.*: {named}\."):
        at_work(rule, net, x, ("stem", "blocks"), **options)


class Dropped(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return nn.functional.dropout(torch.tanh(h), 0.5, self.training)


@pytest.mark.parametrize("name", RULES)
def test_dropout_that_is_no_module_is_refused_where_the_net_is_run_again(name):
    """And taken once it drops nothing."""
    rule, options = RULES[name]
    net = nn.Sequential(nn.Linear(INPUTS, 8), Dropped(), nn.Linear(8, CLASSES)).double()
    x, y = torch.randn(ROWS, INPUTS).double(), torch.arange(ROWS) % CLASSES
    with pytest.raises(CreditscopeError, match=rf"'{rule}'.*(second time|vmap)"):
        at_work(rule, net, x, ("0",), **options)
    net.eval()
    learn(at_work(rule, net, x, ("0",), **options), x, y)


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        ("pc", {"beta": 0.0}, r"beta 0\.0"),
        ("pc", {"steps": 0}, "steps 0"),
        ("pc", {"inputs": "clamped"}, "'clamped'.*forward, settled"),
        ("ep", {"rate": -1.0}, r"rate -1\.0"),
        ("forward_gradient", {"probes": 0}, "got 0"),
        ("pepita", {"scale": 0.0}, r"got 0\.0"),
        ("dkp", {"rate": 0.0}, r"rate 0\.0"),
        ("dkp", {"decay": -0.1}, r"decay -0\.1"),
        ("dkp", {"optimiser": "lion"}, "'lion'.*adam, sgd"),
        ("fdfa", {"rate": 1.5}, r"got 1\.5"),
        ("dfa", {"error": "square"}, "'square'.*sign, true"),
        ("drtp", {"tokens": "first"}, "'first'.*all, class"),
    ],
)
def test_options_that_mean_nothing(rule, options, message):
    with pytest.raises(CreditscopeError, match=message):
        rule_class(rule)(**options)


def test_a_target_that_is_no_label_is_refused_by_drtp():
    net, x, _ = stream()
    applied = at_work("drtp", net, x)
    with pytest.raises(CreditscopeError, match=r"class labels.*float64"):
        applied.backward(x, lambda z: row_errors(z, torch.zeros(ROWS, 3).double(), lambda z, t: (z - t).sum(1)))


def spec_of(rule: str, options: dict, seed: int, **others: Any) -> RunSpec:
    settings: dict[str, Any] = {
        "task": "digits",
        "net": "resmlp",
        "net_options": {"depth": 2, "width": 16},
        "optimiser": "sgd",
    }
    settings |= {"epochs": 2, "eval_rows": 32, "batch": 350}
    return plan_run(rule=rule, rule_options=options, seed=seed, **settings | others)


def trained(seeds: tuple[int, ...], rule: str, options: dict, broken: int | None = None) -> StackedRun:
    """A stack after two epochs; the head of one seed is so large that it diverges."""
    specs = [spec_of(rule, options, seed, lr=0.05) for seed in seeds]
    run = stack_runs([build_run(spec) for spec in specs])
    if broken is not None:
        with torch.no_grad():
            dict(run.net.named_parameters())["head.weight"][seeds.index(broken)] *= 1e30
    for epoch in range(2):
        run.train_epoch(epoch, keep_last=False)
    return run


@pytest.mark.parametrize("name", ["pc settled", "forward gradient, joint", "pepita", "fdfa", "drtp", "dkp"])
@pytest.mark.slow
def test_a_seed_that_diverges_leaves_the_others_as_they_are_alone(name):
    rule, options = (RULES | PLAIN)[name]
    run = trained((1, 2, 3), rule, options, broken=2)
    assert not all(t.isfinite().all() for t in run.tensors(1).values())
    for place, seed in ((0, 1), (2, 3)):
        alone = trained((seed,), rule, options).tensors(0)
        ours = run.tensors(place)
        assert ours.keys() == alone.keys()
        for tensor_name, tensor in alone.items():
            assert tensor.isfinite().all()
            assert torch.equal(ours[tensor_name], tensor), tensor_name


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "options", "lr"), [("pc", {"inputs": "settled"}, 10.0), ("drtp", {}, 0.5)])
def test_runs_of_a_stack_some_of_which_diverge_end_as_they_do_alone(tmp_path, rule, options, lr):
    """At a learning rate that some seeds bear: those of a stack that do, do so to the last bit as alone."""
    specs = [spec_of(rule, options, seed, lr=lr, epochs=3, tier="quick", noise=False) for seed in range(1, 7)]
    outcomes = record_runs(specs, tmp_path / "stack", engine="stacked")
    assert set(outcomes.values()) == {"complete", "diverged"}
    for spec in specs:
        assert record_runs([spec], tmp_path / "alone", engine="stacked") == {spec.digest(): outcomes[spec.digest()]}
        if outcomes[spec.digest()] == "complete":
            ours, alone = (
                load_file(run_folder(tmp_path / folder, spec) / "weights.safetensors") for folder in ("stack", "alone")
            )
            assert all(torch.equal(ours[name], tensor) for name, tensor in alone.items())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*RULES, *PLAIN])
def test_a_stack_learns_as_each_of_its_nets_does(name, shape):
    """Two steps, so that what is learned and counted is carried on; seeds have draws of their own."""
    rule, options = (RULES | PLAIN)[name]
    _, x, y, taps = SHAPES[shape]()
    nets = [SHAPES[shape]()[0] for _ in range(3)]
    with torch.no_grad():
        for parameter in (p for net in nets for p in net.parameters()):
            parameter += 0.1 * torch.randn_like(parameter)
    made = [
        apply_rule(rule_class(rule)(**options), net, taps, x, generator(seed, "feedback")).applied
        for seed, net in enumerate(nets)
    ]
    stack = made[0].stacked(StackedNet.of(nets), made)
    for step in range(2):
        for p in stack.net.parameters():
            p.grad = None
        rows = slice(step, step + 5)
        stack.backward(x[rows], errors_function(stack.net, y[rows]))
        for seed, (net, applied) in enumerate(zip(nets, made, strict=True)):
            learn(applied, x[rows], y[rows])
            for parameter_name, p in stack.net.named_parameters():
                assert p.grad is not None
                close(p.grad[seed], net.get_parameter(parameter_name).grad, atol=1e-12, rtol=1e-10)
