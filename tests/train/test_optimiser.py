"""Optimisers on a CPU: what they do to an element depends on nothing but its own numbers."""

import pytest
import torch
from torch import nn

from creditscope.train.plan import plan_run
from creditscope.train.run import make_optimiser

SIZES = (1, 3, 5, 10, 31, 40)
SEEDS, STEPS = 23, 30
KINDS = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}


def trained(parameters, optimiser, gradients):
    for step in gradients:
        for p, g in zip(parameters, step, strict=True):
            p.grad = g.clone()
        optimiser.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stack_s_elements_have_the_bits_they_have_alone_and_in_plain_pytorch(kind, precision):
    dtype, generator = getattr(torch, precision), torch.Generator().manual_seed(0)
    spec = plan_run(optimiser=kind, precision=precision, lr=1e-2, weight_decay=0.1)

    def draw(size):
        return torch.randn(SEEDS, size, dtype=dtype, generator=generator)

    starts, gradients = [draw(n) for n in SIZES], [[draw(n).exp() for n in SIZES] for _ in range(STEPS)]
    stacked = [nn.Parameter(start.clone()) for start in starts]
    together = trained(stacked, make_optimiser(spec, nn.ParameterList(stacked)), gradients)
    for seed in range(SEEDS):
        own = [[g[seed] for g in step] for step in gradients]
        alone, plain = ([nn.Parameter(start[seed].clone()) for start in starts] for _ in range(2))
        results = (
            trained(alone, make_optimiser(spec, nn.ParameterList(alone)), own),
            trained(plain, KINDS[kind](plain, lr=1e-2, weight_decay=0.1, foreach=False), own),
        )
        for result in results:
            assert all(torch.equal(found[seed], wanted) for found, wanted in zip(together, result, strict=True))
