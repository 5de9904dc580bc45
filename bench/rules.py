"""What a step of each rule costs: 20 seeds stacked, against stacked backprop and against the seeds one by one.

`per_pass` is what a rule costs beyond stacked backprop, in stacked backprop steps, for every forward pass that it says
it makes (a backward counts as two). `of_eager` is a stacked step over 20 steps of the same rule, one by one.
"""

from dataclasses import replace

from cases import MIDDLE, RESMLP, Case
from common import Spread, Table, arguments, interleaved, over

from creditscope.registry import RULES
from creditscope.rules import make_rule
from creditscope.tasks import AnyTask

SEEDS = 20
OTHERS = {"sign_fa, br": ("sign_fa", {"variant": "br"}), "ldrl, learned": ("ldrl", {"feedback": "learned"})}
OTHERS |= {
    "pc, settled": ("pc", {"inputs": "settled"}),
    "forward_gradient, joint": ("forward_gradient", {"joint": True}),
}
OTHERS |= {"local, sim": ("local", {"loss": "sim"}), "ep, one-sided": ("ep", {"centred": False})}


def main() -> None:
    given = arguments(__doc__, rounds=7, only="")
    case = replace(RESMLP, steps=20) if given.device.startswith("cuda") else MIDDLE
    task = case.task()
    table = Table(f"A step of {SEEDS} seeds by rule: {case.name}, {given.rounds} rounds", given.device)
    rules = {name: (name, {}) for name in RULES.names()} | OTHERS
    for label, (name, options) in rules.items():
        if name not in ("bp", "dfa_gnn", "kaft") and (not given.only or label in given.only.split("+")):
            try:
                fields = {"rule": name, "rule_options": options}
                compare(table, case, task, label, make_rule(name, options).passes, fields, given)
            except Exception as error:
                print(f"  {label}: {type(error).__name__}: {error}"[:300], flush=True)
    table.save(given.json)


def compare(table: Table, case: Case, task: AnyTask, label: str, passes: float, fields: dict, given) -> None:
    ours, bp = (case.stack(SEEDS, given.device, task=task, **one) for one in (fields, {"rule": "bp"}))
    (alone,) = case.runs(1, given.device, task=task, **fields)
    epoch = iter(range(1000))
    works = {"rule": ours, "bp": bp, "alone": alone}
    once = {name: lambda run=run: run.train_epoch(next(epoch), keep_last=False) for name, run in works.items()}
    times = interleaved(once, given.rounds, given.device)
    milliseconds = Spread.of([1e3 * t / ours.data.steps for t in times["rule"]])
    ratio = over(times, "rule", "bp")
    per_pass = f"{(ratio.median - 1) / passes:.2f}" if passes else "–"
    eager = Spread.of([a / (SEEDS * b) for a, b in zip(times["rule"], times["alone"], strict=True)])
    table.add(
        rule=label.ljust(24), engine=ours.engine, ms=milliseconds, of_bp=ratio, passes=f"{passes:g}".ljust(6),
        per_pass=per_pass.ljust(8), of_eager=eager,
    )  # fmt: skip


if __name__ == "__main__":
    main()
