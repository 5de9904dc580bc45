"""What a figure states, as data, and its one writer each for text, Markdown, TeX and tables."""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from creditscope.auditing.stats import OVER_SEEDS, Interval, geometric_interval, t_interval
from creditscope.files import write_whole
from creditscope.text import DASH, markdown, number, visible

SIGNS = {"±": r"\pm", "×": r"\times", "÷": r"\div", "−": "-", "·": r"\cdot ", "‖": r"\|", "√": r"\surd ", "→": r"\to "}
SIGNS |= {"Γ": r"\Gamma", "Δ": r"\Delta", "λ": r"\lambda", "ρ": r"\rho", "δ": r"\delta", "α": r"\alpha"}
SIGNS |= {"∂": r"\partial ", "≥": r"\geq", "≤": r"\leq", "Â": r"\hat{A}", "ᵀ": r"^\top", "ₗ": "_l", "₋": "_{-}"}
SIGNS |= {sign: f"_{digit}" for digit, sign in enumerate("₀₁₂₃₄₅₆₇₈₉")}
SIGNS |= {sign: f"^{digit}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")} | {"⁻": "^-"}
"""What TeX writes in its mathematics."""
TEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        **{sign: f"${formula}$" for sign, formula in SIGNS.items()},
        "–": "--",
        "…": r"\ldots{}",
        "\u00a0": "~",
    }
)
NIL = 1e-9
"""A spread below this share of the mean is what rounding leaves of equal values."""
FEW = 16
"""Statements that a caption in TeX holds, at most."""
OF_ONE = re.compile(r"(?:^|(?<=\. ))(?=(?:Above|[A-J]): )")
"""Where the reading of a panel begins; it goes on to the next, and what is true of all comes before the first."""


@dataclass(frozen=True)
class Statement:
    """One number that a figure shows: of which group, with its interval over seeds, and what it means.

    >>> from creditscope import plots
    >>> plots.Statement.over("accuracy", "DFA", [0.33, 0.35], verdict="above chance").text
    '0.34 ± 0.127'
    """

    quantity: str
    group: str
    value: Interval | float | str | None
    """A word where there is no number, such as "diverged"."""
    verdict: str = ""
    """The word that a check or the figure's own rule gives: "below", "learns", "CS005"."""
    panel: str = ""
    form: str = ".3g"

    @classmethod
    def over(
        cls, quantity: str, group: str, values: Iterable[float], *, log: bool = False, **others: str
    ) -> "Statement":
        """The mean and its 95 % t interval over seeds, of the values there are; `log`: of logarithms."""
        known = [float(value) for value in values if np.isfinite(value) and (value > 0 or not log)]
        found = (geometric_interval(known) if log else t_interval(known)) if known else None
        return cls(quantity, group, found, **others)

    @property
    def text(self) -> str:
        """The number and how far its interval reaches."""
        found = self.value
        if isinstance(found, Interval):
            if found.low is not None and found.high is not None and found.high - found.low < NIL * abs(found.mean):
                return f"{number(found.mean, self.form)} ± 0"
            return found.text(self.form).removesuffix(f" (n = {found.n})")
        return DASH if found is None else found if isinstance(found, str) else number(found, self.form)

    @property
    def n(self) -> str:
        """How many seeds, where it is an interval."""
        if not isinstance(self.value, Interval):
            return ""
        return str(self.value.n) + ("" if self.value.over == OVER_SEEDS else f" (over {self.value.over})")


@dataclass(frozen=True)
class Caption:
    """What stands beside a figure: what it shows and how to read it, by a person; the rest is computed.

    >>> from creditscope import plots
    >>> said = (plots.Statement.over("accuracy", "BP", [0.7, 0.72]), plots.Statement("accuracy", "DFA", "diverged"))
    >>> plots.Caption("Two rules.", "Dots are seeds.", statements=said).rows()[1:]
    [['accuracy', 'BP', '0.71 ± 0.127', '2'], ['accuracy', 'DFA', 'diverged', '']]
    """

    title: str
    reading: str
    """What the marks are."""
    setting: str = ""
    statements: tuple[Statement, ...] = ()
    gaps: tuple[str, ...] = ()
    """What is missing."""

    def of_panels(self, letters: Collection[str]) -> "Caption":
        """What is left of it where only these panels are drawn.

        >>> from creditscope import plots
        >>> plots.Caption("Two rules.", "Dots are seeds. A: of BP. As measured. B: of DFA.").of_panels("A").reading
        'Dots are seeds. A: of BP. As measured.'
        """
        parts = OF_ONE.split(self.reading)
        kept = [part for part in parts if not OF_ONE.match(part) or part.partition(":")[0] in letters]
        said = [s for s in self.statements if len(s.panel) != 1 or s.panel in letters]
        return replace(self, reading="".join(kept).strip(), statements=tuple(said))

    def sentences(self) -> list[str]:
        """One for each quantity of a panel: its groups with their numbers."""
        found: dict[tuple[str, str], list[str]] = {}
        for one in self.statements:
            extra = ", ".join(filter(None, [one.n and f"n = {one.n}", one.verdict]))
            said = f"{one.group} {one.text}{f' ({extra})' if extra else ''}"
            found.setdefault((one.panel, one.quantity), []).append(said)
        return [
            f"{f'{panel}, ' if panel else ''}{name}: {'; '.join(groups)}." for (panel, name), groups in found.items()
        ]

    def rows(self) -> list[list[str]]:
        """The statements as a table, its heading first; columns that say nothing are left out."""
        heading = ["panel", "quantity", "group", "value ± 95 %", "n", "says"]
        cells = [[s.panel, s.quantity, s.group, s.text, s.n, s.verdict] for s in self.statements]
        kept = [i for i in range(len(heading)) if any(row[i] for row in cells)]
        return [[row[i] for i in kept] for row in [heading, *cells]]

    def notes(self) -> list[str]:
        """Of what runs it is, and what is missing of them."""
        missing = [f"Missing: {'; '.join(self.gaps)}."] if self.gaps else []
        return [f"{self.setting}."] * bool(self.setting) + missing

    def text(self) -> str:
        """Plain lines, for a terminal."""
        return "\n".join(map(visible, [self.title, *self.notes(), *self.sentences()]))

    def markdown(self, name: str, kind: str = "png") -> str:
        """The picture, the words and the table."""
        heading, *rows = self.rows()
        table = [heading, ["---"] * len(heading), *rows] if rows else []
        lines = ["| " + " | ".join(markdown(cell).replace("|", "\\|") for cell in row) + " |" for row in table]
        title = markdown(self.title)
        words = " ".join([f"**{title}**", *map(markdown, [self.reading, *self.notes()])])
        return "\n".join([f"![{title}]({quote(name)}.{kind})", "", words, "", *lines, ""])

    def tex(self, name: str, kind: str = "pdf") -> str:
        """A float with the picture, as wide as it was drawn, and the caption.

        Of many statements each is a comment below, to choose from.
        """
        few = len(self.statements) <= FEW
        words = " ".join([self.reading, *self.notes(), *(self.sentences() if few else [])])
        lines = [
            r"\begin{figure}",
            r"  \centering",
            rf"  \includegraphics{{{name}.{kind}}}",
            rf"  \caption{{\textbf{{{_tex(self.title)}}} {_tex(words)}}}",
            rf"  \label{{fig:{name}}}",
            r"\end{figure}",
            *([] if few else [f"% {_tex(sentence)}" for sentence in self.sentences()]),
        ]
        return "\n".join([*lines, ""])

    def save(self, folder: Path, name: str) -> list[Path]:
        """Write NAME.md and NAME.tex."""
        return write_whole({folder / f"{name}.md": self.markdown(name), folder / f"{name}.tex": self.tex(name)})


def _tex(text: str) -> str:
    """One line that TeX prints as it is."""
    return visible(text).translate(TEX)
