"""Figures over training (`snapshot_resmlp`, `snapshot_vit`, `cross_architecture`) against the records."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from drawn import head, lines, reach
from matplotlib.figure import Figure
from pages import assert_clear, texts
from trajectory_runs import EPOCHS, SEEDS, grow, make_cross, make_resmlp, make_run, with_growth

from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.errors import CreditscopeError
from creditscope.paper.figures import cross_architecture, snapshot_resmlp, snapshot_vit
from creditscope.paper.figures.cross_architecture import plot_cross_architecture
from creditscope.paper.figures.snapshot_resmlp import plot_snapshot_resmlp
from creditscope.paper.figures.snapshot_vit import plot_snapshot_vit
from creditscope.plots import Caption
from creditscope.record import Record, RuleFacts

pytestmark = pytest.mark.slow

WITH, WITHOUT = "ResMLP with terminal LayerNorm", "ResMLP without terminal LayerNorm"
VIT = "ViT-Mini with terminal LayerNorm, class token"
CHANGES = [f"median ‖{symbol}‖, change in orders of magnitude" for symbol in ("h₄", "g₂")]
FLOOR, GROWTH = "first epoch with median ‖g₂‖ under the floor", "first epoch with growth > 50"


def stated(caption: Caption) -> dict[tuple[str, str, str], Any]:
    """Statements by net, quantity and rule."""
    return {(s.panel, s.quantity, s.group): s for s in caption.statements}


def make_vit(**dfa: Any) -> list[Record]:
    return [make_run(rule, s, net="vit", **(dfa if rule == "dfa" else {})) for rule in ("bp", "dfa") for s in SEEDS]


class TestPicture:
    def test_norms_are_geometric_means_of_the_seeds(self):
        fig = plot_snapshot_resmlp(make_resmlp())
        stream, gradient = fig.axes[:2]
        (mean,) = lines(stream, "DFA mean")
        sizes = [[2**seed * 10 * 10 ** (4 * epoch / EPOCHS[-1]) for epoch in EPOCHS] for seed in SEEDS]
        assert mean[0].tolist() == list(EPOCHS)
        assert mean[1] == pytest.approx(np.exp(np.log(sizes).mean(axis=0)))
        assert [y.tolist() for _, y in lines(stream, "DFA seed")] == [pytest.approx(own) for own in sizes]
        assert lines(gradient, "DFA mean")[0][1] == pytest.approx([10 ** (-6 * e / EPOCHS[-1]) for e in EPOCHS])
        assert stream.get_yscale() == "log"
        assert "median ‖h₄‖" in {text.get_text() for text in stream.texts if text.get_gid() == "column"}

    def test_titles_tell_who_falls_under_the_floor(self):
        fig = plot_snapshot_resmlp(make_resmlp())
        heads = [head(ax) for ax in fig.axes if head(ax)[0]]
        assert [letter for letter, _ in heads] == ["A", "B"]
        assert heads[0][1] == f"{WITH}: under DFA ‖g₂‖ falls by 6.0 orders"
        assert heads[1][1].startswith(f"{WITHOUT}: ")
        assert "DFA" not in heads[1][1]

    def test_the_vit_is_drawn_by_its_class_token(self):
        """Its whole sample has a norm of 77."""
        fig = plot_snapshot_vit(make_vit())
        assert all(77 not in y for ax in fig.axes for _, y in lines(ax, "DFA seed"))
        assert len(lines(fig.axes[0], "DFA seed")) == len(SEEDS)

    def test_limits_are_drawn_where_they_are_near(self):
        fig = plot_cross_architecture(make_cross())
        assert len(fig.axes) == 9
        for row in range(3):
            stream, gradient, accuracy = fig.axes[3 * row : 3 * row + 3]
            assert [y.tolist() for _, y in lines(accuracy, "chance")] == [[0.1, 0.1]]
            assert not [line for ax in (stream, gradient) for line in lines(ax, "published floor")]
            assert lines(accuracy, "FA mean")[0][1][-1] == pytest.approx(0.52)
        near = plot_snapshot_resmlp(make_resmlp())
        assert [len(lines(ax, "published floor")) for ax in near.axes] == [0, 1, 0, 1]  # one range for a column
        assert lines(near.axes[1], "published floor")[0][1].tolist() == [PUBLISHED_FLOOR] * 2
        assert near.axes[1].get_ylim() == near.axes[3].get_ylim()
        assert_clear(fig)


class TestStatements:
    @pytest.mark.parametrize(("h", "g"), [(4, -6), (1, 0.5)])
    def test_changes_over_training(self, h, g):
        found = stated(snapshot_resmlp.describe(make_resmlp(h=grow(10, h), g=grow(1, g))))
        assert [found[WITH, name, "DFA"].value.mean for name in CHANGES] == pytest.approx([h, g])
        assert [found[WITHOUT, name, "DFA"].value.mean for name in CHANGES] == pytest.approx([2, 0])

    def test_when_limits_are_crossed(self):
        """10^(−6e/8) is under 1.28·10⁻⁵ from epoch 8 on, of those measured; at the top g is twice as large."""
        found = stated(snapshot_resmlp.describe(make_resmlp(block_growth=lambda epoch: 51.0 if epoch > 1 else 50.0)))
        assert found[WITH, FLOOR, "DFA"].value == "8 (3 of 3 seeds)"
        assert found[WITH, GROWTH, "DFA"].value == "2 (3 of 3 seeds)"
        assert {found[WITHOUT, name, "DFA"].value for name in (FLOOR, GROWTH)} == {"never"}
        some = [r for r in make_resmlp() if (r.spec.rule, r.spec.seed) != ("dfa", 3)]
        some += [make_run("dfa", 3), make_run("dfa", 3, terminal=False)]
        assert stated(snapshot_resmlp.describe(some))[WITH, FLOOR, "DFA"].value == "8 (2 of 3 seeds)"

    def test_growth_is_that_of_the_drawn_tokens(self):
        runs = make_vit()
        for whole, token, said in (((60, 60), (1, 1), "never"), ((1, 1), (1, 60), "8 (3 of 3 seeds)")):
            records = [with_growth(r, whole=whole, token=token) if r.spec.rule == "dfa" else r for r in runs]
            assert stated(snapshot_vit.describe(records))[VIT, GROWTH, "DFA"].value == said

    def test_accuracy_and_noise(self):
        noisy = [make_run("dfa", s, noise=(1e-7, 1e-7, 3e-4, 1e-7, 1e-7)) for s in SEEDS]
        plain = [r for r in make_resmlp() if r.spec.rule == "bp" or not r.spec.net_options["terminal_norm"]]
        found = stated(snapshot_resmlp.describe([*plain, *noisy]))
        assert found[WITH, "largest share of g that float64 changes", "DFA"].value == pytest.approx(3e-4)
        own, values = found[WITH, "accuracy", "DFA"].value, [0.61, 0.62, 0.63]
        assert (own.mean, own.high) == pytest.approx((0.62, 0.62 + reach(values)))


class TestGaps:
    @staticmethod
    def drawn(fig: Figure) -> list[int]:
        return [len(lines(ax, "DFA mean")) for ax in fig.axes]

    @pytest.mark.parametrize("case", ["rule", "net", "one seed"])
    def test_what_is_missing_is_marked(self, case):
        cases = {"rule": make_resmlp(rules=("bp",)), "one seed": make_resmlp(seeds=(1,))}
        records = cases.get(case, [r for r in make_resmlp() if r.spec.net_options["terminal_norm"]])
        fig, caption = plot_snapshot_resmlp(records), snapshot_resmlp.describe(records)
        gaps = {"rule": (f"{WITH}, dfa: not on record", f"{WITHOUT}, dfa: not on record"), "one seed": ()}
        assert caption.gaps == gaps.get(case, (f"{WITHOUT}: not on record",))
        assert self.drawn(fig) == {"rule": [0] * 4, "net": [1, 1, 0, 0], "one seed": [1] * 4}[case]
        assert ("not on record" in texts(fig)) == (case == "net")
        assert_clear(fig)

    def test_a_diverged_run_is_drawn_to_its_end_and_is_in_no_mean(self):
        records = [r for r in make_vit() if (r.spec.rule, r.spec.seed) != ("dfa", 3)]
        lost = make_run("dfa", 3, net="vit", h=grow(1e6, 4), epochs=EPOCHS[:3], diverged=3)
        ax, caption = plot_snapshot_vit([*records, lost]).axes[0], snapshot_vit.describe([*records, lost])
        assert sorted(len(x) for x, _ in lines(ax, "DFA seed")) == [3, 5, 5]
        assert lines(ax, "DFA mean")[0][1][0] == pytest.approx(10 * 2**1.5)  # of seeds 1 and 2
        assert f"{VIT}, dfa, seed 3: diverged in epoch 3" in caption.gaps
        assert stated(caption)[VIT, CHANGES[0], "DFA"].value.n == 2

    def test_thinned_seeds_are_averaged_where_all_have_a_snapshot(self):
        thin = make_run("dfa", 3, net="vit", epochs=(0, 4, 8))
        records = [*(r for r in make_vit() if (r.spec.rule, r.spec.seed) != ("dfa", 3)), thin]
        assert lines(plot_snapshot_vit(records).axes[0], "DFA mean")[0][0].tolist() == [0, 4, 8]

    def test_other_variants_and_seeds_are_left_out(self):
        extra = [make_run("dfa", s, net="vit", penalty=0.1, h=grow(1e9, 0)) for s in SEEDS]
        variant = RuleFacts(name="dfa", label="DFA", variant="sign")
        extra += [make_run("dfa", 1, net="vit", rule_facts=variant, rule_options={"sign": 1})]
        extra += [make_run("bp", 9, net="vit")]
        caption = snapshot_vit.describe([*make_vit(), *extra])
        assert caption.statements == snapshot_vit.describe(make_vit()).statements
        assert f"{VIT}, bp, seed 9: not every group has it" in caption.gaps

    def test_what_cannot_be_drawn_is_refused(self):
        with pytest.raises(CreditscopeError, match=r"bp, fa, dfa on ViT.* 0 records"):
            cross_architecture.describe([])
        with pytest.raises(CreditscopeError, match="lr"):
            plot_snapshot_vit([*make_vit(), make_run("dfa", 4, net="vit", lr=0.5)])


def lose(record: Record, how: str) -> Record:
    """A ViT run that diverged, or had a penalty; others as they are."""
    if record.spec is None or record.spec.net != "vit":
        return record
    if how == "diverged":
        return replace(record, provenance=replace(record.provenance, status="diverged", diverged_epoch=1))
    return replace(record, spec=replace(record.spec, penalty=0.1))


@pytest.mark.parametrize("how", ["diverged", "penalised"])
def test_a_net_without_usable_runs_does_not_keep_the_others_from_being_drawn(how):
    records = [lose(record, how) for record in make_cross()]
    caption = cross_architecture.describe(records)
    assert {statement.panel.partition(" ")[0] for statement in caption.statements} == {"ResMLP", "StudentNet,"}
    assert any(gap.startswith("ViT-Mini") for gap in caption.gaps)
    drawn = cross_architecture.plot_cross_architecture(records).axes[0]
    assert bool(lines(drawn, "DFA seed")) == (how == "diverged")
