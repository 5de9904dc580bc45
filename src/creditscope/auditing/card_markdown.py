"""A reporting card as Markdown."""

from collections.abc import Callable, Sequence

from creditscope.auditing.card import Card
from creditscope.auditing.depth import Rung
from creditscope.auditing.manual import what_to_do
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.stats import DRAWS, write_interval
from creditscope.auditing.symbols import OF_ANSWER
from creditscope.text import DASH, number

TAP_COLUMNS: dict[str, Callable[[TapAudit], str]] = {
    "tap": lambda t: f"{t.tap} {t.name}{' (exact)' if t.exact else ''}",
    "cos": lambda t: write_interval(t.cos, "+.3f"),
    "answer": lambda t: f"{OF_ANSWER[t.answer]} {t.answer}" if t.answer else DASH,
    "null sd": lambda t: DASH if t.exact else number(t.null_sd, ".3f"),
    "cos_F": lambda t: write_interval(t.cos_F, "+.3f"),
    "cos, input": lambda t: write_interval(t.cos_input, "+.3f"),
    "β": lambda t: write_interval(t.beta, "+.3f"),
    "draw noise": lambda t: write_interval(t.draw_noise, ".3f"),
    "cos of weights": lambda t: write_interval(t.stage_cos, "+.3f"),
    "weights' null sd": lambda t: DASH if t.exact else number(t.stage_null_sd, ".3f"),
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
    "lost, put back": lambda t: write_interval(t.rewind_loss, "+.3f"),
    "lost, skipped": lambda t: write_interval(t.skip_loss, "+.3f"),
}
SELDOM = ("cos, input", "β", "draw noise")
"""Columns of some rules and tiers only: not missed where they are empty."""
TICKS = {"avoided": "[x]", "met": "[ ]", "not measured": "[ ]", "not applicable": "[x]"}


def write_markdown(card: Card) -> str:
    """All of the card."""
    parts = [
        f"# {card.method} · {card.setting}",
        f"**{card.verdict}**: {_meaning(card)}.",
        "\n".join(f"- {line.question} **{line.answer}**. {line.reason}" for line in card.verdict.lines),
        "## What was trained",
        "\n".join(f"- **{name}**: {value}" for name, value in card.about.items()),
        "## Results",
        _table(["quantity", "value"], [[name, write_interval(i, _form(name))] for name, i in card.results.items()]),
        f"Γ: {card.gamma_over}. Intervals: 95 % t (ddof 1) over seeds, test set fixed; differences are paired by seed.",
        f"Trained depth (CS011): {card.trained_depth.beside(card.bp_trained_depth)}." if card.trained_depth else "",
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


def _meaning(card: Card) -> str:
    """What a reader may do, and what the word does not speak of."""
    verdict = card.verdict
    untested = f"; not tested: {', '.join(verdict.not_tested)}" if verdict.word == "trustworthy" else ""
    return verdict.meaning + (untested if verdict.not_tested else "")


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
    missing = [n for n, read in TAP_COLUMNS.items() if n not in SELDOM and all(read(tap) == DASH for tap in taps)]
    bootstrap = any(t.cos and t.cos.kind == "bootstrap" for t in taps)
    how = f"95 % percentile bootstrap, {DRAWS:,} draws" if bootstrap else "95 % t intervals (ddof 1)"
    said = (
        f"{how} over seeds, test set fixed; growth and ‖g‖ are geometric means ×÷ a factor; null sd: of the mean over "
        "seeds under random orientations of the credit; answer: carries at least δ, below it, or open (CS005); descent "
        "relative to that of the true gradient; lost: accuracy, when this block alone is put back or skipped."
    )
    return f"{said} Not measured: {', '.join(missing)}." if missing else said


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |" for line in lines)


def _plus_minus(mean: float | None, sd: float | None) -> str:
    return DASH if mean is None else f"{number(mean, '.3f')} ± {number(sd, '.3f')} sd"
