"""A figure of trajectories: which nets, rules and quantities it draws; drawing and describing are the same for all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from creditscope.paper.figures import _style
from creditscope.paper.figures._trajectories import Quantity, Trajectories, Wanted, select_trajectories
from creditscope.paper.figures._trajectory_captions import footer
from creditscope.paper.figures._trajectory_page import compose_trajectories
from creditscope.paper.figures._trajectory_text import write_trajectories
from creditscope.record import Record


@dataclass(frozen=True)
class TrajectoryFigure:
    """A row of panels per net, a column per quantity; `gradient` is the one whose limits are told in text."""

    rows: tuple[Wanted, ...]
    rules: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    gradient: Quantity
    panel_height: float
    """Inches."""
    captions: Callable[[Trajectories], list[str]]
    """One per net."""

    def select(self, records: Sequence[Record]) -> Trajectories:
        """The plain runs that it draws."""
        return select_trajectories(records, rows=self.rows, rules=self.rules, quantities=self.quantities)

    def plot(self, records: Sequence[Record]) -> Figure:
        """Draw it; what is missing is a marked gap."""
        found = self.select(records)
        said, foot = self.captions(found), footer(found, self.quantities)
        with _style.styled():
            return compose_trajectories(
                found, self.quantities, captions=said, footer=foot, panel_height=self.panel_height
            )

    def describe(self, records: Sequence[Record]) -> str:
        """The ends, the epochs at which limits were crossed, and the sentences as text."""
        found = self.select(records)
        foot = footer(found, self.quantities)
        return write_trajectories(found, self.gradient, captions=self.captions(found), footer=foot)
