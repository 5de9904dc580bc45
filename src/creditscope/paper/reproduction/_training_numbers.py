"""Published numbers at the end of training, of the penalty, and of trajectories."""

from functools import partial
from typing import Any

from creditscope.auditing.thresholds import PUBLISHED_ROWS, TRAJECTORY_ROWS
from creditscope.paper.reproduction import _conditions as of
from creditscope.paper.reproduction._audit_numbers import RULES, cosines_of_dfa
from creditscope.paper.reproduction._conditions import ladder, other, wide
from creditscope.paper.reproduction._entries import PENALTY, SIZES, TRACES, entry
from creditscope.paper.reproduction._readers import (
    accuracy,
    at_tap,
    deep,
    first_epoch,
    gamma,
    gamma_at_input,
    greatest_growth,
    grows,
    never,
    pair_accepts,
    under_floor,
)
from creditscope.paper.reproduction._readings import difference, first_is_best
from creditscope.paper.reproduction._settings import SETTINGS, applied, everywhere
from creditscope.paper.reproduction._shelf import Wanted
from creditscope.paper.reproduction.compare import Alternative, Published

ROWS = f"N = {TRAJECTORY_ROWS:,}"
SCAN = {2: "0.350", 4: "0.424", 6: "0.401", 8: "0.409", 12: "0.404"}
PENALISED_DFA = ("0.316", "0.169", "0.151", "0.165", "0.166")
LOG: dict[str, Any] = {"scale": "log10"}


def size_numbers() -> list[Published]:
    """Baselines, sizes, other widths, targets and depths."""
    write, frozen, bare = partial(entry, SIZES), {**of.DFA, **of.FROZEN}, {**of.BARE, "rule": "dfa"}
    top, random = at_tap("h_norm", -1), {**of.DFA, "targets": "random"}
    gradient, audited = (at_tap("g_norm", -1, rows=rows) for rows in (TRAJECTORY_ROWS, PUBLISHED_ROWS))
    trainers = other("frozen by BP's trainer", {**of.BP, **of.FROZEN}, accuracy)
    trainers += other("30 epochs", {**of.BRIEF_DFA, **of.FROZEN}, accuracy)
    by_n = other(f"mean over N = {PUBLISHED_ROWS}", bare, audited)
    return [
        write(
            "acc-frozen", "accuracy, frozen blocks, stem by DFA", "0.349", frozen, accuracy, sd="0.003", n=3,
            alternatives=trainers,
        ),
        *(
            write(f"h-{id}", f"‖h_L‖, {RULES[id][0]}", said, RULES[id][1], top, **LOG)
            for id, said in (("bp", "2e2"), ("dfa", "4e8"), ("block-fa", "1e5"))
        ),
        write("acc-bare-dfa", "accuracy, DFA without terminal norm", "0.327", bare, accuracy, sd="0.012", n=3),
        write("h-bare-dfa", "‖h_L‖, DFA without terminal norm", "1.2e7", bare, top, **LOG),
        write(
            "g-bare-dfa", f"‖g_L‖ of a mean over {ROWS}, DFA without terminal norm", "7e-4", bare, gradient, **LOG,
            alternatives=by_n,
        ),
        write(
            "acc-wide-bp", "accuracy, BP, width 512", ("0.60", "0.61"), wide("bp"), accuracy,
            alternatives=other("width 256", of.BP, accuracy),
        ),
        *(
            write(f"acc-scan-{depth}", f"accuracy, block FA, width 512, L = {depth}", said, wide("block_fa", depth),
                  accuracy, n=3)
            for depth, said in SCAN.items()
        ),
        write("h-random", "‖h_L‖, DFA on random targets", "1.7e8", random, top, **LOG),
        write("acc-random", "accuracy, DFA on random targets (at chance)", "0.10", random, accuracy),
        *_ladder(),
    ]  # fmt: skip


def _ladder() -> list[Published]:
    """The gain of BP, and that DFA is best without a trained block: asked of none and all, which every setting has."""
    gain, bottom, top = difference(of.BRIEF_BP, {**of.BRIEF_BP, **of.FROZEN}), *(ladder("dfa")[i] for i in (0, -1))
    longer = Alternative("100 epochs", difference(of.BP, {**of.BP, **of.FROZEN}))
    mixed = Alternative("100 epochs, frozen by DFA's trainer", difference(of.BP, {**of.DFA, **of.FROZEN}))
    ends = {s.name: first_is_best([applied(s.name, bottom), applied(s.name, top)]) for s in SETTINGS}
    return [
        Published(
            id="gain-bp", part=SIZES, quantity="gain of BP over frozen blocks, depth ladder, 30 epochs",
            said=("0.22", "0.23"), kind="range", accuracy=True, readings=everywhere(gain), alternatives=(longer, mixed),
        ),
        Published(
            id="ladder-dfa", part=SIZES, quantity="no trained block against all, DFA, 30 epochs",
            said=("best with no trained block",), kind="claim", readings=ends,
            alternatives=(Alternative("every rung between, too", first_is_best(ladder("dfa"))),),
        ),
    ]  # fmt: skip


def penalty_numbers() -> list[Published]:
    """Deep cosines and ρ with their controls, and what the penalty does to accuracy."""
    write, strong_bp = partial(entry, PENALTY), {**of.BRIEF_BP, "penalty": of.STRONG_DFA["penalty"]}
    frozen, block_fa = {**of.BRIEF_DFA, **of.FROZEN}, {**of.BRIEF, "rule": "block_fa", "penalty": strong_bp["penalty"]}
    trainers = other("frozen by BP's trainer", {**of.BRIEF_BP, **of.FROZEN}, accuracy)
    trainers += other("100 epochs", {**of.DFA, **of.FROZEN}, accuracy)
    accuracies: list[tuple[str, str, Wanted, str | tuple[str, ...], dict[str, Any]]] = [
        ("bp", "BP", of.BRIEF_BP, ("0.5851", "0.5845", "0.5863"), {"kind": "seeds"}),
        ("bp-strong", "BP, λ = 1e-2", strong_bp, "0.532", {"sd": "0.007", "n": 3}),
        ("block-fa-strong", "block FA, λ = 1e-2", block_fa, "0.369", {"sd": "0.003", "n": 3}),
        ("dfa", "DFA", of.BRIEF_DFA, ("0.3070", "0.2985", "0.2966"), {"kind": "seeds"}),
        ("dfa-strong", "DFA, λ = 1e-2", of.STRONG_DFA, ("0.3593", "0.3610", "0.3604"), {"kind": "seeds"}),
        ("frozen", "frozen blocks, stem by DFA, 30 epochs", frozen, "0.349", {"alternatives": trainers}),
    ]
    on_bp = other("on BP's net", {**of.BRIEF_BP, **of.TESTED}, deep("rho_exact"))
    exact = "deep ρ, the gradient itself (positive control)"
    return [
        *_deep(write),
        write("cos-control", "deep cosine, BP", "1.000", of.BRIEF_BP, deep("cos")),
        write("rho-control", exact, "0.997", of.STRONG_DFA, deep("rho_exact"), alternatives=on_bp),
        *cosines_of_dfa("cos-strong-dfa", "DFA, λ = 1e-2", PENALISED_DFA, of.STRONG_DFA, write=write),
        *(
            write(f"brief-acc-{id}", f"accuracy, {name}", said, run, accuracy, **known)
            for id, name, run, said, known in accuracies
        ),
        write("h-strong", "‖h_L‖, DFA, λ = 1e-2", "4.0e4", of.STRONG_DFA, at_tap("h_norm", -1), **LOG),
    ]


def _deep(write: partial) -> list[Published]:
    """Of B_2 on: the publication's blocks have it one tap later."""
    conditions: list[tuple[str, str, Wanted, str, tuple[str, int | None], tuple[str, int | None]]] = [
        ("early", "DFA early", of.EARLY_DFA, "", ("-0.008", None), ("-0.003", None)),
        ("weak", "DFA, λ = 1e-4", of.WEAK_DFA, "", ("-0.022", None), ("-0.004", None)),
        ("strong", "DFA, λ = 1e-2", of.STRONG_DFA, "", ("0.151", 3), ("0.080", None)),
        ("fresh", "fresh feedback, λ = 1e-2", of.STRONG_DFA, "fresh_", ("0.002", None), ("0.006", None)),
    ]
    found = []
    for id, name, run, prefix, *values in conditions:
        for measure, words, (said, n) in zip(("cos", "rho"), ("cosine", "ρ"), values, strict=True):
            early, own = id == "early", prefix + measure
            at_input = "cos_input" if own == "cos" else own
            on_early = other("on DFA without penalty, early", of.EARLY_DFA, deep(own, early=True)) if prefix else ()
            readers = deep(own, early=early), deep(at_input, early=early, start=3)
            known = {"n": n, "at_input": readers[1], "alternatives": on_early}
            found.append(write(f"{measure}-{id}", f"deep {words}, {name}", said, run, readers[0], **known))
    return found


def trace_numbers() -> list[Published]:
    """What fires when, and what the usual pair says."""
    write, dfa, bare = partial(entry, TRACES), {**of.DFA, **of.WHOLE}, {**of.BARE, **of.WHOLE, "rule": "dfa"}
    vit, student = {**of.VIT_END, **of.WHOLE, "rule": "dfa"}, {**of.STUDENT, "rule": "dfa"}
    floor, audited = (first_epoch(under_floor(rows)) for rows in (TRAJECTORY_ROWS, PUBLISHED_ROWS))
    never_floor, never_audited = (never(under_floor(rows)) for rows in (TRAJECTORY_ROWS, PUBLISHED_ROWS))
    by_n, growth = f"floor at N = {PUBLISHED_ROWS}", first_epoch(grows)
    class_only = {**of.VIT_END, "rule": "dfa", "rule_options": {"tokens": "class"}}
    students = other("BP", {**of.STUDENT, "rule": "bp"}, greatest_growth)
    students += other("FA", {**of.STUDENT, "rule": "fa"}, greatest_growth)
    accepts, usual = "the pair accuracy + Γ accepts it", {"at_input": pair_accepts(gamma_at_input), "kind": "claim"}
    return [
        *(
            write(f"pair-{id}", f"usual pair, {name}", accepts, run, pair_accepts(gamma), **usual)
            for id, (name, run) in RULES.items()
        ),
        write(
            "floor-dfa", f"epoch at which ‖g_L‖ falls under the floor ({ROWS}), ResMLP, DFA", ("4", "4", "3"), dfa,
            floor, kind="seeds", alternatives=other(by_n, dfa, audited),
        ),
        write(
            "growth-dfa", "epoch at which a block's growth passes 50, ResMLP, DFA", ("8", "11", "8"), dfa, growth,
            kind="seeds",
        ),
        write(
            "floor-bare", f"floor ({ROWS}), ResMLP without terminal norm, DFA", "never crossed", bare, never_floor,
            kind="claim", alternatives=other(by_n, bare, never_audited),
        ),
        write(
            "floor-vit", f"epoch at which ‖g_L‖ falls under the floor ({ROWS}), ViT, DFA", ("2", "3"), vit, floor,
            alternatives=other(by_n, vit, audited),
        ),
        write("growth-vit", "epoch at which a block's growth passes 50, ViT, DFA", "1", vit, growth),
        write(
            "acc-vit", "accuracy, ViT-Mini, DFA, 100 epochs", ("0.256", "0.202", "0.253"),
            {**of.VIT_END, "rule": "dfa"}, accuracy, kind="seeds",
            alternatives=other("credit to the class token only", class_only, accuracy),
        ),
        write(
            "growth-student", "largest growth of a block, StudentNet, DFA", "6.9", student, greatest_growth,
            alternatives=students,
        ),
        write("quiet-student", "growth limit, StudentNet, DFA", "never passed", student, never(grows), kind="claim"),
    ]  # fmt: skip
