"""The records behind the reports that tests look at: made in memory, every value at its own place another."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from builders import QUICK, make_facts, make_record, make_snapshot, write_records

from creditscope.record import Record, Snapshot

EPOCHS = (0, 1, 2, 3, 5, 8)
DUE = {"epochs": 8, "snapshot_every": 0, "snapshot_at": "1,2,3,5"}
DEPTH = 4
GROWTH = {"dfa": 60.0}
"""How far the stream grows at tap 2: too far under DFA, so its verdict is not that of BP."""
HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</script><script>alert(3)</script>")


def varied_snapshot(rule: str, seed: int, epoch: int, *, full: bool = True) -> Snapshot:
    """No two of its values are alike, nor like those of another rule, seed or epoch; only exact credit is always 1."""
    facts = make_facts(rule=rule, depth=DEPTH)
    count, place = DEPTH + 1, len(rule) * 0.1 + seed * 0.01 + epoch * 0.0013
    taps = {
        "cos": [1.0 if t in facts.exact_taps else 0.3 + 0.3 * t / count + 0.1 * place for t in range(count)],
        "g_norm": [10 ** (-1 - 3 * t / count - place - 0.3 * seed) for t in range(count)],
        "h_rms": [(1.0 if t < 2 else GROWTH.get(rule, 2.0)) * (1 + 0.01 * (place + t)) for t in range(count)],
        "z": [12 + t + place for t in range(count)],
        "ratio": [1.5 + 0.1 * t + 0.1 * place for t in range(count)],
    }
    return make_snapshot(facts, epoch=epoch, accuracy=0.6 + 0.01 * epoch, taps={**taps, **({} if full else QUICK)})


def varied(rule: str, seed: int = 1) -> Record:
    """A run of such snapshots."""
    return make_record(rule=rule, seed=seed, snapshots=[varied_snapshot(rule, seed, e) for e in EPOCHS], **DUE)


def small() -> list[Record]:
    """BP, which passes, and DFA, which does not, with frozen baselines; tap 2 of DFA has no cosine at one epoch."""
    found = []
    for rule in ("dfa", "bp"):
        for seed in (1, 2, 3):
            run = varied(rule, seed)
            if rule != "bp":
                shown = list(run.snapshots)
                cos = tuple(None if t == 2 else v for t, v in enumerate(shown[2].taps.cos))
                shown[2] = replace(shown[2], taps=replace(shown[2].taps, cos=cos))
                run = replace(run, snapshots=tuple(shown))
            frozen = make_record(rule=rule, seed=seed, frozen=True, accuracy=0.4 + 0.002 * seed, **DUE)
            found += [run, frozen]
    return found


def hostile() -> list[Record]:
    """A rule, its taps and its task have names that a careless page would run."""
    script, image, closing = HOSTILE
    found = []
    for seed in (1, 2, 3):
        record = make_record(seed=seed, task=image, facts={"depth": 2})
        rule = replace(record.facts.rule, label=script, variant=image, formula=closing)
        facts = replace(record.facts, rule=rule, taps=HOSTILE)
        snapshots = tuple(make_snapshot(facts, epoch=e, notes=HOSTILE) for e in (0, 1))
        provenance = replace(record.provenance, facts=facts, note=closing, device=image)
        found.append(replace(record, provenance=provenance, snapshots=snapshots))
    return found


def before() -> list[Record]:
    """The small folder at an earlier time: DFA was well, and there was FA, too."""
    others = [r for r in small() if r.facts.rule.name != "dfa" or (r.spec and r.spec.frozen)]
    well = [make_record(seed=s, accuracy=0.66, **DUE) for s in (1, 2, 3)]
    return [*others, *well, make_record(rule="fa")]


def every() -> list[Record]:
    """The small folder and what else a verdict can be: block FA leaves a tap open, FA lacks its baselines."""
    cosines = {1: 0.02, 2: 0.09, 3: 0.06}
    found = small()
    for seed, cos in cosines.items():
        told = {"cos": (0.5, 0.5, cos, 0.5, 1.0), "cos_F": (0.5, 0.5, cos, 0.5, 1.0), "stage_cos": 0.05}
        found.append(make_record(rule="block_fa", seed=seed, taps=told, accuracy=0.66 + 0.001 * seed, **DUE))
        found.append(make_record(rule="block_fa", seed=seed, frozen=True, accuracy=0.4, **DUE))
        found.append(make_record(rule="fa", seed=seed, accuracy=0.55, **DUE))
    return [*found, make_record(rule="dfa", task="digits", net_options={"depth": 20}, facts={"depth": 2}, accuracy=0.9)]


def sparse() -> list[Record]:
    """One seed, two snapshots, without what tier quick does not measure: as little as there can be."""
    return [make_record(snapshots=[varied_snapshot("dfa", 42, e, full=False) for e in (0, 1)])]


MAKERS = (small, every, before, hostile, sparse)
FOLDERS: dict[str, Callable[[], list[Record]]] = {"empty": list, **{make.__name__: make for make in MAKERS}}


def write_folder(root: Path, name: str) -> Path:
    """The records of that name in a folder; beside the hostile ones lies one that cannot be read."""
    root.mkdir(parents=True)
    write_records(root, FOLDERS[name]())
    if name == "hostile":
        (root / HOSTILE[1]).mkdir()
        (root / HOSTILE[1] / "spec.json").write_text(HOSTILE[0])
    return root
