"""`creditscope reproduce`: the runs of several studies, each trained once, and what it says it took."""

import contextlib
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from builders import make_record, make_wanted

import creditscope
from creditscope.errors import UnfinishedError
from creditscope.paper.commands import figure
from creditscope.paper.commands.reproduce import Gallery, _Clock, sum_up, worker_seconds
from creditscope.paper.studies import Study, drop_served, find_wanted, plan_union, resolve_study
from creditscope.record import load_records
from creditscope.train.plan import plan_run

pytestmark = pytest.mark.slow

RUN = {
    "task": "mnist1d",
    "net": "resmlp",
    "net_options": {"depth": 2, "width": 8, "terminal_norm": True},
    "rule": "bp",
    "epochs": 4,
}
AT_THE_END = {"snapshot_every": 0, "tier": "quick", "noise": False}
WORDS = ("reproduce", "--scale", "test", "--only", "bp_bottleneck", "rescaling")


class TestUnion:
    def test_a_richer_wanted_run_serves_a_plainer_one(self):
        plain, rich = Study("plain", ({**RUN, **AT_THE_END},)), Study("rich", (RUN,))
        (spec,) = plan_union([plain, rich], [])
        assert (spec.tier, spec.snapshot_every) == ("standard", 1)
        record = make_wanted(RUN)
        assert [find_wanted(study, [record]) for study in (plain, rich)] == [[record]] * 2

    @pytest.mark.parametrize(
        "other",
        [
            {"seed": 1},
            {"frozen": True},
            {"epochs": 5},
            {"eval_rows": 512, **AT_THE_END},
            {"tier": "full", "snapshot_every": 0},
            {"targets": "random", **AT_THE_END},
        ],
    )
    def test_no_run_serves_another_that_is_trained_or_measured_otherwise(self, other):
        specs = [plan_run(**RUN), plan_run(**{**RUN, **other})]
        assert drop_served(specs) == specs

    def test_of_two_that_serve_each_other_one_is_trained(self):
        every, listed = plan_run(**RUN), plan_run(**RUN, snapshot_every=0, snapshot_at="1,2,3")
        assert every.measures(listed)
        assert listed.measures(every)
        assert len(drop_served([every, listed])) == 1

    def test_what_is_on_record_or_wanted_twice_is_not_planned(self):
        one, two = ({**RUN, "seed": seed} for seed in (1, 2))
        specs = plan_union([Study("a", (one, two)), Study("b", (two, one))], [make_wanted(one)])
        assert [spec.seed for spec in specs] == [2]
        assert plan_union([Study("a", (one,))], [make_wanted(one)]) == []


class TestGallery:
    @pytest.fixture
    def drawn(self, monkeypatch) -> list[tuple[str, int]]:
        """Each figure that was drawn, and of how many records; with device "broken" the first try fails."""
        found: list[tuple[str, int]] = []

        def draw(names, records, root, out, find_study, **how):
            if how["device"] == "broken" and not found:
                found.append(("broken", len(records)))
                raise RuntimeError("a fault of the figure")
            found.extend((name, len(records)) for name in names)

        monkeypatch.setattr(figure, "draw_figures", draw)
        return found

    def gallery(self, *studies, on_record=(), device="cpu"):
        """With what is planned for them beside what is on record, and the records that will come of it."""
        specs = plan_union(studies, on_record)
        made = [replace(make_wanted({**RUN, "seed": spec.seed}), spec=spec) for spec in specs]
        return Gallery(studies, on_record, specs, Path(), Path(), device=device), made

    def test_a_figure_is_drawn_once_when_the_last_of_its_runs_comes(self, drawn):
        study = resolve_study("bp_bottleneck", "test")
        others = resolve_study("penalty_rescue", "test")
        gallery, made = self.gallery(study, others, on_record=[make_wanted(study.runs[0])])
        mine, theirs = ([r for r in made if (r.spec.task == "sbm") == graph] for graph in (True, False))
        gallery.add(mine[:2])
        assert drawn == []
        gallery.add([*mine[2:], theirs[0]])
        gallery.add(theirs[1:2])
        assert drawn == [("bp_bottleneck", 5)]
        gallery.finish(made)
        assert drawn == [("bp_bottleneck", 5), ("penalty_rescue", len(made))]

    def test_it_waits_for_all_records_that_the_study_may_choose_from(self, drawn):
        """Two that serve one wanted run: which of them is drawn must not depend on which is trained first."""
        plain = {**RUN, **AT_THE_END}
        rich = ({**RUN, "tier": "full", "snapshot_every": 0}, {**RUN, "snapshot_every": 1})
        gallery, made = self.gallery(Study("audit_hero", (plain,)), Study("other", rich))
        assert len(made) == 2
        gallery.add(made[:1])
        assert drawn == []
        gallery.add(made[1:])
        assert drawn == [("audit_hero", 2)]

    def test_what_must_be_measured_first_waits_for_the_end(self, drawn):
        gallery, made = self.gallery(resolve_study("rescaling", "test"))
        gallery.add(made)
        assert drawn == []
        gallery.finish(made)
        assert drawn == [("rescaling", 6)]

    def test_a_figure_that_fails_is_tried_again_at_the_end_alone(self, drawn):
        gallery, made = self.gallery(resolve_study("bp_bottleneck", "test"), device="broken")
        gallery.add(made)
        gallery.add([make_record(seed=7)])
        assert drawn == [("broken", 4)]
        gallery.finish(made)
        assert drawn == [("broken", 4), ("bp_bottleneck", 4)]

    def test_the_command_draws_while_it_trains(self, call, tmp_path, drawn):
        """In this process groups come one after another: the graphs, whose figure is drawn, then the others."""
        words = (*WORDS, "--records", tmp_path / "records", "--out", tmp_path / "figures", "--slots", "1", "--quiet")
        code, _, _ = call(*words)
        assert (code, drawn) == (0, [("bp_bottleneck", 4), ("rescaling", 10)])


class TestEffort:
    def made(self, seed: int, seconds: float, stack: tuple[int, ...] = (), **others):
        record = make_record(seed=seed, **others)
        return replace(record, provenance=replace(record.provenance, seconds=seconds, stack=stack))

    def test_a_stack_counts_once(self):
        stacked = [self.made(seed, seconds, (1, 2, 3)) for seed, seconds in ((1, 10.0), (2, 10.5), (3, 4.0))]
        others = [self.made(seed, 2.0, (4, 5)) for seed in (4, 5)]
        alone = [self.made(seed, 1.25) for seed in (6, 7)]
        assert worker_seconds([*stacked, *others, *alone]) == 10.5 + 2 + 2.5
        assert worker_seconds([*stacked, self.made(1, 7.0, (1, 2, 3), epochs=2)]) == 17.5

    def test_a_shared_run_counts_once_together(self):
        one, two = self.made(1, 1.0), self.made(2, 2.0)
        found = sum_up({"a": [one, two], "b": [two]})["studies"]
        assert found["b"] == {"runs": 1, "worker_seconds": 2.0}
        assert found["together"] == {"runs": 2, "worker_seconds": 3.0}


class TestCommand:
    def test_it_stops_at_the_limit_and_goes_on(self, call, tmp_path):
        words = (*WORDS, "--records", tmp_path / "records", "--out", tmp_path / "figures", "--slots", "1", "--quiet")
        summary = tmp_path / "records" / "reproduce.json"
        code, out, err = call(*words, "--time-limit", "0")
        assert (code, "10 runs to train" in out) == (2, True)
        done, left = map(int, re.search(r": (\d+) of 10 .* Left: (\d+) runs?;", err).groups())
        assert (done + left, left > 0, (tmp_path / "figures").exists()) == (10, True, False)
        (stopped,) = json.loads(summary.read_text())["commands"]
        assert stopped["finished"] is False

        code, out, _ = call(*words)
        assert (code, "is incomplete" in out) == (0, False)
        assert {path.name for path in (tmp_path / "figures").iterdir()} == {
            f"{name}.{kind}" for name in ("bp_bottleneck", "rescaling") for kind in ("md", "pdf", "png", "tex")
        }
        assert len(list((tmp_path / "records" / "rescaling").iterdir())) == 3
        found = json.loads(summary.read_text())
        records = load_records(tmp_path / "records")
        assert [c["finished"] for c in found["commands"]] == [False, True]
        assert found["wall_seconds"] == pytest.approx(sum(c["seconds"] for c in found["commands"]))
        runs = {name: row["runs"] for name, row in found["studies"].items()}
        assert runs == {"bp_bottleneck": 4, "rescaling": 6, "together": 10}
        spent = sum(r.provenance.seconds for r in records)
        assert found["studies"]["together"]["worker_seconds"] == pytest.approx(spent, abs=0.01)
        assert found["machine"]["devices"] == sorted({r.provenance.device for r in records})
        assert found["machine"]["commits"] == sorted({r.provenance.commit for r in records} - {""})
        assert found["machine"]["creditscope"] == creditscope.__version__
        assert re.search(r"^together +10 +\d+\.\d$", out, re.M)

        before = summary.read_bytes()
        code, out, _ = call(*words)
        assert (code, ", 0 runs to train" in out, summary.read_bytes() == before) == (0, True, True)

    def test_commands_that_ask_for_other_things_are_kept_apart(self, tmp_path):
        path = tmp_path / "reproduce.json"

        def work(*only: str, finish: bool, scale: str = "demo") -> dict:
            clock = _Clock(path, {"scale": scale, "only": [*only]})
            clock.began -= 100.0 if only else 1000.0
            with contextlib.suppress(UnfinishedError), clock.timed(True):
                if not finish:
                    raise UnfinishedError("Stopped.", left=1)
                clock.summary = {"studies": {name: {} for name in only}, "machine": {"cores": len(only)}}
            return json.loads(path.read_text())

        work("a", finish=False)
        found = work("a", finish=True)
        assert (found["wall_seconds"], found["studies"]) == (pytest.approx(200, abs=1), {"a": {}})
        found = work(finish=False, scale="paper")
        kept = [found[name] for name in ("scale", "only", "studies", "machine", "wall_seconds")]
        assert kept == ["demo", ["a"], {"a": {}}, {"cores": 1}, pytest.approx(200, abs=1)]
        commands = [(c["scale"], c["only"], c["finished"]) for c in found["commands"]]
        assert commands == [("demo", ["a"], False), ("demo", ["a"], True), ("paper", [], False)]
        found = work(finish=True, scale="paper")
        assert (found["scale"], found["only"], found["studies"]) == ("paper", [], {})
        assert found["wall_seconds"] == pytest.approx(2000, abs=2)
        path.write_text("[]")
        assert work("a", finish=False)["wall_seconds"] == pytest.approx(100, abs=1)

    @pytest.mark.parametrize(
        ("words", "named"),
        [
            (("--only", "nope"), ("'nope'", "audit_hero")),
            (("--scale", "huge"), ("'huge'", "demo")),
            (("--only", "audit_hero", "--no-train", "--records", "nowhere"), ("folder of records", "nowhere")),
        ],
    )
    def test_unknown_words(self, call, tmp_path, monkeypatch, words, named):
        monkeypatch.chdir(tmp_path)
        code, _, err = call("reproduce", *words)
        assert (code, [name in err for name in named], list(tmp_path.iterdir())) == (2, [True, True], [])
