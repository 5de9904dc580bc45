"""What lies behind the verdicts of an audit: the three questions answered in full, the numbers, and every check."""

from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import Outcome
from creditscope.auditing.columns import BRIEF_TAPS, FINDINGS, METHODS, OF_OUTCOME, Column
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.printing import STYLES, WIDE, Cell, fit_tables, indent, note, printed
from creditscope.auditing.show import Methods
from creditscope.auditing.stats import DRAWS, write_points
from creditscope.auditing.tap_credit import POWER, seen_above
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.verdict import rests_on_checks
from creditscope.text import DASH, number, span

OUTCOME_STYLES = {Outcome.ISSUE: "red", Outcome.PASSED: "green"}
MOST_BESIDE = 3
"""Methods that leave room for the limits beside the outcomes."""
NUMBERS = ("accuracy", "frozen_own", "frozen_bp", "gamma", "gamma_inexact", "growth", "g_top")
ABOUT_NUMBERS = (
    "± 95 % t interval over seeds, test set fixed · Γ mean cosine over the block taps · growth: largest RMS ratio over "
    "one block · ‖g_L‖ median per sample"
)
ABOUT_LADDER = (
    "accuracy by trained blocks, with (full run − this one) in pp, ± 95 % t interval of the difference paired by "
    "seed · Δ over the better frozen baseline, own or BP's · − BP: accuracy minus BP's"
)
ABOUT_SIZES = (
    "median per sample of the state and of the exact gradient, geometric mean over seeds; – is 0 or not measured · "
    "growth: RMS ratio over a residual block"
)
ABOUT_CHECKS = (
    f"{' · '.join(f'{sign} {outcome}' for outcome, sign in OF_OUTCOME.items())} · † the published threshold, where "
    "there is one, fires · over seeds, bounds decide · thresholds: creditscope list thresholds"
)


def draw_details(methods: Methods, limits: Thresholds, width: int) -> list[RenderableType]:
    """The questions of each method of a setting, then the numbers behind the answers."""
    parts = [part for m in methods for part in (Text(), *_answers(m))]
    if not any(m.accuracy or m.per_tap[0].h_norm for m in methods):
        return parts
    names = ("seeds", *NUMBERS) if len({len(m.seeds) for m in methods}) > 1 else NUMBERS
    columns = {METHODS[name].heading: [METHODS[name].cell(m) for m in methods] for name in names}
    parts += [*_by_method("method", methods, columns, width), note(ABOUT_NUMBERS)]
    parts += [*_ladder(methods, width), *_blocks(methods, width)]
    exact = all(tap.exact for m in methods for tap in m.per_tap)
    parts += _sizes(methods, width) if exact else _taps(methods, limits, width)
    return [*parts, *_checks(methods, width)]


def _answers(m: MethodAudit) -> list[RenderableType]:
    """The three questions with their answers, and what goes with them."""
    lines = [f"Diverged: {m.verdict.diverged}"] * bool(m.verdict.diverged)
    if rests_on_checks(m) or not m.verdict.diverged:
        lines += _about_checks(m)
    if len(m.seed_verdicts) > 1 and any(not verdict.diverged for verdict in m.seed_verdicts.values()):
        lines.append(f"Each seed alone (without CS004 and CS011): {_seeds_alone(m)}")
    return [Text.assemble(printed(f"{m.method}: "), printed(str(m.verdict), STYLES[m.verdict.word])), *indent(lines)]


def _about_checks(m: MethodAudit) -> list[str]:
    lines = [f"{line.question} {line.answer}. {line.reason}" for line in m.verdict.lines]
    if m.rows_interact:
        lines.append(
            "Rows interact (message passing, or BatchNorm in train mode): a row's gradient is not its own alone"
        )
    told = {code for line in m.verdict.lines for code in line.codes}
    lines += [f"Tip {f.code}: {f.message}" for f in m.findings if f.outcome == Outcome.TIP and f.code not in told]
    ends = {Outcome.ISSUE: "", Outcome.UNDECIDED: ", undecided at the end"}
    fired = [f"{f.code} at {f.fired}{ends.get(f.outcome, ', not at the end')}" for f in m.findings if f.fired]
    return [*lines, f"First an issue in training: {'; '.join(fired)}"] if fired else lines


def _seeds_alone(m: MethodAudit) -> str:
    """Verdicts of single seeds, each verdict once."""
    seeds: dict[str, list[str]] = {}
    for seed, verdict in m.seed_verdicts.items():
        seeds.setdefault(str(verdict), []).append(str(seed))
    if len(seeds) == 1:
        return f"all {next(iter(seeds))}"
    return "; ".join(f"{verdict}: {', '.join(those)}" for verdict, those in seeds.items())


def _by_method(first: str, methods: Methods, columns: dict[str, list[str]], width: int) -> list[Table]:
    return fit_tables(first, [m.method for m in methods], columns, width)


def _ladder(methods: Methods, width: int) -> list[RenderableType]:
    """Gains over the baselines, with the rungs of the depth ladder."""
    rungs = sorted({rung.trained for m in methods for rung in m.ladder})
    if not rungs:
        return []
    columns = {f"last {k} trained" if k else "none trained": [_rung(m, k) for m in methods] for k in rungs}
    columns["all trained"] = [number(m.accuracy.mean if m.accuracy else None, ".3f") for m in methods]
    for column in map(METHODS.__getitem__, ("versus_bp", "gain", "gain_share")):
        columns[column.heading] = [column.cell(m) for m in methods]
    return [*_by_method("use of depth", methods, columns, width), note(ABOUT_LADDER)]


def _rung(m: MethodAudit, trained: int) -> str:
    found = next((rung for rung in m.ladder if rung.trained == trained), None)
    return f"{found.accuracy.mean:.3f} ({write_points(found.below_full)})" if found else DASH


def _tap_names(methods: Methods) -> list[str]:
    most = max((m.taps for m in methods), key=len)
    return [f"tap {i} {name}" for i, name in enumerate(most)]


def _tap_columns(column: Column, methods: Methods) -> dict[str, list[str]]:
    """One quantity of all methods, a column per tap."""
    return {
        name: [column.cell(m.per_tap[i]) if i < len(m.per_tap) else "" for m in methods]
        for i, name in enumerate(_tap_names(methods))
    }


def _blocks(methods: Methods, width: int) -> list[RenderableType]:
    """What each block is worth to the trained net."""
    lost = BRIEF_TAPS["rewind_loss"]
    columns = {n: cells for n, cells in _tap_columns(lost, methods).items() if any(c not in ("", DASH) for c in cells)}
    if not columns:
        return []
    skipped = " (when it is skipped)" if any(tap.skip_loss for m in methods for tap in m.per_tap) else ""
    caption = f"accuracy lost, pp, when this block alone is put back to where it began{skipped}, ± 95 % over seeds"
    if any(m.trained_depth for m in methods):
        depths = [m.trained_depth.beside(m.bp_trained_depth) if m.trained_depth else DASH for m in methods]
        columns["trained depth"] = depths
        caption += " · trained depth: blocks that cost what counts, by their bounds; dependence, not benefit (CS011)"
    return [*_by_method(lost.heading, methods, columns, width), note(caption)]


def _taps(methods: Methods, limits: Thresholds, width: int) -> list[RenderableType]:
    """Cosines; and, where they were measured, alignment acquired and descent: never a mean without its layers."""
    taps, spread = [tap for m in methods for tap in m.per_tap], _spread(methods)
    captions = {
        "cos": _about_cosines([tap for tap in taps if not tap.exact], spread, limits),
        "acquired": f"alignment acquired: cos minus that of fresh feedback, in each seed; {spread}",
        "descent": "best decrease of the loss along −a over that along −g; (null) mean of the same for credit turned "
        f"at random; {spread}",
    }
    parts: list[RenderableType] = []
    for name, caption in captions.items():
        column = BRIEF_TAPS[name]
        if name == "cos" or any(map(column.value, taps)):
            parts += [*_by_method(column.heading, methods, _tap_columns(column, methods), width), note(caption)]
    return parts


def _about_cosines(taps: Sequence[TapAudit], spread: str, limits: Thresholds) -> str:
    """What the marks mean, and once what so many seeds can see."""
    said = [f"mean {spread}", f"✓ carries credit, ✗ below δ = {limits.alignment:g}, ? open (CS005)"]
    if any(tap.beta for tap in taps):
        said.append("β: projection of the mean of the rule's own draws on the gradient, which is judged")
    said += ["(cosine of the stage's weights)", "= exact credit"]
    nulls = [tap.null_sd for tap in taps if tap.answer and tap.null_sd]
    if nulls:
        least, most = (number(seen_above(null, limits), ".3f") for null in (min(nulls), max(nulls)))
        said.append(f"seen above chance with {100 * POWER:.0f} % power: {span(least, most, ' to ')}")
    return " · ".join(said)


def _spread(methods: Methods) -> str:
    """How the spread is made, read off the intervals themselves."""
    found = [tap.cos for m in methods for tap in m.per_tap if tap.cos]
    if not any(interval.low is not None for interval in found):
        return "of one seed"
    if any(interval.kind == "bootstrap" for interval in found):
        return f"[95 % percentile bootstrap over seeds, {DRAWS:,} draws, test set fixed]"
    return "± 95 % t interval over seeds (ddof 1), test set fixed"


def _sizes(methods: Methods, width: int) -> list[RenderableType]:
    """Where all credit is exact a cosine says nothing: sizes of states and gradients instead, a row per tap."""
    labels, columns = _tap_names(methods), {}
    for m in methods:
        for column in map(BRIEF_TAPS.__getitem__, ("h_norm", "growth", "g_norm")):
            if column.name != "growth" or m.growth is not None:
                name = f"{m.method}: {column.heading}" if len(methods) > 1 else column.heading
                columns[name] = [*map(column.cell, m.per_tap), *[""] * (len(labels) - len(m.taps))]
    return [*fit_tables("size", labels, columns, width), note(ABOUT_SIZES)]


def _checks(methods: Methods, width: int) -> list[RenderableType]:
    """What every check finds of every method; with room, what its value is compared with, and the words."""
    columns: dict[str, Sequence[Cell]] = {}
    if width >= WIDE and len(methods) <= MOST_BESIDE:
        limits = zip(*([f.limit for f in m.findings] for m in methods), strict=True)
        columns["limit"] = [next(filter(None, found), "") for found in limits]
    for m in methods:
        signs = [FINDINGS["outcome"].cell(f) if width >= WIDE else OF_OUTCOME[f.outcome] for f in m.findings]
        columns[m.method] = [
            printed(f"{sign}{' †' if f.published else ''}", style=OUTCOME_STYLES.get(f.outcome, "yellow"))
            for sign, f in zip(signs, m.findings, strict=True)
        ]
    labels = [FINDINGS["code"].cell(f) for f in methods[0].findings]
    return [*fit_tables("check", labels, columns, width), note(ABOUT_CHECKS)]
