"""Part of an audit: the settings that a reader asks for, as in the report's filter."""

from dataclasses import replace

from creditscope.auditing.audit import Audit
from creditscope.auditing.ranking import rank_notes
from creditscope.errors import CreditscopeError


def keep_settings(audit: Audit, text: str) -> Audit:
    """The settings in whose title, methods or verdicts every comma-separated part of `text` occurs, in any case."""
    words = [part.strip().lower() for part in text.split(",") if part.strip()]
    texts: dict[str, str] = {}
    for m in audit.methods:
        texts[m.setting] = f"{texts.get(m.setting, m.setting)} {m.method} {m.verdict}".lower()
    kept = {setting for setting, said in texts.items() if all(word in said for word in words)}
    if not kept:
        some = next(iter(texts))
        raise CreditscopeError(
            f"Expected words of a setting, a method or a verdict, but none of {len(texts)} settings has all of "
            f"{text!r}. Choose among words such as {some}."
        )
    places = [i for i, m in enumerate(audit.methods) if m.setting in kept]
    groups = tuple(audit.groups[i] for i in places)
    methods = tuple(audit.methods[i] for i in places)
    return replace(audit, methods=methods, groups=groups, notes=tuple(rank_notes(groups)))
