"""Whether a verdict depends on how many seeds were trained: the share of each word over draws of n of a method's seeds.

A draw takes n of the seeds without replacement, with the baselines of the same seeds, and judges them as if there were
no others; draws of one record share seeds, so shares are of these seeds, not of all that could be. More seeds may
decide what fewer leave open, but no word but *undecided* should become rarer because there are more. `--rounds` is the
number of draws, `--records` a folder.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from common import Table, arguments

from creditscope.auditing import Thresholds
from creditscope.auditing.checks import Check, checks_for
from creditscope.auditing.judge import judge_check
from creditscope.auditing.methods import Method, group_methods
from creditscope.auditing.verdict import MEANINGS, Word, choose_word
from creditscope.record import Record, load_records
from creditscope.record.spec import RULE_FIELDS
from creditscope.train.plan import plan_run

SETTING = {"task": "cifar10", "net": "resmlp", "net_options": {"depth": 4, "width": 256}, "epochs": 100}
METHODS, SIZES = ("BP", "FA"), (3, 5, 10)


def draw_verdicts(records: Sequence[Record], method: str, n: int, draws: int = 200) -> dict[Word, float]:
    """Share of each word over draws of n seeds of the method of this label; the records are of one setting."""
    found = [m for m in group_methods(records) if m.label == method]
    if len(found) != 1 or len(found[0].runs) < n:
        seeds = [len(m.runs) for m in found]
        raise ValueError(f"Expected one method {method!r} with at least {n} seeds, but got seeds {seeds}.")
    rng, seeds, checks, limits = np.random.default_rng(n), list(found[0].runs), checks_for(found[0].facts), Thresholds()
    drawn = [frozenset(rng.choice(seeds, n, replace=False).tolist()) for _ in range(draws)]
    words = {kept: _word(with_seeds(found[0], kept), checks, limits) for kept in set(drawn)}
    counts = Counter(words[kept] for kept in drawn)
    return {word: counts[word] / draws for word in MEANINGS}


def with_seeds(method: Method, kept: Collection[int]) -> Method:
    """The method as if only these seeds had been trained, of it and of its baselines."""

    def only(runs: Mapping[int, Record]) -> dict[int, Record]:
        return {seed: record for seed, record in runs.items() if seed in kept}

    whole = {name: only(getattr(method, name)) for name in ("runs", "frozen_own", "bp", "frozen_bp")}
    return replace(method, **whole, rungs={trained: only(runs) for trained, runs in method.rungs.items()})


def _word(method: Method, checks: Sequence[Check], limits: Thresholds) -> Word:
    findings = [judge_check(check, method, limits) for check in checks]
    return choose_word(findings, diverged=bool(method.divergence), not_judged=bool(method.not_judged))[0]


def of_setting(records: Sequence[Record]) -> list[Record]:
    """Those of `SETTING` that are otherwise trained by default."""
    wanted = plan_run(**SETTING).setting(without=RULE_FIELDS)
    return [r for r in records if r.spec is not None and r.spec.setting(without=RULE_FIELDS) == wanted]


def main() -> None:
    given = arguments(__doc__, rounds=200, records="results/paper")
    records = of_setting(load_records(given.records))
    seeds = {m.label: len(m.runs) for m in group_methods(records)}
    table = Table(f"Verdicts over {given.rounds} draws of n seeds: ResMLP, d = 256, 100 epochs", "cpu")
    for method in METHODS:
        for n in (n for n in SIZES if n <= seeds.get(method, 0)):
            shares = draw_verdicts(records, method, n, given.rounds)
            cells = {word.replace(" ", "_"): f"{share:.3f}" for word, share in shares.items()}
            table.add(method=method, seeds=seeds[method], n=n, **cells)
    table.save(given.json)


if __name__ == "__main__":
    main()
