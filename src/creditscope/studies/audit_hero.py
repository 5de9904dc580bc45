"""BP, block FA and DFA on one residual MLP: what accuracy and mean cosine say, and what the layers say."""

from creditscope.studies import Study, register_study

RULES = ("bp", "block_fa", "dfa")
SEEDS = (42, 123, 456)
DEMO = {
    "task": "mnist1d",
    "net": "resmlp",
    "net_options": {"depth": 4, "width": 128, "terminal_norm": True},
    "epochs": 60,
    "snapshot_every": 5,
}


@register_study("audit_hero")
def audit_hero() -> Study:
    """Three rules, three seeds, on the embedded task."""
    return Study("audit_hero", tuple({**DEMO, "rule": rule, "seed": seed} for rule in RULES for seed in SEEDS))
