"""Artefacts and what must hold: computed from the records, and said otherwise when these say otherwise."""

from dataclasses import replace

import numpy as np
import pytest
from builders import make_weights
from paper_runs import run_of
from published_runs import change, everything, is_seed, numbers
from scipy import stats

from creditscope.paper.published.findings import (
    Claim,
    change_of_units,
    clamp,
    clamped_cosine,
    exact_tap,
    list_artefacts,
    list_claims,
    weight_decay,
)
from creditscope.paper.published.numbers import CONDITIONS
from creditscope.paper.published.page import write_reproduction
from creditscope.paper.published.readings import RunFinder
from creditscope.paper.studies._recipes import TWENTY_SEEDS
from creditscope.paper.studies.rescaling import FACTORS, DerivedRecord, Measured, Source, rescaled_path, write_rescaled
from creditscope.record import Record


def claim(records, start: str) -> Claim:
    """The one whose text begins so."""
    (found,) = [c for c in list_claims(RunFinder(records)) if c.text.startswith(start)]
    return found


def traced(records, *, norm: bool, net="resmlp", credit="none", seeds=TWENTY_SEEDS, g, h) -> list[Record]:
    """The DFA trajectories of a net with these ‖g_L‖ and sizes of the last block's output at the end."""
    taps = {"g_norm": (1.0, 1.0, 1.0, 1.0, g), "h_rms": (1.0, 1.0, 1.0, 1.0, h)}
    taps["h_norm"] = (1.0, 1.0, 1.0, 1.0, 11.0 * h)
    found = []
    for record in records:
        spec = record.spec
        own = (spec.net, spec.rule, spec.epochs, spec.credit_norm, spec.frozen) == (net, "dfa", 100, credit, False)
        own = own and spec.net_options["terminal_norm"] is norm and spec.targets == "true"
        if own and spec.net_options["width"] in (128, 256) and spec.seed in seeds:
            last = replace(record.last, taps=replace(record.last.taps, **taps))
            if last.class_token is not None:
                last = replace(last, class_token=replace(last.class_token, **taps))
            record = replace(record, snapshots=(*record.snapshots[:-1], last))
        found.append(record)
    return found


class TestArtefacts:
    def test_clamped_cosines_by_hand(self):
        g = np.array([1.0, 1.024e-7 / 1024])
        by_norm, by_product = clamp(np.array([0.3, 0.04]), g, 1e3 * g)
        assert by_norm == pytest.approx([0.3, 0.04 * g[1] / 1e-8])  # ‖g‖ is 1e-10, a hundredth of the clamp
        assert by_product == pytest.approx([0.3, 0.04 * g[1] * 1e3 * g[1] / 1e-8])
        tiny = {"cos": (0.5, 0.3, 0.2, 0.1, 0.04), "g_norm": (1.0, 1e-2, 1e-4, 1e-6, 1.024e-7), "ratio": (1e3,) * 5}
        text, run = clamped_cosine(RunFinder(change("acc-dfa", taps=lambda i: tiny)))
        assert "tap 4 (‖g‖ 10⁻¹⁰): +0.0400 → +0.0004 and 4×10⁻¹¹" in text
        assert "tap 1 (‖g‖ 9.8×10⁻⁶): +0.3000 → +0.3000" in text
        assert ("tap 0" in text, "at most 100 times" in text, "dfa-s1-" in run) == (False, True, True)
        assert "not changed" in clamped_cosine(RunFinder(everything()))[0]

    def test_a_change_of_units_crosses_the_floor(self):
        base = next(r for r in everything() if is_seed(r, "bp", (42,)))
        derived = []
        for k in range(5):
            taps = replace(base.last.taps, g_norm=(1.0, 1.0, 1.0, 1.0, 0.02 / 10**k))
            last = replace(base.last, taps=taps, accuracy=0.6)
            derived.append(DerivedRecord(base.spec, base.provenance, (last,), None, 10.0**k))
        text, run = change_of_units(derived)
        assert ("from c = 10,000 on" in text, "from 0.02 to 2×10⁻⁶" in text, run) == (True, True, base.name)
        assert "at no c" in change_of_units(derived[:3])[0]
        other = [*derived[:-1], replace(derived[-1], snapshots=(replace(derived[-1].last, accuracy=0.5),))]
        assert "10.00 pp" in change_of_units(other)[0]
        assert list_artefacts(RunFinder([]), derived)["A change of units"].startswith(text)

    def test_rescaled_nets_are_found_beside_their_records(self, tmp_path):
        base = next(r for r in everything() if is_seed(r, "bp", (123,)))
        taps = {c: replace(base.last.taps, g_norm=(1.0, 1.0, 1.0, 1.0, 0.02 / c)) for c in FACTORS}
        lines = [Measured(condition=c, snapshot=replace(base.last, taps=own)) for c, own in taps.items()]
        source = Source(study="rescaling", run=base.name, weights="", provenance=base.provenance)
        write_rescaled(rescaled_path(tmp_path, base), [source, *lines])
        write_reproduction(everything(), tmp_path / "page.md", root=tmp_path)
        page = (tmp_path / "page.md").read_text()
        assert all(words in page for words in ("c = 1 to 10⁸, 1 seed", "from c = 10,000 on", "9 measurements"))

    def test_gamma_without_the_exact_tap(self):
        gammas = [0.25 + 0.01 * i for i in range(20)]
        records = change("acc-block-fa", gamma=lambda i: gammas[i], gamma_inexact=lambda i: 0.001)
        half = stats.t.ppf(0.975, 19) * stats.sem(gammas)
        expected = [4, np.mean(gammas), half, 20, 0.001, 0.0, 20]
        assert numbers(exact_tap(RunFinder(records))[0]) == pytest.approx(expected, abs=5e-5)

    def test_weight_decay(self):
        def runs(name: str, accuracy: float, norm: float) -> list[Record]:
            how = {"accuracy": accuracy, "weights": make_weights(exact_float32=norm, exact_all_zero=0)}
            return [run_of({**CONDITIONS[name], "seed": s}, **how) for s in (1, 2, 3)]

        decayed = runs("gcn-10", 0.1, 0.0)
        text, _ = weight_decay(RunFinder([*decayed, *runs("gcn-10-no-decay", 0.65, 0.5)]))
        parts = [text.partition(label)[2].partition(". With")[0] for label in ("every layer:", "no decay:")]
        assert [numbers(p) for p in parts] == [[0.1, 0, 3, 32, 0, 6, 6, 0, 0], [0.65, 0, 3, 32, 0, 0, 6, 0, 0]]
        assert weight_decay(RunFinder(decayed)) == ("", "")


class TestClaims:
    def test_bp(self):
        words = "accuracy, BP within 1.5 pp of published (0.615"
        near = claim(change("acc-bp", accuracy=lambda i: 0.62 + 1e-4 * i), words)
        assert (near.holds, numbers(near.numbers)[0]) == (True, 0.621)
        assert claim(change("acc-bp", accuracy=lambda i: 0.57), words).holds is False
        assert {(c.holds, c.answer, c.numbers) for c in list_claims(RunFinder([]))} == {(None, "–", "not on record")}

    @pytest.mark.parametrize(("net", "name", "n"), [("resmlp", "ResMLP", 20), ("vit", "ViT-Mini", 3)])
    def test_with_a_terminal_norm(self, net, name, n):
        """Crossed at both N; between them it is crossed at the larger only, and a seed must say both."""
        crossing, stream = (f"{name} with a terminal norm: DFA{end}" for end in (" crosses", "'s stream"))
        found = traced(everything(), net=net, norm=True, g=1e-6, h=1e6)
        one = claim(found, crossing)
        assert (one.holds, one.answer, numbers(one.numbers)[:4]) == (True, "yes", [n, n, 128, n])
        one = claim(found, stream)
        assert (one.holds, numbers(one.numbers)[:3], "1.0e6" in one.numbers) == (True, [50, n, n], True)
        between = traced(everything(), net=net, norm=True, g=5e-5, h=40.0)
        one = claim(between, crossing)
        assert (one.holds, one.answer, numbers(one.numbers)[:4]) == (False, "**no**", [0, n, 128, n])
        assert claim(between, stream).holds is False

    @pytest.mark.parametrize(
        ("start", "end"), [("does not cross", {"g": 1e-6, "h": 1.0}), ("'s stream grows", {"g": 1.0, "h": 0.5})]
    )
    def test_without_a_terminal_norm(self, start, end):
        words = f"ResMLP without a terminal norm: DFA{start if start[0] == chr(39) else ' ' + start}"
        assert claim(traced(everything(), norm=False, g=1.0, h=2.0), words).holds is True
        assert claim(traced(everything(), norm=False, **end), words).holds is False

    def test_seeds_are_counted_where_they_disagree(self):
        """One seed stays above the floor at N = 128 only, and does not explode."""
        most = traced(everything(), norm=True, g=1e-6, h=1e6)
        found = traced(most, norm=True, seeds=(7,), g=5e-5, h=40.0)
        for end in (" crosses", "'s stream"):
            one = claim(found, f"ResMLP with a terminal norm: DFA{end}")
            assert (one.holds, one.seeds, numbers(one.answer)) == (False, (19, 20), [19, 20])

    @pytest.mark.parametrize(("norm", "words"), [(True, "with"), (False, "without")])
    def test_credit_norm_sample_is_asked_apart(self, norm, words):
        name = f"ResMLP {words} a terminal norm, credit norm sample: DFA"
        floor, stream = f"{name} {'crosses' if norm else 'does not'}", f"{name}'s stream"
        plain = traced(everything(), norm=norm, g=1e-6, h=1e6)
        sample = traced(everything(), norm=norm, credit="sample", g=1e-6, h=1e6)
        assert [claim(records, floor).holds for records in (plain, sample)] == [not norm, norm]
        assert [claim(records, stream).holds for records in (plain, sample)] == [False, True]
        assert numbers(claim(sample, floor).numbers)[:4] == [3, 3, 128, 3]

    @pytest.mark.parametrize(("cos", "holds"), [(0.01, True), (0.2, False)])
    def test_a_null_is_around_0(self, cos, holds):
        records = change("cos-strong", taps=lambda i: {"fresh_cos": (cos,) * 5, "fresh_sd": (0.05,) * 5})
        found = claim(records, "Fresh feedback is a null")
        assert (found.holds, numbers(found.numbers)) == (holds, [cos, 0, 10, 0.05])

    def test_a_positive_control(self):
        assert claim(everything(), "The gradient itself").holds is True
        poor = claim(change("cos-strong", taps=lambda i: {"rho_exact": (0.98 if i == 3 else 1.0,) * 5}), "The gradient")
        assert (poor.holds, poor.seeds, numbers(poor.numbers)) == (False, (9, 10), [0.998, 0.0045, 10, 0.98])

    @pytest.mark.parametrize(("gain", "holds"), [(lambda i: 0.06 + 0.001 * i, True), (lambda i: 0.01 * i - 0.3, False)])
    def test_the_penalty(self, gain, holds):
        known = {id(r) for r in everything()}
        plain = change("brief-acc-dfa", accuracy=lambda i: 0.3)
        strong = change("brief-acc-dfa-strong", accuracy=lambda i: 0.3 + gain(i))
        found = claim([s if id(p) in known else p for p, s in zip(plain, strong, strict=True)], "The penalty λ = 1e-2")
        gains = [100 * gain(i) for i in range(10)]
        half = stats.t.ppf(0.975, 9) * stats.sem(gains)
        assert found.holds is holds
        assert numbers(found.numbers.replace("−", "-")) == pytest.approx([np.mean(gains), half, 10], abs=5e-3)
