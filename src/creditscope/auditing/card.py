"""A reporting card per method: what was trained, what was measured, what may be said, as Markdown and JSON."""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.auditing.card_pitfalls import Pitfall, list_pitfalls
from creditscope.auditing.checks import Finding, Method, all_checks, what_to_do
from creditscope.auditing.columns import ABOUT_MODULES, FINDINGS, MODULES, RUNGS, TAPS, Column
from creditscope.auditing.depth import Rung, TrainedDepth
from creditscope.auditing.methods import read_methods
from creditscope.auditing.modules import ModuleRow
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.stats import DRAWS, Interval, t_interval, write_interval
from creditscope.auditing.strip import Strip, make_strip, write_markdown
from creditscope.auditing.thresholds import Thresholds, table
from creditscope.auditing.verdict import Verdict
from creditscope.files import write_whole
from creditscope.text import DASH, markdown, name_options, with_options

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit

LEFT_OUT = ("z", "h_norm")
"""Columns of taps that a card has no room for."""
SELDOM = ("cos_input", "beta", "draw_noise")
"""Columns of some rules and tiers only: not missed where they are empty."""
COPIED = (
    "method",
    "setting",
    "trained_depth",
    "bp_trained_depth",
    "ladder",
    "per_tap",
    "findings",
    "verdict",
    "network",
    "modules",
)
"""What a card has of an audit as it is."""
TERMINAL_NORM = {True: "yes", False: "no", None: "not an option of this net"}
TICKS = {"avoided": "[x]", "met": "[ ]", "not measured": "[ ]", "not applicable": "[x]"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """Everything a reader needs beside the headline number."""

    method: str
    setting: str
    strip: Strip
    """What to see first."""
    about: dict[str, str]
    """Rule, credit formula, feedback, net, terminal norm, task, seeds, recipe, versions."""
    results: dict[str, Interval | None]
    """Accuracy, its baselines and differences, Γ."""
    gamma_over: str
    """How Γ is aggregated."""
    trained_depth: TrainedDepth | None
    bp_trained_depth: TrainedDepth | None
    ladder: tuple[Rung, ...]
    per_tap: tuple[TapAudit, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
    pitfalls: tuple[Pitfall, ...]
    limits: dict[str, float]
    """The thresholds it was judged by."""
    network: bool = False
    modules: tuple[ModuleRow, ...] = ()
    """Of a watched network."""

    @property
    def name(self) -> str:
        """Of its files: words, then a digest of method and setting."""
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.setting.split(' ')[0]} {self.method}".lower()).strip("-")
        return f"{words}-{hashlib.sha256(f'{self.setting}|{self.method}'.encode()).hexdigest()[:8]}"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def _of_network(self) -> list[str]:
        """What there is to say of a network: no credit, no baselines."""
        shown = [c for c in MODULES.values() if any(c.cell(row) not in ("", DASH) for row in self.modules)]
        remedies = what_to_do(self.findings)
        return [
            f"# {markdown(f'Network · {self.setting}')}",
            write_markdown([self.strip]),
            f"**{markdown(str(self.verdict))}**: {self.verdict.meaning}.",
            _bullets(f"{line.question} **{line.answer}**. {markdown(line.reason)}" for line in self.verdict.lines),
            *(["## What to do, first things first", _bullets(map(markdown, remedies))] if remedies else []),
            "## What was watched",
            _bullets(f"**{name}**: {markdown(value)}" for name, value in self.about.items()),
            *(["## Modules", _rows(shown, self.modules), f"{ABOUT_MODULES}."] if shown else []),
            "## Checks",
            _rows(FINDINGS.values(), self.findings),
            "## Thresholds",
            ", ".join(f"`{name}` {value:g}" for name, value in self.limits.items()),
        ]

    def to_markdown(self) -> str:
        if self.network:
            return "\n\n".join(part for part in self._of_network() if part) + "\n"
        verdict, named, quiet = self.verdict, self.trained_depth, self.verdict.not_tested
        untested = f"; not tested: {', '.join(quiet)}" if quiet and verdict.word == "trustworthy" else ""
        parts = [
            f"# {markdown(f'{self.method} · {self.setting}')}",
            write_markdown([self.strip]),
            f"**{markdown(str(verdict))}**: {verdict.meaning}{untested}.",
            _bullets(f"{line.question} **{line.answer}**. {markdown(line.reason)}" for line in verdict.lines),
            "## What was trained",
            _bullets(f"**{name}**: {markdown(value)}" for name, value in self.about.items()),
            "## Results",
            _table(["quantity", "value"], [[n, write_interval(i, _form(n))] for n, i in self.results.items()]),
            f"Γ: {self.gamma_over}. Intervals: 95 % t (ddof 1) over seeds, test set fixed; differences are paired by "
            "seed.",
            f"Trained depth (CS011): {named.beside(self.bp_trained_depth)}." if named else "",
            *(["### Depth ladder", _rows(RUNGS.values(), self.ladder)] if self.ladder else []),
            "## Per tap",
            *_taps(self.per_tap),
            "## Checks",
            _rows(FINDINGS.values(), self.findings),
            _bullets(map(markdown, what_to_do(self.findings))),
            "## Pitfalls",
            _bullets(f"{TICKS[p.state]} {p.title}: *{p.state}*. {markdown(p.evidence)}." for p in self.pitfalls),
            "## Thresholds",
            ", ".join(f"`{name}` {value:g}" for name, value in self.limits.items()),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def make_card(audit: "Audit", index: int) -> Card:
    """The card of one method of an audit."""
    (method,), found = read_methods(audit.groups[index : index + 1]), audit.methods[index]
    copied: dict[str, Any] = {name: getattr(found, name) for name in COPIED}
    stem = " (tap 0 is the stem and not in it)" if method.facts.stem_tap else ""
    return Card(
        **copied,
        strip=make_strip(found),
        about=_about_network(method) if found.network else _about(method),
        results={}
        if found.network
        else {
            "accuracy": found.accuracy,
            "accuracy, own-rule frozen": found.frozen_own,
            "accuracy, BP-frozen": found.frozen_bp,
            "Δ over the better frozen": found.gain,
            "Δ_BP": found.bp_gain,
            "accuracy − BP": found.versus_bp,
            "Γ": _over_seeds(method, "gamma"),
            "Γ without exact taps": _over_seeds(method, "gamma_inexact"),
        },
        gamma_over=(
            f"plain mean of the per-tap cosines over taps {', '.join(map(str, method.facts.gamma_taps))}{stem}; each "
            "cosine is a mean over rows, rows without gradient or credit left out; then over seeds"
        ),
        pitfalls=() if found.network else list_pitfalls(method, found),
        limits=_limits(audit.limits, network=found.network),
    )


def write_cards(cards: Sequence[Card], folder: Path) -> list[Path]:
    """Each card as NAME.md and NAME.json; gives the paths."""
    files = {}
    for card in cards:
        files[folder / f"{card.name}.md"] = card.to_markdown()
        files[folder / f"{card.name}.json"] = json.dumps(card.to_dict(), indent=1, ensure_ascii=False) + "\n"
    return write_whole(files)


def _about(method: Method) -> dict[str, str]:
    facts, spec, rule = method.facts, method.spec, method.facts.rule
    versions = {name: getattr(method.first.provenance, name) for name in ("creditscope", "torch", "numpy")}
    known = {
        "rule": f"{rule.label} (`{rule.name}`{f', {rule.variant}' if rule.variant else ''})",
        "credit formula": rule.formula or "not stated",
        "approximates": rule.approximates,
        "feedback": _feedback(method),
        "taps": ", ".join(f"{i} {name}" for i, name in enumerate(facts.taps)),
        "exact taps": ", ".join(map(str, facts.exact_taps)) or "none",
        "seeds": ", ".join(map(str, method.runs)) if spec else "one, not known",
        "precision": facts.precision,
        "measured with": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
    }
    if spec is None:
        return {**known, "net": "watched model", "task": "the rows it was watched on"}
    rows = method.first.last.rows
    return {
        **known,
        "net": with_options(spec.net, spec.net_options),
        "terminal norm": _terminal_norm(spec.net_options.get("terminal_norm")),
        "task": f"{with_options(spec.task, spec.task_options)}, {spec.targets} targets",
        "data": spec.data_version or "no version stated",
        "recipe": (
            f"{spec.epochs} epochs, {spec.optimiser}, lr {spec.lr:g}, {spec.schedule} schedule, weight decay "
            f"{spec.weight_decay:g}, batch {spec.batch}, credit norm {spec.credit_norm}, penalty λ {spec.penalty:g}"
        ),
        "measured at": f"tier {spec.tier}, {rows} test rows; accuracy over {facts.test_rows} test rows",
    }


def _about_network(method: Method) -> dict[str, str]:
    facts, last = method.facts, method.first.last
    versions = {name: getattr(method.first.provenance, name) for name in ("creditscope", "torch", "numpy")}
    return {
        "taps": ", ".join(facts.taps),
        "weights": f"{len(facts.weights)} trained, {len(facts.frozen_weights)} frozen",
        "snapshots": f"{len(method.first.snapshots)}, the last at {last.when} on {last.rows} rows",
        "precision": facts.precision,
        "measured with": ", ".join(f"{name} {version}" for name, version in versions.items() if version),
    }


def _limits(limits: Thresholds, *, network: bool) -> dict[str, float]:
    """Those that checks of a network go by, or those of a rule."""
    codes = {check.code for check in all_checks() if check.network}
    return {row["name"]: row["value"] for row in table(limits) if bool(codes & set(row["checks"])) == network}


def _terminal_norm(option: object) -> str:
    """As the option says it; one's own net may have another one of that name."""
    return TERMINAL_NORM[option] if option is None or isinstance(option, bool) else f"{option}"


def _feedback(method: Method) -> str:
    if not method.facts.rule.needs_feedback:
        return "none"
    worded = name_options(method.spec.rule_options if method.spec else {}) or "default options"
    angles = [a for r in method.whole if r.last.weights for a in r.last.weights.feedback_angle if a is not None]
    angle = f"; angle of W and B at the end {min(angles):.0f}° to {max(angles):.0f}°" if angles else ""
    return f"{worded}; drawn once per seed, stored with the weights{angle}"


def _over_seeds(method: Method, name: str) -> Interval | None:
    values = [value for record in method.whole if (value := getattr(record.last, name)) is not None]
    return t_interval(values) if values else None


def _form(name: str) -> str:
    """Differences and cosines have a sign, accuracies have none."""
    return "+.3f" if any(symbol in name for symbol in "ΔΓ−") else ".3f"


def _taps(taps: Sequence[TapAudit]) -> list[str]:
    """The columns that some tap has a value for, and what is said of them and of the others."""
    columns = [c for c in TAPS.values() if c.name not in LEFT_OUT]
    shown = [c for c in columns if any(c.cell(tap) != DASH for tap in taps)]
    missing = [c.heading for c in columns if c not in shown and c.name not in SELDOM]
    bootstrap = any(t.cos and t.cos.kind == "bootstrap" for t in taps)
    how = f"95 % percentile bootstrap, {DRAWS:,} draws" if bootstrap else "95 % t intervals (ddof 1)"
    said = (
        f"{how} over seeds, test set fixed; growth and ‖g‖ are geometric means ×÷ a factor; null sd: of the mean over "
        "seeds under random orientations of the credit; answer: carries at least δ, below it, or open (CS005); descent "
        "relative to that of the true gradient; lost: accuracy, when this block alone is put back or skipped."
    )
    return [_rows(shown, taps), f"{said} Not measured: {', '.join(missing)}." if missing else said]


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _rows(columns: Collection[Column], rows: Iterable[Any]) -> str:
    return _table([c.heading for c in columns], [[c.cell(row) or DASH for c in columns] for row in rows])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(markdown(cell).replace('|', '∣') for cell in line)} |" for line in lines)
