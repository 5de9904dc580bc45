"""Study and figure `bottleneck_controls`: which runs, which numbers, and which control removes the collapse."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from builders import make_facts, make_record, make_snapshot, make_weights
from drawn import head
from pages import assert_clear
from scipy import stats

from creditscope.errors import CreditscopeError
from creditscope.paper.figures import FIGURES
from creditscope.paper.figures.bottleneck_controls import (
    MARGIN,
    ControlRow,
    control_name,
    describe,
    judge,
    plot_bottleneck_controls,
)
from creditscope.paper.studies import collect, find_missing
from creditscope.paper.studies.bottleneck_controls import BASELINE, CONTROLS, bottleneck_controls
from creditscope.plots import Statement
from creditscope.record import LayerMeasures, Record, WeightFact
from creditscope.record.pick import Cell
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow

SEEDS = (1, 2, 3, 4)
MAJORITY = 0.319
ACCURACIES = {
    "baseline": 0.1,
    "no decay": 0.7,
    "decay on the first layer only": 0.68,
    "gain 2": 0.75,
    "gain √2": 0.72,
    "decoupled decay": 0.66,
    "SGD": 0.09,
    "float64": 0.1,
    "Â = I": 0.2,
    "residual": 0.78,
    "row-normalised Â": 0.12,
    "PairNorm on row-normalised Â": 0.6,
}
"""As measured on Cora at L = 10, rounded: the collapse goes with decay, its coupling, or the small start."""
ZEROS = ("baseline", "float64", "Â = I", "row-normalised Â")
Key = tuple[int, str, int]


def make_run(wanted: dict[str, Any], *, accuracy: float, zeros: bool, w_norm: float = 8.0) -> Record:
    """A run of `depth` layers: gradients of 1e-4 before training, and after it, unless their norm is zero."""
    depth = wanted["net_options"]["depth"]
    weights = tuple(WeightFact(name=f"layers.{i}", stage=i, role="rule") for i in range(depth))
    facts = {"rule": "bp", "depth": depth - 2, "classes": 7, "chance": 1 / 7, "best_constant": MAJORITY}
    known = make_facts(**facts, weights=weights)
    layers = LayerMeasures(
        z_grad=(*[1e-3] * (depth - 1), 0.0782),
        rms=tuple(float(1 + i) for i in range(depth + 1)),
        dispersion=tuple(0.5 * (1 + i) for i in range(depth + 1)),
        probe=(0.9, *np.linspace(0.4, 0.6, depth - 1).tolist(), 0.95),
    )
    start = make_weights(depth, w_norm=w_norm, exact_norm=1e-4, exact_float32=1e-4)
    end = make_weights(depth, exact_float32=0.0 if zeros else 1e-4, exact_all_zero=0)
    snapshots = [
        make_snapshot(known, epoch=0, accuracy=0.11, weights=start, layers=layers),
        make_snapshot(known, epoch=wanted["epochs"], accuracy=accuracy, weights=end, layers=layers),
    ]
    return make_record(**{**wanted, "facts": {**facts, "weights": weights}, "snapshots": snapshots})


def make_study(
    *, depths=(10,), seeds=SEEDS, accuracies: Mapping[str, float] = ACCURACIES, zeros=ZEROS
) -> dict[Key, Record]:
    """Records by (depth, control, seed), a little different by seed."""
    found = {}
    for wanted in bottleneck_controls("paper", depths=depths, seeds=seeds).runs:
        name = control_name(make_record(**wanted).spec)
        accuracy = accuracies[name] + 0.004 * (wanted["seed"] % 3)
        found[wanted["net_options"]["depth"], name, wanted["seed"]] = make_run(
            wanted, accuracy=accuracy, zeros=name in zeros
        )
    return found


def with_accuracies(found: dict[Key, Record], control: str, values: Sequence[float]) -> dict[Key, Record]:
    """The same, but for one control at 10 layers, by seed."""
    keys, changed = [(10, control, seed) for seed in SEEDS], dict(found)
    for key, accuracy in zip(keys, values, strict=True):
        first, last = found[key].snapshots
        changed[key] = replace(found[key], snapshots=(first, replace(last, accuracy=accuracy)))
    return changed


def facts(records: Sequence[Record] | Mapping[Key, Record], depth: int = 10) -> dict[str, dict[str, Statement]]:
    """What is stated of a depth, by control and quantity."""
    caption = describe(list(records.values()) if isinstance(records, Mapping) else records)
    found: dict[str, dict[str, Statement]] = {}
    for one in caption.statements:
        if one.panel == f"L = {depth}":
            found.setdefault(one.group, {})[one.quantity] = one
    return found


def answers(records: Mapping[Key, Record]) -> dict[str, str]:
    return {name: found["accuracy"].verdict for name, found in facts(records).items()}


class TestStudy:
    def test_its_runs(self):
        runs = bottleneck_controls("paper").runs
        assert len(runs) == 3 * len(CONTROLS) * 10
        assert {(run["task"], run["net_options"]["depth"]) for run in runs} == {("cora", 6), ("cora", 10), ("cora", 20)}
        assert {run["rule"] for run in runs} == {"bp"}
        assert sorted(control.name for control in CONTROLS) == sorted(ACCURACIES)

    def test_every_run_is_planned_found_again_and_known_for_what_it_is(self):
        study = bottleneck_controls("test", seeds=(1,))
        specs = [plan_run(**wanted) for wanted in study.runs]
        assert len({spec.digest() for spec in specs}) == len(CONTROLS)
        assert [control_name(spec) for spec in specs] == [control.name for control in CONTROLS]
        records = [make_record(**vars(spec)) for spec in specs]
        assert find_missing(study, records) == []
        for i in range(len(records)):
            assert find_missing(study, records[:i] + records[i + 1 :]) == [study.runs[i]]

    def test_controls_change_one_thing(self):
        baseline, *others = (
            plan_run(**wanted) for wanted in bottleneck_controls("paper", seeds=(1,), depths=(10,)).runs
        )
        for spec in others:
            fields = [n for n, v in vars(spec).items() if v != getattr(baseline, n)]
            net = [n for n, v in spec.net_options.items() if v != baseline.net_options[n]]
            changes = [n for n in fields if n not in ("net_options", "task_options")] + net
            changes += ["normalisation"] * (spec.task_options != baseline.task_options)
            assert len(changes) == 1 or changes == ["norm", "normalisation"]  # PairNorm is held against the row alone

    def test_it_is_trained_and_drawn(self, tmp_path):
        problems: list[str] = []
        study = bottleneck_controls("test", seeds=(1,))
        records = collect(study, tmp_path, train=True, problems=problems, slots=1, device="cpu")
        assert (len(records), problems) == (len(CONTROLS), [])
        assert_clear(FIGURES.get("bottleneck_controls")(records))
        (baseline,) = [r for r in records if r.spec and control_name(r.spec) == "baseline"]
        first = baseline.snapshots[0].weights
        assert first
        assert baseline.spec
        ratios = baseline.spec.weight_decay * np.array(first.w_norm) / np.array(first.exact_norm)
        stated = {name: found.get("decay term over gradient") for name, found in facts(records, depth=3).items()}
        assert stated["baseline"]
        assert stated["baseline"].value == pytest.approx(np.median(ratios))
        assert stated["decay on the first layer only"]
        assert (stated["decay on the first layer only"].value, stated["decoupled decay"]) == (0, None)


class TestNumbers:
    def test_statements_are_those_of_the_records(self):
        found = facts(make_study())
        values = [0.7 + 0.004 * (seed % 3) for seed in SEEDS]
        half = stats.t.ppf(0.975, 3) * stats.sem(values)
        accuracy = found["no decay"]["accuracy"].value
        assert (accuracy.mean, accuracy.high) == pytest.approx((np.mean(values), np.mean(values) + half))
        told = {
            "seeds that collapsed": "4 of 4",
            "gradients with float32 norm 0": "40 of 40",
            "gradients with every element 0": "0 of 40",
            "output error ‖∂L/∂Z‖": 0.0782,
            "probe accuracy": 0.5,
            "spread of nodes": 0.5,
            "decay term over gradient": pytest.approx(40),  # 5e-4 · 8 / 1e-4
        }
        assert {name: found["baseline"][name].value for name in told} == told
        assert found["no decay"]["decay term over gradient"].value == 0
        assert found["no decay"]["gradients with float32 norm 0"].value == "0 of 40"
        assert found["majority class"]["accuracy"].value == MAJORITY
        untrained = found["untrained net"]
        assert untrained["accuracy"].value.mean == pytest.approx(0.11)
        assert untrained["gradients with float32 norm 0"].value == "0 of 40"

    def test_marks_are_those_of_the_records(self):
        found = make_study(depths=(6, 10))
        for seed in SEEDS:
            record = found[10, "gain 2", seed]
            weights = make_weights(10, exact_float32=(0.0,) * 4 + (1e-4,) * 6, exact_all_zero=(1, *[0] * 9))
            last = replace(record.last, accuracy=0.4321, weights=weights)
            found[10, "gain 2", seed] = replace(record, snapshots=(record.snapshots[0], last))
        *_, left = plot_bottleneck_controls(list(found.values())).axes
        drawn = {line.get_gid(): line for line in left.lines}
        assert drawn["gain 2"].get_xdata() == pytest.approx([0.4321])
        assert drawn["gain 2 seeds"].get_xdata() == pytest.approx([0.4321] * 4)
        assert drawn["majority class"].get_xdata()[0] == MAJORITY
        looks = {name: drawn[name].get_marker() for name in ("no decay", "SGD", "float64", "baseline")}
        assert looks == {"no decay": "o", "SGD": "P", "float64": "X", "baseline": "o"}
        assert drawn["no decay"].get_markerfacecolor() != drawn["baseline"].get_markerfacecolor()
        told = facts(list(found.values()))["gain 2"]
        kinds = ("float32 norm 0", "every element 0")
        assert [told[f"gradients with {kind}"].value for kind in kinds] == ["16 of 40", "4 of 40"]


class TestAnswers:
    def test_by_what_returns(self):
        found = answers(make_study())
        learn = {name for name, answer in found.items() if answer == "learns"}
        assert learn == {name for name, accuracy in ACCURACIES.items() if accuracy > 0.5}
        assert {found[name] for name in ("float64", "Â = I", "row-normalised Â")} == {"fails"}
        assert (found["SGD"], found["baseline"], found["untrained net"]) == ("zeros gone", "", "")

    @pytest.mark.parametrize("baseline", [(0.7,) * 4, (0.1, 0.66, 0.1, 0.1)])
    def test_without_a_collapse_in_every_seed_nothing_is_judged(self, baseline):
        found = with_accuracies(make_study(), "baseline", baseline)
        judged = {name: answer for name, answer in answers(found).items() if answer not in ("", "not judged")}
        assert set(judged) == {"PairNorm on row-normalised Â"}
        collapsed = sum(accuracy < 0.5 for accuracy in baseline)
        assert facts(found)["baseline"]["seeds that collapsed"].value == f"{collapsed} of 4"

    def test_pair_norm_is_held_against_the_row_normalised_graph(self):
        """If the row-normalised graph alone does not collapse, PairNorm has nothing to remove."""
        found = answers(make_study(accuracies=ACCURACIES | {"row-normalised Â": 0.6}))
        assert (found["PairNorm on row-normalised Â"], found["row-normalised Â"]) == ("not judged", "learns")

    def test_one_seed_decides_nothing(self):
        assert answers(make_study(seeds=(1,)))["no decay"] == "undecided"

    @pytest.mark.parametrize(
        ("accuracies", "answer"),
        [
            ((MAJORITY + 2 * MARGIN,) * 3, "learns"),
            ((MAJORITY + MARGIN - 0.01,) * 3, "fails"),
            ((0.9, 0.2, 0.3), "undecided"),
            ((0.9, 0.91, 0.92), "learns"),
        ],
    )
    def test_the_margin_decides(self, accuracies, answer):
        wanted = bottleneck_controls("paper", depths=(10,), seeds=(1,)).runs[0]
        rows = []
        for control, values in ((CONTROLS[1], accuracies), (BASELINE, (0.1, 0.11, 0.12))):
            runs = {s: make_run(wanted, accuracy=a, zeros=True) for s, a in enumerate(values)}
            rows.append(ControlRow(control, Cell((10, control.name), runs, {}, {})))
        assert judge(rows[0], rows[1], majority=MAJORITY) == answer


def test_titles_count_what_brings_learning_back():
    found = answers(make_study())
    learn = sum(answer == "learns" for answer in found.values())
    judged = sum(answer not in ("", "not judged") for answer in found.values())
    (ax,) = plot_bottleneck_controls(list(make_study().values())).axes
    assert f"{learn} of {judged}" in head(ax)[1]
    calm = with_accuracies(make_study(accuracies=ACCURACIES | {"row-normalised Â": 0.6}), "baseline", (0.7,) * 4)
    (ax,) = plot_bottleneck_controls(list(calm.values())).axes
    assert "4 of 4 seeds" in head(ax)[1]


class TestGaps:
    def test_missing_and_diverged_runs_are_said(self):
        found = {k: r for k, r in make_study(depths=(6, 10)).items() if k[1] != "residual"}
        record = found[10, "SGD", 1]
        found[10, "SGD", 1] = replace(
            record, provenance=replace(record.provenance, status="diverged", diverged_epoch=7)
        )
        late = found[10, "baseline", 2]
        found[10, "baseline", 2] = replace(late, snapshots=(replace(late.snapshots[0], epoch=5), late.last))
        records = [r for key, r in found.items() if key[:2] != (6, "baseline")]
        gaps, fig = describe(records).gaps, plot_bottleneck_controls(records)
        assert {
            "L = 6, baseline: not on record",
            "L = 10, residual: not on record",
            "L = 10, SGD, seed 1: diverged in epoch 7",
            "L = 10, untrained net, seed 2: not measured before training",
        } <= set(gaps)
        assert facts(records)["untrained net"]["gradients with float32 norm 0"].value == "0 of 30"
        assert [text.get_gid() for text in fig.axes[0].texts if text.get_gid() != "title"] == ["residual note"]
        assert len(fig.axes) == 1  # without a baseline a depth is not drawn

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"epochs": 9}, r"epochs \(9, 100\)"),
            ({"task": "citeseer"}, "task"),
            ({"net_options": {"width": 5}}, "net_options.width"),
            ({"task_options": {"normalisation": "symmetric", "nodes": 400}}, "task_options.nodes"),
        ],
    )
    def test_mixed_settings_are_refused(self, change, named):
        first, *others = make_study(seeds=(1,)).values()
        assert first.spec is not None
        net = {**first.spec.net_options, **change.get("net_options", {})}
        odd = replace(first, spec=replace(first.spec, **{**change, "net_options": net}))
        with pytest.raises(CreditscopeError, match=named):
            plot_bottleneck_controls([odd, *others])

    def test_nothing_to_draw_is_refused(self):
        with pytest.raises(CreditscopeError, match="gcn"):
            plot_bottleneck_controls([make_record(rule="bp")])
        with pytest.raises(CreditscopeError, match="baseline"):
            plot_bottleneck_controls([r for key, r in make_study().items() if key[1] != "baseline"])

    def test_no_text_leaves_the_page_or_covers_another(self):
        assert_clear(plot_bottleneck_controls(list(make_study(depths=(6, 10, 20)).values())))
