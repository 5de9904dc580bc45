"""The shipped records: the page made from them does not drift, and other people's scripts can read their exports."""

import json
import math
import re
from itertools import pairwise
from pathlib import Path
from statistics import median

import jsonschema
import pytest

from creditscope.paper.exports import write_exports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SEEDS = (42, 123, 456)
PAIRS = {
    "snapshot_evolution_v2/snapshot_evolution_s{}.json": ((42,), "hidden_norms", "bp_grad_norms_per_sample_med"),
    "snapshot_no_outln_v1/snapshot_noLN_s{}.json": (SEEDS, "hidden_norms", "bp_grad_norms_per_sample_med"),
    "snapshot_vit_v1/snapshot_vit_s{}.json": (SEEDS, "hidden_norms_cls", "bp_grad_per_sample_l2_med"),
    "snapshot_synth_v1/snapshot_synth_a1.0_L4_s{}.json": ((42,), "hidden_norms", "bp_grad_per_sample_l2_med"),
}
FA_FILES = {
    "snapshot_no_outln_v1/snapshot_fa_canonical_noln_s42.json": ("hidden_norms", "bp_grad_norms_per_sample_med"),
    "snapshot_vit_v1/snapshot_fa_canonical_s42.json": ("hidden_norms_cls", "bp_grad_per_sample_l2_med"),
    "snapshot_synth_v1/snapshot_fa_canonical_s42.json": ("hidden_norms", "bp_grad_per_sample_l2_med"),
}
PENALISED = "dfa_residual_penalty/dfa_pen_lam0.01_s42.json"
LAYERS = "diag_section23/diag_data_v2.json"
SCHEMAS = ROOT / "src/creditscope/paper/exports/schemas"
BLOCKS = 4


@pytest.fixture(scope="module")
def results(tmp_path_factory, shipped_records) -> Path:
    """The folder of exported results."""
    out = tmp_path_factory.mktemp("export")
    write_exports(shipped_records, out)
    return out / "results"


def test_the_page_is_what_the_command_makes_of_the_records(call, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    code, out, err = call("reproduction", "--records", "results/paper", "--out", tmp_path / "page.md")
    assert (code, err) == (0, "")
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert page == (ROOT / "docs/reproduction.md").read_text(encoding="utf-8")
    counts = out.splitlines()
    tallies = dict(re.findall(r"^\| (?:\*\*)?([\w ]+?)(?:\*\*)? \| [^|]+ \| \d+ \| (\d+ of \d+) \|", page, flags=re.M))
    assert len(tallies) == 4
    for setting, inside in tallies.items():
        assert any(line.startswith(f"{setting}: {inside} inside") for line in counts), setting


def test_every_exported_file_fits_the_written_schema(results):
    files = sorted(results.rglob("*.json"))
    assert len(files) == 13
    for path in files:
        schema = SCHEMAS / f"{'diag_data_v2' if path.stem == 'diag_data_v2' else path.parent.name}.json"
        fits = jsonschema.Draft202012Validator(json.loads(schema.read_text(encoding="utf-8")))
        content = json.loads(path.read_text(encoding="utf-8"))
        assert next(fits.iter_errors(content), None) is None, path
        first = next(iter(content))
        assert not fits.is_valid({**content, first: "no list"}), (path, first)


def test_a_folder_without_records_is_refused(call, tmp_path):
    code, out, err = call("reproduction", "--records", tmp_path, "--out", tmp_path / "page.md")
    assert (code, out, str(tmp_path) in err, (tmp_path / "page.md").exists()) == (2, "", True, False)


class TestOtherPeoplesScripts:
    """Plain json and the keys that are promised, nothing of this package."""

    def read(self, path: Path) -> dict:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)

    def check_log(self, log: list[dict], hidden: str, gradient: str) -> list[int]:
        """Every entry has the keys and finite numbers; the epochs."""
        for entry in log:
            assert len(entry[hidden]) == len(entry[gradient]) == BLOCKS + 1
            assert all(math.isfinite(x) and x > 0 for x in [*entry[hidden], *entry[gradient]])
            assert 0 <= entry["acc_eval"] <= 1
        epochs = [entry["epoch"] for entry in log]
        assert epochs[0] == 0
        assert all(a < b for a, b in pairwise(epochs))
        return epochs

    @pytest.mark.parametrize("pattern", PAIRS)
    def test_trajectories_of_bp_and_dfa(self, results, pattern):
        seeds, hidden, gradient = PAIRS[pattern]
        epochs, found = [], {"bp_log": [], "dfa_log": []}
        for seed in seeds:
            content = self.read(results / pattern.format(seed))
            for name, ends in found.items():
                epochs.append(self.check_log(content[name], hidden, gradient))
                ends.append(content[name][-1])
            assert all(-1 <= entry["gamma_dfa"] <= 1 for entry in content["dfa_log"])
        assert all(own == epochs[0] for own in epochs)
        bp, dfa = (median(end[hidden][-1] for end in ends) for ends in found.values())
        assert (dfa > 1e3 * bp) is ("evolution" in pattern or "vit" in pattern)  # a terminal norm lets the stream go
        assert all(end[gradient][2] > 0 for ends in found.values() for end in ends)

    @pytest.mark.parametrize("path", FA_FILES)
    def test_trajectories_of_fa(self, results, path):
        content = self.read(results / path)
        epochs = self.check_log(content["fa_log"], *FA_FILES[path])
        pair = next(pattern for pattern in PAIRS if pattern.split("/")[0] == path.split("/")[0])
        assert epochs == [entry["epoch"] for entry in self.read(results / pair.format(42))["bp_log"]]

    def test_the_penalised_run(self, results):
        content = self.read(results / PENALISED)
        assert isinstance(content["config"], dict)
        last = content["log"][-1]
        assert last["test_acc"] == content["final_acc"]
        for entry in content["log"]:
            assert all(math.isfinite(entry[key]) for key in ("epoch", "h_L_norm", "g_2_norm", "test_acc"))
        vanilla = self.read(results / "snapshot_evolution_v2/snapshot_evolution_s42.json")["dfa_log"]
        assert {entry["epoch"] for entry in content["log"]} <= {entry["epoch"] for entry in vanilla}

    def test_deep_graph_nets(self, results):
        text = (results / LAYERS).read_text(encoding="utf-8")
        assert "null" not in text
        content, gaps = json.loads(text), 0
        assert list(content) == ["L=6", "L=10", "L=20"]
        for key, rows in content.items():
            depth = int(key.removeprefix("L="))
            assert len({row["seed"] for row in rows}) == len(rows) == 20
            for row in rows:
                assert [len(row[name]) for name in ("W_grads_F", "Z_grads_F")] == [depth] * 2
                assert [len(row[name]) for name in ("probe_acc", "M_rms", "D_norm")] == [depth + 1] * 3
                sizes = (x for name in ("W_grads_F", "Z_grads_F", "M_rms", "D_norm") for x in row[name])
                assert all(math.isfinite(x) for x in (row["bp_acc"], *sizes))
                gaps += sum(math.isnan(x) for x in row["probe_acc"])
                assert all(math.isnan(x) or 0 <= x <= 1 for x in row["probe_acc"])
        assert gaps == text.count("NaN")


def _no_constant(token: str) -> float:
    raise AssertionError(f"{token} in a log")
