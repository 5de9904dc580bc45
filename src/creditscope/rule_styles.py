"""How each rule looks, everywhere: its label, colour and marker in figures, and its colour in the report."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import cycle


@dataclass(frozen=True)
class Look:
    """One rule; `dark` is its colour on a dark ground."""

    label: str
    colour: str
    marker: str
    dark: str


LOOKS = {
    "bp": Look("BP", "#2166ac", "o", "#8ab8f5"),
    "fa": Look("FA", "#3ea38e", "^", "#6fd3a8"),
    "block_fa": Look("block FA", "#c06f25", "s", "#ffb454"),
    "dfa": Look("DFA", "#b2182b", "D", "#ff7d7d"),
    "dfa_gnn": Look("DFA-GNN", "#270159", "v", "#d3a0e3"),
    "grape": Look("GrAPE", "#190011", "P", "#b8c0c8"),
    "kaft": Look("KAFT", "#6f354e", "X", "#ff9ecb"),
}
"""The rules that ship; a test holds their labels against the rules' own, and colours apart to colour-blind eyes."""
OTHERS = (
    Look("", "#928bc5", "<", "#e3c565"),
    Look("", "#57000e", "p", "#b5d94c"),
    Look("", "#280db5", ">", "#79cde6"),
    Look("", "#6b707e", "h", "#b9b9f0"),
)
"""For rules from elsewhere, in the order in which they come."""


def _other_looks() -> Iterator[Look]:
    """Those, and then their colours with other markers: a colour that comes again has another shape."""
    yield from OTHERS
    for look, marker in zip(cycle(OTHERS), cycle("*d8+x1"), strict=False):
        yield replace(look, marker=marker)


def rule_looks(rules: Iterable[str], *, labels: Mapping[str, str]) -> dict[str, Look]:
    """A look per rule, by name; `labels` are what the rules call themselves, where they are known.

    >>> [look.label for look in rule_looks(["fa", "block_fa", "mine.py:Mine"], labels={"fa": "FA"}).values()]
    ['FA', 'block FA', 'Mine']
    """
    free, found = _other_looks(), {}
    for rule in rules:
        look = LOOKS.get(rule) or next(free)
        found[rule] = replace(look, label=labels.get(rule) or look.label or rule.rpartition(":")[2])
    return found
