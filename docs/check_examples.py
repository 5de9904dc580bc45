"""Of every check a case in which it fires and one in which it does not: runs on record, and nets of the clinic."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from check_readings import LIMITS, READINGS, Mark

from creditscope.auditing.checks import Check, Finding, all_checks
from creditscope.auditing.checks._network import NetworkMoment
from creditscope.auditing.judge import judge_check, judge_together
from creditscope.auditing.methods import Method, Moment, group_methods
from creditscope.errors import CreditscopeError
from creditscope.record import Record, load_records
from creditscope.text import count

RESULTS = Path(__file__).parents[1] / "results"
MAIN = "cifar10 · resmlp (depth 4, width 256) · 100 epochs"
SHORT = MAIN.replace("100", "30")
SMALL = "mnist1d · resmlp (depth 4, width 128) · 60 epochs"
RECIPE = "100 epochs · optimiser adam · lr 0.01 · schedule constant · weight_decay 0.0005"
HEALTHY, TANH = "healthy, plain MLP, ReLU, torch's initialisation", "healthy, plain MLP, tanh, Xavier initialisation"


@dataclass(frozen=True)
class Example:
    """What is looked at, what the check says of it, and the numbers it says it of."""

    subject: str
    finding: Finding
    marks: tuple[Mark, ...]


@dataclass(frozen=True)
class Runs:
    """A method on record, or what becomes of it by a change that is named."""

    method: str
    setting: str
    change: Callable[[Record], Record] | None = None
    changed: str = ""


@dataclass(frozen=True)
class Patient:
    """A net of the clinic by the name of its case; or a healthy one of so many classes, before training."""

    case: str
    classes: int = 0


def _gcn(depth: int, method: str = "BP", options: str = "") -> Runs:
    return Runs(method, f"cora · gcn (depth {depth}, width 64{options}) · {RECIPE}")


def _change_taps(**values: Callable[[Any, int], float]) -> Callable[[Record], Record]:
    """Per-tap fields of the last snapshot, each by a function of its measures and the tap."""

    def change(record: Record) -> Record:
        taps, last = record.last.taps, record.last
        new = {name: tuple(make(taps, i) for i in range(len(taps.cos))) for name, make in values.items()}
        return replace(record, snapshots=(*record.snapshots[:-1], replace(last, taps=replace(taps, **new))))

    return change


def _lose_descent(taps: Any, tap: int) -> float:
    """Less than a random orientation has, at one tap."""
    return taps.descent[tap] if tap != 2 else taps.descent_null[tap] - 2 * taps.descent_null_sd[tap]


def _stop(taps: Any, tap: int) -> float:
    return 0.0


def _halve(taps: Any, tap: int) -> float:
    return 0.5


DFA, FA, SMALL_FA, LOCAL = Runs("DFA", MAIN), Runs("FA", MAIN), Runs("FA", SMALL), Runs("local", SMALL)
EXAMPLES: dict[str, tuple[Runs | Patient, Runs | Patient]] = {
    "CS001": (DFA, FA),
    "CS002": (_gcn(16), _gcn(4)),
    "CS003": (_gcn(16, "DFA-GNN"), _gcn(4, "DFA-GNN")),
    "CS004": (DFA, FA),
    "CS005": (DFA, FA),
    "CS006": (DFA, FA),
    "CS007": (_gcn(10), _gcn(4)),
    "CS008": (replace(SMALL_FA, change=_change_taps(descent=_lose_descent), changed="without descent at h₂"), SMALL_FA),
    "CS009": (_gcn(10), _gcn(10, options=", propagate False")),
    "CS010": (_gcn(10), _gcn(4)),
    "CS011": (Runs("DFA, λ 0.01", SHORT), FA),
    "CS012": (
        replace(LOCAL, change=_change_taps(descent_stage=_stop), changed="if no update lowered the loss"),
        replace(LOCAL, change=_change_taps(descent_stage=_halve), changed="if every stage did half of what BP's does"),
    ),
    "CS101": (Patient(HEALTHY, classes=40), Patient(HEALTHY, classes=10)),
    "CS102": (Patient("logarithm of zero, plain"), Patient(HEALTHY)),
    "CS103": (Patient("stream detached, plain"), Patient(HEALTHY)),
    "CS104": (Patient("logits a thousand times too large, plain"), Patient(HEALTHY)),
    "CS105": (Patient("deep sigmoids, plain"), Patient(HEALTHY)),
    "CS106": (Patient("ReLUs dead by their bias, plain"), Patient(HEALTHY)),
    "CS107": (Patient("tanh saturated, plain"), Patient(TANH)),
    "CS108": (Patient("mean over the batch, plain"), Patient(HEALTHY)),
    "CS109": (Patient("layer not in the optimiser, plain"), Patient(HEALTHY)),
    "CS110": (Patient("learning rate a thousand times too low, plain"), Patient(HEALTHY)),
}


def find_methods(records: Sequence[Record]) -> dict[tuple[str, str], Method]:
    """By name and setting, those that are looked at; of the records of the paper, and others that ship."""
    records = [*records, *(record for name in ("demo", "rules") for record in load_records(RESULTS / name))]
    asked = {(one.method, one.setting) for pair in EXAMPLES.values() for one in pair if isinstance(one, Runs)}
    found = {(method.label, method.setting): method for method in group_methods(records)}
    return {key: found[key] for key in asked}


def make_examples(code: str, methods: dict[tuple[str, str], Method]) -> Iterator[Example]:
    """The one that fires, and the one that does not."""
    (check,) = (check for check in all_checks() if check.code == code)
    for one, fires in zip(EXAMPLES[code], (True, False), strict=True):
        made = _of_runs(check, one, methods) if isinstance(one, Runs) else _of_patient(check, one)
        check_example(made, fires=fires)
        yield made


def _of_runs(check: Check, asked: Runs, methods: dict[tuple[str, str], Method]) -> Example:
    method = methods[asked.method, asked.setting]
    if asked.change:
        method = replace(method, runs={seed: asked.change(record) for seed, record in method.runs.items()})
    task, net, *_ = asked.setting.split(" · ")
    words = f"made up: {asked.method} {asked.changed}" if asked.change else asked.method
    of = "first of " * READINGS[check.code].alone
    subject = f"{words}; {task} · {net}, {of}{count(len(method.runs), 'seed')}"
    return Example(subject, judge_check(check, method, LIMITS), tuple(READINGS[check.code].read(method)))


def _of_patient(check: Check, asked: Patient) -> Example:
    moment = Moment.of(_watch(asked))
    marks = tuple(READINGS[check.code].read(NetworkMoment(moment)))
    subject = asked.case.removesuffix(", plain").removeprefix("healthy, ")
    return Example(
        f"{subject}, {asked.classes} outputs for 10 labels" if asked.classes else subject,
        judge_together(check, [moment], LIMITS),
        marks,
    )


@cache
def _watch(asked: Patient) -> Record:
    """Its record, when it is trained a little."""
    from creditscope.clinic._patient import admit
    from creditscope.clinic.cases import CASES
    from creditscope.clinic.examine import follow

    (case,) = (case for case in CASES if case.name == asked.case)
    if asked.classes:
        return next(follow(case, admit("plain", classes=asked.classes))).records[0]
    return list(follow(case, case.admit()))[-1].records[0]


def check_example(example: Example, *, fires: bool) -> None:
    """Refuse one of which the check says something else than the picture: a mark beyond its limit if it fires."""
    found, wanted = example.finding, ("issue", "tip") if fires else ("passed",)
    if found.outcome not in wanted or any(mark.fired for mark in example.marks) != fires:
        raise CreditscopeError(
            f"Expected {found.code} to be {' or '.join(wanted)} of {example.subject}, but got {found.outcome}: "
            f"{found.message}. Choose another example."
        )
