"""The decision table: what accuracy alone, each published diagnostic, each check and the whole protocol conclude."""

from collections.abc import Sequence

from creditscope.auditing.decision import PROTOCOL, Decision
from creditscope.auditing.symbols import OF_CONCLUSION
from creditscope.report.model import DecisionTable, Mark
from creditscope.text import number


def decision_table(rows: Sequence[Sequence[Decision]]) -> DecisionTable:
    """Of the methods of one setting; `rows` holds each method's decisions over its seeds."""
    criteria = tuple(row.criterion for row in rows[0] if row.criterion != PROTOCOL)
    table = []
    for decisions in rows:
        by_name = {row.criterion: row for row in decisions}
        table.append((decisions[0].method, tuple(_mark(by_name[name]) for name in (PROTOCOL, *criteria))))
    return DecisionTable(criteria=criteria, rows=tuple(table))


def _mark(row: Decision) -> Mark:
    if row.conclusion == "no verdict":
        return Mark(symbol=number(row.value, ".2f"), conclusion="no verdict", when="")
    return Mark(symbol=OF_CONCLUSION[row.conclusion], conclusion=row.conclusion, when=row.fired)
