"""Panels put together as one figure: the overview of one setting, with verdicts below, and one for each setting."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation, blended_transform_factory

from creditscope.auditing import audit
from creditscope.auditing.methods import is_baseline, setting_key
from creditscope.auditing.verdict import Word
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.plots import save_figure
from creditscope.plots._lines import gather, lines_of, name_room
from creditscope.plots._panel import laid_out_once, new_axes
from creditscope.plots._quantities import NotMeasuredError
from creditscope.plots._runs import ladder, over_epochs, pair
from creditscope.plots._style import AMBER, BODY, GREY, SMALL, WIDTH, as_drawn, styled, text_width, wrap_text
from creditscope.plots._taps import credit, sizes
from creditscope.record import Record
from creditscope.text import count, first_few

COLOURS: dict[Word, str] = {
    "trustworthy": "#2f7d32",
    "walk back": "#a8322a",
    "undecided": AMBER,
    "not measured": GREY,
    "not judged": GREY,
    "healthy": "#2f7d32",
    "ill": "#a8322a",
    "not trained yet": GREY,
}
ROW = 0.16
"""Height of a row, inches."""
KEY, GAP = 0.36, 0.2
"""Room for a method's line and marker, and between columns, inches."""


def verdicts(records: Any, *, ax: Axes | None = None) -> Axes:
    """A row per method: its line and marker, its name, its verdict and the codes behind it.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [text.get_text() for text in plots.verdicts(runs).texts][:2]
    ['BP', 'not measured']
    """
    found = gather(records)
    lines, judged = lines_of(found), [method.verdict for method in audit(found).methods]
    said = [str(verdict).removeprefix(verdict.word).strip() for verdict in judged]
    names = max(text_width(line.look.label, size=BODY) for line in lines)
    words = max(text_width(verdict.word, size=BODY, bold=True) for verdict in judged)
    word, codes = KEY + names + GAP, KEY + names + words + 2 * GAP
    width = codes + max(text_width(text, size=BODY) for text in said)
    with new_axes(ax, (width + 0.2, ROW * len(lines) + 0.1)) as ax:
        ax.set(xlim=(0, 1), ylim=(len(lines) - 0.5, -0.5))
        ax.axis("off")
        left = ScaledTranslation(0, 0, ax.transAxes)  # pyright: ignore[reportArgumentType]
        inches = blended_transform_factory(ax.figure.dpi_scale_trans + left, ax.transData)  # across; down are rows
        for row, (line, verdict, text) in enumerate(zip(lines, judged, said, strict=True)):
            look = line.look
            style = {"color": look.colour, "ls": line.dashes, "marker": look.marker, "lw": 1.1, "ms": 4.0}
            ax.plot([0.02, 0.15, 0.28], [row] * 3, markevery=[1], transform=inches, clip_on=False, **style)
            where: dict[str, Any] = {"transform": inches, "va": "center", "size": BODY, "in_layout": False}
            ax.text(KEY, row, look.label, color=look.colour, **where)
            ax.text(word, row, verdict.word, color=COLOURS[verdict.word], weight="bold", **where)
            ax.text(codes, row, text, color=GREY, **where)
    return ax


Draw = Callable[..., Axes]
PANELS: dict[str, Draw] = {draw.__name__: draw for draw in (pair, credit, sizes, over_epochs, ladder, verdicts)}
HEIGHT = 2.5
"""Of the row of panels, inches."""
NAMED, ROOM = 5, 0.8
"""Methods whose names are written in the panels, and the inches a name may have; else the verdicts are the key."""
COLUMN = 1.9
"""Least width of a panel without names, inches."""


def overview(records: Any, *, panels: Sequence[str | Draw] = ("pair", "credit", "sizes", "verdicts")) -> Figure:
    """Panels side by side, with the verdicts below, of the records of one setting.

    `panels` are names, or functions that take records and `ax`, such as functools.partial(plots.sizes,
    quantity="h_norm"). A panel that nobody measured says so in its place.

    >>> import creditscope as cs
    >>> from creditscope import plots
    >>> runs = cs.run(task="digits", seeds=1, epochs=1, depth=1, width=8, tier="quick")
    >>> [ax.get_label() for ax in plots.overview(runs, panels=("sizes", "verdicts")).axes]
    ['verdicts', 'sizes']
    """
    found = gather(records)
    lines = lines_of(found)
    settings = list(dict.fromkeys(line.method.setting for line in lines))
    if len(settings) > 1:
        raise CreditscopeError(
            f"Expected records of one task, net and recipe, but got {len(settings)} settings: "
            f"{first_few([repr(s) for s in settings], 4)}. Select the records of one, as in "
            "[r for r in records if r.spec and r.spec.epochs == 100]."
        )
    if not panels:
        raise CreditscopeError(f"Expected at least one panel, but got none. Choose among {', '.join(PANELS)}.")
    for name in panels:
        if isinstance(name, str) and name not in PANELS:
            raise UnknownNameError("panel", name, PANELS)
    row, strip = [name for name in panels if name != "verdicts"], "verdicts" in panels
    named = not strip or (len(lines) <= NAMED and name_room(lines) < ROOM)
    heights = [HEIGHT] * bool(row) + [ROW * len(lines)] * strip
    width = max(WIDTH, len(row) * (COLUMN + named * name_room(lines)))
    with styled():
        fig = Figure(figsize=(width, sum(heights) + 0.35), layout="constrained")
        fig.suptitle(as_drawn(settings[0]), x=0.01, ha="left", size=BODY, weight="bold")
        grid = fig.add_gridspec(len(heights), max(len(row), 1), height_ratios=heights)
        if strip:
            verdicts(found, ax=fig.add_subplot(grid[-1, :], label="verdicts"))
        axes = [fig.add_subplot(grid[0, i], label=name if isinstance(name, str) else "") for i, name in enumerate(row)]
        with laid_out_once(fig):
            for name, ax in zip(row, axes, strict=True):
                try:
                    _ = PANELS[name](found, ax=ax, labels=named) if isinstance(name, str) else name(found, ax=ax)
                except NotMeasuredError as error:
                    ax.axis("off")
                    said = "\n".join(wrap_text(str(error), width=1.6))
                    ax.text(0, 1, said, transform=ax.transAxes, va="top", size=SMALL, color=GREY)
        right = max((text.get_window_extent().x1 for ax in fig.axes for text in ax.texts), default=0) / fig.dpi
        if right > width:
            fig.set_figwidth(right + 0.1)
            fig.draw_without_rendering()
    return fig


def save_overviews(records: Sequence[Record], folder: Path) -> Iterator[tuple[str, list[Path], str]]:
    """Of each setting what it is called, the files, and a note: what was left out, or why there are no files."""
    settings: dict[str, list[Record]] = {}
    for record in records:
        if record.spec:
            settings.setdefault(setting_key(record), []).append(record)
    drawn = [runs for runs in settings.values() if not all(map(is_baseline, runs))]
    for number, runs in enumerate(drawn, start=1):
        name = f"own_{number}" if len(drawn) > 1 else "own"
        latest = latest_texts(runs)
        rules = dict.fromkeys(record.facts.rule.label for record in latest if not is_baseline(record))
        spec, left = runs[0].spec, len(runs) - len(latest)
        assert spec is not None
        title = f"{name}: {spec.task}, {spec.net}, {', '.join(rules)}"
        try:
            paths = save_figure(overview(latest), folder, name)
        except CreditscopeError as error:
            yield title, [], str(error)
        else:
            yield title, paths, f"left out, as their rule was edited since: {count(left, 'run')}" if left else ""


def latest_texts(runs: Sequence[Record]) -> list[Record]:
    """Of a rule whose text was edited between runs, those of the text that was trained last."""
    last: dict[str, tuple[str, str]] = {}
    for spec, started in ((r.spec, r.provenance.started) for r in runs if not is_baseline(r)):
        assert spec is not None
        last[spec.rule] = max(last.get(spec.rule, ("", "")), (started, spec.rule_source))
    return [r for r in runs if r.spec and r.spec.rule_source == last.get(r.spec.rule, ("", r.spec.rule_source))[1]]
