"""Whether an altered record can change a verdict or end a command: random alterations of records and bundles, counted.

Each case alters one file of a small folder of records, or a bundle of them, and reads all of it. *refused*: what was
altered is named in words and left out, the others are as they were. *no effect*: all records are as they were. Anything
else is a fault of the reader: *taken* (another number was read), *lost* (a record is missing without a word), an
exception. With `unsealed` altered records may be taken, and are then judged and drawn: audit, cards, report.
`--cases` is the number of each, `--records` a folder or bundle whose first runs are altered.
"""

import argparse
import json
import lzma
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from creditscope.auditing import Thresholds, audit
from creditscope.errors import CreditscopeError
from creditscope.record import Record, RecordWriter, RunSpec, load_records, write_bundle
from creditscope.record.store import FILES, SNAPSHOTS, SPEC
from creditscope.report import build_report, judge_records, render

DEEP = "[" * 10_000 + "]" * 10_000
JUNK = ("NaN", "Infinity", "1e400", '"nan"', "true", "null", f"1{'0' * 40}", "-1", "1.5", "0", "[]", "{}", '"x"',
        "[99]", "9007199254740993", '"\\u001b[31m"', DEEP)  # fmt: skip
FACTORS = (-1, 0, 0.5, 1.01, 2, 10, 1e-30, 1e30)
ELSE = ("missing", "a folder", "a FIFO", "a device", "a dangling link")
FINE = ("refused", "no effect")


@dataclass
class Case:
    """Files that are about to be read, and what may be drawn for them."""

    root: Path
    rng: random.Random
    names: set[str]
    """What a problem may name the altered record by."""

    def folder(self) -> Path:
        return self.rng.choice(sorted(path for path in self.root.iterdir() if path.is_dir()))

    def bundle(self) -> Path:
        return next(self.root.glob("*.xz"))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside."""
    inner: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, part in inner for place in places(part, (*path, name)))]


def change(value: Any, rng: random.Random) -> tuple[str, str]:
    """What was done at a random place inside, and the text of the whole with it done; in place."""
    path = list(rng.choice(places(value)[1:] or [()]))
    marker = "\0junk"
    if not path:
        return "replaced", rng.choice(JUNK)
    holder = value
    for name in path[:-1]:
        holder = holder[name]
    name, junk = path[-1], rng.choice(JUNK)
    old = holder[name]
    kind = rng.choice(["junk", "deleted", "swapped", "moved", "scaled", "scaled"])
    if kind == "scaled" and isinstance(old, int | float) and not isinstance(old, bool):
        new = old * rng.choice(FACTORS)
        holder[name] = int(new) if isinstance(old, int) and rng.random() < 0.7 else new
    elif kind == "deleted":
        del holder[name]
    elif kind == "swapped":
        other = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
        holder[name], holder[other] = holder[other], old
    elif kind == "moved":
        if isinstance(holder, dict):
            holder[f"{name}_"] = holder.pop(name)
        else:
            holder.insert(0, old)
    else:
        kind, holder[name] = "junk", marker
    return kind, json.dumps(value, separators=(",", ":")).replace(json.dumps(marker), junk)


def change_lines(lines: list[Any], rng: random.Random) -> str:
    """One of several lines lost, doubled, swapped, or blank ones added; in place."""
    kind, i = rng.choice(["lost", "doubled", "swapped", "blank"]), rng.randrange(len(lines))
    if kind == "lost":
        del lines[i]
    elif kind == "doubled":
        lines.insert(i, lines[i])
    elif kind == "swapped":
        j = rng.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
    else:
        lines[i:i] = [b"\n"] * rng.choice([1, 5000])
    return kind


def change_bytes(content: bytes, rng: random.Random) -> tuple[str, bytes]:
    """A bit flipped, bytes lost, doubled, cut off, or garbage at the end."""
    kind = rng.choice(["bit flipped", "bytes lost", "bytes doubled", "cut short", "garbage appended", "emptied"])
    i = rng.randrange(len(content))
    j = min(len(content), i + rng.choice([1, 10, 1000]))
    match kind:
        case "bit flipped":
            made = content[:i] + bytes([content[i] ^ 1 << rng.randrange(8)]) + content[i + 1 :]
        case "bytes lost":
            made = content[:i] + content[j:]
        case "bytes doubled":
            made = content[:j] + content[i:]
        case "cut short":
            made = content[:i]
        case "garbage appended":
            made = content + rng.randbytes(20)
        case _:
            made = b""
    return kind, made


def in_folder(case: Case) -> str:
    """Alter one file of one record."""
    folder, rng = case.folder(), case.rng
    path = folder / rng.choice(FILES)
    case.names.add(folder.name)
    content = path.read_bytes()
    match rng.choice(["value", "value", "value", "lines", "bytes", "kind", "hash"]):
        case "value":
            lines = content.splitlines(keepends=True) if path.name == SNAPSHOTS else [content]
            i = rng.randrange(len(lines))
            kind, text = change(json.loads(lines[i]), rng)
            lines[i] = text.encode() + b"\n"
            path.write_bytes(b"".join(lines))
        case "lines":
            path, lines = folder / SNAPSHOTS, (folder / SNAPSHOTS).read_bytes().splitlines(keepends=True)
            kind = change_lines(lines, rng)
            path.write_bytes(b"".join(lines))
        case "bytes":
            kind, made = change_bytes(content, rng)
            path.write_bytes(made)
        case "kind":
            kind = replace_file(path, rng)
        case _:
            kind = "another spec, with its hash"
            spec = change_spec(json.loads((folder / SPEC).read_text()), rng)
            (folder / SPEC).write_text(json.dumps(vars(spec)))
            case.names.add(spec.name())
            folder.rename(folder.with_name(spec.name()))
    return kind


def replace_file(path: Path, rng: random.Random, kinds: Sequence[str] = ELSE) -> str:
    """Something else in its place, or nothing."""
    kind = rng.choice(kinds)
    path.unlink()
    match kind:
        case "a folder":
            path.mkdir()
        case "a FIFO":
            os.mkfifo(path)
        case "a device":
            path.symlink_to("/dev/zero")
        case "a dangling link":
            path.symlink_to(path.with_name("nowhere"))
        case _:
            pass
    return kind


def change_spec(raw: dict[str, Any], rng: random.Random) -> RunSpec:
    """The same run as if another had been asked for."""
    options = {**raw["net_options"], "other": 1} if rng.random() < 0.5 else {}
    own = {"seed": raw["seed"] + 1, "lr": raw["lr"] * 2, "net_options": options, "rule": "other", "batch": 64}
    name = rng.choice(list(own))
    return replace(RunSpec(**raw), **{name: own[name]})


def in_bundle(case: Case) -> str:
    """Alter a line of the bundle, its lines, or its bytes."""
    path, rng = case.bundle(), case.rng
    case.names |= {path.name}
    content = path.read_bytes()
    lines = lzma.decompress(content).splitlines(keepends=True)
    match rng.choice(["value", "value", "value", "lines", "bytes", "kind", "hash", "bomb"]):
        case "value":
            i = rng.randrange(len(lines))
            kind, text = change(json.loads(lines[i]), rng)
            lines[i] = text.encode() + b"\n"
        case "lines":
            kind = change_lines(lines, rng)
        case "bytes":
            kind, made = change_bytes(content, rng)
            path.write_bytes(made)
            return kind
        case "kind":
            return replace_file(path, rng, ELSE[1:])  # nobody knows of a bundle that is not there
        case "hash":
            kind, i = "another spec, with its hash", rng.randrange(1, len(lines))
            line = json.loads(lines[i])
            spec = change_spec(line["spec"], rng)
            line |= {"spec": vars(spec), "run": spec.name()}
            lines[i] = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        case _:
            kind = "small file, much in it"
            lines[-1] = rng.choice([b"[" + b"0," * 10**6 + b"0]\n", b'{"a":[],' * 10**5 + b"\n", b"\n" * 10**6])
    path.write_bytes(lzma.compress(b"".join(lines), preset=0))
    return kind


ALTER: dict[str, Callable[[Case], str]] = {"folder": in_folder, "bundle": in_bundle}


def outcome(case: Case, before: dict[str, Record], *, unsealed: bool) -> str:
    """What reading it came to."""
    problems: list[str] = []
    try:
        found = load_records(case.root, problems=problems, unsealed=unsealed)
    except Exception as error:
        return f"exception {type(error).__name__}"
    if any(record != replace(before[record.name], path=record.path) for record in found if record.name in before):
        return _judge(found, before) if unsealed else "taken"
    if any(record.name not in before for record in found):
        return _judge(found, before) if unsealed else "taken"
    if len(found) == len(before):
        return "no effect"
    named = any(name in problem for problem in problems for name in case.names)
    return "refused" if named else "lost"


def verdicts(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Of all methods, in words."""
    return [(m.method, m.verdict.word) for m in audit(list(records)).methods]


def _judge(found: list[Record], before: dict[str, Record]) -> str:
    """Judge and draw what was read although it was altered."""
    try:
        material = judge_records(found, "", Thresholds(), [])
        if material.audit:
            material.audit.to_dict()
            [card.to_markdown() for card in material.audit.cards()]
        render(build_report(material))
    except CreditscopeError:
        return "refused"
    except Exception as error:
        return f"exception {type(error).__name__} when judged"
    same = material.audit and [(m.method, m.verdict.word) for m in material.audit.methods] == verdicts(before.values())
    return "taken, same verdict" if same else "taken, another verdict"


def fuzz(
    records: Sequence[Record], cases: int, *, kind: str, seed: int = 0, unsealed: bool = False
) -> Counter[tuple[str, str]]:
    """How often each alteration of a folder, or a bundle, came to what; case by case from the seed."""
    counted: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as place:
        whole, root = Path(place, "whole"), Path(place, "altered")
        if kind == "folder":
            for record in records:
                write_record(whole, record)
        else:
            write_bundle(records, whole / "some.jsonl.xz")
        before = {record.name: record for record in load_records(whole)}
        for i in range(cases):
            shutil.copytree(whole, root)
            case = Case(root, random.Random(f"{kind} {seed} {i}"), set())
            done = ALTER[kind](case)
            counted[done, outcome(case, before, unsealed=unsealed)] += 1
            shutil.rmtree(root)
    return counted


def write_record(root: Path, record: Record) -> None:
    """A folder as the trainer leaves it."""
    assert record.spec is not None
    with RecordWriter(root, record.spec).open() as writer:
        writer.begin()
        for snapshot in record.snapshots:
            writer.append(snapshot)
        writer.write_provenance(record.provenance)


def show(counted: Counter[tuple[str, str]]) -> None:
    """A row for each alteration, a column for each outcome."""
    outcomes = sorted({found for _, found in counted})
    rows = sorted({done for done, _ in counted})
    width = max(map(len, rows))
    print(f"  {'':{width}}  {'  '.join(outcomes)}")
    for row in [*rows, "all"]:
        sums = [sum(n for (done, out), n in counted.items() if out == o and row in (done, "all")) for o in outcomes]
        print(
            f"  {row:{width}}  {'  '.join(f'{n:>{len(o)}}' for n, o in zip(sums, outcomes, strict=True))}", flush=True
        )


def choose(records: Sequence[Record]) -> list[Record]:
    """One method with its baselines, one seed each, with few snapshots."""
    first = next(r for r in records if r.spec and r.spec.rule != "bp" and not r.spec.frozen)
    assert first.spec is not None
    same = [r for r in records if r.spec and r.spec.task == first.spec.task and r.spec.seed == first.spec.seed]
    chosen = {(r.spec.rule, r.spec.frozen): r for r in same if r.spec and r.spec.rule in (first.spec.rule, "bp")}
    return [few(record) for record in chosen.values()]


def few(record: Record) -> Record:
    """Its first and last snapshots alone, as a spec may ask for."""
    assert record.spec is not None
    spec = replace(record.spec, snapshot_every=0, snapshot_at="")
    ends = record.snapshots[:1] if record.provenance.status == "diverged" else (record.snapshots[0], record.last)
    return replace(record, spec=spec, snapshots=ends, left_out=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", type=Path, default=Path("results/demo"))
    given = parser.parse_args()
    records, faults = choose(load_records(given.records)), 0
    for unsealed in (False, True):
        for kind in ALTER:
            cases = given.cases if not unsealed else given.cases // 5
            counted = fuzz(records, cases, kind=kind, seed=given.seed, unsealed=unsealed)
            print(f"\n{kind}, {cases} cases, {'unsealed' if unsealed else 'sealed'}")
            show(counted)
            fine = (*FINE, "taken, same verdict", "taken, another verdict") if unsealed else FINE
            faults += sum(n for (_, out), n in counted.items() if out not in fine)
    print(f"\nfaults of the reader: {faults}")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
