"""The export of deep GCNs: what is written is what the records hold, in the shape that scripts read."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from bottleneck_runs import altered, depth_of

from creditscope.cli import main
from creditscope.paper.exports import EXPORTS, write_exports
from creditscope.paper.exports.diag_section23 import PATH, diag_section23, shape
from creditscope.record import Record, load_records

ROOT = Path(__file__).parents[2]
export_rows = partial(write_exports, scale="test", names=("diag_section23",))


@pytest.fixture(scope="module")
def records(bottleneck) -> list[Record]:
    return load_records(bottleneck)


def test_the_file_has_the_shape_that_scripts_read(records, tmp_path):
    written, missing = export_rows(records, tmp_path)
    assert (written, missing) == ([tmp_path / PATH], [])
    found = json.loads(written[0].read_text())
    assert list(found) == ["L=3", "L=5"]
    by_run = {(depth_of(r), r.spec.seed): r.last for r in records}
    for key, rows in found.items():
        depth = int(key[2:])
        assert [row["seed"] for row in rows] == [1, 2]
        for row in rows:
            last = by_run[depth, row["seed"]]
            assert row["W_grads_F"] == list(last.weights.exact_norm)
            assert row["W_grads_F_float32"] == list(last.weights.exact_float32)
            assert row["W_all_zero"] == list(last.weights.exact_all_zero)
            assert row["Z_grads_F"] == list(last.layers.z_grad)
            assert row["bp_acc"] == last.accuracy
            assert (row["probe_acc"], row["M_rms"]) == (list(last.layers.probe), list(last.layers.rms))
            assert row["D_norm"] == list(last.layers.dispersion)
            lengths = {name: len(values) for name, values in row.items() if isinstance(values, list)}
            longer = {"probe_acc", "M_rms", "D_norm"}
            assert lengths == {name: depth + (name in longer) for name in lengths}


def test_a_gap_in_a_probe_is_the_bare_token(records, tmp_path):
    gaps = altered(records, 3, layers=lambda m: {"probe": (0.5, 0.5, None, None)})
    (path,), _ = export_rows(gaps, tmp_path)
    text = path.read_text()
    assert '"probe_acc": [0.5, 0.5, NaN, NaN]' in text
    assert "null" not in text
    assert "Infinity" not in text
    assert math.isnan(json.loads(text)["L=3"][0]["probe_acc"][2])


def test_the_written_schema_is_that_of_the_shape():
    def plain(schema):
        if isinstance(schema, dict):
            return {k: plain(v) for k, v in schema.items() if k not in ("title", "description")}
        return [plain(v) for v in schema] if isinstance(schema, list) else schema

    stored = json.loads((ROOT / "src/creditscope/paper/exports/schemas/diag_data_v2.json").read_text())
    assert plain(stored) == plain(shape().json_schema())
    row = stored["$defs"]["DiagRow"]
    wanted = {"W_grads_F", "Z_grads_F", "bp_acc", "probe_acc", "M_rms", "D_norm", "seed"}
    wanted |= {"W_grads_F_float32", "W_all_zero"}
    assert set(row["required"]) == set(row["properties"]) == wanted


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("W_grads_F", [-1.0]),
        ("bp_acc", 1.5),
        ("M_rms", [math.inf]),
        ("Z_grads_F", None),
        ("W_all_zero", [2]),
        ("seed", "x"),
    ],
)
def test_other_shapes_are_refused(records, name, value):
    rows = diag_section23(records, scale="test").files[PATH]
    rows["L=3"][0][name] = value
    with pytest.raises(ValueError, match=name):
        shape().validate_python(rows)


def test_what_is_missing_is_said(records, tmp_path):
    few = [r for r in records if (depth_of(r), r.spec.seed) != (5, 2)]
    written, missing = export_rows(few, tmp_path)
    assert (len(written), missing) == (1, ["diag_section23: L=5, not on record: seeds 2."])
    written, missing = export_rows([r for r in records if depth_of(r) == 3], tmp_path / "none")
    assert (written, missing[-1]) == ([], f"diag_section23: {PATH} is not written: nothing of L=5.")
    lost = altered(records, 3, layers=lambda m: {"rms": (None, *m.rms[1:])})
    _, missing = export_rows(lost, tmp_path)
    assert missing[0] == "diag_section23: L=3, not finite: seeds 1, 2."
    older = [replace(r, snapshots=(replace(r.last, layers=None),)) for r in records]
    _, missing = export_rows(older, tmp_path)
    assert missing[0] == "diag_section23: L=3, not measured layer by layer: seeds 1, 2."


def test_the_command_writes_and_says(bottleneck, tmp_path, capsys):
    main(["export", "--records", str(bottleneck), "--out", str(tmp_path), "--scale", "test"])
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / PATH}\nmissing: ")
    with pytest.raises(SystemExit):
        main(["export", "--records", str(bottleneck), "--out", str(tmp_path / "paper"), "--only", "diag_section23"])
    said = capsys.readouterr()
    assert "missing: diag_section23: L=20, not on record: seeds 42, 123, 456, 1, 2" in said.out
    assert "but got none. creditscope reproduce trains them." in said.err
    assert not (tmp_path / "paper").exists()
    with pytest.raises(SystemExit):
        main(["export", "--records", str(bottleneck), "--out", str(tmp_path), "--only", "unknown"])
    assert "Expected the name of an export, but got 'unknown'" in capsys.readouterr().err
    assert "diag_section23" in EXPORTS.names()


@pytest.mark.slow
def test_figure_and_export_need_no_torch(bottleneck, tmp_path):
    where = ["--records", str(bottleneck), "--out", str(tmp_path), "--scale", "test"]
    code = (
        "import sys; from creditscope.cli import main\n"
        f"main({['figure', 'bp_bottleneck', '--no-train', *where]})\n"
        f"main({['export', *where]})\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "L = 5" in done.stdout
    assert f"wrote {tmp_path / 'bp_bottleneck.png'}" in done.stdout
