"""Write what README.md and docs/ repeat from records, classes and docstrings; only the pictures of checks need torch.

Whole pages (api.md, commands.md, reproduction.md, the numbers beside the gallery's images), and parts of others that
stand between `<!-- made: NAME -->` and `<!-- end -->`, NAME being a function in `PARTS` and what it is asked for.

Example: python docs/make.py
"""

import json
import re
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

import make_api
import make_commands
import make_league

from creditscope.auditing import MethodAudit, audit
from creditscope.auditing.checks import all_checks
from creditscope.auditing.stats import Interval, t_interval, write_points
from creditscope.auditing.strip import write_strips
from creditscope.auditing.thresholds import Thresholds
from creditscope.auditing.thresholds import table as threshold_table
from creditscope.clinic.results import Result, from_json
from creditscope.clinic.results import tally as count_halves
from creditscope.errors import CreditscopeError
from creditscope.paper.commands.figure import drawable
from creditscope.paper.figures import describe_figure
from creditscope.paper.figures.graph_depth import name as method_name
from creditscope.paper.figures.graph_depth import pick_graphs
from creditscope.paper.published import numbers
from creditscope.paper.published.compare import compare_settings, tally
from creditscope.paper.published.numbers import AS_PUBLISHED, OURS, PUBLISHED, SAMPLE, SETTINGS
from creditscope.paper.published.page import render_page
from creditscope.paper.published.readings import RunFinder
from creditscope.paper.shipped import LISTED, write_list
from creditscope.paper.studies import collect, resolve_study, shipped_scale
from creditscope.paper.studies.graph_depth import METHODS
from creditscope.paper.studies.rescaling import DerivedRecord
from creditscope.record import Record, load_records
from creditscope.registry import FIGURES, STUDIES
from creditscope.text import DASH, number, span

ROOT = Path(__file__).parents[1]
RECORDS, LEAGUE = ROOT / "results" / "paper", ROOT / "results" / "league"
DOCS = ROOT / "docs"
PAGES = ("index", "overview", "published", "studies", "performance", "checks", "rules", "clusters", "clinic")
FILLED = (ROOT / "README.md", *(DOCS / f"{name}.md" for name in PAGES))
"""Pages with parts that are made; those of the checks, too."""
MAIN = "cifar10 · resmlp (depth 4, width 256) · 100 epochs"
"""ResMLP with a terminal LayerNorm."""
RULES = ("BP", "FA", "block FA", "DFA")
"""Those of the strips in README, and of the tables of the overview."""
QUANTITIES = (
    "accuracy, BP",
    "accuracy, block FA",
    "accuracy, DFA",
    "Γ, DFA",
    "accuracy, frozen blocks, stem by DFA",
    "accuracy, DFA without terminal norm",
    "deep cosine, DFA, λ = 1e-2",
    "accuracy, BP, λ = 1e-2",
    "accuracy, DFA, λ = 1e-2",
    "accuracy, L = 16, BP",
)
"""The main published numbers, the first entry of each name."""
JUDGED = ("use of depth, pp (n)", "trained depth")
CONDITION = re.compile(
    r"(?:cora|citeseer|pubmed) · gcn \(depth (4|6|8|10|16|20|32), width 64(?:, gain [\d.]+|, residual True)?\) · "
    r"100 epochs · optimiser adam · lr 0.01 · schedule constant · weight_decay (?:0.0005|0.0)"
)
"""Settings of graph_depth."""
POWERS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
MADE = re.compile(r"(<!-- made: (\w+)(?: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)
WIDTH = 120
STRIP = 90
"""Columns of README's strips, a line each."""


@dataclass
class Shipped:
    """What the tables are made of, each computed once."""

    records: Sequence[Record]
    methods: Sequence[MethodAudit]

    @cached_property
    def league(self) -> list[Record]:
        """Records of the league, which ship apart."""
        return load_records(LEAGUE)

    @cached_property
    def finder(self) -> RunFinder:
        """Of the runs that published numbers are compared with."""
        return RunFinder(self.records)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """As Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def strips(shipped: Shipped) -> str:
    """Four rules of the main setting, as everywhere."""
    found = {m.method: m for m in shipped.methods if m.setting == MAIN}
    return "\n".join(["```", *write_strips([found[rule] for rule in RULES], STRIP), "```"])


def main_rules(shipped: Shipped) -> str:
    """The audit of the main setting at full scale."""
    return _rules([m for m in shipped.methods if m.setting == MAIN])


def demo_rules(shipped: Shipped) -> str:
    """The audit that the demo prints."""
    return _rules(
        [m for m in audit(load_records(ROOT / "results" / "demo")).methods if m.setting.startswith("mnist1d")]
    )


def side_by_side(shipped: Shipped) -> str:
    """Rules under one recipe, best first."""
    methods = [m for m in audit(load_records(ROOT / "results" / "rules")).methods if m.accuracy]
    methods.sort(key=lambda m: -m.accuracy.mean if m.accuracy else 0.0)
    rows = [
        [
            m.method,
            _mean(m.accuracy),
            _mean(m.frozen_own),
            DASH if m.gain_share is None else f"{m.gain_share:.0%}".replace("%", " %"),
            " ".join("=" if i in m.exact_taps else DASH if c is None else share(c) for i, c in enumerate(m.cos)),
            number(m.growth or 0.0, ".1f"),
            _verdict(m),
        ]
        for m in methods
    ]
    columns = ["rule", "accuracy", "frozen, own stem", "Δ/Δ_BP", "cos at taps 0 to 4", "growth", "verdict"]
    return table(columns, rows)


def weight_transport(shipped: Shipped) -> str:
    """Published logs of learned feedback beside ours."""
    said = tomllib.loads((Path(numbers.__file__).parent / "weight_transport.toml").read_text(encoding="utf-8"))
    study = resolve_study("weight_transport", "paper")
    records = collect(study, RECORDS, records=shipped.records, train=False, problems=[])
    rows = []
    for (label, rule), own in groupby(records, key=lambda r: (_variant(r), r.facts.rule.name)):
        ended = [record.last for record in own]
        here = t_interval([s.accuracy for s in ended if s.accuracy is not None])
        angles = [a for s in ended if (a := s.taps.angle[0]) is not None]
        theirs = said[rule]
        angle = f"{theirs['angle']}°" if "angle" in theirs else DASH
        ours = f"{sum(angles) / len(angles):.1f}°"
        rows.append([label, f"{share(theirs['last'])}, {share(theirs['best'])}", _mean(here), angle, ours])
    return table(["rule", "published: last, best", "ours: last", "published: angle", "ours: angle"], rows)


def rule_costs(shipped: Shipped) -> str:
    """What a stacked step of every rule costs."""
    measured = json.loads((ROOT / "bench" / "results" / "h200_rules.json").read_text(encoding="utf-8"))
    columns = {"ms": ".2f", "of_bp": ".2f", "of_eager": ".4f"}
    rows = [
        [
            row["rule"].strip(),
            row["passes"].strip(),
            row["per_pass"].strip(),
            *(f"{row[c]['median']:{f}}" for c, f in columns.items()),
        ]
        for row in measured["rows"]
    ]
    return table(["rule", "passes", "each, in BP steps", "ms", "of BP", "of 20 single steps"], rows)


def plain_costs(shipped: Shipped) -> str:
    """What a step of every rule costs against the same rule by hand, on a CPU."""
    measured = json.loads((ROOT / "bench" / "results" / "cpu_rules.json").read_text(encoding="utf-8"))
    rules: dict[str, dict[int, dict]] = {}
    for row in measured["rows"]:
        rules.setdefault(row["rule"].strip(), {})[row["width"]] = row
    widths = sorted({row["width"] for row in measured["rows"]})
    rows = []
    for rule, found in rules.items():
        cells = []
        for width in widths:
            plain, ratio = found[width]["plain_ms"], found[width]["ratio"]
            cells += [f"{plain['median']:.1f}", f"{ratio['median']:.2f} ({ratio['q25']:.2f}–{ratio['q75']:.2f})"]
        rows.append([rule, *cells])
    columns = [title for width in widths for title in (f"d = {width}: by hand, ms", "ours over it")]
    return table(["rule", *columns], rows)


def _variant(record: Record) -> str:
    rule = record.facts.rule
    return f"{rule.label}, {rule.variant}" if rule.variant else rule.label


def _rules(methods: Iterable[MethodAudit]) -> str:
    by_name = {m.method: m for m in methods}
    rows = [
        [
            m.method,
            str(len(m.seeds)),
            *(_mean(interval) for interval in (m.accuracy, m.frozen_own, m.frozen_bp)),
            number(m.gamma or 0.0, "+.3f"),
            _verdict(m, "**"),
        ]
        for m in (by_name[rule] for rule in RULES)
    ]
    return table(["rule", "seeds", "accuracy", "frozen, own stem", "frozen, BP stem", "Γ", "verdict"], rows)


def settings(shipped: Shipped) -> str:
    """How many published numbers each setting gives."""
    found = tally([compare_settings(published, shipped.finder) for published in PUBLISHED])
    by_name = {one.setting.name: one for one in found.by_setting}
    rows = [[s.title, *_counts(by_name.get(s.name))] for s in SETTINGS]
    return table(["setting", f"inside, of {found.shared} that all have", "inside, of those it has"], rows)


def _counts(one) -> list[str]:
    return [str(one.joint), f"{one.inside} of {one.answered}"] if one else ["not run", DASH]


def published(shipped: Shipped) -> str:
    """The main published numbers under three settings."""
    shown = [s for s in SETTINGS if s.name in (OURS, SAMPLE, AS_PUBLISHED)]
    rows = []
    for name in QUANTITIES:
        row = compare_settings(next(p for p in PUBLISHED if p.quantity == name), shipped.finder)
        cells = []
        for setting in shown:
            one = row.under[setting.name]
            answer = {True: "yes", False: "no", None: DASH}[one.inside]
            cells.append(answer if one.inside is None else f"{answer}: {_plus_minus(one.mean, one.half)}")
        said = ", ".join(text.removeprefix("0") for text in row.published.said)
        place = "GCN on Cora: " if "L = " in name else ""
        rows.append([place + name, said, str(len(row.seeds)), *cells])
    return table(["quantity", "published", "n", *(s.title for s in shown)], rows)


def audit_main(shipped: Shipped) -> str:
    """All rules of the main setting."""
    sizes = ["Γ", "growth", "‖g_L‖"]
    columns = ["rule", "seeds", "accuracy", "frozen, own stem", *JUDGED, *sizes, "verdict"]
    rows = []
    for m in shipped.methods:
        if m.setting == MAIN:
            name, seeds, accuracy, gain, depth, verdict = _judged(m)
            found = [share(m.gamma or 0.0), _size(m.growth), _size(m.g_top)]
            rows.append([name, seeds, accuracy, _mean(m.frozen_own), gain, depth, *found, verdict])
    return table(columns, rows)


def audit_others(shipped: Shipped) -> str:
    """All rules of the other settings that are no graphs, under a line for each setting."""
    others = [m for m in shipped.methods if m.setting.startswith(("cifar10 ", "teacher ")) and m.setting != MAIN]
    rows = []
    for setting, methods in groupby(others, lambda m: m.setting):
        rows += [[f"**{setting}**", *[""] * 5], *map(_judged, methods)]
    return table(["rule, by setting", "seeds", "accuracy", *JUDGED, "verdict"], rows)


def words(shipped: Shipped) -> str:
    """How many methods have each verdict."""
    found = Counter(m.verdict.word for m in shipped.methods)
    total, places = len(shipped.methods), len({m.setting for m in shipped.methods})
    rows = [[word, str(count), f"{100 * count / total:.0f} %"] for word, count in found.most_common()]
    return table(["verdict", f"of {total} methods in {places} settings", "share"], rows)


def depth_used(shipped: Shipped) -> str:
    """CS004 in the conditions of graph_depth that have blocks, by depth."""
    outcomes = {"passed": "gain", "issue": "worse", "undecided": "undecided", "not applicable": "no question"}
    found: dict[tuple[bool, int], Counter[str]] = {}
    for m in shipped.methods:
        where = CONDITION.fullmatch(m.setting)
        outcome = next(f.outcome.value for f in m.findings if f.code == "CS004")
        if where and outcome in outcomes:
            found.setdefault((m.method != "BP", int(where[1])), Counter())[outcome] += 1
    rows = [
        ["rules" if rule else "BP", str(depth), *(str(counts[outcome]) for outcome in outcomes)]
        for (rule, depth), counts in sorted(found.items())
    ]
    return table(["trained by", "layers", *outcomes.values()], rows)


def graph_accuracies(shipped: Shipped) -> str:
    """Mean accuracy of every method by depth, a graph under the other."""
    study = resolve_study("graph_depth", "paper")
    graphs = pick_graphs(collect(study, RECORDS, records=shipped.records, train=False, problems=[]))
    rows = []
    for graph in graphs:
        rows.append([f"**{graph.name}**", *[""] * len(graph.depths)])
        for method in METHODS:
            cells = []
            for depth in graph.depths:
                mean, lost = graph.interval(depth, method), len(graph.cell(depth, method).diverged)
                cells.append((share(mean.mean) if mean else DASH) + (f" ({lost} div.)" if lost else ""))
            rows.append([method_name(method), *cells])
    return table(["method", *map(str, graphs[0].depths)], rows)


def took(shipped: Shipped) -> str:
    """What training at full scale took."""
    measured = json.loads((ROOT / "bench" / "results" / "h200_reproduce.json").read_text(encoding="utf-8"))
    rows = [[name, f"{s['runs']:,}", f"{s['worker_seconds']:,.0f}"] for name, s in measured["studies"].items()]
    return table(["study", "runs", "worker seconds"], rows)


def kills(shipped: Shipped) -> str:
    """What was killed under `here`, and what came of it."""
    measured = json.loads((ROOT / "bench" / "results" / "kills.json").read_text(encoding="utf-8"))
    names = ("target", "signal", "kills", "compared", "lost", "doubled", "differ", "left", "hung")
    heads = ["killed", "by", "kills", "records compared", *names[4:]]
    return table(heads, [[str(row[name]) for name in names] for row in measured["rows"]])


def trained_twice(shipped: Shipped) -> str:
    """How far accuracies moved when the same runs were trained again, by depth."""
    runs = json.loads((ROOT / "bench" / "results" / "h200_twice.json").read_text(encoding="utf-8"))["runs"]
    layers: dict[str, list[dict]] = {"up to 4": [], "6": [], "8 and more": []}
    for run in runs:
        layers["up to 4" if run["depth"] <= 4 else "6" if run["depth"] == 6 else "8 and more"].append(run)
    rows = []
    for depth, own in layers.items():
        both = [run for run in own if None not in run["accuracy"]]
        means: dict[tuple, list[list[float]]] = {}
        for run in both:
            key = tuple(run[name] for name in ("task", "rule", "depth", "residual", "epochs"))
            means.setdefault(key, []).append(run["accuracy"])
        moved = max(abs(run["accuracy"][1] - run["accuracy"][0]) for run in both)
        whole = [found for found in means.values() if len(found) == 5]
        mean = max((abs(sum(a - b for a, b in found) / 5) for found in whole), default=None)
        same = sum(run["same_record"] for run in own)
        rows.append([depth, str(len(own)), str(same), share(moved), DASH if mean is None else share(mean)])
    return table(["layers", "runs", "equal to six digits", "accuracy moved by", "mean of five seeds moved by"], rows)


def _examined() -> list[Result]:
    """What the clinic found when it was last run."""
    return from_json((ROOT / "results" / "clinic.json").read_text(encoding="utf-8"))


def clinic_counts(shipped: Shipped) -> str:
    """Faults named, modules named and false alarms, by half."""
    rows = []
    for one in count_halves(_examined()):
        named = f"{one.named} of {one.faults} ({100 * one.named / one.faults:.0f} %)"
        placed = f"{one.placed} of {one.placeable} ({100 * one.placed / one.placeable:.0f} %)"
        rows.append([one.half, named, placed, f"{one.alarms} of {one.healthy}"])
    return table(["half", "fault named first", "and the right module, where there is one", "false alarms"], rows)


def clinic_kinds(shipped: Shipped) -> str:
    """Every kind of fault, the code that names it, and in which architectures it was named."""
    kinds: dict[str, list[Result]] = {}
    for result in _examined():
        if not result.healthy:
            kinds.setdefault(result.kind, []).append(result)
    rows = []
    for kind, own in kinds.items():
        halves = [", ".join(_said(r) for r in own if r.half == half) or DASH for half in ("setting", "reporting")]
        rows.append([kind, " or ".join(own[0].expected), *halves])
    return table(["fault", "named by", "setting half", "reporting half"], rows)


def _said(result: Result) -> str:
    """An architecture, with what was said where it is not what was done."""
    if result.right:
        return result.architecture
    said = f"at `{result.where}`" if result.named and result.where else result.codes[0] if result.codes else result.word
    return f"**{result.architecture}** (said: {said})"


def clinic_healthy(shipped: Shipped) -> str:
    """Healthy nets, and the word for each at the start and when it is trained a little."""
    nets: dict[str, list[Result]] = {}
    for result in _examined():
        if result.healthy:
            nets.setdefault(result.architecture, []).append(result)
    rows = [[name, own[0].half, *(_word(r) for r in own)] for name, own in nets.items()]
    return table(["net", "half", "at the start", "trained a little"], rows)


def _word(result: Result) -> str:
    return result.word if result.right else f"**{result.word}** ({', '.join(result.codes)})"


def studies(shipped: Shipped) -> str:
    """What each study asks, as its file says, and how many runs it has at either scale."""
    rows = []
    for name in STUDIES.names():
        asks = (sys.modules[STUDIES.get(name).__module__].__doc__ or "").partition("\n")[0].rstrip(".")
        counts = []
        for scale in ("demo", "paper"):
            try:
                counts.append(f"{len(resolve_study(name, scale).runs):,}")
            except CreditscopeError:
                counts.append(DASH)
        rows.append([f"`{name}`", asks, *counts])
    rows.append(["all, each run once", "", "", f"{len(shipped.records):,}"])
    return table(["study", "asks", "runs, `demo`", "runs, `paper`"], rows)


def checks(shipped: Shipped) -> str:
    """Every check with its title and when it is an issue."""
    limits = asdict(Thresholds())
    rows = [[f"[{c.code}](checks/{c.code}.md)", c.title, c.when.format(**limits)] for c in all_checks()]
    return table(["code", "title", "issue when"], rows)


def thresholds(shipped: Shipped, code: str) -> str:
    """Those that a check goes by."""
    rows = [
        [f"`{row['name']}`", f"{row['value']:g}", row["meaning"], row["published"] or DASH]
        for row in threshold_table()
        if code in row["checks"]
    ]
    return table(["name", "value", "meaning", "published"], rows)


def picture(shipped: Shipped, code: str) -> str:
    """What `make_checks.py` draws of a check."""
    title = next(c.title for c in all_checks() if c.code == code)
    said = f"{code}, {title}: left a case in which it fires, right one in which it does not"
    return f"![{said}](../images/checks/{code}.svg)"


def remedy(shipped: Shipped, code: str) -> str:
    """What a check says that there is to do."""
    return textwrap.fill(next(c.remedy for c in all_checks() if c.code == code), WIDTH, break_on_hyphens=False)


def _judged(m: MethodAudit) -> list[str]:
    gain, depth = m.gain, m.trained_depth
    used = f"{write_points(gain)} ({gain.n})" if gain else DASH
    trained = span(depth.low, depth.high, " to ") if depth else DASH
    return [m.method, str(len(m.seeds)), _mean(m.accuracy), used, trained, _verdict(m)]


def _verdict(m: MethodAudit, mark: str = "") -> str:
    codes = ", ".join(m.verdict.codes)
    return f"{mark}{m.verdict.word}{mark}" + (f" ({codes})" if codes else "")


def _mean(found: Interval | None) -> str:
    return _plus_minus(found.mean, None if found.high is None else found.high - found.mean) if found else DASH


def _plus_minus(mean: float | None, half: float | None) -> str:
    if mean is None:
        return DASH
    return share(mean) + ("" if half is None else f" ± {share(half)}")


def share(value: float) -> str:
    """A number from 0 to 1 without its leading zero."""
    return number(value, ".3f").lstrip("0")


def _size(value: float | None) -> str:
    """Three digits where they are few enough to read, else two and a power of ten."""
    if value is None:
        return DASH
    if 0.1 <= value < 1000:
        return f"{value:.3g}".removeprefix("0")
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}·10{str(int(power)).translate(POWERS)}"


PARTS: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        strips,
        main_rules,
        demo_rules,
        side_by_side,
        weight_transport,
        rule_costs,
        plain_costs,
        settings,
        published,
        audit_main,
        audit_others,
        words,
        depth_used,
        graph_accuracies,
        took,
        kills,
        trained_twice,
        clinic_counts,
        clinic_kinds,
        clinic_healthy,
        studies,
        checks,
        thresholds,
        picture,
        remedy,
    )
}


def fill(text: str, shipped: Shipped) -> str:
    """A page with every part made anew."""
    return MADE.sub(lambda m: f"{m[1]}{PARTS[m[2]](shipped, *filter(None, [m[3]]))}\n{m[4]}", text)


def make_pages(shipped: Shipped) -> Iterator[tuple[Path, str]]:
    """Every page that is made or has parts that are, as it should be."""
    for page in (*FILLED, *sorted((DOCS / "checks").glob("*.md"))):
        yield page, fill(page.read_text(encoding="utf-8"), shipped)
    derived = []
    for name in drawable():
        scale = shipped_scale(name)
        records = shipped.league if scale == LEAGUE.name else shipped.records
        own = collect(resolve_study(name, scale), RECORDS, records=records, train=False, problems=[])
        derived += [record for record in own if isinstance(record, DerivedRecord)]
        caption = describe_figure(FIGURES.get(name), own)
        if caption:
            yield DOCS / "images" / f"{name}.md", f"# {name}\n\n{caption.markdown(name)}"
    yield DOCS / "reproduction.md", render_page(shipped.records, derived)[0]
    yield DOCS / "api.md", make_api.make_page()
    yield DOCS / "commands.md", make_commands.make_page()
    yield DOCS / "league.md", make_league.make_page()
    yield LISTED, write_list(ROOT / "results")


if __name__ == "__main__":
    from make_checks import write_pictures  # trains nets of the clinic

    records = load_records(RECORDS)
    write_pictures([check.code for check in all_checks()], records)
    for path, text in make_pages(Shipped(records, audit(records).methods)):
        path.write_text(text, encoding="utf-8")
