"""What there is to choose from, in one line each; read without importing the files."""

from creditscope.auditing.thresholds import table
from creditscope.registry import CHECKS, EXPORTS, FIGURES, NETS, RULES, STUDIES, TASKS


def list_everything() -> dict[str, dict[str, str]]:
    """Kind → name → one line."""
    registries = {
        "rules": RULES,
        "nets": NETS,
        "tasks": TASKS,
        "checks": CHECKS,
        "figures": FIGURES,
        "studies": STUDIES,
        "exports": EXPORTS,
    }
    found = {kind: {name: r.summary(name) for name in r.names()} for kind, r in registries.items()}
    found["thresholds"] = {
        row["name"]: f"{row['value']:g} ({', '.join(row['checks'])}): {row['meaning']}"
        + (f"; published: {row['published']}" if row["published"] else "")
        for row in table()
    }
    return found
