"""The settings of the benchmarks can be planned, and a step of them be trained, stacked and plain."""

from dataclasses import replace

import pytest

CASES = "RESMLP", "VIT", "GCN", "SMALL", "MIDDLE"


@pytest.fixture
def cases(bench):
    return bench("cases")


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_case_trains_one_step(name, cases):
    case = replace(getattr(cases, name), steps=1)
    task = case.task()
    stack = case.stack(2, "cpu", "dfa", task)
    loss, _ = stack.train_epoch(0, keep_last=False)
    cases.eager_step(case, task, "cpu")()
    assert (loss.shape, bool(loss.isfinite().all()), stack.data.steps) == ((2,), True, 1)


def test_every_case_is_tried(cases):
    assert {name for name, value in vars(cases).items() if isinstance(value, cases.Case)} == set(CASES)
