"""One finding over seeds: of an event by the share of seeds that have it, of a size by its mean logarithm.

One seed of twenty is named and does not decide; nor does the chance of an answer fall because there are more seeds.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from creditscope.auditing.findings import Finding, Outcome
from creditscope.auditing.moment import Moment
from creditscope.auditing.stats import share_bounds, t_bounds
from creditscope.auditing.thresholds import Thresholds
from creditscope.text import amount, first_few

NAMED = 4
"""Seeds that a message names."""


def pool_events(moments: Sequence[Moment], findings: Sequence[Finding], limits: Thresholds) -> Finding:
    """An issue if all seeds have it or the lower bound of its share is above `seed_share`; passed if none, or below.

    A seed that could not be judged leaves open what the others do not decide.
    """
    if len(findings) == 1:
        return findings[0]
    known = [f for f in findings if f.outcome != Outcome.SKIPPED]
    hit = [f for f in known if f.is_issue]
    if not known:
        return _most_common(findings)
    low, high = share_bounds(len(hit), len(known), confidence=limits.seed_confidence)
    chosen, named = _most_common([f for f in known if not f.is_issue] or known), ""
    if hit and (len(hit) == len(findings) or low > limits.seed_share):
        chosen = hit[0]
    elif len(known) < len(findings):
        chosen = _most_common([f for f in findings if f.outcome == Outcome.SKIPPED])
    elif hit and high >= limits.seed_share:
        chosen = replace(hit[0], outcome=Outcome.UNDECIDED)
    elif hit:
        named = f" (but {_seeds(moments, findings)}: {hit[0].message})"
    share = f"{len(hit)} of {len(findings)} seeds ({low:.0%} to {high:.0%} of any), e.g. "
    says = share if hit and not named else "" if _agree(findings) else "most seeds: "
    return _together(replace(chosen, message=f"{says}{chosen.message}{named}"), findings, hit)


def pool_sizes(
    moments: Sequence[Moment],
    findings: Sequence[Finding],
    limits: Thresholds,
    *,
    limit: float,
    what: str,
    tip: str = "",
) -> Finding:
    """By the geometric mean over seeds of what was found, against a limit that it should not exceed.

    `tip` is what to say where most seeds have one, if not what they say.
    """
    values = [f.value for f in findings if f.value is not None and f.value > 0]
    if len(findings) == 1 or len(values) < len(findings):
        return pool_events(moments, findings, limits)
    low, high = t_bounds([math.log(v) for v in values], confidence=limits.seed_confidence)
    low, high = math.exp(low), math.exp(min(high, 700))
    mean, hit = math.exp(sum(map(math.log, values)) / len(values)), [f for f in findings if f.is_issue]
    said = (
        f"{what} {amount(mean, 2)} over {len(values)} seeds ({amount(low, 2)} to {amount(high, 2)}, one-sided "
        f"{limits.seed_confidence:.0%}; limit {amount(limit)})"
    )
    if low > limit or len(hit) == len(findings):
        chosen = replace((hit or findings)[0], outcome=Outcome.ISSUE, message=said)
    elif high > limit:
        chosen = replace(findings[0], outcome=Outcome.UNDECIDED, message=f"{said}: more seeds needed")
    else:
        chosen = _most_common([f for f in findings if not f.is_issue] or findings)
        named = f", but {_seeds(moments, findings)}: {hit[0].message}" if hit else ""
        tip = f"; {tip or chosen.message}" if chosen.outcome == Outcome.TIP else ""
        calm = chosen.outcome if chosen.outcome == Outcome.TIP else Outcome.PASSED
        chosen = replace(chosen, outcome=calm, message=f"{said}{tip}{named}")
    return replace(_together(chosen, findings, hit), value=mean)


def _together(chosen: Finding, findings: Sequence[Finding], hit: Sequence[Finding]) -> Finding:
    values = [f.value for f in findings if f.value is not None]
    known = [f.published for f in findings if f.published is not None]
    return replace(
        chosen,
        value=sum(values) / len(values) if values else None,
        published=any(known) if known else None,
        seeds_hit=len(hit),
        seeds=len(findings),
    )


def _agree(findings: Sequence[Finding]) -> bool:
    return len({(f.outcome, f.message) for f in findings}) == 1


def _most_common(findings: Sequence[Finding]) -> Finding:
    """The first of the outcome that most have, with the message that most of those have."""
    outcome = Counter(f.outcome for f in findings).most_common(1)[0][0]
    said = Counter(f.message for f in findings if f.outcome == outcome).most_common(1)[0][0]
    return next(f for f in findings if f.outcome == outcome and f.message == said)


def _seeds(moments: Sequence[Moment], findings: Sequence[Finding]) -> str:
    """Those with an issue, by name."""
    hit = [m.spec.seed for m, f in zip(moments, findings, strict=True) if f.is_issue and m.spec is not None]
    return f"seed{'s' if len(hit) > 1 else ''} {first_few([str(seed) for seed in hit], NAMED)}"
