"""How a published number is written down: where it belongs, its digits, and how ours is read under every setting."""

from typing import Any

from creditscope.paper.reproduction._readers import Reader, accuracy
from creditscope.paper.reproduction._settings import under_all
from creditscope.paper.reproduction._shelf import Wanted
from creditscope.paper.reproduction.compare import Alternative, Published

Alternatives = tuple[Alternative, ...]
AUDIT = "Figure `audit_hero`: ResMLP d = 256, L = 4, CIFAR-10, 100 epochs"
SIZES = "ResMLP at the end of training: baselines, sizes, other widths, targets and depths"
PENALTY = "Figure `penalty_rescue`: 30 epochs"
TRACES = "Trajectories and the decision table"
GRAPHS = "Deep GCNs on Cora"


def entry(
    part: str,
    id: str,
    quantity: str,
    said: str | tuple[str, ...],
    wanted: Wanted,
    reader: Reader,
    *,
    at_input: Reader | None = None,
    **others: Any,
) -> Published:
    """A number read from one condition; `at_input`: how the publication read it, if otherwise."""
    said = (said,) if isinstance(said, str) else said
    others.setdefault("kind", "range" if len(said) > 1 else "value")
    others.setdefault("readings", under_all(wanted, reader, at_input))
    return Published(id=id, part=part, quantity=quantity, said=said, accuracy=reader is accuracy, **others)
