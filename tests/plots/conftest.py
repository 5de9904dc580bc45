"""Tiny runs and a watched model, for all tests of plots."""

import pytest
import torch
from torch import nn

import creditscope as cs

TINY = {"task": "digits", "seeds": 2, "epochs": 1, "depth": 2, "width": 8, "tier": "quick", "slots": 1}


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> cs.Runs:
    """Backprop and DFA with all rungs of their ladders."""
    out = tmp_path_factory.mktemp("plots")
    return cs.run(rule=["bp", "dfa"], baselines=True, ladder=True, out=out, **TINY)


@pytest.fixture
def scope(own_stream) -> cs.Scope:
    """A model of one's own, looked at twice."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 6), nn.ReLU()), nn.Linear(6, 3))
    scope = cs.watch(model, taps="1", stem="0", rule="dfa")
    for epoch in range(2):
        scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3, epoch=epoch, tier="quick")
    return scope
