"""A reporting card per method: what was trained, what was measured, what may be said, as Markdown and JSON."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from creditscope.auditing.depth import Rung
from creditscope.auditing.findings import Finding
from creditscope.auditing.methods import Method
from creditscope.auditing.per_tap import TapAudit
from creditscope.auditing.pitfalls import Pitfall, list_pitfalls
from creditscope.auditing.rewinding import TrainedDepth
from creditscope.auditing.stats import Interval, t_interval
from creditscope.auditing.verdict import Verdict
from creditscope.text import name_options, with_options

if TYPE_CHECKING:
    from creditscope.auditing.audit import Audit


@dataclass(frozen=True, kw_only=True)
class Card:
    """Everything a reader needs beside the headline number."""

    method: str
    setting: str
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

    @property
    def name(self) -> str:
        """A file name: words, then a digest of method and setting."""
        words = re.sub(r"[^a-z0-9]+", "-", f"{self.setting.split(' ')[0]} {self.method}".lower()).strip("-")
        return f"{words}-{hashlib.sha256(f'{self.setting}|{self.method}'.encode()).hexdigest()[:8]}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def to_markdown(self) -> str:
        """For people."""
        from creditscope.auditing.card_markdown import write_markdown

        return write_markdown(self)


def make_card(audit: "Audit", index: int) -> Card:
    """The card of one method of an audit."""
    method, found = audit.groups[index], audit.methods[index]
    return Card(
        method=found.method,
        setting=found.setting,
        about=_about(method),
        results={
            "accuracy": found.accuracy,
            "accuracy, own-rule frozen": found.frozen_own,
            "accuracy, BP-frozen": found.frozen_bp,
            "Δ over the better frozen": found.gain,
            "Δ_BP": found.bp_gain,
            "accuracy − BP": found.versus_bp,
            "Γ": _over_seeds(method, "gamma"),
            "Γ without exact taps": _over_seeds(method, "gamma_inexact"),
        },
        gamma_over=_gamma_over(method),
        trained_depth=found.trained_depth,
        bp_trained_depth=found.bp_trained_depth,
        ladder=found.ladder,
        per_tap=found.per_tap,
        findings=found.findings,
        verdict=found.verdict,
        pitfalls=list_pitfalls(method, found),
        limits=asdict(audit.limits),
    )


def write_cards(cards: Sequence[Card], folder: Path) -> list[Path]:
    """Each card as NAME.md and NAME.json; gives the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for card in cards:
        texts = {"md": card.to_markdown(), "json": json.dumps(card.to_dict(), indent=1, ensure_ascii=False) + "\n"}
        for ending, text in texts.items():
            paths.append(folder / f"{card.name}.{ending}")
            paths[-1].write_text(text, encoding="utf-8")
    return paths


def _about(method: Method) -> dict[str, str]:
    facts, spec, provenance = method.facts, method.spec, method.first.provenance
    rule = facts.rule
    known = {
        "rule": f"{rule.label} (`{rule.name}`{f', {rule.variant}' if rule.variant else ''})",
        "credit formula": rule.formula or "not stated",
        "approximates": rule.approximates,
        "feedback": _feedback(method),
        "taps": ", ".join(f"{i} {name}" for i, name in enumerate(facts.taps)),
        "exact taps": ", ".join(map(str, facts.exact_taps)) or "none",
        "seeds": ", ".join(map(str, method.runs)) if spec else "one, not known",
        "precision": facts.precision,
        "measured with": ", ".join(
            f"{name} {version}" for name in ("creditscope", "torch", "numpy") if (version := getattr(provenance, name))
        ),
    }
    if spec is None:
        return {**known, "net": "watched model", "task": "the rows it was watched on"}
    return {
        **known,
        "net": with_options(spec.net, spec.net_options),
        "terminal norm": _terminal_norm(spec.net_options),
        "task": f"{with_options(spec.task, spec.task_options)}, {spec.targets} targets",
        "data": spec.data_version or "no version stated",
        "recipe": (
            f"{spec.epochs} epochs, {spec.optimiser}, lr {spec.lr:g}, {spec.schedule} schedule, weight decay "
            f"{spec.weight_decay:g}, batch {spec.batch}, credit norm {spec.credit_norm}, penalty λ {spec.penalty:g}"
        ),
        "measured at": (
            f"tier {spec.tier}, {method.first.last.rows} test rows; accuracy over {facts.test_rows} test rows"
        ),
    }


def _feedback(method: Method) -> str:
    if not method.facts.rule.needs_feedback:
        return "none"
    options = method.spec.rule_options if method.spec else {}
    angles = [a for r in method.whole if r.last.weights for a in r.last.weights.feedback_angle if a is not None]
    worded = name_options(options) or "default options"
    angle = f"; angle of W and B at the end {min(angles):.0f}° to {max(angles):.0f}°" if angles else ""
    return f"{worded}; drawn once per seed, stored with the weights{angle}"


def _terminal_norm(options: dict[str, Any]) -> str:
    return {True: "yes", False: "no", None: "not an option of this net"}[options.get("terminal_norm")]


def _gamma_over(method: Method) -> str:
    stem = " (tap 0 is the stem and not in it)" if method.facts.stem_tap else ""
    return (
        f"plain mean of the per-tap cosines over taps {', '.join(map(str, method.facts.gamma_taps))}{stem}; each "
        "cosine is a mean over rows, rows without gradient or credit left out; then over seeds"
    )


def _over_seeds(method: Method, name: str) -> Interval | None:
    values = [value for record in method.whole if (value := getattr(record.last, name)) is not None]
    return t_interval(values) if values else None
