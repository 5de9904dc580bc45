"""A row of the decision table, and the table: what a way of judging concludes, and when it first fired."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from creditscope.text import span

Conclusion = Literal["accepts", "walks back", "open", "not applicable", "no verdict", "muted"]
Kind = Literal["usual", "published", "check", "protocol"]
PROTOCOL = "whole protocol"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What one criterion concludes of one method, for one seed or over all of them."""

    setting: str
    method: str
    seed: int | None = None
    """None: the method over its seeds."""
    criterion: str
    kind: Kind
    conclusion: Conclusion
    said: str
    value: float | None = None
    first_epoch: int | None = None
    """The first epoch of training at which it walked back, whatever it concludes at the end."""
    last_first_epoch: int | None = None
    """Over seeds: the latest of these."""
    seeds_hit: int = 0
    seeds: int = 1

    @property
    def fired(self) -> str:
        """When it first walked back, earliest to latest seed; empty if it never did; in brackets if not at the end."""
        if self.first_epoch is None:
            return ""
        when = span(self.first_epoch, self.last_first_epoch)
        return when if self.conclusion == "walks back" else f"({when})"


@dataclass(frozen=True)
class Decisions:
    """The rows of the table, and what a comparison of the methods adds."""

    rows: tuple[Decision, ...]
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        from creditscope.auditing.show_decisions import render_decisions

        return render_decisions(self)

    def show(self) -> None:
        """Print the table to the terminal."""
        from creditscope.auditing.show_decisions import print_decisions

        print_decisions(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Plain data, one row each."""
        return [asdict(row) for row in self.rows]

    def frame(self):
        """A pandas table, one row per method, seed and criterion."""
        import pandas as pd

        return pd.DataFrame(self.to_dicts())


def with_epochs(over_seeds: Decision, seeds: Sequence[Decision]) -> Decision:
    """The row over seeds with the span of first epochs and the number of seeds that walk back."""
    epochs = [row.first_epoch for row in seeds if row.first_epoch is not None]
    return replace(
        over_seeds,
        first_epoch=min(epochs, default=None),
        last_first_epoch=max(epochs, default=None),
        seeds_hit=sum(row.conclusion == "walks back" for row in seeds),
        seeds=len(seeds),
    )
