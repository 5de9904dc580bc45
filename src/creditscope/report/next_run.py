"""What to run next: the command that measures what a verdict lacks, or trains the seeds that would settle it."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from creditscope.auditing.audit import MethodAudit
from creditscope.auditing.checks import Finding
from creditscope.auditing.methods import Method, usual_options
from creditscope.options import Scalar
from creditscope.record.spec import Recipe, RunSpec
from creditscope.registry import NETS, RULES, TASKS, Registry

SIZES = ("depth", "width")
ASKED = re.compile(r"--(baselines|tier \w+|seeds \d+)")
"""The options that checks name where they lack an input."""
ENOUGH = re.compile(r"about ([\d,]+) seeds would decide")
"""How CS005 says how many it needs."""
LEFT_OUT = ("frozen", "train_last")
MORE = 2
"""Times the seeds that left a question open, where no check says how many would decide."""
MOST_SEEDS = 200
"""More are no advice."""


def list_needs(findings: Iterable[Finding]) -> list[str]:
    """The options that would give the checks what they lack, each once: `--tier standard`, `--baselines`."""
    asked = [found for f in findings if f.is_missing for found in ASKED.findall(f.message)]
    return [f"--{option}" for option in sorted(set(asked)) if not option.startswith("seeds")]


def write_command(method: Method, found: MethodAudit, folder: str = "") -> str:
    """For a method that is not measured or undecided; empty where no run of ours would help."""
    spec, word = method.spec, found.verdict.word
    if spec is None or word not in ("not measured", "undecided") or not method.whole:
        return ""
    missing = [f for f in found.findings if f.is_missing]
    needs, seeds = list_needs(found.findings), _seeds(method, found)
    if missing and not needs and len(seeds) == len(method.runs):
        return ""
    asked = [
        *("--task", spec.task, "--net", spec.net, "--rule", spec.rule),
        *_options(spec),
        *_recipe(spec, "--tier" in " ".join(needs)),
        *("--seeds", *(map(str, seeds) if len(seeds) > 1 else [f"{seeds[0]},"])),
        *(word for need in needs for word in need.split()),
        *(["--out", str(Path(folder).parent)] if Path(folder).name == "records" else []),
    ]
    if "--baselines" not in needs and (method.frozen_own or method.frozen_bp):
        asked.append("--baselines")  # new seeds are held against new baselines
    return f"creditscope run {shlex.join(asked)}"


def _seeds(method: Method, found: MethodAudit) -> list[int]:
    """Those on record, and as many more as are asked for."""
    messages = " ".join(f.message for f in found.findings if f.is_open)
    wanted = [int(n) for n in re.findall(r"--seeds (\d+)", messages)]
    if found.verdict.word == "undecided":
        enough = [int(n.replace(",", "")) for n in ENOUGH.findall(messages)]
        wanted += [n for n in enough if n <= MOST_SEEDS] or [MORE * len(method.runs)]
    seeds = list(method.runs)
    fresh = (seed for seed in range(1, 10**6) if seed not in method.runs)
    return seeds + [next(fresh) for _ in range(max(wanted, default=0) - len(seeds))]


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


def _recipe(spec: RunSpec, tier: bool) -> list[str]:
    """What differs from what a run is by default; `tier`: that one is asked for anyway."""
    left_out = (*LEFT_OUT, *(["tier"] if tier else []))
    differing = [f for f in fields(Recipe) if f.name not in left_out and getattr(spec, f.name) != f.default]
    words = []
    for f in differing:
        value, flag = getattr(spec, f.name), f.name.replace("_", "-")
        words += [f"--{'' if value else 'no-'}{flag}"] if isinstance(value, bool) else [f"--{flag}", str(value)]
    return words
