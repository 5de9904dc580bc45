"""Draw the page: one file with its style, its script and its data inside."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import creditscope
from creditscope.auditing.columns import ABOUT_MODULES, OF_WORD, mark
from creditscope.auditing.decisions import LEGEND
from creditscope.auditing.stats import NULL_SDS
from creditscope.auditing.thresholds import table
from creditscope.auditing.verdict import NETWORK_QUESTIONS, QUESTIONS
from creditscope.files import write_whole
from creditscope.plots._quantities import title
from creditscope.report import tables
from creditscope.report.build import Material, Report, build_report
from creditscope.report.colours import colour_rules
from creditscope.report.history import SYMBOLS
from creditscope.text import count, visible

_OPTIONAL = re.compile(r"</(?:td|th|tr|thead|tbody|li|dt|dd)>(?=\s*<)")
_QUOTES = re.compile(r'="([\w.#-]+)"(?=[ >])')
"""End tags and quotes that HTML does not need: by the thousand they are a tenth of the page."""
OPEN_SETTINGS = 3
"""Settings that are open at first; the others wait behind their names."""


def write_report(material: Material, path: Path, *, against: Material | None = None) -> int:
    """Write the page; gives its size in bytes."""
    text = render(build_report(material, against=against)).encode("utf-8", "backslashreplace")
    write_whole({path: text})
    return len(text)


def render(report: Report) -> str:
    """The whole page."""
    environment = make_environment()
    environment.globals |= {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": creditscope.__version__,
        "tables": tables,
        "meanings": tables.meanings(report.material.audit),
        "questions": QUESTIONS | NETWORK_QUESTIONS,
        "about_modules": ABOUT_MODULES,
        "of_word": OF_WORD,
        "mark": mark,
        "checks": tables.asked_checks(report.material.audit),
        "thresholds": table(report.material.limits),
        "decision_legend": LEGEND,
        "symbols": SYMBOLS,
        "count": count,
        "title": title,
        "open_settings": OPEN_SETTINGS,
        "null_sds": f"{NULL_SDS:.2f}",
        "style": read_source(environment, "style.css") + Markup(colour_rules()),
        "script": read_source(environment, "script.js"),
    }
    page = environment.get_template("page.html")
    return _squeeze(page.render(report=report, material=report.material, data=embed_json(report.data)))


def make_environment() -> Environment:
    """Templates whose text is escaped and made visible."""
    environment = Environment(
        loader=PackageLoader("creditscope.report"),
        autoescape=True,
        finalize=_finish,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ticks"] = code_ticks
    return environment


def read_source(environment: Environment, name: str) -> Markup:
    """A file beside the templates, as it is."""
    assert environment.loader
    return Markup(environment.loader.get_source(environment, name)[0])


def _finish(value: Any) -> Any:
    """What stands in the page: text is one line without what a reader would not see; what is escaped already stays."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def code_ticks(text: str) -> Markup:
    """Escaped, with words between backticks as code.

    >>> print(code_ticks("run `--tier full` <b>"))
    run <code>--tier full</code> &lt;b&gt;
    """
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _squeeze(page: str) -> str:
    """Leave out what HTML does not need, between style and data, where quotes and tags of the text are escaped."""
    head, body = page.split("</style>", 1)
    body, data = body.split('<script type="application/json"', 1)
    body = _QUOTES.sub(r"=\1", _OPTIONAL.sub("", body))
    return f'{head}</style>{body}<script type="application/json"{data}'


def embed_json(data: Any) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
