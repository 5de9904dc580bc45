"""The decision table: what accuracy alone, each published diagnostic, each check and the whole protocol conclude."""

from collections.abc import Sequence

from creditscope.auditing.columns import mark
from creditscope.auditing.decisions import PROTOCOL, Decision
from creditscope.report.model import DecisionTable, Mark


def decision_table(rows: Sequence[Sequence[Decision]]) -> DecisionTable:
    """Of the methods of one setting; `rows` holds each method's decisions over its seeds."""
    criteria = tuple(row.criterion for row in rows[0] if row.criterion != PROTOCOL)
    table = []
    for decisions in rows:
        by_name = {row.criterion: row for row in decisions}
        table.append((decisions[0].method, tuple(_mark(by_name[name]) for name in (PROTOCOL, *criteria))))
    return DecisionTable(criteria=criteria, rows=tuple(table))


def _mark(row: Decision) -> Mark:
    return Mark(symbol=mark(row), conclusion=row.conclusion, when=row.fired)
