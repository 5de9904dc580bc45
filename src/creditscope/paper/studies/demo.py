"""What `creditscope demo` shows: four rules with their baselines on mnist1d, and digits as a control."""

from creditscope.paper.studies import Study, register_study
from creditscope.paper.studies._recipes import DEMO, FROZEN, SEEDS

RULES = ("bp", "fa", "block_fa", "dfa")


@register_study("demo")
def demo() -> Study:
    """Every rule with trained and with frozen blocks; BP alone on the task that needs no depth."""
    trained = [{**DEMO, "rule": rule, "seed": seed} for rule in RULES for seed in SEEDS]
    frozen = [{**DEMO, **FROZEN, "rule": rule, "seed": seed} for rule in RULES for seed in SEEDS]
    return Study("demo", (*trained, *frozen, *_digits()))


def _digits() -> list[dict]:
    control = {**DEMO, "task": "digits", "rule": "bp", "epochs": 20}
    runs = [{**control, "seed": seed} for seed in SEEDS]
    return runs + [{**control, **FROZEN, "seed": seed} for seed in SEEDS]
