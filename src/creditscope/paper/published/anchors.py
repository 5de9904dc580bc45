"""Published numbers of other rules and nets beside the league's: inside the prediction interval at equal n, or not."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from creditscope.paper.predictions.outcomes import Held
from creditscope.paper.published.compare import Comparison, compare
from creditscope.paper.published.numbers import Published, check_keys, choose, naming
from creditscope.paper.published.readings import READERS, Reader, Values, read_runs

FILE = Path(__file__).with_name("anchors.toml")
NEEDED, KNOWN = ("id", "source", "quantity", "said", "block", "rows", "read"), ("sd", "n", "scale", "apart")


@dataclass(frozen=True)
class Anchor:
    """A published number, or a claim that one row is better than others, and where ours is read."""

    published: Published
    block: str
    rows: tuple[str, ...]
    reader: Reader


def read_anchors() -> list[Anchor]:
    """In the order of the file."""
    return [make_anchor(entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["anchor"]]


def make_anchor(entry: Mapping[str, Any]) -> Anchor:
    """Of more than one row it is a claim."""
    with naming(f"Anchor {entry.get('id')!r}"):
        check_keys(entry, NEEDED, KNOWN)
        published = Published(
            id=entry["id"],
            part=entry["source"],
            quantity=entry["quantity"],
            said=(entry["said"],),
            sd=entry.get("sd", ""),
            n=entry.get("n"),
            kind="claim" if len(entry["rows"]) > 1 else "value",
            scale=entry.get("scale", "linear"),
            accuracy=entry["read"] == "accuracy",
            readings={},
            apart=entry.get("apart", ""),
        )
        return Anchor(published, entry["block"], tuple(entry["rows"]), choose("reader", entry["read"], READERS)())


def hold_anchor(held: Held, anchor: Anchor) -> Comparison | None:
    """Beside ours; None where not all its runs are on record."""
    found: list[Values] = []
    for row in anchor.rows:
        standing = held.whole(anchor.block, row, "accuracy")
        if standing is None:
            return None
        found.append(read_runs(standing.method.runs, anchor.reader))
    own, *others = found
    if not others:
        return compare(anchor.published, own)
    better = {seed: float(all(value > other.by_seed[seed] for other in others)) for seed, value in own.by_seed.items()}
    return compare(anchor.published, Values(better))
