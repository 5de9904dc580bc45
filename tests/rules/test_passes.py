"""What a step runs is what a rule says that it costs; nets that cannot be run again are refused; seeds stay apart."""

import pytest
import torch
from credited import CLASSES, INPUTS, ROWS, at_work, learn, stream
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.rules import rule_class
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


def trained(seeds: tuple[int, ...], rule: str, options: dict, broken: int | None, lr: float) -> StackedRun:
    """A stack after two epochs; the head of one seed is so large that it diverges."""
    specs = [
        plan_run(
            task="digits",
            net="resmlp",
            net_options={"depth": 2, "width": 16},
            rule=rule,
            rule_options=options,
            seed=seed,
            epochs=2,
            eval_rows=32,
            batch=350,
            optimiser="sgd",
            lr=lr,
        )
        for seed in seeds
    ]
    run = stack_runs([build_run(spec) for spec in specs])
    if broken is not None:
        with torch.no_grad():
            dict(run.net.named_parameters())["head.weight"][seeds.index(broken)] *= 1e30
    for epoch in range(2):
        run.train_epoch(epoch, keep_last=False)
    return run


@pytest.mark.parametrize("name", [*RULES, "drtp", "dkp"])
def test_a_seed_that_diverges_leaves_the_others_as_they_are_alone(name):
    rule, options = (RULES | PLAIN)[name]
    run = trained((1, 2, 3), rule, options, broken=2, lr=0.05)
    assert not all(t.isfinite().all() for t in run.tensors(1).values())
    for place, seed in ((0, 1), (2, 3)):
        alone = trained((seed,), rule, options, broken=None, lr=0.05).tensors(0)
        ours = run.tensors(place)
        assert ours.keys() == alone.keys()
        for tensor_name, tensor in alone.items():
            assert tensor.isfinite().all()
            assert torch.equal(ours[tensor_name], tensor), tensor_name
