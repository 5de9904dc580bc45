"""What bench/verdicts.py rests on: draws keep baselines of the same seeds, and more seeds make no verdict rarer."""

import numpy as np
import pytest
from builders import make_facts, make_family, make_record, make_snapshot

from creditscope.auditing import audit

SEEDS = tuple(range(1, 21))


@pytest.fixture
def verdicts(bench):
    return bench("verdicts")


def noisy_family():
    """DFA of twenty seeds whose taps differ, one of them with a block that overwrites the stream."""
    rng, facts = np.random.default_rng(0), make_facts()
    family = [r for r in make_family(seeds=SEEDS) if r.spec.rule != "dfa" or r.spec.frozen]
    for seed in SEEDS:
        cos, sizes = rng.normal(0.25, 0.08, 5).tolist(), rng.uniform(1, 3, 5).tolist()
        accuracy = float(rng.normal(0.55, 0.1))
        taps = {"cos": cos, "cos_F": [0.9 * c for c in cos], "rewind": accuracy - 0.05}
        taps["h_rms"] = (1, 1, 1, 90, 90) if seed == 7 else sizes
        moment = make_snapshot(facts, accuracy=accuracy, taps=taps)
        family.append(make_record(seed=seed, snapshots=[moment]))
    return family


def test_all_seeds_get_the_word_of_the_audit(verdicts):
    family = noisy_family()
    word = next(m.verdict.word for m in audit(family).methods if m.method == "DFA")
    assert verdicts.draw_verdicts(family, "DFA", len(SEEDS), draws=3)[word] == 1


def test_baselines_are_those_of_the_drawn_seeds(verdicts):
    family = [r for r in make_family(seeds=range(1, 7)) if not (r.spec.seed == 6 and r.spec.frozen)]
    shares = verdicts.draw_verdicts(family, "DFA", 3)
    assert shares["trustworthy"] == pytest.approx(0.5, abs=0.1)  # 10 of the 20 triples have all baselines
    assert shares["trustworthy"] + shares["not measured"] == 1


@pytest.mark.slow
def test_more_seeds_make_trust_no_rarer(verdicts):
    few, some, many = (verdicts.draw_verdicts(noisy_family(), "DFA", n)["trustworthy"] for n in (3, 5, 10))
    assert few < 1
    assert few <= some + 0.05
    assert some <= many + 0.05


def test_too_few_seeds_are_refused(verdicts):
    with pytest.raises(ValueError, match="at least 10 seeds"):
        verdicts.draw_verdicts(make_family(), "DFA", 10)


def test_the_setting_is_told_from_others(verdicts):
    default = verdicts.plan_run(**verdicts.SETTING)
    plain = {name: getattr(default, name) for name in ("task", "data_version", "task_options", "net_options", "epochs")}
    there = [make_record(rule=rule, **plain) for rule in ("bp", "fa")]
    assert verdicts.of_setting([*there, make_record(**plain, lr=0.01), make_record(**plain, targets="random")]) == there
