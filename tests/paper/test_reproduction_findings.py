"""Artefacts and what must hold: computed from the records, and said otherwise when these say otherwise."""

from dataclasses import replace

import numpy as np
import pytest
from builders import make_weights
from paper_runs import run_of
from reproduced import change, everything, is_seed
from scipy import stats

from creditscope.paper.reproduction import write_reproduction
from creditscope.paper.reproduction._conditions import CONDITIONS
from creditscope.paper.reproduction._shelf import Shelf
from creditscope.paper.reproduction.artefacts import (
    change_of_units,
    clamp_taps,
    clamped_cosine,
    exact_tap,
    list_artefacts,
    weight_decay,
)
from creditscope.paper.reproduction.claims import list_claims
from creditscope.paper.studies import DerivedRecord
from creditscope.paper.studies._derived import Line, Source, derived_path, write_derived
from creditscope.paper.studies._recipes import TWENTY_SEEDS
from creditscope.paper.studies.rescaling import FACTORS
from creditscope.record import Record


def claims(records) -> dict[str, tuple[bool | None, str]]:
    return {c.text: (c.holds, c.numbers) for c in list_claims(Shelf(records))}


def starting(found, words: str) -> tuple[bool | None, str]:
    (text,) = [text for text in found if text.startswith(words)]
    return found[text]


def traced(records, *, norm: bool, net="resmlp", credit="none", seeds=TWENTY_SEEDS, g, h) -> list[Record]:
    """The DFA trajectories of a net with these ‖g_L‖ and sizes of the last block's output at the end."""
    found = []
    for record in records:
        spec = record.spec
        own = spec.net == net and spec.rule == "dfa" and spec.epochs == 100 and spec.credit_norm == credit
        own = own and spec.net_options["terminal_norm"] is norm and spec.targets == "true" and not spec.frozen
        if own and spec.net_options["width"] in (128, 256) and spec.seed in seeds:
            taps = {"g_norm": (1.0, 1.0, 1.0, 1.0, g), "h_rms": (1.0, 1.0, 1.0, 1.0, h)}
            taps["h_norm"] = (1.0, 1.0, 1.0, 1.0, 11.0 * h)
            last = replace(record.last, taps=replace(record.last.taps, **taps))
            if last.class_token is not None:
                last = replace(last, class_token=replace(last.class_token, **taps))
            record = replace(record, snapshots=(*record.snapshots[:-1], last))
        found.append(record)
    return found


class TestArtefacts:
    def test_clamped_cosines_by_hand(self):
        tiny = {"cos": (0.5, 0.3, 0.2, 0.1, 0.04), "g_norm": (1.0, 1e-2, 1e-4, 1e-6, 1.024e-7), "ratio": (1e3,) * 5}
        records = change("acc-dfa", taps=lambda i: tiny)
        record = next(r for r in records if is_seed(r, "dfa", (42,)))
        found = {one.tap: one for one in clamp_taps(record)}
        assert set(found) == {1, 2, 3, 4}
        g, a = 1.024e-7 / 1024, 1.024e-4 / 1024
        assert (found[4].g, found[4].a) == pytest.approx((g, a))
        assert found[4].by_norm == pytest.approx(0.04 * g / 1e-8)  # ‖g‖ is 1e-10, a hundredth of the clamp
        assert found[4].by_product == pytest.approx(0.04 * g * a / 1e-8)
        assert found[1].by_norm == found[1].cos
        text = clamped_cosine(Shelf(records))
        assert "tap 4 (‖g‖ 10⁻¹⁰): +0.0400 → +0.0004 and 4×10⁻¹¹" in text
        assert "tap 1 (‖g‖ 9.8×10⁻⁶): +0.3000 → +0.3000" in text
        assert "at most 100 times too small" in text
        assert "dfa-s1-" in text

    def test_cosines_that_are_not_clamped(self):
        assert "not changed by clamped norms: none is below the clamp" in clamped_cosine(Shelf(everything()))

    def test_a_change_of_units_crosses_the_floor(self):
        base = next(r for r in everything() if is_seed(r, "bp", (42,)))
        derived = []
        for k in range(5):
            taps = replace(base.last.taps, g_norm=(1.0, 1.0, 1.0, 1.0, 0.02 / 10**k))
            last = replace(base.last, taps=taps, accuracy=0.6)
            derived.append(DerivedRecord(base.spec, base.provenance, (last,), None, 10.0**k))
        text = change_of_units(derived)
        assert "c = 1 to 10,000, 1 seed" in text
        assert "is crossed from c = 10,000 on in every seed, while accuracy does not change" in text
        assert "from 0.02 to 2×10⁻⁶" in text
        assert "crossed at no c" in change_of_units(derived[:3])
        other = [*derived[:-1], replace(derived[-1], snapshots=(replace(derived[-1].last, accuracy=0.5),))]
        assert "at most 10.00 pp" in change_of_units(other)
        assert "crossed" in list_artefacts(Shelf([]), derived)["A change of units"]

    def test_rescaled_nets_are_found_beside_their_records(self, tmp_path):
        base = next(r for r in everything() if is_seed(r, "bp", (123,)))
        lines = []
        for c in FACTORS:
            taps = replace(base.last.taps, g_norm=(1.0, 1.0, 1.0, 1.0, 0.02 / c))
            lines.append(Line(condition=c, snapshot=replace(base.last, taps=taps)))
        source = Source(study="rescaling", run=base.spec.name(), weights="", provenance=base.provenance)
        write_derived(derived_path(tmp_path, "rescaling", base), source, lines)
        page = write_reproduction(everything(), tmp_path / "page.md", root=tmp_path).read_text()
        assert "multiplied by c = 1 to 10⁸, 1 seed: the published floor (1.28×10⁻⁵ per sample) is crossed from" in page
        assert "crossed from c = 10,000 on" in page
        assert "9 measurements of rescaled nets" in page

    def test_gamma_without_the_exact_tap(self):
        gammas = [0.25 + 0.01 * i for i in range(20)]
        text = exact_tap(Shelf(change("acc-block-fa", gamma=lambda i: gammas[i], gamma_inexact=lambda i: 0.001)))
        half = stats.t.ppf(0.975, 19) * stats.sem(gammas)
        assert f"hands tap 4 the gradient itself: Γ over all block taps is {np.mean(gammas):+.4f} ± {half:.4f}" in text
        assert "without exact credit +0.0010 ± 0.0000 (n = 20)" in text

    def test_weight_decay(self):
        def runs(decay: bool, accuracy: float, norm: float) -> list[Record]:
            weights = make_weights(exact_float32=norm, exact_all_zero=0)
            wanted = CONDITIONS["gcn-10" if decay else "gcn-10-no-decay"]
            return [run_of({**wanted, "seed": s}, accuracy=accuracy, weights=weights) for s in (1, 2, 3)]

        text = weight_decay(Shelf([*runs(True, 0.1, 0.0), *runs(False, 0.65, 0.5)]))
        assert (
            "With decay on every layer: accuracy 0.1000 ± 0.0000 (n = 3), float32 norm of the gradient 0 in 6 of 6"
            in text
        )
        assert "With no decay: accuracy 0.6500 ± 0.0000 (n = 3), float32 norm of the gradient 0 in 0 of 6" in text
        assert weight_decay(Shelf(runs(True, 0.1, 0.0))) == "Not on record."


class TestClaims:
    def test_bp(self):
        words = "accuracy, BP within 1.5 pp of published (0.615"
        near = change("acc-bp", accuracy=lambda i: 0.62 + 1e-4 * i)
        holds, said = starting(claims(near), words)
        assert holds
        assert said.startswith("0.6210 ±")
        assert starting(claims(change("acc-bp", accuracy=lambda i: 0.57)), words)[0] is False
        assert starting(claims([]), words) == (None, "not on record")

    @pytest.mark.parametrize(("net", "name"), [("resmlp", "ResMLP"), ("vit", "ViT-Mini")])
    def test_with_a_terminal_norm(self, net, name):
        found = claims(traced(everything(), net=net, norm=True, g=1e-6, h=1e6))
        holds, said = starting(found, f"{name} with a terminal norm: DFA crosses")
        n = 20 if net == "resmlp" else 3
        assert holds
        assert f"crossed by {n} of {n} seeds at N = 128, {n} of {n} seeds at N = 1,024; ‖g_L‖ per sample" in said
        holds, said = starting(found, f"{name} with a terminal norm: DFA's stream")
        assert holds
        assert f"growth passes 50 in {n} of {n} seeds; ‖h_L‖ at the end over ‖h_L‖ before training 1.0e6" in said
        between = claims(traced(everything(), net=net, norm=True, g=5e-5, h=40.0))
        holds, said = starting(between, f"{name} with a terminal norm: DFA crosses")
        assert holds is False
        assert f"0 of {n} seeds at N = 128, {n} of {n} seeds at N = 1,024" in said
        assert starting(between, f"{name} with a terminal norm: DFA's stream")[0] is False

    def test_without_a_terminal_norm(self):
        words = "ResMLP without a terminal norm: DFA does not cross"
        assert starting(claims(everything()), words)[0] is True
        holds, said = starting(claims(traced(everything(), norm=False, g=1e-6, h=1.0)), words)
        assert holds is False
        assert "crossed by 20 of 20 seeds" in said

    def test_seeds_are_counted_where_they_disagree(self):
        """One seed stays above the floor at N = 128 only, and does not explode."""
        most = traced(everything(), norm=True, g=1e-6, h=1e6)
        found = list_claims(Shelf(traced(most, norm=True, seeds=(7,), g=5e-5, h=40.0)))
        answers = {c.text: (c.holds, c.answer) for c in found}
        assert starting(answers, "ResMLP with a terminal norm: DFA crosses") == (False, "in 19 of 20 seeds")
        assert starting(answers, "ResMLP with a terminal norm: DFA's stream") == (False, "in 19 of 20 seeds")
        answers = {c.text: c.answer for c in list_claims(Shelf(most))}
        assert starting(answers, "ResMLP with a terminal norm: DFA crosses") == "yes"
        assert starting(answers, "ViT-Mini with a terminal norm: DFA crosses") == "**no**"
        assert {c.answer for c in list_claims(Shelf([]))} == {"–"}
        poor = change("cos-strong", taps=lambda i: {"rho_exact": (0.98 if i == 3 else 1.0,) * 5})
        answers = {c.text: c.answer for c in list_claims(Shelf(poor))}
        assert starting(answers, "The gradient itself") == "in 9 of 10 seeds"

    @pytest.mark.parametrize(("norm", "words"), [(True, "with"), (False, "without")])
    def test_credit_norm_sample_is_asked_apart(self, norm, words):
        name = f"ResMLP {words} a terminal norm, credit norm sample: DFA"
        plain = claims(traced(everything(), norm=norm, g=1e-6, h=1e6))
        sample = claims(traced(everything(), norm=norm, credit="sample", g=1e-6, h=1e6))
        floor, stream = (f"{name} crosses", f"{name}'s stream") if norm else (f"{name} does not", f"{name}'s stream")
        assert starting(plain, floor)[0] is not norm
        holds, said = starting(sample, floor)
        assert holds is norm
        assert "crossed by 3 of 3 seeds at N = 128, 3 of 3 seeds at N = 1,024" in said
        holds, said = starting(sample, stream)
        assert holds
        assert "growth passes 50 in 3 of 3 seeds" in said
        assert starting(plain, stream)[0] is False

    def test_a_stream_that_grows_without_a_terminal_norm(self):
        words = "ResMLP without a terminal norm: DFA's stream grows"
        assert starting(claims(traced(everything(), norm=False, g=1.0, h=2.0)), words)[0] is True
        assert starting(claims(traced(everything(), norm=False, g=1.0, h=0.5)), words)[0] is False

    def test_null_and_control(self):
        words = "Fresh feedback is a null"
        strong = change("cos-strong", taps=lambda i: {"fresh_cos": (0.01,) * 5, "fresh_sd": (0.05,) * 5})
        assert starting(claims(strong), words) == (True, "+0.0100 ± 0.0000 (n = 10); sd over draws 0.0500 at a tap")
        biased = change("cos-strong", taps=lambda i: {"fresh_cos": (0.2,) * 5, "fresh_sd": (0.05,) * 5})
        assert starting(claims(biased), words)[0] is False
        words = "The gradient itself is a positive control"
        assert starting(claims(everything()), words)[0] is True
        poor = change("cos-strong", taps=lambda i: {"rho_exact": (0.98 if i == 3 else 1.0,) * 5})
        assert starting(claims(poor), words) == (False, "0.9980 ± 0.0045 (n = 10), smallest 0.9800")

    def test_the_penalty(self):
        words = "The penalty λ = 1e-2 lifts DFA's accuracy"
        records = {id(r): r for r in everything()}
        plain = change("brief-acc-dfa", accuracy=lambda i: 0.3)
        gains = [0.06 + 0.001 * i for i in range(10)]
        strong = change("brief-acc-dfa-strong", accuracy=lambda i: 0.3 + gains[i])
        changed = [p if id(p) not in records else s for p, s in zip(plain, strong, strict=True)]
        holds, said = starting(claims(changed), words)
        half = stats.t.ppf(0.975, 9) * stats.sem(gains)
        assert holds
        assert said == f"in pp {100 * np.mean(gains):+.2f} ± {100 * half:.2f} (n = 10)"
        lower = change("brief-acc-dfa-strong", accuracy=lambda i: 0.01 * i)
        changed = [p if id(p) not in records else s for p, s in zip(plain, lower, strict=True)]
        assert starting(claims(changed), words)[0] is False
