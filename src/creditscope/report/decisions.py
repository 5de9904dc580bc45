"""The decision table: what accuracy alone, each published diagnostic, each check and the whole protocol conclude."""

from collections.abc import Sequence

from creditscope.auditing.decision import PROTOCOL, Decision
from creditscope.report.model import DecisionTable, Mark
from creditscope.report.numbers import plain
from creditscope.report.symbols import OF_CONCLUSION


def decision_table(keys: Sequence[int], rows: Sequence[Sequence[Decision]]) -> DecisionTable:
    """Of the methods of one setting; `rows` holds each method's decisions over its seeds."""
    criteria = tuple((row.criterion, row.kind) for row in rows[0] if row.criterion != PROTOCOL)
    table = []
    for key, decisions in zip(keys, rows, strict=True):
        by_name = {row.criterion: row for row in decisions}
        table.append((key, decisions[0].method, tuple(_mark(by_name[name]) for name, _ in (*criteria, (PROTOCOL, "")))))
    return DecisionTable(criteria=criteria, rows=tuple(table))


def _mark(row: Decision) -> Mark:
    if row.conclusion == "no verdict":
        return Mark(symbol=plain(row.value, ".2f"), conclusion="no verdict", when="")
    epoch = _epoch(row)
    when = epoch if row.conclusion == "walks back" or not epoch else f"({epoch})"
    return Mark(symbol=OF_CONCLUSION[row.conclusion], conclusion=row.conclusion, when=when)


def _epoch(row: Decision) -> str:
    if row.first_epoch is None:
        return ""
    several = row.last_first_epoch not in (None, row.first_epoch)
    return f"{row.first_epoch}–{row.last_first_epoch}" if several else f"{row.first_epoch}"
