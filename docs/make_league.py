"""Write docs/league.md from results/league: where every rule stands, where it comes from, and what was predicted.

Example: python docs/make_league.py
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import creditscope
from creditscope.auditing import Audit
from creditscope.auditing.checks import all_checks
from creditscope.auditing.sensitivity import half_and_double, words_under
from creditscope.auditing.strip import KEY, short, short_number
from creditscope.auditing.thresholds import EVERY_RUN_CHECK
from creditscope.auditing.thresholds import table as thresholds
from creditscope.paper.headlines import HEADLINES, QUANTITIES, find_interval, say_bounds, stands
from creditscope.paper.predictions.outcomes import Held, Outcome, Prediction
from creditscope.paper.published.anchors import hold_anchor, read_anchors
from creditscope.paper.published.compare import Comparison
from creditscope.paper.published.numbers import Published
from creditscope.paper.standings import ABOUT_COLUMNS, Standing, count_missing, find_block, write_block, write_share
from creditscope.paper.studies._league import Block
from creditscope.paper.studies.league import NEW_SETTINGS, SCALES
from creditscope.paper.studies.league_more import SCALES as MORE
from creditscope.record import Record, load_records
from creditscope.text import DASH, markdown

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "results" / "league"
BLOCKS = SCALES["league"]
ROUNDED = 2e-5
"""Noise of a gradient, relative to it, between that of float32 and that of TF32."""
DEPTHS = {
    block.recipe["net_options"]["depth"]: (name, block)
    for name, block in (MORE["league"] | {"A": BLOCKS["A"]}).items()
    if name == "A" or name[1:].isdigit()
}
"""Blocks of one net at many depths."""
OF_RULES = {EVERY_RUN_CHECK, *(check.code for check in all_checks() if not check.network)}
WORDS = {"hit": "hit", "miss": "**miss**", "open": "open"}
BASES = ("none", "prototype", "published", "records")
"""What was known of a prediction when it was made, the least first."""
TITLES = {"basis": "known before", "figure": "figure"}
ABOUT_RULES = "What a layer is told, and who proposed it; [rules](rules.md) says more of each."
ABSENT = "not on record"
HEAD = """# The league

Which rules use depth? Every rule on the same nets, data, seeds and optimiser, at its own defaults, with its frozen twin
and BP beside it; nothing is tuned, and a contested knob is a row of its own. The page is made from the records in
`results/league` (`creditscope fetch league`) by `make docs`; `creditscope league` prints it. Your own rule among them,
in minutes on two cores:

```sh
creditscope league add my_rule.py:Rule
```

trains it on mnist1d over three seeds with its frozen twin, prints its row in its place, and writes the table and the
reporting card to `out/league`. [Your own rules](own-rules.md) says how to write one.
"""


def make_page(records: list[Record] | None = None) -> str:
    """The page as text; without records, of those that ship."""
    records = load_records(RECORDS) if records is None else records
    held = Held(records)
    parts = [
        HEAD.rstrip(),
        *make_headlines(held),
        *make_blocks(held, records),
        *make_depths(held),
        *make_sensitivity(held),
        *make_anchors(held),
        "## Rules",
        ABOUT_RULES,
        make_sources(held),
        *make_predictions(held),
    ]
    return "\n\n".join(parts) + "\n"


def make_headlines(held: Held) -> Iterator[str]:
    """Every sentence, with what it rests on."""
    yield "## What it says"
    yield (
        "Each sentence and its bounds were written after the runs, by people who had seen them: they say how firm a "
        "finding is, and predict nothing. It stands where the whole 95 % interval over seeds keeps out of what would "
        "have refuted it. *Check*: that which asks the same of any method. Blocks L2 to L12 are A's net at other "
        "depths, *nudging* is EP on A's net at other β, *phase* is DFA on B's net by penalty and norms."
    )
    rows = []
    for headline in HEADLINES:
        for i, claim in enumerate(headline.claims):
            found, label = find_interval(held, claim), held.standings(claim.block)[claim.row].found.method
            said = short(found) if found else ABSENT
            answer = {True: "stands", False: "**refuted**", None: "open"}[stands(claim, found)]
            text = markdown(headline.text) if not i else ""
            place = [claim.block, markdown(label), claim.quantity, said, str(found.n if found else 0)]
            rows.append([text, *place, say_bounds(claim), QUANTITIES[claim.quantity][1], answer])
    columns = ["sentence", "block", "row", "quantity", "found", "n", "refuted by an interval that reaches", "check", ""]
    yield table(columns, rows)


def make_blocks(held: Held, records: list[Record]) -> Iterator[str]:
    """What is complete, how to read it, and every block."""
    rows = []
    for name, block in BLOCKS.items():
        missing, wanted = count_missing(block, records)
        standings = held.standings(name)
        setting = next(iter(standings.values())).found.setting if standings else DASH
        where = say_where(find_block(block, records))
        state = f"**no: {missing:,} of {wanted:,} runs are missing**" if missing else "yes"
        rows.append([name, markdown(setting), str(len(block.seeds)), f"{wanted - missing:,}", state, where])
    yield table(["block", "setting", "seeds", "runs on record", "complete", "trained on"], rows)
    if coarse := [name for name, block in BLOCKS.items() if is_coarse(find_block(block, records))]:
        yield (
            f"Convolutions of {', '.join(coarse)} were rounded to TF32, torch's default on that device, although its "
            f"runs say float32: before training gradients are off by more than {ROUNDED:g} of their size."
        )
    new, old = (" and ".join(n for n in BLOCKS if (n in NEW_SETTINGS) == kind) for kind in (True, False))
    yield f"No threshold was set on records of {new.replace(' and ', ', ')}; on settings of {old} some were."
    yield f"In a strip: {KEY}. Rows are ordered by share, without one by accuracy.\n\n{ABOUT_COLUMNS}"
    for name, block in BLOCKS.items():
        standings = list(held.standings(name).values())
        setting = standings[0].found.setting if standings else "nothing on record"
        yield f"## {name}: {markdown(' · '.join(setting.split(' · ')[:2]))}"
        if missing := count_missing(block, records)[0]:
            yield f"**Not complete**: {missing:,} runs are not on record. Nothing follows from these rows."
        if standings:
            yield write_block(standings)


def say_where(records: Iterable[Record]) -> str:
    """Devices, with torch's versions."""
    found = sorted({(r.provenance.device, r.provenance.torch.partition("+")[0]) for r in records})
    return "; ".join(f"{device}, torch {version}" for device, version in found) or DASH


def is_coarse(records: Iterable[Record]) -> bool:
    """Whether gradients before training are off by more than float32 makes them, where that was asked for."""
    firsts = [r.snapshots[0].taps.g_noise for r in records if r.spec and r.spec.precision == "float32"]
    return any(noise is not None and noise > ROUNDED for taps in firsts for noise in taps)


def make_depths(held: Held) -> Iterator[str]:
    """Shares of BP's gain and blocks used, by depth; nothing of a block that is not complete."""
    yield "## Over depth"
    yield (
        "Block A's net at every depth on record: share of BP's gain, and how many blocks are missed when they "
        "alone are put back to their initial weights (CS011: by lower and upper bounds)."
    )
    left, complete = [], dict[str, Block]()
    for depth, (name, block) in sorted(DEPTHS.items()):
        missing, wanted = count_missing(block, held.records)
        if missing:
            left.append(f"L = {depth} ({missing:,} of {wanted:,})")
        else:
            complete[name] = block
    if left:
        yield f"Left out, because runs are missing: {', '.join(left)}."
    if not complete:
        return
    found = [held.standings(name) for name in complete]
    rows = [["gain of BP over frozen", *(short(own["bp"].found.gain) for own in found)]]
    for row in (name for one in DEPTHS[2][1].all_rows for name in one.names()):
        cells = (f"{write_share(own[row].share)} · {_used(own[row])}" for own in found)
        rows.append([markdown(found[0][row].found.method), *cells])
    rows.append(["seeds", *(str(len(block.seeds)) for block in complete.values())])
    rows.append(["trained on", *(say_where(find_block(block, held.records)) for block in complete.values())])
    heads = [f"L = {block.recipe['net_options']['depth']}" for block in complete.values()]
    yield table(["share of BP's gain · blocks used", *heads], rows)


def _used(standing: Standing) -> str:
    found = standing.found.trained_depth
    return found.short if found else DASH


def make_sensitivity(held: Held) -> Iterator[str]:
    """How many verdicts another value of each threshold changes, by block; those that change none are named."""
    yield "## Verdicts under other thresholds"
    yield (
        "How many verdicts change when one threshold is halved, and when it is doubled, the others held (a confidence "
        "by its odds, a whole number by one); in brackets how many of them from *trustworthy* to *walk back* or the "
        "other way."
    )
    complete = [name for name, block in BLOCKS.items() if not count_missing(block, held.records)[0]]
    audits = {name: judged for name in complete if (judged := held.judged(name))}
    rows, calm = [], []
    for row in thresholds():
        if not OF_RULES.issuperset(row["checks"]):
            continue
        name, tried = f"`{row['name']}`", half_and_double(row)
        cells = [" / ".join(_changed(judged, row, value) for value in tried) for judged in audits.values()]
        if any(cell != "0 / 0" for cell in cells):
            rows.append([name, f"{row['value']:g}", " / ".join(f"{value:.3g}" for value in tried), *cells])
        else:
            calm.append(name)
    methods = ["methods", "", "", *(str(len(judged.methods)) for judged in audits.values())]
    yield table(["threshold", "value", "tried", *audits], [methods, *rows])
    yield f"No verdict changes with {', '.join(calm)}."


def _changed(judged: Audit, row: dict[str, Any], value: float) -> str:
    words = words_under(judged, row["name"])
    pairs = [{old, new} for old, new in zip(words(row["value"]), words(value), strict=True) if old != new]
    turned = pairs.count({"trustworthy", "walk back"})
    return f"{len(pairs)}" + (f" ({turned})" if turned else "")


def make_anchors(held: Held) -> Iterator[str]:
    """Published numbers beside ours."""
    yield "## Published anchors"
    yield (
        "Settings in which others published numbers, trained as theirs where that is known (`league_more`). *Inside*: "
        "the published value lies in the 95 % prediction interval of ours; a claim, if every seed bears it out "
        "([how](reproduction.md#how-it-is-compared)). Akrout et al.'s angles and accuracies are in [rules](rules.md)."
    )
    rows, lacking = [], Counter[str]()
    for anchor in read_anchors():
        published, found = anchor.published, hold_anchor(held, anchor)
        if found is None:
            lacking[published.part] += 1
            continue
        answer = {True: "inside", False: "**outside**", None: "one seed" if found.n else "not measured"}[found.inside]
        said = [published.part, published.quantity, published.said[0], _measured(published, found)]
        rows.append([*said, str(found.n), answer + f" ({published.apart})" * bool(published.apart)])
    if rows:
        yield table(["source", "quantity", "published", "ours", "n", ""], rows)
    if lacking:
        yield f"Runs are not on record yet for: {', '.join(f'{source} ({n})' for source, n in lacking.items())}."


def _measured(published: Published, found: Comparison) -> str:
    if published.kind == "claim":
        return f"holds for {sum(found.values.numbers):.0f} of {found.n} seeds"
    half = f" ± {short_number(found.half, '.3f')}" if found.half is not None else ""
    return short_number(found.mean, ".3f") + half


def make_sources(held: Held) -> str:
    """Every rule of the league: what a layer is told, and who proposed it."""
    found = {s.method.facts.rule.name: s.method.facts.rule for b in BLOCKS for s in held.standings(b).values()}
    rows = []
    for name, facts in sorted(found.items()):
        text = (Path(creditscope.__file__).parent / "rules" / f"{name}.py").read_text(encoding="utf-8")
        source = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[1:2]
        cells = (facts.label, facts.formula, *(source or [""]))
        rows.append([f"`{name}`", *(markdown(" ".join(cell.split())).replace("|", "∣") or DASH for cell in cells)])
    return table(["rule", "label", "formula", "source"], rows)


def make_predictions(held: Held) -> Iterator[str]:
    """Counts, misses by name, and every prediction beside its outcome."""
    yield "## Predictions and outcomes"
    yield (
        "Written down before any of these runs was trained (`paper/predictions/league.toml`, which says how each "
        "quantity is computed, and what was known then); none was changed. A hit says the more the less was known: "
        "*none* is a guess, *prototype* one to three seeds of throw-away code, *records* three seeds or more in this "
        "or a close setting. *Open*: not all runs that it is about are on record."
    )
    for name in ("basis", "figure"):
        kinds = dict.fromkeys(getattr(one.prediction, name) for one in held.outcomes)
        yield count_states(held, name, sorted(kinds, key=BASES.index) if name == "basis" else list(kinds))
    yield "### Misses"
    yield "\n".join(_miss(one) for one in held.outcomes if one.state == "miss")
    yield "### All"
    columns = ["id", "block", "prediction", "known before", "quantity", "predicted", "found", "outcome"]
    yield table(columns, [_row(one) for one in held.outcomes])


def count_states(held: Held, name: str, kinds: list[str]) -> str:
    """Hits, misses and what is open, by a field of predictions."""
    rows = []
    for kind in kinds:
        own = [one.state for one in held.outcomes if getattr(one.prediction, name) == kind]
        rows.append([kind, str(len(own)), *(str(own.count(state)) for state in WORDS)])
    rows.append(["all", *(str(sum(int(row[i]) for row in rows)) for i in range(1, 5))])
    return table([TITLES[name], "predictions", *WORDS], rows)


def _miss(one: Outcome) -> str:
    asked, rows = one.prediction, [name for name in one.missed if name]
    what = f" Outside: {', '.join(f'`{name}`' for name in rows)}." if rows else ""
    said = f"Predicted {_quantity(asked)} {asked.bounds}, found {_found(one)}.{what}"
    return f"- **{asked.id}** ({_place(asked)}; known before: {asked.basis}): {markdown(asked.statement)} {said}"


def _row(one: Outcome) -> list[str]:
    asked, outcome = one.prediction, WORDS[one.state]
    said = markdown(asked.statement), asked.basis, _quantity(asked), asked.bounds
    return [asked.id, _place(asked), *said, _found(one), outcome]


def _place(asked: Prediction) -> str:
    """The blocks it is about."""
    return " and ".join(asked.blocks) or asked.block + ("" if asked.terminal_norm else ", no norm")


def _quantity(asked: Prediction) -> str:
    """What decides, in words."""
    when = f" of {asked.measure} at {'the end' if asked.epoch == -1 else f'epoch {asked.epoch}'}" * bool(asked.measure)
    less = f" less that of `{asked.less}`" * bool(asked.less)
    over = f" over that of block {asked.over_block}" * bool(asked.over_block)
    return f"{asked.quantity.replace('_', ' ')}{when}{less}{over}"


def _found(one: Outcome) -> str:
    if all(value is None for value in one.values.values()):
        return ABSENT
    said = [f"`{row}` {_number(value)}" if row else _number(value) for row, value in one.values.items()]
    return ", ".join(said) + (f" ({one.detail})" if one.detail else "")


def _number(value: float | None) -> str:
    if value is None:
        return ABSENT
    return str(value) if isinstance(value, int) else short_number(value, ".3f")


def table(columns: list[str], rows: list[list[str]]) -> str:
    """As Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    (ROOT / "docs" / "league.md").write_text(make_page(), encoding="utf-8")
