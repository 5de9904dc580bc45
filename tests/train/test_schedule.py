"""Which groups are begun first."""

from typing import Any

from creditscope.train.groups import RunGroup, longest_first
from creditscope.train.plan import plan_run

MLP: dict[str, Any] = {"task": "mnist1d", "net": "resmlp", "net_options": {"depth": 2, "width": 8}, "epochs": 10}
QUICK = {"snapshot_every": 0, "tier": "quick", "noise": False}
GRAPH = {**QUICK, "task": "sbm", "net": "gcn", "epochs": 10}


def group(seeds: int = 1, **fields: Any) -> RunGroup:
    return RunGroup(tuple(plan_run(seed=seed, **fields) for seed in range(seeds)), "stacked")


def ordered(*longest_to_shortest: RunGroup) -> bool:
    """Whether they come so whatever order they are given in."""
    expected = list(longest_to_shortest)
    return longest_first(expected) == expected and longest_first(expected[::-1]) == expected


def test_transformers_then_what_is_measured_in_full():
    vit = group(task="digits", net="vit", epochs=1, **QUICK)
    assert ordered(vit, group(**{**MLP, "tier": "full", "epochs": 1}), group(20, **{**MLP, "epochs": 100}))


def test_more_epochs_smaller_batches_more_layers_and_more_seeds_take_longer():
    plain = {**MLP, **QUICK}
    assert ordered(group(**{**plain, "epochs": 11}), group(**plain))
    assert ordered(group(**plain, batch=64), group(**plain))
    assert ordered(group(**{**plain, "net_options": {"depth": 3}}), group(**plain))
    assert ordered(group(3, **plain), group(**plain))


def test_many_seeds_that_are_measured_come_before_a_few_that_are_trained_for_longer():
    """Each seed is measured on its own before and after training: ten of them would be waited for at the end."""
    net = {"task": "cifar10", "net": "resmlp", "net_options": {"depth": 4}}
    assert ordered(group(10, **net, epochs=30), group(3, **net, epochs=100), group(3, **net, epochs=100, **QUICK))


def test_an_epoch_of_a_graph_is_one_step():
    assert ordered(group(**MLP, **QUICK), group(**{**GRAPH, "net_options": {"depth": 64}}), group(**GRAPH))


def test_those_of_one_length_stay_in_order():
    groups = [group(**MLP, rule=rule) for rule in ("fa", "bp", "dfa")]
    assert longest_first(groups) == groups
