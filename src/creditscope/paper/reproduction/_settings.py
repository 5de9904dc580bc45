"""Settings: one consistent choice of conventions for all numbers, so that each is asked what it gives jointly."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from creditscope.paper.reproduction._readings import Reading
from creditscope.paper.reproduction._shelf import Wanted
from creditscope.paper.studies.conventions import BLOCK_FA, DFA

Readings = Mapping[str, Reading]
"""By setting; one that cannot have the number is left out."""
Make = Callable[..., Reading]
"""From conditions to a reading of them."""


@dataclass(frozen=True)
class Setting:
    """A choice for every number; rules that it does not speak of are as they are."""

    name: str
    title: str
    words: str


OURS, BATCH, SAMPLE, CONVENTIONS = "none", "batch", "sample", "published"
SETTINGS = (
    Setting(OURS, "ours", "credit as it is, told and read at a block's own tap"),
    Setting(BATCH, "batch", "the same with credit divided by its RMS over the batch"),
    Setting(SAMPLE, "sample", "the same with credit divided by its RMS over each sample"),
    Setting(
        CONVENTIONS,
        "published conventions",
        "credit per sample, block FA's on gradients of the mean loss and its chain as it is; DFA's indexed by the "
        "block's input; cosines of what a block is given with the gradient at its input; random targets redrawn",
    ),
)
RULES = {str(fields["rule"]): fields for fields in (BLOCK_FA, DFA)}
"""Rules whose conventions are in question, as the publication had them."""


def applied(setting: str, wanted: Wanted) -> Wanted:
    """A condition under a setting; what credit is indexed by changes nothing where blocks are frozen."""
    if wanted["rule"] not in RULES:
        return wanted
    if setting != CONVENTIONS:
        return {**wanted, "credit_norm": setting}
    own = RULES[wanted["rule"]]
    if wanted.get("frozen"):
        return {**wanted, "credit_norm": own["credit_norm"]}
    targets = {"targets": "redrawn"} if wanted.get("targets") == "random" else {}
    return {**wanted, **own, **targets}


def under_all(conditions: Sequence[Wanted], made: Make, at_input: Make | None = None) -> Readings:
    """A reading of conditions under every setting; `at_input` is how the publication read them, if otherwise.

    Where no convention changes the conditions it is one and the same.
    """
    if not any(wanted["rule"] in RULES for wanted in conditions):
        return dict.fromkeys((s.name for s in SETTINGS), made(*conditions))
    by_setting = {s.name: made for s in SETTINGS} | {CONVENTIONS: at_input or made}
    return {name: make(*(applied(name, wanted) for wanted in conditions)) for name, make in by_setting.items()}
