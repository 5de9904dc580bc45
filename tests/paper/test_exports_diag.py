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
from creditscope.paper.exports import write_exports
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
            weights = {"W_grads_F": "exact_norm", "W_grads_F_float32": "exact_float32", "W_all_zero": "exact_all_zero"}
            layers = {"Z_grads_F": "z_grad", "probe_acc": "probe", "M_rms": "rms", "D_norm": "dispersion"}
            expected = {name: list(getattr(last.weights, own)) for name, own in weights.items()}
            expected |= {name: list(getattr(last.layers, own)) for name, own in layers.items()}
            assert row == {"seed": row["seed"], "bp_acc": last.accuracy, **expected}
            lengths = {name: len(values) for name, values in row.items() if isinstance(values, list)}
            longer = {"probe_acc", "M_rms", "D_norm"}
            assert lengths == {name: depth + (name in longer) for name in lengths}


def test_a_gap_in_a_probe_is_the_bare_token(records, tmp_path):
    gaps = altered(records, 3, layers=lambda m: {"probe": (0.5, 0.5, None, None)})
    (path,), _ = export_rows(gaps, tmp_path)
    text = path.read_text()
    assert [word in text for word in ("[0.5, 0.5, NaN, NaN]", "null", "Infinity")] == [True, False, False]
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
    """One line for each depth and reason; nothing is written if a depth has no row."""
    few = [r for r in records if (depth_of(r), r.spec.seed) != (5, 2)]
    shallow = [r for r in records if depth_of(r) == 3]
    lost = altered(records, 3, layers=lambda m: {"rms": (None, *m.rms[1:])})
    older = [replace(r, snapshots=(replace(r.last, layers=None),)) for r in records]
    both, cases = "seeds 1, 2", [(few, 1, "L=5, not on record"), (shallow, 0, "L=5, not on record")]
    cases += [(lost, 0, "L=3, not finite"), (older, 0, "L=3, not measured")]
    for given, files, why in cases:
        written, missing = export_rows(given, tmp_path)
        assert (len(written), why in missing[0], both in missing[0]) == (files, True, given is not few), missing
        assert (PATH in missing[-1]) is not bool(files)


def test_the_command_writes_and_says(bottleneck, tmp_path, capsys):
    main(["export", "--records", str(bottleneck), "--out", str(tmp_path), "--scale", "test"])
    assert capsys.readouterr().out.startswith(f"wrote {tmp_path / PATH}\nmissing: ")
    with pytest.raises(SystemExit):
        main(["export", "--records", str(bottleneck), "--out", str(tmp_path / "paper"), "diag_section23"])
    said = capsys.readouterr()
    assert ("L=20" in said.out, f"{bottleneck}" in said.err) == (True, True)
    assert not (tmp_path / "paper").exists()
    with pytest.raises(SystemExit):
        main(["export", "--records", str(bottleneck), "--out", str(tmp_path), "unknown"])
    assert "'unknown'" in capsys.readouterr().err


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
