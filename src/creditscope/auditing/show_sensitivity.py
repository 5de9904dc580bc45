"""The ranges of the thresholds for people."""

from rich.console import Group

from creditscope.auditing.sensitivity import COUNTS, DECADES, Range, Sensitivity
from creditscope.auditing.tables import WIDE, make_console, note, plain_table, render_plain


def print_sensitivity(found: Sensitivity) -> None:
    """Print the table."""
    console = make_console()
    console.print(_draw(found, console.width))


def render_sensitivity(found: Sensitivity) -> str:
    """The table as plain text."""
    return render_plain(lambda width: _draw(found, width))


def _draw(found: Sensitivity, width: int) -> Group:
    table, wide = plain_table(), width >= WIDE
    for name in ("threshold", "check") if wide else ("threshold",):
        table.add_column(name, no_wrap=name == "threshold")
    for name in ("value", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("beyond it", overflow="fold")
    for one in found:
        bounds = (f"{one.value:g}", _bound(one.low), _bound(one.high))
        table.add_row(one.name, *([", ".join(one.checks)] if wide else []), *bounds, _beyond(one))
    caption = (
        "no method's verdict word changes while the threshold stays between the two, the others held; any: no change "
        f"found on that side, {DECADES} decades away or as far as the threshold may go (whole numbers: {COUNTS})"
    )
    return Group(table, note(caption))


def _bound(value: float | None) -> str:
    return "any" if value is None else f"{value:.4g}"


def _beyond(one: Range) -> str:
    sides = [f"below: {one.below}"] * bool(one.below) + [f"above: {one.above}"] * bool(one.above)
    return " · ".join(sides)
