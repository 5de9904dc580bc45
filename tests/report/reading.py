"""Read a report back as a browser would: its elements, its text, and what its rows open."""

import base64
import gzip
import json
from html.parser import HTMLParser
from typing import Any

from builders import make_facts, make_record, make_snapshot

from creditscope.auditing import Thresholds
from creditscope.report import build_report, judge_records, render


def report_of(records, *, against=None, limits=None):
    """The report of records in memory, against others if they are given."""
    limits = limits or Thresholds()
    before = None if against is None else judge_records(list(against), "before", limits, [])
    return build_report(judge_records(list(records), "here", limits, []), against=before)


def text_of(records, **options) -> str:
    return render(report_of(records, **options))


def page_of(records, **options) -> "Page":
    return Page(text_of(records, **options))


def over_epochs(epochs, *, rule: str = "dfa", seeds=(1, 2), **taps):
    """Records with a snapshot at each of the epochs; `taps` are functions from an epoch to the values of a field."""
    facts = make_facts(rule=rule)
    snapshots = [make_snapshot(facts, epoch=e, taps={n: values(e) for n, values in taps.items()}) for e in epochs]
    return [make_record(rule=rule, seed=s, epochs=max(*epochs, 1), snapshots=snapshots) for s in seeds]


class Page(HTMLParser):
    """Every start tag with its attributes, the visible text, and what stands in each script element."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self._inside = tag if tag in ("script", "style") else self._inside
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str):
        self._inside = "" if tag == self._inside else self._inside

    def handle_data(self, data: str):
        if self._inside == "script":
            self.scripts[-1] += data
        elif not self._inside:
            self.text += data

    def all(self, tag: str = "", **attributes: str) -> list[dict[str, str]]:
        """Attributes of the elements that have these; an underscore in a name is a hyphen, "*" any value."""
        asked = {name.replace("_", "-"): value for name, value in attributes.items()}
        return [
            found
            for name, found in self.elements
            if tag in ("", name) and all(n in found and value in ("*", found[n]) for n, value in asked.items())
        ]

    @property
    def chunks(self) -> list[dict[str, Any]]:
        """What lies packed in the page."""
        return [json.loads(gzip.decompress(base64.b64decode(text))) for text in self.scripts[1:-1]]

    @property
    def methods(self) -> dict[str, dict[str, Any]]:
        """By the names of their rows, in the order of the page: name, setting, html, values."""
        return {name: method for chunk in self.chunks for name, method in chunk["methods"].items()}

    @property
    def values(self) -> list[dict[str, Any]]:
        """What is told beside the cells of the heatmaps, method by method."""
        return [method["values"] for method in self.methods.values()]

    @property
    def behind(self) -> "Page":
        """What all rows open."""
        drawn = [setting["charts"] for chunk in self.chunks for setting in chunk["settings"]]
        return Page("".join([*(method["html"] for method in self.methods.values()), *drawn]))

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        """Method and word of every row of the table."""
        return [(row["data-method"], row["data-verdict"]) for row in self.all("tr", data_verdict="*")]


def cell(values: Any, column: int, place: int) -> Any:
    """A number of the embedded data: a list per epoch, or one number for all of it."""
    found = values[column]
    return found[place] if isinstance(found, list) else found
