"""Accuracy against Γ, courses over epochs, and the ladder of trained blocks."""

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot
from drawn import line, lines, note, of_rule, words

from creditscope import plots
from creditscope.auditing import audit
from creditscope.errors import CreditscopeError


class TestPair:
    def test_dots_and_means_are_those_of_the_records(self, runs):
        ax = plots.pair(runs)
        expected = np.array([[r.last.gamma, r.last.accuracy] for r in of_rule(runs.records, "dfa")]).T
        np.testing.assert_allclose(line(ax, "DFA seeds"), expected)
        np.testing.assert_allclose(line(ax, "DFA mean")[:, 0], expected.mean(axis=1))

    def test_frozen_runs_and_rungs_are_no_dots(self, runs):
        drawn = {x.get_gid() for x in plots.pair(runs).lines if " " in str(x.get_gid())}
        assert drawn == {f"{rule} {what}" for rule in ("BP", "DFA") for what in ("seeds", "mean")}

    def test_the_best_constant_guess_comes_before_chance(self, runs):
        facts = runs.records[0].facts
        assert line(plots.pair(runs), "chance")[1].tolist() == [facts.best_constant] * 2
        ax = plots.pair([make_record(facts={"chance": 0.1, "best_constant": None})])
        assert line(ax, "chance")[1].tolist() == [0.1, 0.1]
        assert words(ax) == ["chance", "DFA"]

    def test_points_too_near_for_names_have_a_key(self):
        records = [make_record(rule=rule) for rule in ("dfa", "fa")]
        key = plots.pair(records).get_legend()
        assert key is not None
        assert [text.get_text() for text in key.get_texts()] == ["DFA", "FA"]
        assert plots.pair(records, labels=False).get_legend() is None


class TestOverEpochs:
    def test_seeds_and_their_mean(self, runs):
        ax = plots.over_epochs(runs)
        expected = np.array([[s.accuracy for s in r.snapshots] for r in of_rule(runs.records, "dfa")])
        np.testing.assert_allclose([y for _, y in lines(ax, "DFA seed")], expected)
        np.testing.assert_allclose(line(ax, "DFA mean"), [[0, 1], expected.mean(axis=0)])
        assert ax.get_yscale() == "linear"

    @pytest.mark.parametrize("tap", [1, "blocks.0"])
    def test_a_norm_of_a_tap_is_on_a_log_axis(self, runs, tap):
        ax = plots.over_epochs(runs, "g_norm", tap=tap)
        norms = np.array([[s.taps.g_norm[1] for s in r.snapshots] for r in of_rule(runs.records, "bp")])
        np.testing.assert_allclose(line(ax, "BP mean")[1], np.exp(np.log(norms).mean(axis=0)))
        assert (ax.get_yscale(), ax.get_ylabel().endswith("tap 1 (blocks.0)")) == ("log", True)

    def test_the_mean_is_at_epochs_that_all_seeds_have(self):
        facts, records = make_facts(), []
        for seed, epochs in {1: (0, 1, 2), 2: (0, 2), 3: (0, 1)}.items():
            taken = [make_snapshot(facts, epoch=e, accuracy=0.1 * seed + e / 100) for e in epochs]
            records.append(make_record(seed=seed, epochs=2, snapshots=taken, diverged=2 if seed == 3 else None))
        ax = plots.over_epochs(records)
        np.testing.assert_allclose(line(ax, "DFA mean"), [[0, 2], [0.15, 0.17]])
        assert len(lines(ax, "DFA seed")) == 3
        assert "diverged, drawn until then: DFA (1 of 3)" in note(ax)

    def test_a_watched_model_is_drawn(self, scope):
        ax = plots.over_epochs(scope, "loss")
        np.testing.assert_allclose(line(ax, "DFA, measured only mean"), [[0, 1], [s.loss for s in scope.snapshots]])
        assert note(ax) == "one run"

    @pytest.mark.parametrize(
        ("quantity", "tap", "message"),
        [
            ("nope", None, "Expected the name of a quantity, but got 'nope'. Choices: accuracy"),
            ("g_norm", None, r"Expected the tap of which to draw g_norm, but got none\. Add tap="),
            ("loss", 1, "Expected no tap for loss, which is of the whole net, but got 1"),
            ("g_norm", 9, r"Expected a tap from 0 to 2 or among stem, blocks\.0, blocks\.1, but got 9"),
            ("g_norm", "head", "but got 'head'"),
            ("rho", 1, "Expected records with values of rho, but got none"),
            ("accuracy_refit", None, "Expected records with values of accuracy_refit, but got none"),
        ],
    )
    def test_what_cannot_be_drawn_is_refused(self, runs, quantity, tap, message):
        with pytest.raises(CreditscopeError, match=message):
            plots.over_epochs(runs, quantity, tap=tap)


class TestLadder:
    def test_rungs_are_frozen_the_last_blocks_and_all(self, runs):
        ax = plots.ladder(runs)
        expected = {}
        for record in runs.records:
            if record.spec.rule == "dfa":
                k = 0 if record.spec.frozen else 2 if record.spec.train_last == -1 else record.spec.train_last
                expected.setdefault(k, []).append(record.last.accuracy)
        assert sorted(expected) == [0, 1, 2]
        means = [np.mean(expected[k]) for k in range(3)]
        np.testing.assert_allclose(line(ax, "DFA filled"), [[0, 1, 2], means], rtol=1e-9)
        assert sorted(words(ax)) == ["BP", "DFA"]

    def test_runs_that_diverged_are_on_no_rung(self):
        rungs = {"frozen": {"frozen": True}, "one": {"train_last": 1}, "all": {}}
        records = [make_record(seed=s, accuracy=0.5 + s / 10, **how) for how in rungs.values() for s in (1, 2)]
        records += [make_record(seed=3, accuracy=0.1, diverged=1, **how) for how in rungs.values()]
        np.testing.assert_allclose(line(plots.ladder(records), "DFA filled"), [[0, 1, 4], [0.65] * 3])

    def test_without_rungs_it_is_refused(self):
        with pytest.raises(CreditscopeError, match=r"only the last blocks trained .* but got none\. .*ladder=True"):
            plots.ladder([make_record()])


class TestVerdicts:
    def test_rows_are_those_of_the_audit(self, runs):
        found, ax = audit(runs), plots.verdicts(runs)
        said = words(ax)
        for row, method in enumerate(found.methods):
            name, word, codes = said[3 * row : 3 * row + 3]
            assert (name, f"{word} {codes}".strip()) == (method.method, str(method.verdict))
