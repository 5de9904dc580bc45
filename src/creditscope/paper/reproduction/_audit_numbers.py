"""Published numbers of the audit: accuracies, cosines and gradient norms of three rules."""

from functools import partial

from creditscope.auditing.thresholds import PUBLISHED_ROWS, TRAJECTORY_ROWS
from creditscope.paper.reproduction import _conditions as of
from creditscope.paper.reproduction._conditions import other, wide
from creditscope.paper.reproduction._entries import AUDIT, Alternatives
from creditscope.paper.reproduction._entries import entry as write
from creditscope.paper.reproduction._readers import Reader, accuracy, at_tap, gamma, gamma_at_input
from creditscope.paper.reproduction._settings import CONVENTIONS, under_all
from creditscope.paper.reproduction._shelf import Wanted
from creditscope.paper.reproduction.compare import Published

entry = partial(write, AUDIT)
RULES = {"bp": ("BP", of.BP), "block-fa": ("block FA", of.BLOCK_FA), "dfa": ("DFA", of.DFA)}
ACCURACIES = {"bp": ("0.615", "0.004"), "block-fa": ("0.401", "0.009"), "dfa": ("0.306", "0.008")}
GAMMAS = {"bp": "1.000", "block-fa": "0.250", "dfa": "0.100"}
BLOCK_FA = ("0.016", "0.072", "-0.085", "0.997")
DFA = ("0.42", "0.006", "-0.015", "-0.004", "-0.004")
WIDE_DFA = ("0.400", "0.001", "-0.0004", "-0.002")
FLAT = ("4e-4", "5e-4")
NORMS: dict[str, dict[int, str | tuple[str, ...]]] = {
    "bp": {0: FLAT, 4: FLAT},
    "block-fa": dict(enumerate(("1.8e-5", "1.2e-6", "8.9e-7", "8.9e-7", "8.9e-7"))),
    "dfa": {0: "4.4e-7", 4: "4.2e-9"},
}


def audit_numbers() -> list[Published]:
    """All of them."""
    return [*_aggregates(), *_cosines(), *_norms()]


def _aggregates() -> list[Published]:
    found = []
    for id, (name, run) in RULES.items():
        said, sd = ACCURACIES[id]
        others = _others(id, accuracy)
        found.append(entry(f"acc-{id}", f"accuracy, {name}", said, run, accuracy, sd=sd, n=3, alternatives=others))
    for id, (name, run) in RULES.items():
        others = _others(id, gamma) if id != "bp" else ()
        said, known = GAMMAS[id], {"alternatives": others, "at_input": gamma_at_input}
        found.append(entry(f"gamma-{id}", f"Γ, {name}", said, run, gamma, **known))
    return found


def _others(id: str, reader: Reader) -> Alternatives:
    """Another width, or what else "FA" may mean."""
    if id != "block-fa":
        return other("width 512", wide(id), reader)
    fa, exact_head = ({**of.END, "rule": "fa", "rule_options": options} for options in ({}, {"head": "exact"}))
    return other("FA through every layer", fa, reader) + other("the same, head feedback exact", exact_head, reader)


def _cosines() -> list[Published]:
    """Of blocks, ours where they are told; of feedback B_l, ours at tap l; the publication reads both at the input."""
    found = []
    for block, said in enumerate(BLOCK_FA):
        told, at_input = at_tap("cos", block + 1), at_tap("cos_input", block + 1)
        known = {"n": 3, "at_input": at_input, "alternatives": _others("block-fa", told)}
        found.append(
            entry(f"cos-block-fa-{block}", f"cosine of block {block}, block FA", said, of.BLOCK_FA, told, **known)
        )
    found += cosines_of_dfa("cos-dfa", "DFA", DFA, of.DFA, write=entry)
    for tap, said in enumerate(WIDE_DFA):
        own, at_input = at_tap("cos", tap), at_tap("cos_input", tap + 1)
        name, others = f"cosine at tap {tap}, DFA, width 512", other("width 256", of.DFA, own)
        run = wide("dfa")
        found.append(entry(f"cos-wide-dfa-{tap}", name, said, run, own, n=1, at_input=at_input, alternatives=others))
    return found


def cosines_of_dfa(id: str, name: str, values: tuple[str, ...], run: Wanted, *, write: partial) -> list[Published]:
    """Of B_l e at taps 0..L; by the published conventions no block is given the last, so that none is read there."""
    found = []
    for tap, said in enumerate(values):
        own, last = at_tap("cos", tap), tap == len(values) - 1
        readings = dict(under_all(run, own, None if last else at_tap("cos_input", tap + 1)))
        if last:
            del readings[CONVENTIONS]
        found.append(write(f"{id}-{tap}", f"cosine at tap {tap}, {name}", said, run, own, n=3, readings=readings))
    return found


def _norms() -> list[Published]:
    found = []
    for id, by_tap in NORMS.items():
        name, run = RULES[id]
        for tap, said in by_tap.items():
            norm, whole = (at_tap("g_norm", tap, rows=rows) for rows in (PUBLISHED_ROWS, TRAJECTORY_ROWS))
            others = other(f"mean over N = {TRAJECTORY_ROWS:,}", run, whole)
            quantity = f"‖g_{tap}‖ of a mean over N = {PUBLISHED_ROWS}, {name}"
            found.append(entry(f"g{tap}-{id}", quantity, said, run, norm, n=1, scale="log10", alternatives=others))
    return found
