"""A reporting card as Markdown."""

from collections.abc import Callable, Sequence

from creditscope.auditing.card import Card
from creditscope.auditing.depth import Rung
from creditscope.auditing.manual import what_to_do
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.stats import DRAWS, write_interval
from creditscope.words import DASH, number

TAP_COLUMNS: dict[str, Callable[[TapAudit], str]] = {
    "tap": lambda t: f"{t.tap} {t.name}{' (exact)' if t.exact else ''}",
    "cos": lambda t: write_interval(t.cos, "+.3f"),
    "z": lambda t: write_interval(t.z, "+.1f"),
    "cos_F": lambda t: write_interval(t.cos_F, "+.3f"),
    "fresh cos": lambda t: write_interval(t.fresh_cos, "+.3f"),
    "acquired": lambda t: write_interval(t.acquired, "+.3f"),
    "permuted cos": lambda t: write_interval(t.permuted_cos, "+.3f"),
    "descent": lambda t: write_interval(t.descent, ".3f"),
    "its null": lambda t: _plus_minus(t.descent_null, t.descent_null_sd),
    "growth": lambda t: write_interval(t.growth, ".3g"),
    "‖g‖ per sample": lambda t: write_interval(t.g_norm, ".1e"),
    "g_noise": lambda t: number(t.g_noise, ".0e"),
    "common": lambda t: write_interval(t.common, ".2f"),
    "probe": lambda t: write_interval(t.probe, ".3f"),
    "probe, untrained": lambda t: write_interval(t.probe_untrained, ".3f"),
    "block skipped": lambda t: write_interval(t.skip_one, ".3f"),
}
TICKS = {"avoided": "[x]", "met": "[ ]", "not measured": "[ ]", "not applicable": "[x]"}


def write_markdown(card: Card) -> str:
    """All of the card."""
    parts = [
        f"# {card.method} · {card.setting}",
        f"**{card.verdict}**",
        "\n".join(f"- {line.question} **{line.answer}**. {line.reason}" for line in card.verdict.lines),
        "## What was trained",
        "\n".join(f"- **{name}**: {value}" for name, value in card.about.items()),
        "## Results",
        _table(["quantity", "value"], [[name, write_interval(i, _form(name))] for name, i in card.results.items()]),
        f"Γ: {card.gamma_over}. Intervals: 95 % t (ddof 1) over seeds, test set fixed; differences are paired by seed.",
        *_ladder(card.ladder),
        "## Per tap",
        _taps(card.per_tap),
        _caption(card.per_tap),
        "## Checks",
        _table(
            ["check", "outcome", "what it found", "first an issue"],
            [[f"{f.code} {f.title}", f"{f.outcome}", f.message, f.fired or DASH] for f in card.findings],
        ),
        "\n".join(f"- {line}" for line in what_to_do(card.findings)),
        "## Pitfalls",
        "\n".join(f"- {TICKS[p.state]} {p.title}: *{p.state}*. {p.evidence}." for p in card.pitfalls),
        "## Thresholds",
        ", ".join(f"`{name}` {value:g}" for name, value in card.limits.items()),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _form(name: str) -> str:
    """Differences and cosines have a sign, accuracies have none."""
    return "+.3f" if any(symbol in name for symbol in "ΔΓ−") else ".3f"


def _ladder(rungs: Sequence[Rung]) -> list[str]:
    if not rungs:
        return []
    rows = [[str(r.trained), write_interval(r.accuracy, ".3f"), write_interval(r.below_full, "+.3f")] for r in rungs]
    return ["### Depth ladder", _table(["last blocks trained", "accuracy", "full run − this one, paired"], rows)]


def _taps(taps: Sequence[TapAudit]) -> str:
    """Only the columns that some tap has a value for."""
    columns = {name: [read(tap) for tap in taps] for name, read in TAP_COLUMNS.items()}
    shown = {name: cells for name, cells in columns.items() if any(cell != DASH for cell in cells)}
    return _table(list(shown), [list(row) for row in zip(*shown.values(), strict=True)])


def _caption(taps: Sequence[TapAudit]) -> str:
    missing = [name for name, read in TAP_COLUMNS.items() if all(read(tap) == DASH for tap in taps)]
    bootstrap = any(t.cos and t.cos.kind == "bootstrap" for t in taps)
    how = f"95 % percentile bootstrap, {DRAWS:,} draws" if bootstrap else "95 % t intervals (ddof 1)"
    said = (
        f"{how} over seeds, test set fixed; growth and ‖g‖ are geometric means ×÷ a factor; z in sd of a random "
        "orientation of the credit; descent relative to that of the true gradient."
    )
    return f"{said} Not measured: {', '.join(missing)}." if missing else said


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)


def _plus_minus(mean: float | None, sd: float | None) -> str:
    return DASH if mean is None else f"{number(mean, '.3f')} ± {number(sd, '.3f')} sd"
