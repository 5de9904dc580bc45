"""A quick snapshot of a watched model costs at most two training steps, by process time of turns in one process."""

import statistics

import pytest
import torch


@pytest.mark.slow
def test_a_quick_snapshot_is_at_most_two_steps(bench):
    cost = bench("watch_cost")
    torch.manual_seed(0)
    model, x, y = cost.resnet(32), torch.randn(64, *cost.IMAGE), torch.arange(64) % 10
    least = float("inf")
    for _ in range(3):  # a busy machine slows caches, too: what it can do is the least
        times = cost.measure(model, x, y, rounds=5, device="cpu")
        least = min(least, statistics.median(times["snapshot"]) / statistics.median(times["step"]))
        if least <= 2:
            break
    assert least <= 2
