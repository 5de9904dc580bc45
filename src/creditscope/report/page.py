"""Draw the page: one file with its style, its script and its data inside."""

import json
import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from creditscope.auditing.show import LEGEND
from creditscope.auditing.stats import NULL_SDS
from creditscope.auditing.verdict import MEANINGS
from creditscope.plots._quantities import title
from creditscope.report import checks, overview
from creditscope.report.build import Report
from creditscope.report.colours import colour_rules
from creditscope.report.history import SYMBOLS
from creditscope.report.provenance import METHOD_HEAD, ORIGIN

_OPTIONAL = re.compile(r"</(?:td|th|tr|thead|tbody|li|dt|dd)>(?=\s*<)")
_QUOTES = re.compile(r'="([\w.#-]+)"(?=[ >])')
"""End tags and quotes that HTML does not need: by the thousand they are a tenth of the page."""
OPEN_SETTINGS = 3
"""Settings that are open at first; the others wait behind their names."""


def render(report: Report) -> str:
    """The whole page."""
    environment = Environment(
        loader=PackageLoader("creditscope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ticks"] = code_ticks
    page = environment.get_template("page.html").render(
        report=report,
        meanings=MEANINGS,
        verdict_columns=overview.COLUMNS,
        check_columns=checks.COLUMNS,
        decision_legend=LEGEND,
        origin_head=ORIGIN,
        method_head=METHOD_HEAD,
        symbols=SYMBOLS,
        title=title,
        open_settings=OPEN_SETTINGS,
        null_sds=f"{NULL_SDS:.2f}",
        style=Markup(_text(environment, "style.css") + colour_rules()),
        script=Markup(_text(environment, "script.js")),
        data=embed_json(report.data),
    )
    return _squeeze(page)


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


def _text(environment: Environment, name: str) -> str:
    """A file of the templates as it is."""
    assert environment.loader is not None
    return environment.loader.get_source(environment, name)[0]


def embed_json(data: Any) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)
