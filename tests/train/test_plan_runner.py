"""From what is asked to specs, and from specs to records: in this process, in workers, and when runs fail."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from creditscope.errors import CreditscopeError
from creditscope.record import Record, RecordWriter, RunSpec, load_records, read_record, run_folder
from creditscope.train.execute import run_all
from creditscope.train.plan import choose_seeds, plan_run, plan_runs
from creditscope.train.progress import Lines, LiveBar, Silent, choose_progress
from creditscope.train.run import build_run

PAPER = Path(__file__).parents[2] / "results" / "paper"
TINY = {"task": "digits", "net_options": {"depth": 1, "width": 8}, "epochs": 1, "tier": "quick"}
RULES = '''
import os
from creditscope import TapRule


class Raises(TapRule):
    def credit(self, ctx):
        raise RuntimeError("this rule is broken")


class Dies(TapRule):
    def credit(self, ctx):
        os._exit(9)


class Talks(TapRule):
    """Prints what looks like the runner's own events."""

    def credit(self, ctx):
        print('{"event": "end", "outcome": "from the rule"}', flush=True)
        return [h.clone() for h in ctx.states]
'''


class TestSeeds:
    def test_a_number_gives_the_usual_ones_first(self):
        assert choose_seeds(1) == (42,)
        assert choose_seeds(3) == (42, 123, 456)
        assert choose_seeds(5) == (42, 123, 456, 1, 2)

    @pytest.mark.parametrize("count", [44, 45, 500])
    def test_a_number_gives_so_many_different_ones(self, count):
        assert len(set(choose_seeds(count))) == count

    def test_seeds_themselves(self):
        assert choose_seeds([7, 3]) == (7, 3)
        assert choose_seeds(range(2)) == (0, 1)

    @pytest.mark.parametrize(
        ("seeds", "message"),
        [
            (0, "Expected at least one seed, but got 0"),
            (-2, "Expected at least one seed, but got -2"),
            ((), "Expected at least one seed, but got none"),
            ((3, 1, 3, 1, 2), "Expected every seed once, but got 1, 3 more than once"),
        ],
    )
    def test_refusals(self, seeds, message):
        with pytest.raises(CreditscopeError, match=message):
            choose_seeds(seeds)


class TestPlan:
    def test_a_default_and_the_same_value_typed_are_one_run(self):
        asked = plan_run()
        typed = plan_run(task="mnist1d", net="resmlp", rule="bp", net_options={"width": "128", "depth": 4}, lr=0.001)
        assert typed.digest() == asked.digest()
        assert asked.net_options == {"depth": 4, "width": 128, "terminal_norm": True}
        assert asked.data_version.startswith("mnist1d-")
        assert plan_run(rule="fa").digest() == plan_run(rule="fa", rule_options={"head": "random"}).digest()
        assert plan_run(net_options={"width": 64}).digest() != asked.digest()

    @pytest.mark.parametrize("bundle", ["normalisation", "cross_architecture", "reproduction"])
    def test_shipped_runs_keep_their_names_when_they_are_planned_again(self, bundle):
        """Options that came later are no part of a spec at their defaults."""
        left_out = ("data_version", "net_source", "rule_source")
        for record in load_records(PAPER / f"{bundle}.jsonl.xz"):
            spec = record.spec
            again = plan_run(**{name: value for name, value in asdict(spec).items() if name not in left_out})
            assert (again.digest(), again.name(), again) == (spec.digest(), record.name, spec)

    @pytest.mark.slow
    def test_a_later_option_is_written_out_where_it_is_not_the_default(self):
        usual, typed = plan_run(rule="dfa"), plan_run(rule="dfa", rule_options={"index": "own"})
        assert usual.rule_options == {"tokens": "all"}
        assert typed == usual
        other = plan_run(rule="dfa", rule_options={"index": "input"})
        assert other.rule_options == {"tokens": "all", "index": "input"}
        assert other.digest() != usual.digest()
        facts = [build_run(spec).facts.rule for spec in (usual, other)]
        assert [fact.variant for fact in facts] == ["", "index input"]
        assert "index" not in plan_run(task="sbm", net="gcn", rule="dfa_gnn").rule_options

    @pytest.mark.parametrize("fields", [{"weight_decay": 0}, {"lr": 1}, {"penalty": 1}])
    def test_equal_numbers_are_one_run(self, fields):
        assert plan_run(**fields).digest() == plan_run(**{name: float(v) for name, v in fields.items()}).digest()

    def test_numpy_seeds_are_seeds(self):
        (spec, _) = plan_runs(rules=["bp"], seeds=choose_seeds(np.arange(2)))  # pyright: ignore
        assert spec.digest() == plan_run(seed=0).digest()

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"epochs": 0}, "Expected epochs >= 1, but got 0"),
            ({"eval_rows": 1}, "Expected eval_rows >= 2, but got 1"),
            ({"snapshot_every": -1}, "Expected snapshot_every >= 0, but got -1"),
            ({"penalty": float("nan")}, "Expected penalty >= 0, but got nan"),
            ({"penalty": float("inf")}, "Expected penalty"),
            ({"weight_decay": float("inf")}, "Expected weight_decay"),
            ({"lr": float("inf")}, "Expected a learning rate"),
            ({"epochs": 1.5}, "Expected epochs"),
            ({"precision": "float16"}, "Expected precision to be one of float32, tf32, float64, but got 'float16'"),
            ({"optimiser": "lion"}, "Expected optimiser to be one of adamw, adam, sgd, but got 'lion'"),
            (
                {"credit_norm": "row"},
                "Expected credit_norm to be one of none, .* sample-mean, but got 'row'",
            ),
            ({"train_last": -2}, "Expected train_last >= -1, but got -2"),
            ({"train_last": 1.5}, "Expected train_last to be a whole number, but got 1.5"),
            ({"train_last": 1, "frozen": True}, "but got train_last 1 beside frozen"),
            ({"targets": "shuffled"}, "Expected targets to be one of true, random, redrawn, but got 'shuffled'"),
            ({"tier": "slow"}, "Expected tier to be one of quick, standard, full, but got 'slow'"),
            ({"snapshot_at": "soon"}, "Expected snapshot_at to be 'log' or epochs such as '1,5,20', but got 'soon'"),
        ],
    )
    def test_refusals(self, fields, message):
        with pytest.raises(CreditscopeError, match=message):
            plan_run(**fields)

    def test_baselines(self):
        specs = plan_runs(rules=["dfa", "bp"], seeds=(1, 2), baselines=True, penalty=0.1, depth=2)
        found = {(s.rule, s.penalty, s.frozen, s.seed) for s in specs}
        wanted = {("dfa", 0.1), ("bp", 0.1), ("bp", 0.0)}  # BP as it was asked for, and plain
        assert found == {(*rule, frozen, seed) for rule in wanted for frozen in (False, True) for seed in (1, 2)}
        assert len(specs) == len(found)  # plain BP once, though two rules need it
        assert {s.net_options["depth"] for s in specs} == {2}

    def test_what_the_plan_chooses_cannot_be_given(self):
        with pytest.raises(CreditscopeError, match="Expected 'seed' to be chosen by the plan"):
            plan_runs(rules=["bp"], seeds=(1,), seed=3)


class Heard(Silent):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.begun, self.epochs, self.ended = (0, 0), [], {}

    def begin(self, runs: Sequence[RunSpec], reused: int, root: Path) -> None:
        self.begun = (len(runs), reused)

    def epoch(self, spec: RunSpec, done: int, loss: float) -> None:
        self.epochs.append((spec.digest(), done, loss))

    def end_run(self, spec: RunSpec, outcome: str) -> None:
        self.ended[spec.digest()] = outcome


def snapshots(root: Path, spec: RunSpec) -> bytes:
    return (run_folder(root, spec) / "snapshots.jsonl").read_bytes()


class Crowd:
    """Six runs in two workers, three of which go wrong; made once."""

    def __init__(self, folder: Path):
        (folder / "rules.py").write_text(RULES)
        self.root, self.heard = folder / "records", Heard()
        self.first = plan_run(**TINY, rule="dfa", seed=1)
        self.dies = plan_run(**TINY, rule=f"{folder}/rules.py:Dies", seed=1)
        self.raises = plan_run(**TINY, rule=f"{folder}/rules.py:Raises", seed=1)
        self.diverges = plan_run(**TINY | {"epochs": 3}, optimiser="sgd", lr=1e20, seed=1)
        self.talks = plan_run(**TINY, rule=f"{folder}/rules.py:Talks", seed=1)
        self.second = plan_run(**TINY, rule="bp", seed=2)
        self.specs = [self.first, self.dies, self.raises, self.diverges, self.talks, self.second]
        with pytest.raises(CreditscopeError) as caught:
            run_all(self.specs, self.root, jobs=2, readers=[self.heard.read])
        self.error = str(caught.value)

    def read(self, spec: RunSpec) -> Record:
        return read_record(run_folder(self.root, spec))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory) -> Crowd:
    return Crowd(tmp_path_factory.mktemp("crowd"))


@pytest.mark.slow
class TestWorkers:
    @pytest.mark.slow
    def test_the_good_runs_finish(self, crowd):
        for spec in (crowd.first, crowd.second, crowd.talks):
            assert crowd.heard.ended[spec.digest()] == "complete"
            assert [s.epoch for s in crowd.read(spec).snapshots] == [0, 1]

    def test_a_diverged_run_is_recorded_with_its_epoch(self, crowd):
        record = crowd.read(crowd.diverges)
        assert (record.provenance.status, record.provenance.diverged_epoch) == ("diverged", 1)
        assert [s.epoch for s in record.snapshots] == [0]  # nothing is measured on what is not finite
        assert crowd.heard.ended[crowd.diverges.digest()] == "diverged"

    def test_a_rule_that_raises_costs_its_run_alone(self, crowd):
        assert crowd.heard.ended[crowd.raises.digest()] == "failed"
        assert f"Run {crowd.raises.name()} failed: " in crowd.error
        assert "RuntimeError: this rule is broken" in crowd.error

    def test_a_worker_that_dies_costs_its_run_alone(self, crowd):
        assert crowd.heard.ended[crowd.dies.digest()] == "failed"
        assert f"Run {crowd.dies.name()} failed: its worker ended with exit code 9." in crowd.error

    def test_only_what_failed_is_in_the_error(self, crowd):
        assert crowd.error.count("Run digits-") == 2
        problems: list[str] = []
        assert len(load_records(crowd.root, problems=problems)) == 4
        assert sorted(p.split()[1] for p in problems) == sorted([crowd.dies.name(), crowd.raises.name()])

    def test_progress_is_told_everything(self, crowd):
        assert (crowd.heard.begun, len(crowd.heard.ended)) == ((6, 0), 6)
        told = {(digest, done) for digest, done, _ in crowd.heard.epochs}
        assert told == {(spec.digest(), 1) for spec in (crowd.first, crowd.second, crowd.talks)}

    def test_workers_and_this_process_agree_to_the_byte(self, crowd, tmp_path):
        """Whatever the number of jobs, equal specs give equal numbers, so their hash may name them."""
        threads = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            records = run_all([crowd.first, crowd.second], tmp_path, jobs=1)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(threads)
        assert [r.spec for r in records] == [crowd.first, crowd.second]
        for spec in (crowd.first, crowd.second):
            assert snapshots(tmp_path, spec) == snapshots(crowd.root, spec)


class TestHere:
    """One job: no worker is started."""

    def test_runs_on_record_are_reused(self, crowd):
        heard, before = Heard(), snapshots(crowd.root, crowd.first)
        (record,) = run_all([crowd.first], crowd.root, jobs=1, readers=[heard.read])
        assert (heard.begun, heard.ended) == ((0, 1), {})
        assert record == crowd.read(crowd.first)
        assert snapshots(crowd.root, crowd.first) == before

    def test_a_rule_that_raises_costs_its_run_alone(self, crowd, tmp_path):
        heard = Heard()
        with pytest.raises(CreditscopeError, match="this rule is broken"):
            run_all([crowd.raises, crowd.first], tmp_path, jobs=1, readers=[heard.read])
        assert heard.ended == {crowd.raises.digest(): "failed", crowd.first.digest(): "complete"}

    def test_a_net_that_cannot_be_built_is_refused_before_anything_starts(self, crowd, tmp_path):
        flat, heard = plan_run(**TINY | {"net_options": {"depth": 0, "width": 8}}), Heard()
        with pytest.raises(CreditscopeError, match=r"^Expected a ResMLP of depth >= 1 and width >= 1, but got depth 0"):
            run_all([crowd.first, flat], tmp_path, jobs=2, readers=[heard.read])
        assert (heard.begun, list(tmp_path.iterdir())) == ((0, 0), [])

    @pytest.mark.parametrize("limit", [-3, float("nan")])
    def test_a_time_limit_that_is_none_is_refused(self, crowd, tmp_path, limit):
        with pytest.raises(CreditscopeError, match="Expected time_limit >= 0 seconds, but got"):
            run_all([crowd.first], tmp_path, jobs=1, time_limit=limit)

    def test_a_net_that_no_data_of_the_task_fit_is_refused_before_they_are_fetched(self, monkeypatch):
        monkeypatch.setattr("creditscope.tasks.cora.load_planetoid", lambda *_, **__: pytest.fail("fetched"))
        with pytest.raises(CreditscopeError, match="Expected a net for graph to learn task 'cora', but got 'resmlp'"):
            plan_run(task="cora", net="resmlp")
        with pytest.raises(CreditscopeError, match="Expected a net for vectors or images to learn task 'cifar10'"):
            plan_run(task="cifar10", net="gcn")

    def test_why_a_run_failed_is_kept_until_it_is_run_again(self, tmp_path):
        file, problems = tmp_path / "mine.py", []
        file.write_text(RULES)
        spec = plan_run(**TINY, rule=f"{file}:Raises", seed=1)
        with pytest.raises(CreditscopeError, match="this rule is broken"):
            run_all([spec], tmp_path, jobs=1)
        assert load_records(tmp_path, problems=problems) == []
        assert problems == [
            f"Record {spec.name()} is incomplete: its run failed: RuntimeError: this rule is broken. "
            "Mend that and run it again, or delete its folder."
        ]
        with RecordWriter(tmp_path, spec).open() as writer:
            assert not (writer.folder / "failure.txt").exists()

    def test_why_runs_in_workers_failed_is_kept_too(self, crowd):
        problems: list[str] = []
        load_records(crowd.root, problems=problems)
        assert [p for p in problems if crowd.raises.name() in p and "this rule is broken" in p]

    def test_a_damaged_record_is_named_and_run_again(self, crowd, tmp_path):
        run_all([crowd.first], tmp_path, jobs=1)
        whole = snapshots(tmp_path, crowd.first)
        (run_folder(tmp_path, crowd.first) / "snapshots.jsonl").write_bytes(whole[:-50])
        problems: list[str] = []
        run_all([crowd.first], tmp_path, jobs=1, problems=problems)
        assert snapshots(tmp_path, crowd.first) == whole
        assert len(problems) == 1
        assert f"Set aside as damaged-0-{crowd.first.name()}" in problems[0]

    def test_equal_specs_are_trained_once(self, crowd, tmp_path):
        heard = Heard()
        records = run_all([crowd.first, crowd.first], tmp_path, jobs=1, readers=[heard.read])
        assert (heard.begun, records[0]) == ((1, 0), records[1])

    def test_a_batch_that_the_data_cannot_fill_stops_all(self, crowd, tmp_path):
        large = plan_run(**TINY, batch=1401)
        with pytest.raises(CreditscopeError, match="at most the 1400 training rows of 'digits', but got 1401"):
            run_all([crowd.first, large], tmp_path, jobs=1)
        assert not tmp_path.joinpath(crowd.first.name()).exists()


def test_progress_in_a_log_is_one_line_a_run(crowd, tmp_path, capsys):
    assert isinstance(choose_progress(quiet=True), Silent)
    run_all([crowd.first], tmp_path, jobs=1, readers=[Lines().read])
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"runs on record: 0, to train: 1 (seeds 1, epochs 1), records in {tmp_path}"
    assert second.startswith(f"[1/1] {crowd.first.name()} complete · ")


class TestProgress:
    """Six epochs of two runs, the second resumed in its third epoch and diverged after it."""

    def told(self, progress) -> None:
        first, second = (plan_run(**TINY | {"epochs": 4}, seed=seed) for seed in (1, 2))
        progress.begin([first, second], 3, Path("here"))
        for done in range(1, 5):
            progress.epoch(first, done, 0.5)
        progress.end_run(first, "complete")
        progress.epoch(second, 3, 0.25)
        progress.end_run(second, "diverged")
        progress.close()

    def test_in_a_log_there_are_lines_between_where_runs_take_long(self, capsys):
        lines = Lines()
        lines.interval = 0.0
        self.told(lines)
        said = capsys.readouterr().err.splitlines()
        assert said[0] == "runs on record: 3, to train: 2 (seeds 2, epochs 8), records in here"
        between = [line.partition(" epochs, ")[0] for line in said if "loss" in line]
        assert between[0] == "[0/2] bp seed 1: epoch 1/4, loss 0.500 · 1/8"
        assert between[-1] == "[1/2] bp seed 2: epoch 3/4, loss 0.250 · 5/6"  # two were trained before
        assert (lines.trained, lines.epochs) == (5, 5)  # and one never will be
        assert said[-1].endswith("about 0 s left")

    def test_a_bar_ends_with_all_epochs_done_and_names_what_went_wrong(self, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "200")
        self.told(LiveBar())
        said = " ".join(capsys.readouterr().err.split())
        assert "runs on record: 3, to train: 2 (seeds 2, epochs 8), records in here" in said
        assert "5/5 epochs," in said
        assert said.count("diverged") == 1
        assert "complete" not in said

    def test_before_the_first_epoch_there_is_no_speed(self, capsys):
        lines = Lines()
        lines.begin([plan_run(**TINY)], 0, Path("here"))
        lines.end_run(plan_run(**TINY), "failed")
        assert capsys.readouterr().err.endswith("speed not known yet\n")
