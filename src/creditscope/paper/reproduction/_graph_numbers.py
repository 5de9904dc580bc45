"""Published accuracies of deep GCNs on Cora; no convention of credit changes them."""

from functools import partial

from creditscope.paper.reproduction._conditions import gcn, other
from creditscope.paper.reproduction._entries import GRAPHS, entry
from creditscope.paper.reproduction._readers import accuracy
from creditscope.paper.reproduction.compare import Published
from creditscope.paper.studies.graph_depth import SQRT2

PLAIN = {2: "0.811", 4: "0.804", 8: "0.695", 16: "0.649", 32: "0.603", 64: "0.287"}
RESIDUAL = {4: "0.788", 8: "0.756", 16: "0.722", 32: "0.766", 64: "0.611"}
STOPPED = {"bp": ("BP", "0.773"), "kaft": ("KAFT", "0.790")}
DEEPEST = 16
OTHER_RECIPE = "width 128, 400 epochs, early stopping on validation, dropout and settings of their own for each depth"
"""Of the work that deeper ones come from."""


def graph_numbers() -> list[Published]:
    """By depth, plain and residual, and stopped after 50 epochs."""
    write, found = partial(entry, GRAPHS), []
    for depth, said in PLAIN.items():
        others = other("no weight decay", gcn(depth, decay=False), accuracy)
        others += other("gain √2", gcn(depth, gain=SQRT2), accuracy)
        others += other("gain 2", gcn(depth, gain=2.0), accuracy)
        others += other("gain 2, no weight decay", gcn(depth, gain=2.0, decay=False), accuracy)
        known = {"alternatives": others, "apart": OTHER_RECIPE if depth > DEEPEST else ""}
        found.append(write(f"gcn-{depth}", f"accuracy, L = {depth}, BP", said, gcn(depth), accuracy, **known))
    for depth, said in RESIDUAL.items():
        others = other("no weight decay", gcn(depth, residual=True, decay=False), accuracy)
        known = {"alternatives": others, "apart": OTHER_RECIPE if depth > DEEPEST else ""}
        run, name = gcn(depth, residual=True), f"accuracy, L = {depth}, residual, BP"
        found.append(write(f"gcn-residual-{depth}", name, said, run, accuracy, **known))
    for rule, (label, said) in STOPPED.items():
        run = gcn(4, rule=rule)
        others = other("100 epochs", run, accuracy)
        others += other("100 epochs, no weight decay", gcn(4, rule=rule, decay=False), accuracy) if rule == "bp" else ()
        name = f"accuracy, L = 4, 50 epochs, {label}"
        found.append(write(f"gcn-50-{rule}", name, said, {**run, "epochs": 50}, accuracy, alternatives=others))
    return found
