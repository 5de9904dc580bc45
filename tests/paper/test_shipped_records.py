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
RESMLP = ("hidden_norms", "bp_grad_norms_per_sample_med")
STUDENT, VIT = ((f"hidden_norms{end}", "bp_grad_per_sample_l2_med") for end in ("", "_cls"))
TRAJECTORIES: dict[str, tuple] = {
    "snapshot_evolution_v2": (["snapshot_evolution_s42.json"], *RESMLP, True),
    "snapshot_no_outln_v1": (
        [*(f"snapshot_noLN_s{seed}.json" for seed in SEEDS), "snapshot_fa_canonical_noln_s42.json"],
        *(*RESMLP, False),
    ),
    "snapshot_vit_v1": (
        [*(f"snapshot_vit_s{seed}.json" for seed in SEEDS), "snapshot_fa_canonical_s42.json"],
        *(*VIT, True),
    ),
    "snapshot_synth_v1": (["snapshot_synth_a1.0_L4_s42.json", "snapshot_fa_canonical_s42.json"], *STUDENT, False),
}
"""Files of each folder, the keys of states and gradients, and whether DFA's stream explodes."""
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

    @pytest.mark.parametrize("folder", TRAJECTORIES)
    def test_trajectories(self, results, folder):
        """Every entry has the keys and finite numbers, all logs the same epochs; a terminal norm lets the stream go."""
        files, hidden, gradient, explodes = TRAJECTORIES[folder]
        epochs, ends = set(), {"bp_log": [], "dfa_log": [], "fa_log": []}
        for file in files:
            content = self.read(results / folder / file)
            for name in ("fa_log",) if "fa_canonical" in file else ("bp_log", "dfa_log"):
                for entry in content[name]:
                    assert len(entry[hidden]) == len(entry[gradient]) == BLOCKS + 1
                    assert all(math.isfinite(x) and x > 0 for x in [*entry[hidden], *entry[gradient]])
                    assert 0 <= entry["acc_eval"] <= 1
                    assert name != "dfa_log" or -1 <= entry["gamma_dfa"] <= 1
                epochs.add(tuple(entry["epoch"] for entry in content[name]))
                ends[name].append(content[name][-1][hidden][-1])
        (shared,) = epochs
        assert shared[0] == 0
        assert all(a < b for a, b in pairwise(shared))
        assert (median(ends["dfa_log"]) > 1e3 * median(ends["bp_log"])) is explodes

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
