"""Whole runs of rules with feedback in layers: measured or not, alone or in a stack."""

import pytest
import torch
from trained import train_run

from creditscope.train.plan import plan_run
from creditscope.train.run import build_run
from creditscope.train.stacked import stack_runs

TINY = {"task": "digits", "net_options": {"depth": 2, "width": 16}, "epochs": 2, "eval_rows": 64, "lr": 0.01}
RULES = {
    "u": ("sign_fa", {}),
    "fr": ("sign_fa", {"variant": "fr"}),
    "br": ("sign_fa", {"variant": "br", "scale": "init"}),
    "kp": ("kp", {}),
    "wm": ("wm", {"rows": 16}),
    "init": ("fa", {"scale": "init"}),
}


def spec_of(name: str, **fields):
    rule, options = RULES[name]
    return plan_run(rule=rule, rule_options=options, **TINY | fields)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.slow
def test_a_run_ends_with_the_same_bits_audited_or_not(name):
    spec = spec_of(name, tier="full" if name in ("br", "wm") else "quick")
    audited, plain, untouched = (build_run(spec) for _ in range(3))
    taken = []
    train_run(audited, on_snapshots=taken.extend)
    torch.manual_seed(1)  # the global stream must not matter
    train_run(plain, audit=False)
    assert len(taken) == 3
    moved = set()
    for n, start in untouched.tensors().items():
        assert torch.equal(audited.tensors()[n], plain.tensors()[n]), n
        if not torch.equal(start, plain.tensors()[n]):
            moved.add(n.rpartition(".")[2])
    assert moved == {"weight", "bias"} | {"br": {"feedback", "counter"}, "wm": {"feedback", "counter"}}.get(
        name, {"feedback"} if name == "kp" else set()
    )
    if name in ("br", "wm"):
        assert {int(t[1]) for n, t in plain.tensors().items() if n.endswith("counter")} == {2 * plain.data.steps}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.slow
def test_a_stack_of_runs_ends_as_each_alone(name):
    specs = [spec_of(name, precision="float64", seed=seed) for seed in (1, 2)]
    stack = stack_runs([build_run(spec) for spec in specs])
    train_run(stack, audit=False)
    for place, spec in enumerate(specs):
        alone = build_run(spec)
        train_run(alone, audit=False)
        found = stack.tensors(place)
        for n, tensor in alone.tensors().items():
            torch.testing.assert_close(found[n], tensor, rtol=1e-8, atol=1e-10, msg=n)
