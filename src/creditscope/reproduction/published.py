"""Every published number that is compared with, and where ours is read. Nothing else uses these numbers."""

from functools import partial
from typing import Any

from creditscope.auditing.thresholds import PUBLISHED_ROWS, TRAJECTORY_ROWS
from creditscope.reproduction import _conditions as of
from creditscope.reproduction._conditions import gcn, ladder, normed, other
from creditscope.reproduction._readers import (
    Reader,
    accuracy,
    at_tap,
    deep,
    first_epoch,
    gamma,
    greatest_growth,
    grows,
    never,
    pair_accepts,
    under_floor,
)
from creditscope.reproduction._readings import difference, first_is_best, read
from creditscope.reproduction._shelf import Wanted
from creditscope.reproduction.compare import Alternative, Published
from creditscope.studies.graph_depth import SQRT2

Alternatives = tuple[Alternative, ...]
AUDIT = "Figure `audit_hero`: ResMLP d = 256, L = 4, CIFAR-10, 100 epochs"
SIZES = "ResMLP at the end of training: baselines, sizes, other widths, targets and depths"
PENALTY = "Figure `penalty_rescue`: 30 epochs"
TRACES = "Trajectories and the decision table"
GRAPHS = "Deep GCNs on Cora"

WHERE = {
    AUDIT: "figure and audit table (accuracies ± sd over 3 seeds; cosines of DFA: width 512, seed 42; norms: seed 42)",
    SIZES: "text and tables on training",
    PENALTY: "figure; the number of seeds is not stated",
    TRACES: "decision table and text; the number of seeds is not stated but for the ViT's accuracies, one per seed",
    GRAPHS: "papers on deep GCNs and on KAFT; public split, number of seeds not stated",
}
"""Where the numbers of a part are said."""
NOT_COMPARED = {
    GRAPHS: "accuracies on 60/20/20 splits (BP, DFA-GNN with and without pseudo-errors), of BP with pseudo-errors, and "
    "of GCNII, because this tool has neither those splits nor that rule nor that net",
}
"""Published numbers of a part that no run of this tool could give."""


def _entry(
    part: str, id: str, quantity: str, said: str | tuple[str, ...], wanted: Wanted, reader: Reader, **others: Any
) -> Published:
    said = (said,) if isinstance(said, str) else said
    kind = others.pop("kind", "range" if len(said) > 1 else "value")
    others |= {"kind": kind, "accuracy": reader is accuracy, "reading": read(wanted, reader)}
    return Published(id=id, part=part, quantity=quantity, said=said, **others)


def _audit() -> list[Published]:
    entry, wide_dfa = partial(_entry, AUDIT), {**of.WIDE, "rule": "dfa"}
    dfa_others = normed(of.DFA, accuracy) + other("width 512", wide_dfa, accuracy)
    three = [
        ("bp", "BP", of.BP, "0.615", "0.004", "1.000", other("width 512", {**of.WIDE, "rule": "bp"}, accuracy)),
        ("block-fa", "block FA", of.BLOCK_FA, "0.401", "0.009", "0.250", _for_block_fa(accuracy)),
        ("dfa", "DFA", of.DFA, "0.306", "0.008", "0.100", dfa_others),
    ]
    found = [
        entry(f"acc-{id}", f"accuracy, {name}", said, run, accuracy, sd=sd, n=3, alternatives=others)
        for id, name, run, said, sd, _, others in three
    ]
    for id, name, run, *_, said, _ in three:
        of_dfa = normed(run, gamma) + other("width 512", wide_dfa, gamma)
        others = {"bp": (), "block-fa": _for_block_fa(gamma), "dfa": of_dfa}[id]
        found.append(entry(f"gamma-{id}", f"Γ, {name}", said, run, gamma, alternatives=others))
    for tap, said in enumerate(("0.016", "0.072", "-0.085", "0.997"), start=1):
        cos = at_tap("cos", tap)
        name, others = f"cosine at tap {tap}, block FA", _for_block_fa(cos)
        found.append(entry(f"cos-block-fa-{tap}", name, said, of.BLOCK_FA, cos, n=3, alternatives=others))
    for tap, said in enumerate(("0.400", "0.001", "-0.0004", "-0.002"), start=1):
        cos = at_tap("cos", tap)
        others = other("width 256", of.DFA, cos)
        others += tuple(Alternative(f"width 256, {o.label}", o.reading) for o in normed(of.DFA, cos))
        name = f"cosine at tap {tap}, DFA, width 512"
        found.append(entry(f"cos-dfa-{tap}", name, said, wide_dfa, cos, n=1, alternatives=others))
    ends: list[tuple[str, str, Wanted, tuple[str | tuple[str, ...], ...]]] = [
        ("bp", "BP", of.BP, (("4e-4", "5e-4"), ("4e-4", "5e-4"))),
        ("block-fa", "block FA", of.BLOCK_FA, ("1.8e-5", "8.9e-7")),
        ("dfa", "DFA", of.DFA, ("4.4e-7", "4.2e-9")),
    ]
    for id, name, run, values in ends:
        for tap, said in zip((0, 4), values, strict=True):
            norm = at_tap("g_norm", tap, rows=PUBLISHED_ROWS)
            others = other(f"mean over N = {TRAJECTORY_ROWS:,}", run, at_tap("g_norm", tap, rows=TRAJECTORY_ROWS))
            others += () if id == "bp" else normed(run, norm)
            quantity = f"‖g_{tap}‖ of a mean over N = {PUBLISHED_ROWS}, {name}"
            found.append(entry(f"g{tap}-{id}", quantity, said, run, norm, n=1, scale="log10", alternatives=others))
    return found


def _for_block_fa(reader: Reader) -> Alternatives:
    """Normalised credit, and what else "FA" may mean."""
    fa, exact_head = ({**of.END, "rule": "fa", "rule_options": options} for options in ({}, {"head": "exact"}))
    through = other("FA through every layer", fa, reader) + other("the same, head feedback exact", exact_head, reader)
    return normed(of.BLOCK_FA, reader) + through


def _sizes() -> list[Published]:
    entry, frozen = partial(_entry, SIZES), {**of.DFA, **of.FROZEN}
    top, bare_dfa = at_tap("h_norm", -1), {**of.BARE, "rule": "dfa"}
    random = {**of.DFA, "targets": "random"}
    by_bp = other("frozen by BP's trainer", {**of.BP, **of.FROZEN}, accuracy)
    n, by_n = f"N = {TRAJECTORY_ROWS:,}", f"mean over N = {PUBLISHED_ROWS}"
    gradient, audited = (at_tap("g_norm", -1, rows=rows) for rows in (TRAJECTORY_ROWS, PUBLISHED_ROWS))
    first_rung, *_, last_rung = ladder("dfa")
    pairs = tuple(
        Alternative(
            f"credit norm {norm}, no block against all",
            first_is_best([{**first_rung, "credit_norm": norm}, {**last_rung, "credit_norm": norm}]),
        )
        for norm in of.NORMS
    )
    gain = difference(of.BRIEF_BP, {**of.BRIEF_BP, **of.FROZEN})
    longer = Alternative("100 epochs", difference(of.BP, {**of.BP, **of.FROZEN}))
    mixed = Alternative("100 epochs, frozen by DFA's trainer", difference(of.BP, frozen))
    brief = other("30 epochs", {**of.BRIEF_DFA, **of.FROZEN}, accuracy)
    log: dict[str, Any] = {"scale": "log10"}
    sizes = [
        ("bp", "BP", of.BP, "2e2", ()),
        ("dfa", "DFA", of.DFA, "4e8", normed(of.DFA, top)),
        ("block-fa", "block FA", of.BLOCK_FA, "1e5", normed(of.BLOCK_FA, top)),
    ]
    return [
        entry(
            "acc-frozen", "accuracy, frozen blocks, stem by DFA", "0.349", frozen, accuracy, sd="0.003", n=3,
            alternatives=normed(frozen, accuracy) + by_bp + brief,
        ),
        *(
            entry(f"h-{id}", f"‖h_L‖, {name}", said, run, top, scale="log10", alternatives=others)
            for id, name, run, said, others in sizes
        ),
        entry(
            "acc-bare-dfa", "accuracy, DFA without terminal norm", "0.327", bare_dfa, accuracy, sd="0.012", n=3,
            alternatives=normed(bare_dfa, accuracy),
        ),
        entry(
            "h-bare-dfa", "‖h_L‖, DFA without terminal norm", "1.2e7", bare_dfa, top, **log,
            alternatives=normed(bare_dfa, top),
        ),
        entry(
            "g-bare-dfa", f"‖g_L‖ of a mean over {n}, DFA without terminal norm", "7e-4", bare_dfa, gradient,
            scale="log10", alternatives=other(by_n, bare_dfa, audited) + normed(bare_dfa, gradient),
        ),
        entry(
            "acc-wide-bp", "accuracy, BP, width 512", ("0.60", "0.61"), {**of.WIDE, "rule": "bp"}, accuracy,
            alternatives=other("width 256", of.BP, accuracy),
        ),
        entry(
            "h-random", "‖h_L‖, DFA on random targets", "1.7e8", random, top, **log, alternatives=normed(random, top)
        ),
        entry(
            "acc-random", "accuracy, DFA on random targets (at chance)", "0.10", random, accuracy,
            alternatives=normed(random, accuracy),
        ),
        Published(
            id="gain-bp", part=SIZES, quantity="gain of BP over frozen blocks, depth ladder, 30 epochs",
            said=("0.22", "0.23"), kind="range", accuracy=True, reading=gain, alternatives=(longer, mixed),
        ),
        Published(
            id="ladder-dfa", part=SIZES, quantity="depth ladder, DFA, 30 epochs",
            said=("best with no trained block",), kind="claim", reading=first_is_best(ladder("dfa")),
            alternatives=pairs,
        ),
    ]  # fmt: skip


def _penalty() -> list[Published]:
    entry, found = partial(_entry, PENALTY), []
    strong_bp, tested_bp = {**of.BRIEF_BP, "penalty": of.STRONG_DFA["penalty"]}, {**of.BRIEF_BP, **of.TESTED}
    conditions: list[tuple[str, str, Wanted, tuple[str, str], bool, tuple[str, str]]] = [
        ("early", "DFA early", of.EARLY_DFA, ("-0.008", "-0.003"), True, ("cos", "rho")),
        ("weak", "DFA, λ = 1e-4", of.WEAK_DFA, ("-0.022", "-0.004"), False, ("cos", "rho")),
        ("strong", "DFA, λ = 1e-2", of.STRONG_DFA, ("0.155", "0.080"), False, ("cos", "rho")),
        ("fresh", "fresh feedback, λ = 1e-2", of.STRONG_DFA, ("0.002", "0.006"), False, ("fresh_cos", "fresh_rho")),
    ]
    for id, name, run, values, early, measures in conditions:
        for what, measure, said in zip(("cosine", "ρ"), measures, values, strict=True):
            reader = deep(measure, early=early)
            others = normed(run, reader)
            if id == "fresh":
                others += other("on DFA without penalty, early", of.EARLY_DFA, deep(measure, early=True))
            key = f"{'cos' if what == 'cosine' else 'rho'}-{id}"
            found.append(entry(key, f"deep {what}, {name}", said, run, reader, alternatives=others))
    control, exact = deep("rho_exact"), "deep ρ, the gradient itself (positive control)"
    on_bp = other("on BP's net", tested_bp, control)
    found += [
        entry("cos-control", "deep cosine, BP", "1.000", of.BRIEF_BP, deep("cos")),
        entry("rho-control", exact, "0.997", of.STRONG_DFA, control, alternatives=on_bp),
    ]
    frozen = {**of.BRIEF_DFA, **of.FROZEN}
    by_bp = other("frozen by BP's trainer", {**of.BRIEF_BP, **of.FROZEN}, accuracy)
    longer = other("100 epochs", {**of.DFA, **of.FROZEN}, accuracy)
    top = at_tap("h_norm", -1)
    accuracies: list[tuple[str, str, Wanted, str, Alternatives]] = [
        ("bp", "BP", of.BRIEF_BP, "0.585", ()),
        ("bp-strong", "BP, λ = 1e-2", strong_bp, "0.530", ()),
        ("dfa", "DFA", of.BRIEF_DFA, "0.301", normed(of.BRIEF_DFA, accuracy)),
        ("dfa-strong", "DFA, λ = 1e-2", of.STRONG_DFA, "0.360", normed(of.STRONG_DFA, accuracy)),
        ("frozen", "frozen blocks, stem by DFA", frozen, "0.349", normed(frozen, accuracy) + by_bp + longer),
    ]
    for id, name, run, said, others in accuracies:
        found.append(entry(f"brief-acc-{id}", f"accuracy, {name}", said, run, accuracy, alternatives=others))
    others = normed(of.STRONG_DFA, top)
    found.append(
        entry("h-strong", "‖h_L‖, DFA, λ = 1e-2", "4.0e4", of.STRONG_DFA, top, scale="log10", alternatives=others)
    )
    return found


def _traces() -> list[Published]:
    entry, dfa, vit = partial(_entry, TRACES), {**of.DFA, **of.WHOLE}, {**of.VIT_END, **of.WHOLE, "rule": "dfa"}
    bare = {**of.BARE, **of.WHOLE, "rule": "dfa"}
    floor, audited = (first_epoch(under_floor(rows)) for rows in (TRAJECTORY_ROWS, PUBLISHED_ROWS))
    growth, student = first_epoch(grows), {**of.STUDENT, "rule": "dfa"}
    never_floor, never_audited = (never(under_floor(rows)) for rows in (TRAJECTORY_ROWS, PUBLISHED_ROWS))
    by_n, n = f"floor at N = {PUBLISHED_ROWS}", f"N = {TRAJECTORY_ROWS:,}"
    class_only = {**of.VIT_END, "rule": "dfa", "rule_options": {"tokens": "class"}}
    vit_others = other("credit to the class token only", class_only, accuracy) + normed(vit, accuracy)
    accepts = "the pair accuracy + Γ accepts it"
    others_student = normed(student, greatest_growth)
    others_student += other("BP", {**of.STUDENT, "rule": "bp"}, greatest_growth)
    others_student += other("FA", {**of.STUDENT, "rule": "fa"}, greatest_growth)
    return [
        *(
            entry(f"pair-{id}", f"usual pair, {name}", accepts, run, pair_accepts, kind="claim")
            for id, name, run in (("bp", "BP", of.BP), ("block-fa", "block FA", of.BLOCK_FA), ("dfa", "DFA", of.DFA))
        ),
        entry(
            "floor-dfa", f"epoch at which ‖g_L‖ falls under the floor ({n}), ResMLP, DFA", ("3", "4"), dfa, floor,
            alternatives=other(by_n, dfa, audited) + normed(dfa, floor),
        ),
        entry(
            "growth-dfa", "epoch at which a block's growth passes 50, ResMLP, DFA", ("8", "11"), dfa, growth,
            alternatives=normed(dfa, growth),
        ),
        entry(
            "floor-bare", f"floor ({n}), ResMLP without terminal norm, DFA", "never crossed", bare, never_floor,
            kind="claim", alternatives=other(by_n, bare, never_audited) + normed(bare, never_floor),
        ),
        entry(
            "floor-vit", f"epoch at which ‖g_L‖ falls under the floor ({n}), ViT, DFA", ("2", "3"), vit, floor,
            alternatives=other(by_n, vit, audited),
        ),
        entry("growth-vit", "epoch at which a block's growth passes 50, ViT, DFA", "1", vit, growth),
        entry(
            "acc-vit", "accuracy, ViT-Mini, DFA, 100 epochs", ("0.256", "0.202", "0.253"),
            {**of.VIT_END, "rule": "dfa"}, accuracy, kind="seeds", alternatives=vit_others,
        ),
        entry(
            "growth-student", "largest growth of a block, StudentNet, DFA", "6.9", student, greatest_growth,
            alternatives=others_student,
        ),
        entry("quiet-student", "growth limit, StudentNet, DFA", "never passed", student, never(grows), kind="claim"),
    ]  # fmt: skip


def _graphs() -> list[Published]:
    entry, found = partial(_entry, GRAPHS), []
    plain = {2: "0.811", 4: "0.804", 8: "0.695", 16: "0.649", 32: "0.603", 64: "0.287"}
    residual = {4: "0.788", 8: "0.756", 16: "0.722", 32: "0.766", 64: "0.611"}
    for depth, said in plain.items():
        others = other("no weight decay", gcn(depth, decay=False), accuracy)
        others += other("gain √2", gcn(depth, gain=SQRT2), accuracy)
        others += other("gain 2", gcn(depth, gain=2.0), accuracy)
        others += other("gain 2, no weight decay", gcn(depth, gain=2.0, decay=False), accuracy)
        name = f"accuracy, L = {depth}, BP"
        found.append(entry(f"gcn-{depth}", name, said, gcn(depth), accuracy, alternatives=others))
    for depth, said in residual.items():
        others = other("no weight decay", gcn(depth, residual=True, decay=False), accuracy)
        run, name = gcn(depth, residual=True), f"accuracy, L = {depth}, residual, BP"
        found.append(entry(f"gcn-residual-{depth}", name, said, run, accuracy, alternatives=others))
    for rule, label, said in (("bp", "BP", "0.773"), ("kaft", "KAFT", "0.790")):
        run = gcn(4, rule=rule)
        others = other("100 epochs", run, accuracy)
        others += other("100 epochs, no weight decay", gcn(4, rule=rule, decay=False), accuracy) if rule == "bp" else ()
        name = f"accuracy, L = 4, 50 epochs, {label}"
        found.append(entry(f"gcn-50-{rule}", name, said, {**run, "epochs": 50}, accuracy, alternatives=others))
    return found


PUBLISHED = (*_audit(), *_sizes(), *_penalty(), *_traces(), *_graphs())
"""In the order of the page."""
