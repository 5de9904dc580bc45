"""The standard pair looks fine, the layers do not: accuracy and Γ beside cosine and gradient size per layer.

Figure F1. Every number, also those in the captions, comes from the last snapshots of the records; one
setting and one set of seeds serve all panels.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from creditscope.auditing.stats import z_limit
from creditscope.auditing.thresholds import Thresholds
from creditscope.errors import CreditscopeError
from creditscope.figures import _style, register_figure
from creditscope.figures._architecture import Lane, architecture_height, draw_architecture
from creditscope.figures._style import FAINT, GREY, INK, PAD, SMALL, WIDTH, RuleStyle, line_height, subscript
from creditscope.record import Facts, Record, RunSpec

REFERENCE = "bp"
VARIANT_FIELDS = ("rule_options", "rule_source", "credit_norm")
FREE_FIELDS = ("rule", "seed", *VARIANT_FIELDS)
"""Fields of a spec that may differ between the records of one figure."""
BAND = z_limit(0.025)
"""Half width of a two-sided 95 % band, in standard deviations."""
RANDOM = "no better than random"
PANEL, PANEL_WIDTH, AXIS_ROOM = 1.75, 1.82, 0.50
"""Height and width of a panel and the room left of it, inches."""
SLOT = PANEL_WIDTH + AXIS_ROOM + 0.05


@dataclass(frozen=True)
class Group:
    """The drawn runs of one rule, one per shared seed; `gap` says why there are none."""

    rule: str
    style: RuleStyle
    records: tuple[Record, ...]
    gap: str = ""

    @property
    def facts(self) -> Facts:
        """The same for every seed."""
        return self.records[0].facts

    def per_tap(self, name: str) -> np.ndarray:
        """A measure of every tap, (seeds, taps); NaN where it was not measured."""
        return np.array([getattr(record.last.taps, name) for record in self.records], dtype=float)

    def per_run(self, name: str) -> np.ndarray:
        """A measure of the whole net, (seeds,); NaN where it was not measured."""
        return np.array([getattr(record.last, name) for record in self.records], dtype=float)

    def log_gradient(self) -> np.ndarray:
        """log10 of the median ‖g_l‖, (seeds, taps); NaN for an exact zero too."""
        norm = self.per_tap("g_norm")
        return np.log10(np.where(norm > 0, norm, np.nan))


@dataclass(frozen=True)
class Hero:
    """All that is drawn; `notes` say what was left out."""

    groups: tuple[Group, ...]
    seeds: tuple[int, ...]
    notes: tuple[str, ...]

    @property
    def drawn(self) -> list[Group]:
        """The rules that are no gap."""
        return [group for group in self.groups if group.records]

    @property
    def facts(self) -> Facts:
        """Taps, shapes and chance, the same for all."""
        return self.drawn[0].facts


@register_figure("audit_hero")
def plot_audit_hero(records: Sequence[Record], *, rules: Sequence[str] = ("bp", "block_fa", "dfa")) -> Figure:
    """Draw the figure from trained, unpenalised records of `rules` on one task and net.

    A rule without records is a marked gap; seeds that not all rules have are left out and said.
    """
    hero = select_runs(records, rules=rules)
    with _style.styled():
        return _compose(hero)


# --- which records -----------------------------------------------------------------------------------


def select_runs(records: Sequence[Record], *, rules: Sequence[str]) -> Hero:
    """The complete runs of `rules` on the seeds they share, with notes on what was left out."""
    wanted = [(r.spec, r) for r in records if r.spec and not r.spec.frozen and r.spec.penalty == 0]
    wanted = [(spec, record) for spec, record in wanted if spec.rule in rules]
    if not wanted:
        raise CreditscopeError(
            f"Expected records of trained, unpenalised runs of the rules {', '.join(rules)}, but got none "
            f"among {len(records)} records. Run them first or pass other rules."
        )
    _require_one_setting([asdict(spec) for spec, _ in wanted])
    styles = _style.rule_styles(rules, labels={spec.rule: r.facts.rule.label for spec, r in wanted})
    usable: dict[str, dict[int, Record]] = {rule: {} for rule in rules}
    gaps, notes = dict.fromkeys(rules, "not on record"), []
    for spec, record in wanted:
        if record.provenance.status == "complete":
            usable[spec.rule][spec.seed] = record
        else:
            gaps[spec.rule] = status = record.provenance.status
            notes.append(f"{styles[spec.rule].label}, seed {spec.seed}: {status}, left out.")
    seeds, left_out = _share_seeds({rule: runs for rule, runs in usable.items() if runs})
    notes += [f"Left out, as not every rule has it: {_plural('seed', left_out)}."] if left_out else []
    groups = []
    for rule, runs in usable.items():
        chosen = tuple(runs[seed] for seed in seeds) if runs else ()
        groups.append(Group(rule, styles[rule], chosen, gap="" if runs else gaps[rule]))
        notes += _note_missing(groups[-1])
    return Hero(tuple(groups), seeds, tuple(notes))


def _require_one_setting(specs: list[dict]) -> None:
    """Refuse records that differ in more than rule and seed, or one rule in several variants."""
    differing = _differences(specs, fields=[name for name in specs[0] if name not in FREE_FIELDS])
    if differing:
        name, values = next(iter(differing.items()))
        raise CreditscopeError(
            f"Expected records of one setting, but they differ in {_list_values(differing)}. "
            f"Pass the records of one setting only, for example those with {name} = {values[0]}."
        )
    for rule in dict.fromkeys(spec["rule"] for spec in specs):
        differing = _differences([spec for spec in specs if spec["rule"] == rule], fields=VARIANT_FIELDS)
        if differing:
            raise CreditscopeError(
                f"Expected one variant of rule {rule!r}, but its records differ in {_list_values(differing)}. "
                "Pass the records of one variant only."
            )


def _differences(specs: list[dict], *, fields: Sequence[str]) -> dict[str, list]:
    """Fields with several values; options are compared one by one ("net_options.width")."""
    found: dict[str, list] = {}
    for spec in specs:
        for field in fields:
            value = spec[field]
            flat = {f"{field}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {field: value}
            for name, scalar in flat.items():
                if scalar not in found.setdefault(name, []):
                    found[name].append(scalar)
    return {name: values for name, values in found.items() if len(values) > 1}


def _list_values(differing: dict[str, list]) -> str:
    return "; ".join(f"{name} ({', '.join(map(str, values))})" for name, values in differing.items())


def _share_seeds(usable: dict[str, dict[int, Record]]) -> tuple[tuple[int, ...], list[int]]:
    """Seeds every rule has, and the others."""
    if not usable:
        raise CreditscopeError("Expected at least one complete run, but all records are diverged or unfinished.")
    first, *others = usable.values()
    shared = set(first).intersection(*others)
    if not shared:
        held = "; ".join(f"{rule}: {', '.join(map(str, sorted(runs)))}" for rule, runs in usable.items())
        raise CreditscopeError(
            f"Expected at least one seed that every rule has, but got {held}. "
            "Run the missing seeds or pass fewer rules."
        )
    return tuple(sorted(shared)), sorted(set(first).union(*others) - shared)


def _note_missing(group: Group) -> list[str]:
    """The rule as a whole, or one note per drawn quantity that lacks values."""
    if group.gap:
        return [f"{group.style.label}: {group.gap}."]
    measures = {"Γ": group.per_run("gamma"), "accuracy": group.per_run("accuracy")}
    measures |= {"cosine": group.per_tap("cos"), "‖g‖": group.log_gradient()}
    missing = {name: (int(np.isnan(values).sum()), values.size) for name, values in measures.items()}
    label = group.style.label
    return [f"{label}: {k} of {n} values of {name} unmeasured or zero." for name, (k, n) in missing.items() if k]


# --- numbers and words -------------------------------------------------------------------------------


def mean_sd(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd (ddof 1) over seeds, the first axis, of the values there are; NaN where undefined."""
    masked = np.ma.masked_invalid(values)
    mean, sd = masked.mean(axis=0), masked.std(axis=0, ddof=1)
    return np.asarray(np.ma.filled(mean, np.nan)), np.asarray(np.ma.filled(sd, np.nan))


def _mean(values: np.ndarray) -> float:
    return float(mean_sd(values)[0])


def _number(value: float, *, digits: int = 2) -> str:
    return "unmeasured" if np.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def _power(value: float) -> str:
    mantissa, exponent = f"{value:.0e}".split("e")
    return f"{mantissa}×10{_style.superscript(int(exponent))}" if value else "0"


def _plural(noun: str, items: Sequence[object]) -> str:
    return f"{noun}{'s' if len(items) > 1 else ''} {', '.join(map(str, items))}"


def _name_taps(taps: Sequence[int]) -> str:
    """h₁, h₂ or, from three in a row, h₁–h₃."""
    if len(taps) > 2 and list(taps) == list(range(taps[0], taps[-1] + 1)):
        return f"{subscript('h', taps[0])}–{subscript('h', taps[-1])}"
    return ", ".join(subscript("h", tap) for tap in taps)


def caption_pair(hero: Hero) -> str:
    """A: for how many rules Γ > 0 and accuracy > chance."""
    chance = hero.facts.chance
    if chance is None:
        return "Chance is not on record, so the pair cannot be read."
    pairs = [(g.style.label, _mean(g.per_run("gamma")), _mean(g.per_run("accuracy"))) for g in hero.drawn]
    pairs = [pair for pair in pairs if not np.isnan(pair[1:]).any()]
    others = [(label, x, y) for label, x, y in pairs if not (x > 0 and y > chance)]
    count, total = len(pairs) - len(others), len(pairs)
    how_many = {1: "the one rule", 2: "both rules"}.get(total, f"all {total} rules")
    how_many = f"{count} of {total} rules" if others or not total else how_many
    text = (
        f"Accuracy and Γ look like learning for {how_many} (Γ\u00a0>\u00a00, accuracy above chance, {_number(chance)})"
    )
    if not others:
        return f"{text}: the pair alone raises no doubt."
    named = ", ".join(f"{label} (Γ\u00a0=\u00a0{_number(x)}, accuracy\u00a0{_number(y)})" for label, x, y in others)
    return f"{text}; not for {named}."


def caption_cosine(hero: Hero) -> str:
    """B: the taps whose cosine is no better than that of a random orientation, by mean z over seeds."""
    limit = z_limit(Thresholds().orientation)
    judged = [g for g in hero.drawn if g.facts.inexact_taps and g.facts.rule.approximates == "gradient"]
    if not judged:
        return "No tap is judged: all are handed the exact gradient, or their rule does not approximate it."
    blind = [(group, _blind_taps(group, limit)) for group in judged]
    blocks = [(group, [tap for tap in taps if tap in group.facts.gamma_taps]) for group, taps in blind]
    places = [
        (f"{_name_taps(b)} under {g.style.label} (Γ\u00a0=\u00a0{_number(_mean(g.per_run('gamma')))})", g)
        for g, b in blocks
        if b
    ]
    hidden = "; ".join(place for place, group in places if _gamma_z(group) >= limit)
    open_ = "; ".join(place for place, group in places if _gamma_z(group) < limit)
    stems = ", ".join(g.style.label for (g, taps), (_, b) in zip(blind, blocks, strict=True) if len(taps) > len(b))
    unknown = ", ".join(g.style.label for g in judged if np.isnan(g.per_tap("z")[:, g.facts.inexact_taps]).any())
    below, above = f"mean z\u00a0<\u00a0{_number(limit)}", f"mean z\u00a0≥\u00a0{_number(limit)}"
    sentences = [
        f"Γ hides layers whose credit is {RANDOM} ({below}): {hidden}." if hidden else "",
        f"These layers and Γ itself are {RANDOM} ({below}): {open_}." if open_ else "",
        "" if places else f"No block is hidden: where credit is not exact it is better than random ({above}).",
        f"The stem h₀, not in Γ, is {RANDOM} under {stems}." if stems else "",
        f"z is unmeasured at some taps of {unknown}." if unknown else "",
    ]
    return " ".join(filter(None, sentences))


def _blind_taps(group: Group, limit: float) -> list[int]:
    """Taps without exact credit whose mean z is below the limit."""
    z = mean_sd(group.per_tap("z"))[0]
    return [tap for tap in group.facts.inexact_taps if z[tap] < limit]


def _gamma_z(group: Group) -> float:
    """Γ in its null sds, mean over seeds; infinite if there is no null to compare with."""
    null = group.per_run("gamma_null_sd")
    z = _mean(group.per_run("gamma") / np.where(null > 0, null, np.nan))
    return np.inf if np.isnan(z) else z


def caption_gradient(hero: Hero) -> str:
    """C: orders of magnitude between ‖g_L‖ under each rule and under BP, and whether g is resolved."""
    logs = {g.rule: _mean(g.log_gradient()[:, -1]) for g in hero.drawn}
    reference = logs.get(REFERENCE, np.nan)
    orders = [(g.style.label, logs[g.rule] - reference) for g in hero.drawn if g.rule != REFERENCE]
    if np.isnan(reference):
        text = "There is no BP gradient on record to compare with."
    elif orders:
        compared = ", ".join(f"{_compare(value)} under {label}" for label, value in orders)
        tap = subscript("h", len(hero.facts.taps) - 1)
        text = f"At {tap} the reference gradient is, against BP and in orders of magnitude, {compared}."
    else:
        text = "Only BP is on record: there is nothing to compare with it."
    return f"{text} {_say_noise(hero, shrunk=any(value < 0 for _, value in orders))}"


def _compare(orders: float) -> str:
    direction = "smaller" if orders < 0 else "larger"
    return "unmeasured" if np.isnan(orders) else f"{_number(abs(orders), digits=1)} {direction}"


def _say_noise(hero: Hero, *, shrunk: bool) -> str:
    """Whether float64 confirms the gradients: the largest g_noise over taps and seeds of each rule."""
    limit = Thresholds().noise
    noise = {g.style.label: g.per_tap("g_noise") for g in hero.drawn}
    worst = {label: float(np.nanmax(values)) for label, values in noise.items() if not np.isnan(values).all()}
    absent = ", ".join(label for label in noise if label not in worst)
    unmeasured = f"Rounding noise is unmeasured for {absent}." if absent else ""
    if not worst:
        return unmeasured
    poor = ", ".join(f"{label} ({value:.2g})" for label, value in worst.items() if not value < limit)
    if poor:
        text = f"Unresolved: relative rounding noise at the worst tap is not under {limit:g} for {poor}."
    else:
        resolved = "Small, but not rounding noise" if shrunk else "Resolved, not rounding noise"
        text = f"{resolved}: relative noise at the worst tap is at most {_power(max(worst.values()))}."
    return f"{text} {unmeasured}".strip()


def footer(hero: Hero) -> str:
    """Task, net, seeds, what the bars are, options of rules."""
    first, facts, n = hero.drawn[0].records[0], hero.facts, len(hero.seeds)
    spec = _spec(first)
    shape = {"width": facts.tap_shapes[-1][-1], "depth": len(facts.gamma_taps)}
    options = ", ".join(f"{name} {value}" for name, value in {**shape, **spec.net_options}.items())
    bars = "bars ± sd over seeds (ddof 1; in C of log10)" if n > 1 else "one seed, so no bars"
    parts = [
        f"{spec.task}, {spec.net} ({options}), {spec.epochs} epochs, {_plural('seed', hero.seeds)} (n\u00a0=\u00a0{n})",
        f"Points are means over seeds, {bars}; cosine and ‖g‖ on {first.last.rows} test rows",
    ]
    for group in hero.drawn:
        chosen = _spec(group.records[0])
        variant = {**chosen.rule_options, "credit_norm": chosen.credit_norm}
        said = ", ".join(f"{name} {value}" for name, value in variant.items() if value != "none")
        parts += [f"{group.style.label}: {said}"] if said else []
    return ". ".join(parts) + "."


def _spec(record: Record) -> RunSpec:
    assert record.spec is not None  # select_runs takes no others
    return record.spec


# --- panels ------------------------------------------------------------------------------------------


def draw_pair(ax: Axes, hero: Hero) -> None:
    """A: Γ against accuracy, mean ± sd over seeds, with the seeds as dots."""
    _draw_quadrants(ax, hero)
    points = []
    for group in hero.drawn:
        gamma, accuracy, look = group.per_run("gamma"), group.per_run("accuracy"), group.style
        (x, dx), (y, dy) = mean_sd(gamma), mean_sd(accuracy)
        ax.errorbar(x, y, dy, dx, fmt="none", ecolor=look.colour, elinewidth=0.8, capsize=1.5, zorder=3)
        ax.plot(x, y, look.marker, color=look.colour, ms=5.5, zorder=4, gid=f"{group.rule} mean")
        ax.plot(
            gamma, accuracy, "o", color=look.colour, mec="white", mew=0.4, ms=2.6, zorder=5, gid=f"{group.rule} seeds"
        )
        points += [] if np.isnan([x, y]).any() else [(look, float(x), float(y))]
    _style.label_points(ax, points)
    ax.set(xlabel="Γ, mean cosine over blocks", ylabel="test accuracy")


def _draw_quadrants(ax: Axes, hero: Hero) -> None:
    """Limits from the data with room for the four quadrants, then their tints and names."""
    gammas = np.concatenate([[0.0], *(g.per_run("gamma") for g in hero.drawn)])
    chance = hero.facts.chance
    level = 0.0 if chance is None else chance
    accuracies = np.concatenate([[level], *(g.per_run("accuracy") for g in hero.drawn)])
    low, high = np.nanmin(accuracies), np.nanmax(accuracies)
    room = max(high - low, 0.05)
    bottom, top = min(low - 0.08 * room, level - 0.2 * room), high + 0.26 * room
    left, right = min(-0.42, np.nanmin(gammas) - 0.15), max(1.2, np.nanmax(gammas) + 0.2)
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=np.arange(np.ceil(left * 2), right * 2) / 2)
    ax.set_yticks([tick for tick in MaxNLocator(6).tick_values(0, top) if 0 <= tick <= min(top, 1)])
    if chance is None:
        return
    ax.axhline(chance, color=FAINT, lw=0.6, zorder=1)
    ax.axvline(0, color=FAINT, lw=0.6, zorder=1)
    raised, middle = top - 0.03 * (top - bottom), (bottom + chance) / 2
    for x, y, w, h, tint in (
        (0, chance, right, top - chance, "#e3f2e1"),
        (left, bottom, -left, chance - bottom, "#f9e0de"),
        (left, chance, -left, top - chance, "#f1f1f1"),
        (0, bottom, right, chance - bottom, "#f1f1f1"),
    ):
        ax.add_patch(Rectangle((x, y), w, h, facecolor=tint, lw=0, zorder=0))
    for x, y, text, colour, ha, va in (
        (right - 0.03, raised, "looks like learning", "#2f7d32", "right", "top"),
        (left / 2, middle, "neither", "#a8322a", "center", "center"),
        (left / 2, raised, "accuracy\nonly", GREY, "center", "top"),
        (0.05, middle, "Γ only", GREY, "left", "center"),
        (right - 0.03, middle, f"chance {_number(chance)}", GREY, "right", "center"),
    ):
        ax.text(x, y, text, color=colour, size=SMALL, ha=ha, va=va, zorder=1)


def draw_cosine(ax: Axes, hero: Hero) -> None:
    """B: cos(a_l, g_l) per tap, the stem apart, over the null band; hollow where credit is exact."""
    stem = hero.facts.stem_tap
    x = np.array([-0.5 if stem and tap == 0 else tap for tap in range(len(hero.facts.taps))], dtype=float)
    band = null_band(hero)
    ax.bar(x, 2 * band, bottom=-band, width=1.0, color=_style.BAND, lw=0, zorder=0)
    ax.axhline(0, color=INK, lw=0.7, ls=":", zorder=1)
    if stem:
        ax.axvline(0.25, color=FAINT, lw=0.5, zorder=1)
    lowest, highest = -0.25, 1.12
    for shift, group in _dodged(hero):
        mean, sd = mean_sd(group.per_tap("cos"))
        hollow = group.facts.exact_taps
        _draw_series(ax, x + shift, mean, (sd, sd), group, joined=hero.facts.gamma_taps, hollow=hollow)
        lowest, highest = np.nanmin([lowest, *(mean - 0.05)]), np.nanmax([highest, *(mean + 0.05)])
    ax.set(ylim=(lowest, highest), ylabel="cos(aₗ, gₗ)", yticks=[0, 0.25, 0.5, 0.75, 1])
    _draw_tap_axis(ax, hero, x)


def null_band(hero: Hero) -> np.ndarray:
    """Half width of the null band per tap: 1.96 × the mean null sd over seeds and rules inexact there."""
    sds = []
    for group in hero.drawn:
        sds.append(group.per_tap("null_sd"))
        sds[-1][:, list(group.facts.exact_taps)] = np.nan
    return BAND * mean_sd(np.concatenate(sds))[0]


def draw_gradient(ax: Axes, hero: Hero) -> None:
    """C: median ‖g_l‖ per sample, 10^(mean ± sd of log10 over seeds)."""
    x = np.arange(len(hero.facts.taps), dtype=float)
    ax.set_yscale("log")
    for shift, group in _dodged(hero):
        mean, sd = mean_sd(group.log_gradient())
        y = 10**mean
        bars = y - 10 ** (mean - sd), 10 ** (mean + sd) - y
        _draw_series(ax, x + shift, y, bars, group, joined=range(len(x)))
    logs = np.concatenate([g.log_gradient().ravel() for g in hero.drawn])
    if not np.isnan(logs).all():
        ax.set_ylim(10 ** np.floor(np.nanmin(logs) - 0.1), 10 ** np.ceil(np.nanmax(logs) + 0.1))
    ax.set_ylabel("‖gₗ‖ per sample, median")
    _draw_tap_axis(ax, hero, x)


def _dodged(hero: Hero) -> list[tuple[float, Group]]:
    """A small sideways shift per rule, so that bars and equal values stay visible."""
    middle = (len(hero.groups) - 1) / 2
    return [(0.13 * (i - middle), group) for i, group in enumerate(hero.groups) if group.records]


def _draw_series(
    ax: Axes,
    x: np.ndarray,
    y: np.ndarray,
    bars: tuple[np.ndarray, np.ndarray],
    group: Group,
    *,
    joined: Sequence[int],
    hollow: Sequence[int] = (),
) -> None:
    """Bars and markers at every tap, a line through the `joined` ones, white markers at the `hollow` ones."""
    look, filled = group.style, [tap for tap in range(len(x)) if tap not in hollow]
    ax.plot(x[list(joined)], y[list(joined)], color=look.colour, lw=1.1, zorder=2, gid=f"{group.rule} line")
    ax.errorbar(x, y, bars, fmt="none", ecolor=look.colour, elinewidth=0.8, capsize=1.5, zorder=3)
    for name, taps, face in (("filled", filled, look.colour), ("hollow", list(hollow), "white")):
        ax.plot(x[taps], y[taps], look.marker, color=look.colour, mfc=face, zorder=4, gid=f"{group.rule} {name}")


def _draw_tap_axis(ax: Axes, hero: Hero, x: np.ndarray) -> None:
    every = 1 + (len(x) - 1) // 12
    ax.set_xticks(x[::every], [subscript("h", tap) for tap in range(0, len(x), every)])
    ax.set_xlim(x[0] - 0.5, x[-1] + 0.5)
    ax.set_xlabel("tap (h₀: stem)" if hero.facts.stem_tap else "tap")


# --- keys and page -----------------------------------------------------------------------------------


def _rule_keys(hero: Hero, *, gaps_only: bool) -> list[Line2D | Patch]:
    keys: list[Line2D | Patch] = []
    for group in hero.groups:
        look = {"color": group.style.colour, "ms": 4.0}
        if group.gap:
            keys.append(Line2D([], [], ls="", marker="x", label=f"{group.style.label}:\n{group.gap}", **look))
        elif not gaps_only:
            keys.append(Line2D([], [], marker=group.style.marker, lw=1.1, label=group.style.label, **look))
    return keys


def _note_keys(hero: Hero, panel: str) -> list[Line2D | Patch]:
    """What is not a rule: bars, dots, band, hollow markers."""
    n = len(hero.seeds)
    if panel == "A":
        bars = f"mean ± sd\nover {n} seeds" if n > 1 else "one seed"
        dots = Line2D([], [], marker="o", ls="", color=GREY, ms=2.6, label="each seed")
        return [Line2D([], [], marker="o", lw=0.8, color=GREY, ms=4, label=bars), dots]
    if panel == "B":
        exact = Line2D([], [], marker="o", ls="", mfc="white", color=GREY, ms=4, label="hollow: exact credit")
        return [Patch(color=_style.BAND, label="95 % band of a\nrandom orientation"), exact]
    bars = f"mean ± sd of log10\nover {n} seeds" if n > 1 else "one seed"
    return [Line2D([], [], marker="|", lw=0.8, color=GREY, ms=5, label=bars)]


_PANELS: tuple[tuple[str, str, Callable[[Axes, Hero], None], Callable[[Hero], str]], ...] = (
    ("A", "The standard reporting pair", draw_pair, caption_pair),
    ("B", "Credit against gradient, per tap", draw_cosine, caption_cosine),
    ("C", "The reference gradient, per tap", draw_gradient, caption_gradient),
)


def _compose(hero: Hero) -> Figure:
    """Stack drawing, panels, keys, captions and footer; the page is as high as they need (inches)."""
    captions = [_style.wrap_text(say(hero), width=SLOT - 0.24, italic=True) for *_, say in _PANELS]
    texts = [footer(hero), " ".join(hero.notes)]
    foot = [line for text in texts if text for line in _style.wrap_text(text, width=WIDTH - 0.1)]
    keys = [_rule_keys(hero, gaps_only=False), *(_note_keys(hero, letter) for letter, *_ in _PANELS)]
    box = max(map(len, captions)) * line_height() + 2 * PAD
    box_bottom = len(foot) * line_height() + 0.1
    key_top = box_bottom + box + 0.1 + max(map(_style.key_height, keys))
    bottom, drawing = key_top + 0.36, architecture_height(len(hero.groups))
    height = bottom + PANEL + 0.34 + drawing + 0.05
    fig = Figure(figsize=(WIDTH, height))
    _add_architecture(fig, hero, bottom=height - 0.05 - drawing, height=drawing)
    for i, ((letter, title, draw, _), lines) in enumerate(zip(_PANELS, captions, strict=True)):
        edge = 0.05 + i * SLOT
        ax = _add_axes(fig, edge + AXIS_ROOM - 0.03, bottom, PANEL_WIDTH, PANEL, label=letter)
        draw(ax, hero)
        heading = f"{letter}   {title}"
        fig.text(edge, bottom + PANEL + 0.1, heading, transform=fig.dpi_scale_trans, weight="bold", va="bottom")
        _style.draw_key(ax, _rule_keys(hero, gaps_only=letter == "A"), x=edge, y=key_top, loc="upper left")
        right = edge + AXIS_ROOM - 0.03 + PANEL_WIDTH
        _style.draw_key(ax, _note_keys(hero, letter), x=right, y=key_top, loc="upper right")
        _style.draw_caption(fig, lines, x=edge, y=box_bottom, width=right - edge, height=box)
    where = {"transform": fig.dpi_scale_trans, "va": "top", "size": SMALL, "linespacing": 1.2}
    fig.text(0.05, box_bottom - 0.06, "\n".join(foot), **where)
    return fig


def _add_axes(fig: Figure, x: float, y: float, width: float, height: float, *, label: str) -> Axes:
    """Axes at a place in inches."""
    page = fig.get_size_inches()
    return fig.add_axes((x / page[0], y / page[1], width / page[0], height / page[1]), label=label)


def _add_architecture(fig: Figure, hero: Hero, *, bottom: float, height: float) -> None:
    """One lane per rule, gaps too: the drawing shows the rule, not its runs."""
    last, lanes = len(hero.facts.taps) - 1, []
    for group in hero.groups:
        exact_top = last in group.facts.exact_taps if group.records else group.rule == "block_fa"
        formula = group.facts.rule.formula if group.records else group.gap
        lanes.append(Lane(group.rule, group.style.label, group.style.colour, exact_top, formula))
    ax = _add_axes(fig, 0.05, bottom, WIDTH - 0.1, height, label="architecture")
    draw_architecture(ax, taps=last + 1, stem=hero.facts.stem_tap, lanes=lanes, width=WIDTH - 0.1)
