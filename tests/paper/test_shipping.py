"""Records are packed, shipped and drawn from: `creditscope pack`, `figure all`, and the demo's look at what ships."""

import math
import random
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_record, make_snapshot, make_wanted, write_record

from creditscope.errors import CreditscopeError
from creditscope.paper.commands.demo import group_by_folder
from creditscope.paper.commands.figure import drawable
from creditscope.paper.studies import collect, resolve_study, scale_on_record, studies_at
from creditscope.paper.studies.audit_hero import audit_hero
from creditscope.paper.studies.bp_bottleneck import bp_bottleneck
from creditscope.paper.studies.demo import demo
from creditscope.paper.studies.normalisation import normalisation
from creditscope.paper.studies.rescaling import (
    FACTORS,
    DerivedRecord,
    Measured,
    Source,
    rescaled_path,
    rescaling,
    write_rescaled,
)
from creditscope.record import Provenance, Record, load_records, write_bundle
from creditscope.registry import FIGURES, STUDIES

pytestmark = pytest.mark.slow


def write_study(root: Path, study) -> list[Record]:
    """Records of all its runs; accuracies scatter over seeds and rules."""
    records = [make_wanted(w, accuracy=0.5 + 0.3 * math.sin(w["seed"] + len(w["rule"]))) for w in study.runs]
    for record in records:
        write_record(root, record)
    return records


def write_measured(root: Path, records: list[Record], *, weights: str = "") -> None:
    """What study `rescaling` measures on its trained runs."""
    for record in records:
        assert record.spec is not None
        if record.spec.frozen:
            continue
        sizes = {"h_norm": (11.0 / 3,) * 3, "g_norm": (1 / 3,) * 3}
        shots = {c: make_snapshot(record.facts, epoch=2, loss=c / 3, taps=sizes) for c in FACTORS}
        lines = [Measured(condition=c, snapshot=shot) for c, shot in shots.items()]
        provenance = Provenance(facts=record.facts)
        source = Source(study="rescaling", run=record.name, weights=weights, provenance=provenance)
        write_rescaled(rescaled_path(root, record), [source, *lines])


@pytest.fixture
def pack(call, tmp_path):
    """Pack the records at a scale into shipped/."""

    def run(scale: str, *words: str) -> tuple[int, str, str]:
        return call("pack", "--records", tmp_path / "records", "--out", tmp_path / "shipped", "--scale", scale, *words)

    return run


class TestPack:
    def test_each_run_once_and_runs_of_no_study_left_out(self, pack, tmp_path):
        hero, norm = audit_hero("test"), normalisation("test")
        for study in (hero, norm, bp_bottleneck("test")):
            write_study(tmp_path / "records", study)
        own = write_record(tmp_path / "records", make_record(seed=77))
        code, out, _ = pack("test")
        bundles = sorted(path.name for path in (tmp_path / "shipped").iterdir())
        names = ("audit_hero", "baselines", "bp_bottleneck", "normalisation")
        assert (code, bundles) == (0, [f"{name}.jsonl.xz" for name in names])
        kept = load_records(tmp_path / "shipped")
        whole = load_records(tmp_path / "records")
        names = [r.name for r in kept]
        assert len(names) == len(set(names))
        assert {r.name for r in whole} - set(names) == {own.name}
        size = sum(path.stat().st_size for path in (tmp_path / "shipped").iterdir())
        assert [word in out for word in (f": {own.name}\n", f"{len(names)} runs, {size:,} bytes")] == [True, True]

    def test_a_run_that_two_studies_want_is_in_the_first(self, pack, tmp_path):
        """`snapshot_resmlp` wants BP and DFA of `audit_hero`."""
        write_study(tmp_path / "records", resolve_study("snapshot_resmlp", "test"))
        pack("test")
        first = load_records(tmp_path / "shipped" / "audit_hero.jsonl.xz")
        assert {r.spec.net_options["terminal_norm"] for r in first if r.spec} == {True}
        assert len(first) == 4
        study, problems = resolve_study("snapshot_resmlp", "test"), []
        assert len(collect(study, tmp_path / "shipped", train=False, problems=problems)) == len(study.runs)
        assert problems == []

    def test_what_was_measured_on_runs_comes_along_without_their_weights(self, pack, tmp_path):
        records = write_study(tmp_path / "records", rescaling("test"))
        write_measured(tmp_path / "records", records)
        pack("test")
        problems: list[str] = []
        found = collect(rescaling("test"), tmp_path / "shipped", train=False, problems=problems)
        derived = [r for r in found if isinstance(r, DerivedRecord)]
        assert ([r.condition for r in derived], problems) == ([*FACTORS] * 3, [])
        assert derived[1].last.loss == 3.33333
        assert list(tmp_path.glob("shipped/**/*.safetensors")) == []

    def test_what_was_measured_on_other_weights_does_not(self, pack, tmp_path):
        records = write_study(tmp_path / "records", rescaling("test"))
        write_measured(tmp_path / "records", records, weights="0" * 16)
        for record in records:
            (tmp_path / "records" / record.name / "weights.safetensors").write_bytes(b"others")
        pack("test")
        assert not (tmp_path / "shipped" / "rescaling").exists()

    def test_nothing_to_pack_is_an_error(self, pack, tmp_path):
        write_record(tmp_path / "records", make_record())
        code, _, err = pack("paper")
        assert (code, "scale 'paper'" in err, (tmp_path / "shipped").exists()) == (2, True, False)


class TestPackAgain:
    """Into a folder that holds bundles."""

    def test_runs_of_every_study_are_counted(self, pack, tmp_path):
        study = audit_hero("test")
        write_study(tmp_path / "records", replace(study, runs=study.runs[:1]))
        _, out, _ = pack("test")
        assert [word in out for word in ("audit_hero: 1 of 6", "rescaling: 0 of 6", "xz (1 run, ")] == [True] * 3

    def test_a_partial_bundle_does_not_replace_a_whole_one(self, pack, tmp_path):
        write_study(tmp_path / "records", audit_hero("test"))
        write_study(tmp_path / "records", rescaling("test"))
        pack("test")
        before = {path.name: path.read_bytes() for path in (tmp_path / "shipped").iterdir()}
        (tmp_path / "records").rename(tmp_path / "whole")
        study = audit_hero("test")
        write_study(tmp_path / "records", replace(study, runs=study.runs[:2]))
        write_study(tmp_path / "records", rescaling("test"))
        code, _, err = pack("test")
        assert (code, "4 of audit_hero.jsonl.xz" in err, "--replace" in err) == (2, True, True)
        assert {path.name: path.read_bytes() for path in (tmp_path / "shipped").iterdir()} == before
        code, out, _ = pack("test", "--replace")
        assert (code, "audit_hero: 2 of 6" in out) == (0, True)
        assert len(load_records(tmp_path / "shipped" / "audit_hero.jsonl.xz")) == 2

    def test_the_same_or_more_runs_need_no_flag(self, pack, tmp_path):
        study = audit_hero("test")
        write_study(tmp_path / "records", replace(study, runs=study.runs[:2]))
        assert [pack("test")[0] for _ in range(2)] == [0, 0]
        write_study(tmp_path / "records", study)
        assert pack("test")[0] == 0
        assert len(load_records(tmp_path / "shipped")) == 6

    def test_a_run_that_moves_to_another_bundle_is_not_lost_and_the_old_one_is_named(self, pack, tmp_path):
        """`snapshot_resmlp` wants two rules of `audit_hero`, whose bundle comes first."""
        records = write_study(tmp_path / "records", audit_hero("test"))
        shared = [r for r in records if r.spec and r.spec.rule in ("bp", "dfa")]
        write_bundle(shared, tmp_path / "shipped" / "snapshot_resmlp.jsonl.xz")
        code, out, _ = pack("test")
        assert (code, bool(re.search(r"^stale: .*snapshot_resmlp.jsonl.xz \(4 runs\)", out, re.M))) == (0, True)

    def test_a_bundle_that_cannot_be_read_is_not_replaced(self, pack, tmp_path):
        write_study(tmp_path / "records", audit_hero("test"))
        (tmp_path / "shipped").mkdir()
        (tmp_path / "shipped" / "audit_hero.jsonl.xz").write_bytes(b"nothing")
        code, _, err = pack("test")
        assert (code, "audit_hero.jsonl.xz" in err) == (2, True)
        assert pack("test", "--replace")[0] == 0


@pytest.mark.parametrize(
    "words", ["figure audit_hero --no-train", "figure all --no-train", "reproduction", "export", "pack"]
)
def test_a_damaged_bundle_is_named_where_nothing_is_found(call, tmp_path, words):
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "audit_hero.jsonl.xz").write_bytes(b"nothing")
    code, _, err = call(*words.split(), "--records", tmp_path / "records", "--out", tmp_path / "out")
    assert (code, len(re.findall(r"Bundle .*audit_hero.jsonl.xz cannot be read", err))) == (2, 1)
    assert not (tmp_path / "out").exists()


class TestScales:
    def test_every_study_with_scales_but_the_demo(self):
        names = [study.name for study in studies_at("paper")]
        assert names == sorted(names)
        assert set(names) == set(STUDIES.names()) - {
            "demo",
            "judges",
            "league",
            "league_more",
            "phase",
            "trained_depth",
        }  # a scale of their own
        with pytest.raises(CreditscopeError, match="'huge'"):
            studies_at("huge")

    def test_a_study_without_scales(self):
        assert resolve_study("demo") == resolve_study("demo", "demo") == demo()
        with pytest.raises(CreditscopeError, match="'paper' for 'demo'"):
            resolve_study("demo", "paper")

    def test_the_largest_scale_on_record(self):
        (small,), paper = (
            [make_wanted(w) for w in audit_hero(scale).runs[:n]] for scale, n in (("demo", 1), ("paper", 3))
        )
        assert scale_on_record("audit_hero", [small, *paper]) == ("paper", True)
        assert scale_on_record("audit_hero", [small, paper[0]]) == ("demo", True)  # one of sixty is of another study
        assert scale_on_record("audit_hero", [small]) == ("demo", True)
        assert scale_on_record("audit_hero", []) == ("demo", False)
        assert scale_on_record("demo", []) == ("", False)


def unlike(record):
    """With other sizes at every epoch: a bundle of runs that are all alike would pass for a bomb."""
    draw = random.Random(record.name)
    sizes = [tuple(draw.uniform(1, 2) for _ in s.taps.h_norm) for s in record.snapshots]
    pairs = zip(record.snapshots, sizes, strict=True)
    return replace(record, snapshots=tuple(replace(s, taps=replace(s.taps, h_norm=h)) for s, h in pairs))


class TestScaleOfFigures:
    """Without --scale and with training allowed."""

    @pytest.fixture(autouse=True)
    def shipped(self, tmp_path):
        records = [unlike(make_wanted(wanted)) for wanted in audit_hero("paper").runs]
        write_bundle(records, tmp_path / "records" / "audit_hero.jsonl.xz")

    def test_shipped_records_are_drawn_and_nothing_is_trained(self, call, tmp_path):
        code, out, _ = call("figure", "audit_hero", "--records", tmp_path / "records", "--out", tmp_path / "out")
        assert (code, bool(re.search(r"^scale paper .*: audit_hero$", out, re.M))) == (0, True)
        assert [path.name for path in (tmp_path / "records").iterdir()] == ["audit_hero.jsonl.xz"]

    def test_of_all_studies_each_has_its_own(self, call, tmp_path):
        code, out, _ = call("figure", "all", "--records", tmp_path / "records", "--out", tmp_path / "out")
        assert (code, "audit_hero: 60 of 60" in out) == (0, True)
        assert re.search(r"^scale paper .*: audit_hero, fading, rescaling, snapshot_resmlp$", out, re.M)
        assert re.search(r"^scale demo .*: bottleneck_controls, .*normalisation", out, re.M)


class TestFigureAll:
    @pytest.mark.parametrize("words", [("--no-train",), ()])
    def test_an_unknown_scale_is_refused_once(self, call, tmp_path, words):
        write_record(tmp_path / "records", make_record())
        code, out, err = call("figure", "all", "--records", tmp_path / "records", "--scale", "huge", *words)
        assert (code, out, "'huge'" in err) == (2, "", True)

    def test_figures_with_records_are_drawn_and_the_others_named(self, call, tmp_path):
        """A damaged bundle among them is named, too."""
        study = audit_hero("test")
        write_study(tmp_path / "records", replace(study, runs=tuple(w for w in study.runs if w["rule"] == "block_fa")))
        (tmp_path / "records" / "other.jsonl.xz").write_bytes(b"nothing")
        words = ("--records", tmp_path / "records", "--out", tmp_path / "figures", "--no-train", "--scale", "test")
        code, out, _ = call("figure", "all", *words)
        names = {f"audit_hero.{ending}" for ending in ("md", "pdf", "png", "tex")}
        assert (code, {path.name for path in (tmp_path / "figures").iterdir()}) == (0, names)
        said = ("audit_hero: 2 of 6", "  note: 4 of 6", "bp_bottleneck: not drawn", "other.jsonl.xz")
        assert [word in out for word in said] == [True] * 4
        assert {line.partition(":")[0] for line in out.splitlines() if line[0] != " "} == {*drawable(), "note"}

    def test_shipped_records_give_the_same_figure_at_their_own_scale(self, call, pack, tmp_path):
        """Every number has few digits here, so that rounding changes none: the files are equal."""
        for wanted in audit_hero("paper", seeds=(42, 1)).runs:
            write_record(tmp_path / "records", make_wanted(wanted))
        write_study(tmp_path / "records", audit_hero("demo"))  # a smaller scale beside it
        pack("paper")
        drawn = []
        for root in ("records", "shipped"):
            words = ("--records", tmp_path / root, "--out", tmp_path / f"{root} drawn", "--no-train")
            code, out, _ = call("figure", "audit_hero", *words)
            assert (code, "note: 54 of 60" in out) == (0, True)
            drawn.append((tmp_path / f"{root} drawn" / "audit_hero.png").read_bytes())
        assert drawn[0] == drawn[1]

    def test_nothing_drawn_is_an_error(self, call, tmp_path):
        write_record(tmp_path, make_record())
        code, out, err = call("figure", "all", "--records", tmp_path, "--out", tmp_path / "out", "--no-train")
        assert (code, str(tmp_path) in err, out.count("not drawn")) == (2, True, len(drawable()))
        code, _, err = call("figure", "all", "--records", tmp_path / "nowhere", "--no-train")
        assert (code, "nowhere" in err) == (2, True)

    def test_stored_records_need_no_torch(self, tmp_path):
        records = write_study(tmp_path / "records", rescaling("test"))
        write_measured(tmp_path / "records", records)
        places = [str(tmp_path / name) for name in ("records", "shipped", "figures")]
        code = f"""
import sys
from creditscope.cli import main
records, shipped, figures = {places!r}
for words in (["pack", "--records", records, "--out", shipped, "--scale", "test"],
              ["figure", "all", "--records", shipped, "--out", figures, "--no-train", "--scale", "test"],
              ["reproduce", "--only", "rescaling", "--records", shipped, "--out", figures, "--no-train"]):
    main(words if "--scale" in words else [*words, "--scale", "test"])
    assert "torch" not in sys.modules, words
"""
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("rescaling: 6 of 6 runs") == 2

    def test_figures_and_studies_that_go_together(self):
        assert set(drawable()) == set(FIGURES.names()) & set(STUDIES.names())
        assert drawable(["audit_hero", "reproduction"]) == ["audit_hero"]


class TestDemo:
    """On synthetic records of its own study, so that nothing is trained."""

    @pytest.fixture
    def ready(self, tmp_path, monkeypatch) -> Path:
        monkeypatch.chdir(tmp_path)
        write_study(tmp_path / "out" / "records", demo())
        return tmp_path

    def test_without_shipped_records(self, call, ready):
        code, out, _ = call("demo", "--quiet")
        assert (code, "audit_hero.png" in out) == (0, True)
        assert "<html" in (ready / "out" / "report.html").read_text(encoding="utf-8")
        assert not (ready / "out" / "figures" / "paper").exists()

    def test_shipped_records_are_drawn_too(self, call, ready):
        for wanted in audit_hero("paper", seeds=(42, 1)).runs:
            write_record(ready / "whole", make_wanted(wanted))
        call("pack", "--records", ready / "whole", "--out", ready / "results" / "paper")
        code, out, _ = call("demo", "--quiet")
        assert (code, "6 runs in results/paper" in out) == (0, True)
        assert all((ready / "out" / "figures" / name).is_file() for name in ("audit_hero.pdf", "paper/audit_hero.pdf"))

    def test_an_empty_folder_costs_nothing(self, call, ready):
        (ready / "results" / "paper").mkdir(parents=True)
        code, out, _ = call("demo", "--quiet")
        assert (code, out.count("not drawn")) == (0, len(group_by_folder()["paper"]))

    def test_every_figure_is_drawn_from_the_folder_of_its_records(self):
        found = group_by_folder()
        assert sorted(name for names in found.values() for name in names) == drawable()
        assert set(found["league"]) == {"judges", "league", "phase", "trained_depth"}
