"""Draw the page: one file with its style, its script and, packed, what its rows open."""

import base64
import gzip
import json
import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import creditscope
from creditscope.auditing.columns import ABOUT_MODULES, OF_OUTCOME, OF_WORD, mark
from creditscope.auditing.decisions import LEGEND
from creditscope.auditing.stats import NULL_SDS
from creditscope.auditing.strip import OF_LINE
from creditscope.auditing.thresholds import table
from creditscope.auditing.verdict import NETWORK_QUESTIONS, QUESTIONS
from creditscope.files import write_whole
from creditscope.plots._quantities import is_size, title
from creditscope.report import tables
from creditscope.report.build import Material, Report, SettingPart, build_report
from creditscope.report.colours import colour_rules
from creditscope.report.history import SYMBOLS
from creditscope.report.rows import list_next, name_questions
from creditscope.text import count, visible

_OPTIONAL = re.compile(r"</(?:td|th|tr|thead|tbody|li|dt|dd)>(?=\s*<)")
_QUOTES = re.compile(r'="([\w.#-]+)"(?=[ >])')
"""End tags and quotes that HTML does not need: by the thousand they are a tenth of the page."""
_BREAKABLE = re.compile(r"(?<!\S)(?=\S*[-/])\S{1,30}(?!\S)")
"""Words that browsers break in two, of a length that a phone has room for."""
CHUNK = 400_000
"""Letters of methods that are packed together: more are packed smaller, and unpacked slower."""
SCRIPTS = ("page.js", "methods.js", "values.js")


def write_report(material: Material, path: Path, *, against: Material | None = None) -> int:
    """Write the page; gives its size in bytes."""
    text = render(build_report(material, against=against)).encode("utf-8", "backslashreplace")
    write_whole({path: text})
    return len(text)


def render(report: Report) -> str:
    """The whole page."""
    environment = make_environment()
    audit, limits = report.material.audit, report.material.limits
    environment.globals |= {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": creditscope.__version__,
        "tables": tables,
        "words": tables.count_words(audit.methods) if audit else {},
        "meanings": tables.meanings(audit),
        "questions": QUESTIONS | NETWORK_QUESTIONS,
        "of_line": OF_LINE,
        "about_modules": ABOUT_MODULES,
        "of_word": OF_WORD,
        "of_outcome": OF_OUTCOME,
        "mark": mark,
        "checks": tables.asked_checks(audit),
        "thresholds": table(limits),
        "decision_legend": LEGEND,
        "symbols": SYMBOLS,
        "count": count,
        "title": title,
        "audit_command": shlex.join(("creditscope", "audit", report.material.folder)),
        "report_command": shlex.join(("creditscope", "report", report.material.folder)),
        "null_sds": f"{NULL_SDS:.2f}",
        "style": read_source(environment, "style.css") + Markup(colour_rules()),
        "script": Markup("\n").join(read_source(environment, name) for name in SCRIPTS),
    }
    packed = [pack(chunk) for chunk in _chunks(environment, report)]
    places = {name: place for place, (names, _) in enumerate(packed) for name in names}
    page = environment.get_template("page.html").render(
        report=report,
        material=report.material,
        rows=report.rows,
        asked_of_rows=name_questions(report.rows),
        needs=list_next(report.rows),
        places=places,
        chunks=[text for _, text in packed],
        facts=embed_json(
            {
                "quantities": {q: {"symbol": s, "size": is_size(q)} for q, s in SYMBOLS.items()},
                "audit": environment.globals["audit_command"],
            }
        ),
    )
    return _squeeze(page)


def _chunks(environment: Environment, report: Report) -> Iterator[dict[str, Any]]:
    """Whole settings, about so many letters together."""
    chunk: dict[str, Any] = {"settings": [], "methods": {}}
    letters = 0
    for part in report.settings:
        own = _open_methods(environment, part, len(chunk["settings"]))
        chunk["settings"].append(own.pop("setting"))
        chunk["methods"] |= own["methods"]
        letters += sum(len(method["html"]) for method in own["methods"].values())
        if letters > CHUNK:
            yield chunk
            chunk, letters = {"settings": [], "methods": {}}, 0
    if chunk["methods"]:
        yield chunk


def _open_methods(environment: Environment, setting: SettingPart, place: int) -> dict[str, Any]:
    """What the rows of a setting open: what is the same for all of them once."""
    template = environment.get_template("method.html")
    methods = {
        part.row.id: {
            "name": visible(part.found.method),
            "setting": place,
            "html": _squeeze_body(template.render(setting=setting, part=part)),
            "values": part.history.to_dict(),
        }
        for part in setting.methods
    }
    charts = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{drawing}</figure>" for name, drawing in setting.charts
    )
    return {"setting": {"axis": setting.axis, "charts": charts}, "methods": methods}


def pack(chunk: dict[str, Any]) -> tuple[list[str], str]:
    """The names of its methods, and the chunk as letters that stand for gzipped JSON."""
    text = json.dumps(chunk, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = gzip.compress(text.encode("utf-8", "backslashreplace"), compresslevel=9, mtime=0)
    return list(chunk["methods"]), base64.b64encode(packed).decode("ascii")


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
    environment.filters |= {"ticks": code_ticks, "command": whole_words}
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
    run <code><span>--tier</span> full</code> &lt;b&gt;
    """
    return Markup(re.sub(r"`([^`]+)`", lambda found: f"<code>{_hold(found[1])}</code>", str(escape(text))))


def whole_words(text: str) -> Markup:
    """A command, escaped; its lines break at spaces, not at the hyphens of an option.

    >>> print(whole_words("audit out/records -v 'a < b'"))
    audit <span>out/records</span> <span>-v</span> &#39;a &lt; b&#39;
    """
    return Markup(_hold(str(escape(visible(text)))))


def _hold(escaped: str) -> str:
    return _BREAKABLE.sub(r"<span>\g<0></span>", escaped)


def _squeeze(page: str) -> str:
    """Leave out what HTML does not need, between style and data."""
    head, body = page.split("</style>", 1)
    body, data = body.split('<script type="application/json"', 1)
    return f'{head}</style>{_squeeze_body(body)}<script type="application/json"{data}'


def _squeeze_body(body: str) -> str:
    """Quotes and end tags; those of the text are escaped."""
    return _QUOTES.sub(r"=\1", _OPTIONAL.sub("", body))


def embed_json(data: Any) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
