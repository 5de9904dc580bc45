"""The page's tables and facts: verdicts, decisions, checks, provenance and the cards to copy."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields

from creditscope.auditing.audit import Audit, MethodAudit
from creditscope.auditing.checks import Check, Finding, Outcome, all_checks
from creditscope.auditing.checks import in_order as in_order  # for the template
from creditscope.auditing.columns import FINDINGS, METHODS, MODULES, OF_WORD, Column
from creditscope.auditing.decisions import Decision
from creditscope.auditing.methods import Method
from creditscope.auditing.thresholds import Thresholds, table
from creditscope.auditing.verdict import MEANINGS, NETWORK_WORDS, Verdict, explain
from creditscope.record import Record, RunSpec
from creditscope.record.spec import FREE_FIELDS, RULE_FIELDS
from creditscope.text import DASH, count, first_few, name_options, option_text, span

FACT_COLUMNS = [METHODS[n] for n in ("frozen_own", "frozen_bp", "versus_bp", "trained_depth", "growth", "seeds")]
"""Of a method, beside what its row says."""
CHECK_COLUMNS = [FINDINGS[name] for name in ("outcome", "message", "value", "limit", "fired")]
"""Beside the code."""
MOST_SEEDS, MOST_SEEDS_OF_METHOD = 12, 20
"""That the top of the page and a method's runs name; the others are counted."""
ORIGIN_HEAD = ("creditscope", "commit", "torch", "numpy", "python", "device", "engine", "platform")
METHOD_HEAD = ("method", "rule", "options", "seeds", "made with", "measured", "minutes")
FIRST_FIELDS = ("task", "task_options", "data_version", "net", "net_options", "epochs", "optimiser", "lr", "schedule")


def count_words(methods: Iterable[MethodAudit]) -> dict[str, int]:
    """How many methods have each word that occurs."""
    found = Counter(m.verdict.word for m in methods)
    return {word: found[word] for word in OF_WORD if found[word]}


def answer(audit: Audit | None) -> str:
    """Can these results be trusted, in a sentence."""
    if audit is None:
        return "Nothing could be judged. What is missing is listed below."
    total, numbers = len(audit.methods), count_words(audit.methods)
    if total == 1 and audit.methods[0].network:
        return f"The network is {audit.methods[0].verdict.word}. {explain(audit.methods[0])}"
    noun = "network" if all(m.network for m in audit.methods) else "method"
    said = {word: "to be walked back" if word == "walk back" else word for word in numbers}
    if len(numbers) == 1 and total > 1:
        return f"All {count(total, noun)}: {next(iter(said.values()))}."
    return f"Of {count(total, noun)}: {', '.join(f'{many:,} {said[word]}' for word, many in numbers.items())}."


def question(audit: Audit | None) -> str:
    """The title: what a reader of these records asks."""
    if audit is None or not all(m.network for m in audit.methods):
        return "Can these results be trusted?"
    return "Are these networks healthy?" if len(audit.methods) > 1 else "Is this network healthy?"


def meanings(audit: Audit | None) -> dict[str, str]:
    """What the words mean that records of this kind may get: of rules, of networks or of both."""
    kinds = {m.network for m in audit.methods} if audit else {False}
    rules = [word for word in MEANINGS if word not in NETWORK_WORDS or word == "not measured"]
    chosen = [*(rules if False in kinds else ()), *(NETWORK_WORDS if True in kinds else ())]
    return {word: MEANINGS[word] for word in MEANINGS if word in chosen}


def asked_checks(audit: Audit | None) -> list[Check]:
    """The checks that judged something here."""
    kinds = {m.network for m in audit.methods} if audit else {False}
    return [check for check in all_checks() if check.network in kinds]


def remedy_of(code: str) -> str:
    """What a check says that there is to do."""
    return next(check.remedy for check in all_checks() if check.code == code)


def module_columns(found: MethodAudit) -> list[Column]:
    """Those that some module has a value for."""
    return [c for c in MODULES.values() if any(c.cell(row) not in ("", DASH) for row in found.modules)]


def describe(records: Sequence[Record], audit: Audit | None) -> dict[str, str]:
    """The facts at the top."""
    if not records:
        return {"Runs": "none"}
    seeds = sorted({r.spec.seed for r in records if r.spec})
    devices = Counter(r.provenance.device or "not stated" for r in records)
    facts = {"Runs": f"{len(records):,}"}
    if audit:
        settings = len({m.setting for m in audit.methods})
        what = "Networks" if all(m.network for m in audit.methods) else "Methods"
        facts[what] = f"{len(audit.methods):,}" + f" in {count(settings, 'setting')}" * (what == "Methods")
    if seeds or not audit or not all(m.network for m in audit.methods):
        facts["Seeds"] = first_few([str(s) for s in seeds], MOST_SEEDS) or "not known"
    facts["Devices"] = ", ".join(f"{name} ({runs:,})" for name, runs in devices.most_common())
    if finished := _days(records):
        facts["Measured"] = finished
    return facts


def _days(records: Iterable[Record]) -> str:
    days = sorted(r.provenance.finished[:10] for r in records if r.provenance.finished)
    return span(days[0], days[-1], " to ") if days else ""


def beside_word(verdict: Verdict) -> str:
    """What stands beside the word: untested, diverged, muted."""
    said = [verdict.not_judged, f"diverged: {verdict.diverged}" if verdict.diverged else ""]
    said += [f"muted: {', '.join(verdict.muted)}" if verdict.muted else ""]
    return "; ".join(filter(None, said))


def decisions_by_method(audit: Audit) -> list[list[Decision]]:
    """Of each method what every way of judging concludes over its seeds, the whole protocol first."""
    rows = [row for row in audit.decisions() if row.seed is None]
    each = len(rows) // len(audit.methods)
    return [[rows[i + each - 1], *rows[i : i + each - 1]] for i in range(0, len(rows), each)]


def check_rows(found: MethodAudit) -> list[list[Finding]]:
    """Of one method; checks that have no meaning here for one reason stand together."""
    rows: dict[tuple[str, str], list[Finding]] = {}
    for finding in found.findings:
        alone = finding.outcome != Outcome.NOT_APPLICABLE
        rows.setdefault((finding.code if alone else "", finding.message), []).append(finding)
    return list(rows.values())


def changed_limits(limits: Thresholds) -> list[str]:
    """Thresholds that are not the usual ones, in words."""
    pairs = [(row["name"], row["value"], getattr(Thresholds(), row["name"])) for row in table(limits)]
    return [f"{name} {value:g} (usual {usual:g})" for name, value, usual in pairs if value != usual]


def skipped_checks(methods: Iterable[MethodAudit]) -> list[tuple[tuple[str, str], list[str]]]:
    """Checks that lacked an input: code and reason, and the methods, those of one reason together."""
    found: dict[tuple[str, str], list[str]] = {}
    for method in methods:
        for finding in method.findings:
            if finding.outcome == Outcome.SKIPPED:
                found.setdefault((finding.code, finding.message), []).append(f"{method.method} ({method.setting})")
    return sorted(found.items())


def list_origins(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """Distinct versions, commits and devices, each with its number of runs."""
    found = Counter(_origin(r) for r in records).most_common()
    return [(_letter(i), *origin, f"{runs:,}") for i, (origin, runs) in enumerate(found)]


def _origin(record: Record) -> tuple[str, ...]:
    facts = {name: getattr(record.provenance, name) for name in ORIGIN_HEAD}
    return tuple((value[:10] if name == "commit" else value) or DASH for name, value in facts.items())


def _letter(place: int) -> str:
    """A, B, … Z, A1, B1, …

    >>> _letter(0), _letter(27)
    ('A', 'B1')
    """
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place % 26] + (str(place // 26) if place >= 26 else "")


def spec_facts(method: Method) -> list[tuple[str, str]]:
    """What all methods of a setting were asked: task, net and recipe."""
    if method.spec is None:
        return [("net", "watched model")]
    left_out = (*FREE_FIELDS, *RULE_FIELDS, *FIRST_FIELDS)
    names = (*FIRST_FIELDS, *(f.name for f in fields(RunSpec) if f.name not in left_out))
    found = {name.replace("_", " "): getattr(method.spec, name) for name in names}
    worded = {name: name_options(v) if isinstance(v, dict) else option_text(v) for name, v in found.items()}
    return [(name, value) for name, value in worded.items() if value]


def provenance_row(method: Method, origins: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """One method and its runs; what they were made with is a line of the table of origins."""
    runs, spec, keys = method.runs.values(), method.spec, {origin[1:-1]: origin[0] for origin in origins}
    options = dict(spec.rule_options) if spec else {}
    if spec:
        options |= {"credit norm": spec.credit_norm} if spec.credit_norm != "none" else {}
        options |= {"λ": spec.penalty} if spec.penalty else {}
    return (
        method.label,
        method.facts.rule.name,
        name_options(options) or DASH,
        first_few([str(seed) for seed in method.runs], MOST_SEEDS_OF_METHOD) if spec else "not known",
        ", ".join(sorted({keys[_origin(r)] for r in runs})),
        _days(runs) or DASH,
        f"{sum(r.provenance.seconds for r in runs) / 60:.1f}",
    )
