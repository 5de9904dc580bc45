"""What `creditscope demo` shows: four rules with their baselines on mnist1d, and digits as a control."""

from creditscope.paper.studies import Study, over_seeds, register_study
from creditscope.paper.studies._recipes import DEMO, FROZEN, SEEDS

RULES = ("bp", "fa", "block_fa", "dfa")


@register_study("demo")
def demo() -> Study:
    """Every rule with trained and with frozen blocks; BP alone on the task that needs no depth."""
    digits = {**DEMO, "task": "digits", "rule": "bp", "epochs": 20}
    conditions = [{**DEMO, **frozen, "rule": rule} for frozen in ({}, FROZEN) for rule in RULES]
    return Study("demo", over_seeds([*conditions, digits, {**digits, **FROZEN}], SEEDS))
