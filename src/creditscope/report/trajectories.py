"""Third section: accuracy, Γ and the sizes at the top over training."""

from collections.abc import Callable, Mapping, Sequence

from creditscope.auditing.methods import Method
from creditscope.record import Snapshot
from creditscope.report.grids import shared_epochs
from creditscope.report.linechart import Line, draw_chart
from creditscope.report.model import Chart
from creditscope.report.numbers import mean, pick

MOST_POINTS = 40
FEWEST_POINTS = 3
"""Before and after training alone are no trajectory."""
Reader = Callable[[Snapshot], float | None]
CURVES: tuple[tuple[str, bool, Reader], ...] = (
    ("Accuracy", False, lambda s: s.accuracy),
    ("Γ, mean cosine over the block taps", False, lambda s: s.gamma),
    ("‖h_L‖, state norm at the last tap", True, lambda s: s.taps.h_norm[-1]),
    ("‖g_L‖, gradient norm at the last tap, per sample", True, lambda s: s.taps.g_norm[-1]),
)


def draw_trajectories(methods: Sequence[Method], colours: Mapping[str, str]) -> tuple[Chart, ...]:
    """A chart per curve that some method has at enough epochs; `colours` are the classes of the rules."""
    charts = []
    for title, log, read in CURVES:
        lines = [line for method in methods if (line := _line(method, read, colours[method.facts.rule.name], log=log))]
        if lines:
            charts.append(Chart(title=title, svg=draw_chart(lines, title, log=log)))
    return tuple(charts)


def _line(method: Method, read: Reader, colour: str, *, log: bool) -> Line | None:
    """Over the seeds that did not diverge; epochs at which a seed lacks the value are left out."""
    records = method.whole or list(method.runs.values())
    values = [{s.epoch: value for s in r.snapshots if _usable(value := read(s), log)} for r in records]
    epochs = [e for e in shared_epochs(records) if all(e in found for found in values)]
    if len(epochs) < FEWEST_POINTS:
        return None
    epochs = pick(epochs, MOST_POINTS)
    columns: list[list[float]] = [[found[e] for found in values] for e in epochs]  # pyright: ignore
    means = tuple(m for column in columns if (m := mean(column, geometric=log)) is not None)
    return Line(method.label, colour, epochs, means, tuple(map(min, columns)), tuple(map(max, columns)))


def _usable(value: float | None, log: bool) -> bool:
    return value is not None and (value > 0 or not log)
