"""Study and figure `normalisation`: which runs, and that marks and statements are the numbers of the records."""

from itertools import product

import numpy as np
import pytest
import torch
from builders import make_record
from pages import assert_clear, texts
from scipy import stats
from trained import train_run

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES
from creditscope.paper.figures.normalisation import describe, plot_normalisation
from creditscope.paper.studies import collect
from creditscope.paper.studies.normalisation import ALL_PENALTIES, NORMS, normalisation
from creditscope.plots import Caption, Statement
from creditscope.record import Record, RuleFacts
from creditscope.train.plan import plan_run
from creditscope.train.run import build_run

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3)
RATES = {"adamw": {"lr": 1e-3}, "sgd": {"lr": 0.02, "weight_decay": 5e-4}}
DFA = {"rule": RuleFacts(name="dfa", label="DFA", local=True)}
FIRST = "AdamW, terminal LayerNorm, lr 0.001"


def make_grid(*, penalties=(0.0, 0.01), odd=lambda **run: {}) -> list[Record]:
    """Frozen .30, frozen BP .40, BP .70, DFA .35 or .55 less .05 a norm, times the seed's part; `odd` changes runs."""
    found = []
    for optimiser, terminal, seed in product(RATES, (True, False), SEEDS):
        for rule, frozen, norm, penalty in (
            *(("dfa", False, norm, penalty) for norm in NORMS for penalty in penalties),
            *(("dfa", True, norm, 0.0) for norm in NORMS),
            *(("bp", frozen, "none", 0.0) for frozen in (True, False)),
        ):
            i = NORMS.index(norm)
            run = {"rule": rule, "frozen": frozen, "credit_norm": norm, "penalty": penalty, "seed": seed, "epochs": 60}
            run |= {"optimiser": optimiser, **RATES[optimiser]}
            run |= {"net_options": {"depth": 4, "width": 8, "terminal_norm": terminal}}
            own = 0.4 if rule == "bp" else 0.3 if frozen else (0.55 if penalty else 0.35) - 0.05 * i
            run["accuracy"] = (0.7 if (rule, frozen) == ("bp", False) else own) + 0.001 * seed**2 * (not frozen)
            run["taps"] = {"h_rms": (1.0, 2.0, (4.0 if penalty else 400.0) * 2**seed, 5.0, 5.0)}
            run["taps"] |= {"cos": (0.9, 0.8, 0.1 * i, 0.2, 0.3)} if rule == "dfa" else {}
            if (changes := odd(**run)) is not None:
                found.append(make_record(**{**run, "facts": DFA if rule == "dfa" else {}, **changes}))
    return found


def said(caption: Caption, quantity: str, group: str, panel: str = FIRST) -> Statement:
    (found,) = [s for s in caption.statements if (s.quantity, s.group, s.panel) == (quantity, group, panel)]
    return found


class TestStudy:
    def test_its_runs(self):
        runs = normalisation().runs
        assert len(runs) == 3 * 4 * (3 * 2 + 3 + 2)
        assert len(normalisation(penalties=ALL_PENALTIES, seeds=(1,)).runs) == 4 * (3 * 5 + 3 + 2)
        dfa = [r for r in runs if r["rule"] == "dfa" and not r.get("frozen")]
        found = {(r["optimiser"], r["net_options"]["terminal_norm"], r["credit_norm"], r["penalty"]) for r in dfa}
        assert found == set(product(("adamw", "sgd"), (True, False), NORMS, (0.0, 0.01)))
        assert {r.get("lr", 1e-3) * r.get("weight_decay", 0.01) for r in runs} == {1e-5}

    def test_one_frozen_run_serves_every_penalty(self):
        """A penalty has no trained parameter to act on."""
        ends = []
        for penalty in (0.0, 0.1):
            small = {"net_options": {"depth": 2, "width": 8}, "epochs": 1, "rule": "dfa", "frozen": True}
            run = build_run(plan_run(task="digits", **small, penalty=penalty))
            train_run(run, audit=False)
            ends.append(run.tensors())
        assert all(torch.equal(tensor, ends[1][name]) for name, tensor in ends[0].items())

    def test_it_is_trained_and_drawn(self, tmp_path):
        study = normalisation("test", seeds=(1,), penalties=(0.01,))
        problems: list[str] = []
        records = collect(study, tmp_path, train=True, problems=problems, slots=1, device="cpu")
        again = collect(study, tmp_path, train=False, problems=problems)
        assert (len(records), len(again), len(study.runs), problems) == (32, 32, 32, [])
        assert_clear(FIGURES.get("normalisation")(records))
        gain = said(describe(records), "use of depth, pp", "none, λ = 10⁻²")
        assert (gain.n, gain.verdict) == ("1", "CS004 skipped")


class TestFigure:
    def test_marks_and_statements_are_the_numbers_of_the_records(self):
        records = make_grid()
        caption, fig = describe(records), plot_normalisation(records)
        extra = 0.001 * np.array(SEEDS) ** 2
        for i, norm in enumerate(NORMS):
            columns = {
                "accuracy": 0.55 - 0.05 * i + extra,
                "use of depth, pp": 100 * (0.15 - 0.05 * i + extra),  # over frozen BP, the better baseline
                "deep cosine": np.full(3, (0.1 * i + 0.5) / 3),
                "largest growth over a block": 2.0 ** (np.array(SEEDS) + 1),
            }
            for (name, values), row in zip(columns.items(), np.array(fig.axes).reshape(4, 4).T, strict=True):
                log = name.startswith("largest")
                used = np.log(values) if log else values
                wanted = used.mean() + np.array([-1, 0, 1]) * stats.t.ppf(0.975, 2) * stats.sem(used)
                wanted = np.exp(wanted) if log else wanted
                value = said(caption, name, f"{norm}, λ = 10⁻²").value
                np.testing.assert_allclose((value.low, value.mean, value.high), wanted)
                drawn = {line.get_gid(): line.get_xdata() for line in row[3].lines}  # all settings are alike
                np.testing.assert_allclose(drawn[f"{norm} λ = 10⁻²"], wanted[1:2])
                np.testing.assert_allclose(drawn[f"{norm} λ = 10⁻² interval"], wanted[::2])
            cost = [s for s in caption.statements if "minus" in s.quantity and s.group == f"{norm}, λ = 0"]
            assert [s.value.mean for s in cost] == pytest.approx([5 * i] * 4 if i else [])
        drawn = {line.get_gid(): line.get_xdata()[0] for line in fig.axes[0].lines}
        means = {"BP none": 0.7 + extra.mean(), "frozen BP none": 0.4, "frozen DFA batch": 0.3}
        assert {name: drawn[name] for name in means} == pytest.approx(means)
        assert said(caption, "accuracy", "BP").value.mean == pytest.approx(means["BP none"])
        assert "SGD, no terminal norm, lr 0.02" in texts(fig)

    @pytest.mark.parametrize(("bp", "outcome"), [(0.7, "passed"), (0.41, "not applicable")])
    def test_checks_judge(self, bp, outcome):
        odd = lambda rule, frozen, **_: {"accuracy": bp} if (rule, frozen) == ("bp", False) else {}  # noqa: E731
        caption = describe(make_grid(odd=odd))
        assert said(caption, "use of depth, pp", "none, λ = 10⁻²").verdict == f"CS004 {outcome}"
        growths = [said(caption, "largest growth over a block", f"none, λ = {p}").verdict for p in ("0", "10⁻²")]
        assert growths == ["CS001 issue", "CS001 passed"]

    @pytest.mark.parametrize("penalties", [(0.0, 0.01), ALL_PENALTIES])
    def test_what_diverged_or_is_missing_is_said(self, penalties):
        def odd(rule, frozen, credit_norm, penalty, optimiser, net_options, seed, **_):
            condition = credit_norm, penalty, optimiser, net_options["terminal_norm"]
            if (rule, seed) == ("bp", 3) or (condition == ("none", 0.01, "adamw", True) and not frozen):
                return None if rule == "bp" or not frozen else {}
            return {"diverged": 3} if condition == ("sample", 0.0, "sgd", True) and not frozen else {}

        records = make_grid(penalties=penalties, odd=odd)
        caption, fig = describe(records), plot_normalisation(records)
        lost = said(caption, "runs that diverged", "sample, λ = 0", "SGD, terminal LayerNorm, lr 0.02")
        assert (lost.value, said(caption, "accuracy", "none, λ = 10⁻²").value) == ("3 of 3", None)
        gaps = [f"{FIRST}, DFA, none, 0.01: not on record", f"{FIRST}, frozen BP, none, 0.0, seed 3: not on record"]
        gaps += ["SGD, terminal LayerNorm, lr 0.02, DFA, sample, 0.0: diverged in epoch 3"]
        assert set(gaps) <= set(caption.gaps)
        assert "3/3 diverged" in texts(fig)
        assert fig.get_size_inches()[1] < 10.5  # a page
        assert_clear(fig)

    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            ({"lr": 0.5}, "adamw, but got 0.001 and 0.01, 0.5 and 0.01"),
            ({"epochs": 9}, r"epochs \(.*9"),
            ({"net_options": {"depth": 4, "width": 9, "terminal_norm": True}}, "net_options.width"),
        ],
    )
    def test_mixed_settings_are_refused(self, changes, named):
        odd = lambda penalty, optimiser, **_: changes if (penalty, optimiser) == (0.01, "adamw") else {}  # noqa: E731
        with pytest.raises(CreditscopeError, match=named):
            plot_normalisation(make_grid(odd=odd))

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(CreditscopeError, match="dfa by credit norm"):
            plot_normalisation([make_record(rule="bp")])
