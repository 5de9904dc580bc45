"""What to run next: the command that measures what a verdict lacks, or trains the seeds that would settle it."""

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import fields
from itertools import islice
from pathlib import Path

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import Finding
from creditscope.auditing.methods import Method, usual_options
from creditscope.options import Scalar
from creditscope.record.spec import Recipe, RunSpec
from creditscope.registry import NETS, RULES, TASKS, Registry

SIZES = ("depth", "width")
ENOUGH = re.compile(r"(?:about|over) ([\d,]+) seeds would decide")
"""How CS005 says how many it needs."""
STUCK = "more seeds would not decide"
"""How it says that no number would do."""
LEFT_OUT = ("frozen", "train_last", "noise")
"""Fields that no command sets: which blocks train, and what a check may lack."""
MORE = 2
"""Times the seeds that left a question open, where no check says how many would decide."""
MOST_SEEDS = 200
"""More are no advice."""


def list_needs(findings: Iterable[Finding]) -> list[str]:
    """The options that would give the checks what they lack, each once: `--tier standard`, `--baselines`."""
    return sorted({need for f in findings for need in f.needs if not need.startswith("--seeds")})


def write_command(method: Method, found: MethodAudit, folder: str = "") -> str:
    """For a method that is not measured or undecided; empty where no run of ours would help."""
    spec, word = method.spec, found.verdict.word
    if spec is None or word not in ("not measured", "undecided") or not method.whole:
        return ""
    needs, fresh = list_needs(found.findings), _fresh_seeds(method, found)
    if not needs and not fresh:
        return ""
    seeds = [*method.runs, *fresh]
    asked = [
        *("--task", spec.task, "--net", spec.net, "--rule", spec.rule),
        *_options(spec),
        *_recipe(spec, {need.split()[0].lstrip("-") for need in needs}),
        *("--seeds", *(map(str, seeds) if len(seeds) > 1 else [f"{seeds[0]},"])),
        *(word for need in needs for word in need.split()),
        *(["--out", str(Path(folder).parent)] if Path(folder).name == "records" else []),
    ]
    if "--baselines" not in needs and (method.frozen_own or method.frozen_bp):
        asked.append("--baselines")  # new seeds are held against new baselines
    return f"creditscope run {shlex.join(asked)}"


def find_hopeless(findings: Iterable[Finding]) -> Finding | None:
    """The first that is open and says that no number of seeds that could be advised would settle it."""
    return next((f for f in findings if f.is_open and _is_hopeless(f.message)), None)


def _is_hopeless(message: str) -> bool:
    return STUCK in message or any(needed > MOST_SEEDS for needed in _seeds_said(message))


def _seeds_said(message: str) -> list[int]:
    return [int(n.replace(",", "")) for n in ENOUGH.findall(message)]


def _fresh_seeds(method: Method, found: MethodAudit) -> list[int]:
    """As many as are lacking; those that diverged are none of those that the checks ask for."""
    messages = " ".join(f.message for f in found.findings if f.is_open)
    needs = (need.split() for f in found.findings for need in f.needs)
    wanted = [int(words[1]) for words in needs if words[0] == "--seeds"]
    if found.verdict.word == "undecided":
        if not found.verdict.codes or find_hopeless(found.findings):
            return []  # only divergence stands against it, or more of them would not help
        wanted += _seeds_said(messages) or [MORE * len(method.whole)]
    fresh = (seed for seed in range(1, 10**6) if seed not in method.runs)
    return list(islice(fresh, max(0, max(wanted, default=0) - len(method.whole))))


def _options(spec: RunSpec) -> list[str]:
    """Sizes by their own flags, what else is not usual by --set."""
    sizes = [word for name in SIZES if name in spec.net_options for word in (f"--{name}", str(spec.net_options[name]))]
    net = {name: value for name, value in spec.net_options.items() if name not in SIZES}
    owners = (
        ("net", _unusual(NETS, spec.net, net)),
        ("rule", _unusual(RULES, spec.rule, spec.rule_options)),
        ("task", _unusual(TASKS, spec.task, spec.task_options)),
    )
    listed = [f"{owner}.{name}={value}" for owner, options in owners for name, value in options.items()]
    return [*sizes, *(["--set", *listed] if listed else [])]


def _unusual(registry: Registry, name: str, options: dict[str, Scalar]) -> dict[str, Scalar]:
    usual = usual_options(registry, name)
    return {option: value for option, value in options.items() if option not in usual or usual[option] != value}


def _recipe(spec: RunSpec, asked: Collection[str]) -> list[str]:
    """What differs from what a run is by default, but for what is asked for anyway."""
    kept = [f for f in fields(Recipe) if f.name not in LEFT_OUT and f.name not in asked]
    differing = [f for f in kept if getattr(spec, f.name) != f.default]
    words = []
    for f in differing:
        value, flag = getattr(spec, f.name), f.name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return words
