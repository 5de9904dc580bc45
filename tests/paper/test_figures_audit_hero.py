"""The audit figure says and draws what the records hold, and nothing else."""

import subprocess
import sys
from dataclasses import fields, replace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from pages import assert_clear, texts

from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.paper.commands.demo import plot_demo
from creditscope.paper.figures import FIGURES, save_figure
from creditscope.paper.figures._architecture import shown_taps
from creditscope.paper.figures.audit_hero import mean_sd, plot_audit_hero
from creditscope.paper.studies.demo import RULES as DEMO_RULES
from creditscope.record import Facts, Provenance, Record, RuleFacts, RunSpec, Snapshot, TapMeasures
from creditscope.rule_styles import LOOKS

pytestmark = pytest.mark.slow

TAPS = 5
EXACT = {"bp": (0, 1, 2, 3, 4), "block_fa": (4,), "dfa": (), "fa": (), "mine": ()}
COS = {"bp": (1.0,) * 5, "block_fa": (0.0, 0.02, 0.3, 0.2, 1.0), "dfa": (0.01, 0.4, 0.01, 0.0, -0.01)}
COS |= {"fa": (0.1, 0.2, 0.3, 0.4, 0.5), "mine": (0.2,) * 5}
G_NORM = {"bp": 1e-1, "block_fa": 1e-2, "dfa": 1e-5, "fa": 1e-1, "mine": 1e-1}
LABELS = {"bp": "BP", "block_fa": "block FA", "dfa": "DFA", "fa": "FA", "mine": "My rule"}
NULL_SD = 0.03


def make_record(rule: str, seed: int, *, status: Any = "complete", last: dict | None = None, **changes: Any) -> Record:
    """A record with one snapshot; `changes` go to the spec or to the taps, `last` to the snapshot."""
    names = {field.name for field in fields(TapMeasures)}
    cos = COS[rule]
    taps: dict[str, Any] = {name: (1.0,) * TAPS for name in names if not name.startswith("rows")}
    taps |= {name: (100,) * TAPS for name in names if name.startswith("rows")}
    taps |= {"cos": cos, "null_sd": (NULL_SD,) * TAPS, "z": tuple(c / NULL_SD for c in cos)}
    taps |= {"g_norm": (G_NORM[rule],) * TAPS, "g_noise": (2e-6,) * TAPS}
    taps |= {name: changes.pop(name) for name in list(changes) if name in names}
    shot = {"gamma": float(np.mean(cos[1:])), "gamma_null_sd": 0.015, "accuracy": 0.5, "loss": 1.0, **(last or {})}
    counts = {"rows": 100, "rows_covered": 100, "rows_fitted": 0}
    snapshot = Snapshot(epoch=60, step=1, taps=TapMeasures(**taps), **counts, **shot)
    facts = Facts(
        rule=RuleFacts(name=rule, label=LABELS[rule], formula="a_l = h_l"),
        taps=("stem", "b1", "b2", "b3", "b4"),
        tap_shapes=((32,),) * TAPS,
        stem_tap=True,
        exact_taps=EXACT[rule],
        chance=0.1,
        best_constant=0.13,
        test_rows=400,
    )
    spec = {"task": "mnist1d", "net": "resmlp", "net_options": {"width": 32}, "rule": rule, "seed": seed, **changes}
    return Record(RunSpec(**spec), Provenance(status=status, facts=facts), (snapshot,))


def make_records(
    rules: tuple[str, ...] = ("bp", "block_fa", "dfa"), seeds: tuple[int, ...] = (1, 2, 3)
) -> list[Record]:
    return [make_record(rule, seed) for rule in rules for seed in seeds]


def with_rule(records: list[Record], rule: str, **changes: Any) -> list[Record]:
    """The records with those of one rule made anew with changes."""
    kept = [r for r in records if r.spec and r.spec.rule != rule]
    return kept + [make_record(rule, r.spec.seed, **changes) for r in records if r.spec and r.spec.rule == rule]


def replace_gradient(record: Record, by_seed: tuple[float, ...]) -> Record:
    """With ‖g‖ by seed under DFA, and 0.1 under BP."""
    assert record.spec is not None
    norm = 0.1 if record.spec.rule == "bp" else by_seed[record.spec.seed - 1]
    return make_record(record.spec.rule, record.spec.seed, g_norm=(norm,) * TAPS)


def panel(fig: Figure, letter: str) -> Axes:
    return next(ax for ax in fig.axes if ax.get_label() == letter)


def line(fig: Figure, letter: str, gid: str) -> Line2D:
    return next(found for found in panel(fig, letter).lines if found.get_gid() == gid)


def height(fig: Figure, letter: str, gid: str) -> np.ndarray:
    return np.asarray(line(fig, letter, gid).get_ydata(), dtype=float)


def test_is_registered_with_a_summary():
    assert FIGURES.get("audit_hero") is plot_audit_hero
    assert "audit_hero" in FIGURES.names()
    assert "Γ" in FIGURES.summary("audit_hero")


def test_mean_and_sd_match_a_hand_computation_and_skip_gaps():
    mean, sd = mean_sd(np.array([[1.0, 2.0, np.nan], [3.0, np.nan, np.nan]]))
    np.testing.assert_allclose(mean, [2.0, 2.0, np.nan])
    np.testing.assert_allclose(sd, [2**0.5, np.nan, np.nan])


def test_points_are_means_over_seeds_with_sd_bars():
    records = [
        make_record("bp", 1, last={"accuracy": 0.6, "gamma": 1.0}),
        make_record("bp", 2, last={"accuracy": 0.8, "gamma": 1.0}),
    ]
    fig = plot_audit_hero(records, rules=("bp",))
    assert height(fig, "A", "bp mean") == pytest.approx([0.7])
    assert height(fig, "A", "bp seeds") == pytest.approx([0.6, 0.8])
    bars = [c for c in panel(fig, "A").collections if len(c.get_paths()) == 1]
    ends = np.array([bar.get_paths()[0].vertices for bar in bars])  # pyright: ignore
    spread = 0.02**0.5  # sd with ddof 1 of (0.6, 0.8)
    assert ends[:, :, 1].max() == pytest.approx(0.7 + spread)
    assert ends[:, :, 1].min() == pytest.approx(0.7 - spread)


def test_cosines_are_drawn_per_tap_with_the_stem_apart():
    records = with_rule(make_records(), "dfa", cos=(0.11, 0.22, 0.33, 0.44, 0.55))
    fig = plot_audit_hero(records)
    assert height(fig, "B", "dfa line") == pytest.approx([0.22, 0.33, 0.44, 0.55])  # the stem is not joined
    assert height(fig, "B", "dfa filled") == pytest.approx([0.11, 0.22, 0.33, 0.44, 0.55])
    assert panel(fig, "B").get_ylim() == (-0.25, 1.12)
    far = with_rule(records, "dfa", cos=(0.0, -0.6, 0.0, 0.0, 0.0))
    assert panel(plot_audit_hero(far), "B").get_ylim()[0] < -0.6


def test_exact_taps_are_hollow():
    fig = plot_audit_hero(make_records())
    hollow = line(fig, "B", "block_fa hollow")
    assert list(height(fig, "B", "block_fa hollow")) == [1.0]
    assert hollow.get_markerfacecolor() == "white"
    assert len(height(fig, "B", "bp hollow")) == TAPS
    assert len(height(fig, "B", "dfa hollow")) == 0
    assert line(fig, "B", "dfa filled").get_markerfacecolor() != "white"
    assert "hollow: exact credit" in texts(fig)


def test_null_band_is_the_mean_over_rules_inexact_at_the_tap():
    records = with_rule(make_records(), "block_fa", null_sd=(0.05, 0.05, 0.05, 0.05, 0.9))
    band = [p for p in panel(plot_audit_hero(records), "B").patches if isinstance(p, Rectangle)]
    heights = [bar.get_height() / 2 for bar in band]
    assert heights == pytest.approx([1.959964 * 0.04] * 4 + [1.959964 * 0.03], rel=1e-5)


def test_gradients_are_means_of_log10():
    records = [make_record("bp", 1, g_norm=(1e-2,) * TAPS), make_record("bp", 2, g_norm=(1e-4,) * TAPS)]
    fig = plot_audit_hero(records, rules=("bp",))
    assert height(fig, "C", "bp line") == pytest.approx([1e-3] * TAPS)
    assert panel(fig, "C").get_yscale() == "log"
    assert "mean ± sd of log10" in texts(fig)


def test_caption_of_the_pair_follows_the_data():
    assert "look like learning for all 3 rules" in texts(plot_audit_hero(make_records()))
    below = with_rule(make_records(), "dfa", last={"accuracy": 0.08})
    said = texts(plot_audit_hero(below))
    assert "for 2 of 3 rules" in said
    assert "not for DFA (Γ = 0.10, accuracy 0.08)" in said
    negative = with_rule(make_records(), "dfa", last={"gamma": -0.02})
    assert "not for DFA (Γ = −0.02, accuracy 0.50)" in texts(plot_audit_hero(negative))


@pytest.mark.parametrize(("accuracy", "above"), [(0.14, False), (0.15, False), (0.17, True)])
def test_chance_is_what_the_audit_says(accuracy, above):
    """CS010 wants the lower bound over the 400 test rows above the best constant guess of 0.13, not the chance 0.10."""
    records = with_rule(make_records(), "dfa", last={"accuracy": accuracy})
    one = next(record for record in records if record.spec and record.spec.rule == "dfa")
    at_chance = next(finding for finding in audit([one]).methods[0].findings if finding.code == "CS010")
    assert (at_chance.outcome == "passed") == above
    fig = plot_audit_hero(records)
    assert ("not for DFA" in texts(fig)) == (not above)
    edge = height(fig, "A", "chance")[0]
    assert f"at chance below {edge:.2f}" in texts(fig)
    explained = f"accuracy over {edge:.2f}: the best constant guess, 0.13, plus what 400 test rows leave open, CS010"
    assert explained in texts(fig)
    assert (accuracy >= edge) == above


@pytest.mark.parametrize("best", [0.14, 0.2, 0.4, 0.95])
def test_the_quadrants_fill_the_panel(best):
    """A tick beyond the limits would widen the axis and leave the lower quadrants a strip over nothing."""
    ax = panel(plot_audit_hero([make_record("bp", s, last={"accuracy": best}) for s in (1, 2)], rules=("bp",)), "A")
    tints = [patch.get_bbox() for patch in ax.patches]
    assert len(tints) == 4
    assert ax.get_ylim() == pytest.approx((min(t.y0 for t in tints), max(t.y1 for t in tints)))
    assert ax.get_xlim() == pytest.approx((min(t.x0 for t in tints), max(t.x1 for t in tints)))
    low, high = ax.get_ylim()
    assert len(ax.get_yticks()) >= 2
    assert all(max(low, 0) <= tick <= high for tick in ax.get_yticks())


def alike(cos: tuple[float, ...]) -> dict[str, Any]:
    """The same cosine by rows and by weight, far above its null."""
    return {
        "cos": cos,
        "cos_F": cos,
        "null_sd": (1e-3,) * TAPS,
        "null_sd_F": (1e-3,) * TAPS,
        "stage_cos": (),
        "stage_null_sd": (),
    }


def told(**by_rule: tuple[float, ...]) -> list[Record]:
    found = make_records(("bp", *by_rule))
    for rule, cos in by_rule.items():
        found = with_rule(found, rule, **alike(cos))
    return found


def test_caption_of_the_cosines_names_the_hidden_taps():
    """The three answers of CS005; a tap is said to be under δ by its upper bound, not for want of a rejection."""
    records = told(block_fa=(0.1, 0.03, 0.3, 0.2, 1.0), dfa=(0.01, 0.4, 0.02, 0.01, 0.03))
    said = texts(plot_audit_hero(records))
    assert "Γ hides layers whose mean cosine is under δ = 0.05: h₁ under block FA (at most 0.030; Γ = 0.38)" in said
    assert "h₂–h₄ under DFA (at most 0.030; Γ = 0.10)" in said
    assert "The stem h₀, not in Γ, is under δ = 0.05 under DFA." in said
    assert "No block is hidden" not in said
    fine = told(block_fa=(0.1, 0.1, 0.3, 0.2, 1.0), dfa=(0.2,) * TAPS)
    assert "No block is hidden: without exact credit the mean cosine is at least δ = 0.05." in texts(
        plot_audit_hero(fine)
    )


def test_caption_of_the_cosines_leaves_open_what_seeds_do_not_tell():
    """A mean of .02 whose bounds reach from below 0 to above δ is no chance, and no credit either."""
    by_seed = [(0.4, 0.4, c, 0.4, 0.4) for c in (-0.06, 0.02, 0.1)]
    unclear = [make_record("dfa", seed + 1, **alike(cos)) for seed, cos in enumerate(by_seed)]
    said = texts(plot_audit_hero([*make_records(("bp",)), *unclear], rules=("bp", "dfa")))
    assert "Neither under nor above δ = 0.05: h₂ under DFA." in said
    assert "Γ hides" not in said
    assert "No block is hidden" not in said


def test_a_mean_that_is_poor_itself_hides_nothing():
    poor = with_rule(told(dfa=(0.01,) * TAPS), "dfa", **alike((0.01,) * TAPS), last={"gamma": 0.01})
    said = texts(plot_audit_hero(poor, rules=("bp", "dfa")))
    assert "Γ hides" not in said
    assert "These layers, and Γ, are under δ = 0.05: h₁–h₄ under DFA (at most 0.010; Γ = 0.01)" in said


def test_caption_of_the_gradient_counts_orders_of_magnitude():
    said = texts(plot_audit_hero(make_records()))
    assert "1.0 ± 0 smaller under block FA, 4.0 ± 0 smaller under DFA" in said
    assert "Small, but not rounding noise" in said
    assert "2.0×10⁻⁶ under block FA, 2.0×10⁻⁶ under DFA" in said
    like = [replace_gradient(r, (0.09, 0.11, 0.1)) for r in make_records(("bp", "dfa"))]
    said = texts(plot_audit_hero(like, rules=("bp", "dfa")))
    assert "like BP's under DFA (0.00 ± 0.04)" in said
    assert "Small" not in said
    wide = [replace_gradient(r, (1e-1, 1e-7, 1e-1)) for r in make_records(("bp", "dfa"))]
    assert "like BP's under DFA (−2.0 ± 3.5)" in texts(plot_audit_hero(wide, rules=("bp", "dfa")))
    one = plot_audit_hero(make_records(seeds=(1,)))
    assert "1.0 smaller under block FA, 4.0 smaller under DFA" in texts(one)
    assert "Small" not in texts(one)
    larger = with_rule(make_records(("bp", "dfa")), "dfa", g_norm=(1e1,) * TAPS)
    assert "2.0 ± 0 larger under DFA" in texts(plot_audit_hero(larger, rules=("bp", "dfa")))
    noisy = with_rule(make_records(), "dfa", g_noise=(0.0, 0.0, 0.3, 0.0, 0.0))
    assert "Unresolved" in texts(plot_audit_hero(noisy))
    assert "DFA (0.3)" in texts(plot_audit_hero(noisy))


def test_missing_rule_is_a_marked_gap():
    fig = plot_audit_hero(make_records(("bp", "block_fa")))
    assert texts(fig).count("DFA: not on record") >= 4  # three keys and the footnote
    assert "look like learning for both rules" in texts(fig)
    assert not [found for found in panel(fig, "B").lines if "dfa" in str(found.get_gid())]


def test_missing_reference_is_said():
    assert "BP is not on record to compare with" in texts(plot_audit_hero(make_records(("dfa",))))


def test_only_shared_seeds_are_drawn_and_the_others_said():
    records = [*make_records(), make_record("bp", 9, last={"accuracy": 0.9})]
    fig = plot_audit_hero(records)
    assert "seeds 1, 2, 3 (n = 3)" in texts(fig)
    assert "Left out, as not every rule has it: seed 9." in texts(fig)
    assert height(fig, "A", "bp mean") == pytest.approx([0.5])


def test_diverged_runs_are_left_out_and_said():
    records = [r for r in make_records() if r.spec and (r.spec.rule, r.spec.seed) != ("dfa", 2)]
    fig = plot_audit_hero([*records, make_record("dfa", 2, status="diverged")])
    assert "DFA, seed 2: diverged, left out." in texts(fig)
    assert "seeds 1, 3 (n = 2)" in texts(fig)
    gone = make_records(("bp",)) + [make_record("dfa", seed, status="diverged") for seed in (1, 2, 3)]
    assert "DFA: diverged" in texts(plot_audit_hero(gone, rules=("bp", "dfa")))


def test_frozen_penalised_and_other_records_are_not_drawn():
    others = [
        make_record("dfa", 1, frozen=True, last={"accuracy": 0.9}),
        make_record("dfa", 1, penalty=0.01, last={"accuracy": 0.9}),
        make_record("fa", 1, task="other"),
    ]
    fig = plot_audit_hero([*make_records(), *others])
    assert height(fig, "A", "dfa mean") == pytest.approx([0.5])


def test_mixed_settings_are_refused_with_what_differs():
    wider = make_record("dfa", 4, net_options={"width": 64}, epochs=10)
    with pytest.raises(CreditscopeError, match="they differ in ") as caught:
        plot_audit_hero([*make_records(), wider])
    assert "net_options.width (32, 64)" in str(caught.value)
    assert "epochs (60, 10)" in str(caught.value)
    assert "for example those with " in str(caught.value)
    variant = make_record("dfa", 4, credit_norm="batch")
    with pytest.raises(CreditscopeError, match=r"one variant of rule 'dfa'.*credit_norm \(none, batch\)"):
        plot_audit_hero([*make_records(), variant])


def test_nothing_to_draw_is_refused():
    with pytest.raises(CreditscopeError, match=r"bp, block_fa, dfa, but got none among 0 records"):
        plot_audit_hero([])
    with pytest.raises(CreditscopeError, match="at least one complete run"):
        plot_audit_hero([make_record("bp", 1, status="diverged")])
    with pytest.raises(CreditscopeError, match=r"every rule has, but got bp: 1; dfa: 2"):
        plot_audit_hero([make_record("bp", 1), make_record("dfa", 2)])


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_unmeasured_values_and_one_seed_are_drawn_and_said(tmp_path, seeds):
    nothing = dict.fromkeys(("cos", "z", "null_sd", "g_noise"), (None,) * TAPS)
    records = with_rule(
        make_records(seeds=seeds), "dfa", **nothing, g_norm=(0.0,) * TAPS, last={"gamma": None, "accuracy": None}
    )
    fig = plot_audit_hero(records)
    save_figure(fig, tmp_path, "gaps")
    said = texts(fig)
    assert f"DFA: no cosine for {5 * len(seeds)} of {5 * len(seeds)} points." in said
    assert f"DFA: no ‖g‖ above 0 for {5 * len(seeds)} of {5 * len(seeds)} points." in said
    assert "Rounding noise is unmeasured for DFA." in said
    assert ("One seed, so no bars" in said) == (len(seeds) == 1)


def test_without_chance_or_any_value_the_pair_is_not_judged():
    record = make_record("bp", 1)
    unknown = Record(
        record.spec, replace(record.provenance, facts=replace(record.facts, best_constant=None)), record.snapshots
    )
    assert "Chance is not judged here" in texts(plot_audit_hero([unknown], rules=("bp",)))
    empty = make_record("bp", 1, last={"gamma": None, "accuracy": None})
    assert "unmeasured for every rule" in texts(plot_audit_hero([empty], rules=("bp",)))


def test_colours_labels_and_a_users_rule():
    fig = plot_audit_hero(make_records(("bp", "fa", "block_fa", "dfa")), rules=("bp", "fa", "block_fa", "dfa"))
    for rule in ("bp", "fa", "block_fa", "dfa"):
        assert to_hex(line(fig, "B", f"{rule} line").get_color()) == LOOKS[rule].colour
        assert LOOKS[rule].label in texts(fig)
    own = plot_audit_hero(make_records(("bp", "mine")), rules=("bp", "mine"))
    assert "My rule" in texts(own)
    assert "a$_l$ = h$_l$" in texts(own)


def test_the_demo_draws_every_rule_that_it_trains():
    fig = plot_demo(make_records(DEMO_RULES))
    assert set(legend_texts(fig, "B")) >= {LABELS[rule] for rule in DEMO_RULES}
    assert "not on record" not in texts(fig)


def test_bp_comes_first_and_labels_that_would_touch_are_in_the_key():
    rules = ("mine", "dfa", "fa", "bp")
    apart = {"mine": (0.2, 0.3), "dfa": (0.4, 0.6), "fa": (0.6, 0.4), "bp": (1.0, 0.9)}
    points = {rule: {"gamma": x, "accuracy": y} for rule, (x, y) in apart.items()}
    fig = plot_audit_hero([make_record(rule, 1, last=points[rule]) for rule in rules], rules=rules)
    written = [text.get_text() for text in panel(fig, "architecture").texts]
    assert written.index("BP") < min(written.index(label) for label in ("My rule", "DFA", "FA"))
    assert {text.get_text() for text in panel(fig, "A").texts} >= {LABELS[rule] for rule in rules}
    assert len(legend_texts(fig, "A")) == 1  # the dots
    close = plot_audit_hero([make_record(rule, 1, last={"gamma": 0.0, "accuracy": 0.1}) for rule in rules], rules=rules)
    assert not {text.get_text() for text in panel(close, "A").texts} & {LABELS[rule] for rule in rules}
    assert set(legend_texts(close, "A")) >= {LABELS[rule] for rule in rules}


def legend_texts(fig: Figure, letter: str) -> list[str]:
    legends = [found for found in panel(fig, letter).findobj(Legend) if isinstance(found, Legend)]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def test_architecture_names_every_tap_and_elides_deep_nets():
    drawing = panel(plot_audit_hero(make_records()), "architecture")
    written = [text.get_text() for text in drawing.texts]
    for name in ("stem", "block 1", "block 4", "head", "h₀", "h₄", "BP", "block FA", "DFA"):
        assert name in written
    assert written.count("g₄") == 2  # BP's and block FA's last tap get the exact gradient
    assert written.count("B₄") == 1  # DFA's does not
    assert shown_taps(21) == [0, 1, 2, 18, 19, 20]


def test_no_text_leaves_the_page_or_covers_another():
    fig = plot_audit_hero(make_records(("bp", "fa", "block_fa", "dfa")), rules=("bp", "fa", "block_fa", "dfa"))
    assert_clear(fig)


def test_files_are_written_with_type_42_fonts_and_nothing_global_changes(tmp_path):
    before = dict(matplotlib.rcParams)
    fig = plot_audit_hero(make_records())
    png, pdf = save_figure(fig, tmp_path / "new", "hero")
    assert (png.name, pdf.name) == ("hero.png", "hero.pdf")
    assert png.stat().st_size > 10_000
    data = pdf.read_bytes()
    assert data.startswith(b"%PDF")
    assert b"/Type3" not in data
    assert b"/CIDFontType2" in data or b"/TrueType" in data
    assert dict(matplotlib.rcParams) == before
    again = save_figure(plot_audit_hero(make_records()), tmp_path, "again")[1]
    assert again.read_bytes() == data


def test_drawing_needs_neither_torch_nor_pyplot():
    code = (
        "import sys; import creditscope.paper.figures; assert 'matplotlib' not in sys.modules; "
        "import creditscope.paper.figures.audit_hero; "
        "assert 'torch' not in sys.modules; assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_footer_names_what_is_not_the_default():
    plain = [make_record(rule, 4) for rule in ("bp", "block_fa")]
    said = texts(plot_audit_hero([*plain, make_record("dfa", 4, credit_norm="batch")]))
    assert "DFA: credit norm batch" in " ".join(said.split())
    assert "credit norm" not in texts(plot_audit_hero([*plain, make_record("dfa", 4)]))
