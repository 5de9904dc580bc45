"""Every rule of the league: how much of BP's gain from depth it takes, against how aligned its credit is."""

from collections.abc import Sequence
from functools import partial
from itertools import permutations

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from creditscope.paper.figures import register_figure
from creditscope.paper.figures._layout import PAGE, Page, Panel, draw_page, grey_key
from creditscope.paper.figures._league import Board, Entry, find_boards, letters
from creditscope.plots import Caption, Statement
from creditscope.plots._panel import POINTS, label_some, when_laid_out
from creditscope.plots._style import FAINT, GREY, INK
from creditscope.record import Record
from creditscope.text import number

MARKERS = {
    "": "*", "transport": "^", "broadcast": "D", "chain": "s", "forward only": "v", "settling": "o", "local loss": "P",
}  # fmt: skip
"""By family; BP's is of none."""
GROWTHS = {1.2: "#fde725", 2.0: "#7ad151", 10.0: "#22a884", 100.0: "#2a788e", np.inf: "#440154"}
"""Colours by the largest growth that they are for; the larger, the darker in grey, too."""
SOUGHT = ("bp", "dfa", "fa")
"""Rules that a reader looks for first, after those of the title."""
TITLE = "What rules take of backprop's gain from depth, against how aligned their credit is."
READING = (
    "y: accuracy over the better of two frozen twins, in units of BP's gain over frozen BP (in pp where BP gains "
    "nothing), with 95 % t interval over seeds, paired. x: cosine of credit and gradient at the end, mean over taps "
    "without exact credit and seeds. Colour: largest growth of the stream over one block at the end; white: a net "
    "without skips. Thick edges: under the penalty λ. Where there is no room for a name, the table has it."
)


@register_figure("league")
def plot_league(records: Sequence[Record], *, page: Page = PAGE) -> Figure:
    """Draw the figure from the records of study `league`: a panel for each setting that has frozen twins."""
    boards, _ = find_boards(records)
    height = min(1.75, 6.2 / len(boards)) if page.narrow else min(2.1, 7.5 / len(boards))
    panels = [Panel(find_title(board), partial(draw_board, board=board), least=2.6, height=height) for board in boards]
    return draw_page(page, panels, keys=partial(_keys, boards))


def find_title(board: Board) -> str:
    """The two methods by which the cosine misleads most, or that BP itself gains nothing."""
    if not board.shared:
        return f"{board.name}: no gain from depth by BP itself ({board.bp_gain.text('+.0f')} pp)"
    if (pair := find_misled(board)) is None:
        return f"{board.name}: share of BP's gain against deep cosine"
    low, high = pair
    share, other = (f"{_short(board.stands(e).mean)} at cosine {_short(e.cos)}" for e in pair)
    return f"{board.name}: {low.short} takes {share}, {high.short} {other}"


def find_misled(board: Board) -> tuple[Entry, Entry] | None:
    """Two rules of which one has the higher cosine and, by the intervals of both, the lower share, as far apart as are.

    How far: the difference of cosines times that of shares. The one with the lower cosine comes first.
    """
    found: dict[float, tuple[Entry, Entry]] = {}
    for one, other in permutations(board.others, 2):
        more, less = board.stands(one), board.stands(other)
        if one.cos < other.cos and more.low is not None and less.high is not None and more.low > less.high:
            found[(other.cos - one.cos) * (more.mean - less.mean)] = one, other
    return found[max(found)] if found else None


def draw_board(ax: Axes, board: Board) -> None:
    """A mark for each method with its interval, and names where there is room."""
    ax.axhline(0, color=GREY, lw=0.7, ls=":", zorder=1, gid="frozen")
    if board.shared:
        ax.axhline(1, color=FAINT, lw=0.7, ls="--", zorder=1, gid="backprop")
    for entry in board.entries:
        found = board.stands(entry)
        if found.low is not None and found.high is not None:
            ax.plot([entry.cos] * 2, found.ends, color=FAINT, lw=0.7, zorder=2, gid=f"{entry.name} bar")
        look = {"mfc": colour(entry.growth), "mec": INK, "mew": 1.5 if entry.penalty else 0.4, "ls": ""}
        look |= {"ms": 7.5, "zorder": 4} if entry.rule == "bp" else {"ms": 5.0, "zorder": 3}
        ax.plot([entry.cos], [found.mean], MARKERS[entry.family], gid=entry.name, **look)
    ax.set(xlabel="deep cosine", ylabel="share of BP's gain" if board.shared else "gain over frozen, pp")
    ax.set_xlim(min(-0.05, min(e.cos for e in board.entries) - 0.05), 1.06)
    ax.set_ylim(top=ax.get_ylim()[1] + 0.08 * np.ptp(ax.get_ylim()))  # room for names
    when_laid_out(ax, POINTS, lambda: _name(ax, board))


def _name(ax: Axes, board: Board) -> None:
    """Those of the title and those that are sought, to whom lines may lead; then the rest, the loneliest first."""
    misled = find_misled(board) or () if board.shared else ()
    plain = {entry.rule: entry for entry in board.entries if entry.name == entry.method.facts.rule.label}
    led = {entry.name: entry for entry in (*misled, *(plain[rule] for rule in SOUGHT if rule in plain))}
    at = {e.name: np.array([e.cos, board.stands(e).mean / (1 if board.shared else 50)]) for e in board.entries}

    def nearest(entry: Entry) -> float:
        return min(float(np.hypot(*(at[entry.name] - at[e.name]))) for e in board.entries if e is not entry)

    rest = sorted((entry for entry in board.entries if entry.name not in led), key=nearest, reverse=True)
    named = [*led.values(), *rest]
    label_some(ax, [(entry.short, entry.cos, board.stands(entry).mean) for entry in named], led=len(led))


def colour(growth: float) -> str:
    """Of the class that a growth is in; white where there is none."""
    return next((found for top, found in GROWTHS.items() if growth < top), "white")


def _keys(boards: Sequence[Board], drawn: set[str]) -> list[Artist]:
    shown = [entry for board in boards for entry in board.entries if entry.name in drawn]
    families = {entry.family for entry in shown}
    small = {"ls": "", "mfc": "white", "mec": INK, "mew": 0.6}
    keys: list[Artist] = [grey_key(f or "BP", marker=MARKERS[f], **small) for f in MARKERS if f in families]
    penalties = sorted({entry.penalty for entry in shown if entry.penalty})
    keys += [grey_key(f"λ = {p:g}", marker="o", **{**small, "mew": 1.5}) for p in penalties]
    bounds = list(GROWTHS)
    if any(np.isnan(entry.growth) for entry in shown):
        keys.append(Patch(facecolor=colour(np.nan), edgecolor=INK, lw=0.4, label="no skips"))
    for low, high in zip([0.0, *bounds], bounds, strict=False):
        said = f"growth ≥ {low:g}" if high == np.inf else f"growth < {high:g}" if not low else f"< {high:g}"
        keys.append(Patch(facecolor=GROWTHS[high], edgecolor=INK, lw=0.4, label=said))
    return keys


def describe(records: Sequence[Record]) -> Caption:
    """Of every method its share (or gain), cosine and growth."""
    boards, gaps = find_boards(records)
    panels, said = letters(boards), list[Statement]()
    for board in boards:
        quantity = "share of BP's gain" if board.shared else "gain over frozen, pp"
        for entry in board.entries:
            of = {"group": entry.name, "panel": panels[board.name]}
            said.append(Statement(quantity, value=board.stands(entry), form="+.2f" if board.shared else "+.1f", **of))
            said.append(Statement("deep cosine", value=entry.cos, form=".3f", **of))
            if np.isfinite(entry.growth):
                said.append(Statement("growth", value=entry.growth, form=".3g", **of))
        said.append(
            Statement("BP's gain over frozen BP, pp", "BP", board.bp_gain, panel=panels[board.name], form="+.1f")
        )
    settings = "; ".join(f"{panels[b.name]}{': ' * bool(panels[b.name])}{b.setting}" for b in boards)
    return Caption(TITLE, READING, settings, tuple(said), gaps)


def _short(value: float) -> str:
    """A share or a cosine without its leading zero."""
    return number(value, ".2f").replace("0.", ".", 1)
