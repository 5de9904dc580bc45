"""Exports of training: names, fields and units that other people's scripts read; what is cut or missing is said."""

import importlib
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from paper_runs import run_of, runs_of

from creditscope.paper.exports import write_exports
from creditscope.paper.exports._logs import log_shape
from creditscope.paper.studies.cross_architecture import cross_architecture
from creditscope.paper.studies.penalty_rescue import penalty_rescue
from creditscope.paper.studies.snapshot_resmlp import snapshot_resmlp
from creditscope.paper.studies.snapshot_vit import snapshot_vit
from creditscope.record import Record
from creditscope.registry import EXPORTS

SCHEMAS = Path(__file__).parents[2] / "src/creditscope/paper/exports/schemas"
FAMILIES = [name for name in EXPORTS.names() if name not in ("diag_section23", "parquet")]
STUDIES = (snapshot_resmlp, snapshot_vit, cross_architecture, penalty_rescue)
FILES = {
    *(f"snapshot_no_outln_v1/snapshot_noLN_s{seed}.json" for seed in (42, 123, 456)),
    *(f"snapshot_vit_v1/snapshot_vit_s{seed}.json" for seed in (42, 123, 456)),
    "snapshot_evolution_v2/snapshot_evolution_s42.json",
    "snapshot_no_outln_v1/snapshot_fa_canonical_noln_s42.json",
    "snapshot_vit_v1/snapshot_fa_canonical_s42.json",
    "snapshot_synth_v1/snapshot_synth_a1.0_L4_s42.json",
    "snapshot_synth_v1/snapshot_fa_canonical_s42.json",
    "dfa_residual_penalty/dfa_pen_lam0.01_s42.json",
}
"""As listed, under results/."""
G = (0.5, 0.25, 1e-3, 2e-6, 4.096e-5)
H = (8.0, 9.0, 1e3, 1e5, 4e8)


def make_runs(*, epochs=(0, 1, 2)) -> list[Record]:
    """Every run of the four studies, as if measured at these epochs; the ViT's class token apart from its taps."""
    wanted = {str(sorted(w.items(), key=str)): w for study in STUDIES for w in study("paper").runs}
    token = {"h_norm": [2 * h for h in H], "g_norm": [2 * g for g in G]}
    found = []
    for one in wanted.values():
        special = {"token": token} if one["net"] == "vit" else {}
        found.append(run_of(one, epochs=epochs, taps={"h_norm": H, "g_norm": G}, gamma=0.125, **special))
    return found


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return make_runs()


def export(records, folder, *names) -> tuple[dict[str, dict], list[str]]:
    written, missing = write_exports(records, folder, names=names or FAMILIES)
    return {str(path.relative_to(folder / "results")): json.loads(path.read_text()) for path in written}, missing


def lost(record: Record, epoch: int, **taps) -> Record:
    """The record with other measures at one epoch."""
    changed = [replace(s, taps=replace(s.taps, **taps)) if s.epoch == epoch else s for s in record.snapshots]
    return replace(record, snapshots=tuple(changed))


def shape_of(name: str):
    family = importlib.import_module(f"creditscope.paper.exports.{name}")
    if name == "dfa_residual_penalty":
        return family.shape()
    return log_shape(family.LAYOUT, alone=name != "snapshot_evolution_v2")


def is_run(record: Record, *, net="resmlp", rule="dfa", seed=42, norm=False) -> bool:
    spec = record.spec
    return (spec.net, spec.rule, spec.seed, spec.epochs) == (net, rule, seed, 100) and (
        spec.net_options["terminal_norm"] is norm
    )


def test_every_listed_file_is_written_and_no_other(records, tmp_path):
    found, missing = export(records, tmp_path)
    assert set(found) == FILES
    assert missing == []


def test_entries_are_the_records_in_the_units_said(records, tmp_path):
    found, _ = export(records, tmp_path)
    per_n = [g / 1024 for g in G]
    plain = {"acc_eval": 0.5, "hidden_norms": list(H)}
    resmlp = {**plain, "bp_grad_norms_per_sample_med": per_n}
    student = {**plain, "bp_grad_per_sample_l2_med": per_n}
    vit = {"acc_eval": 0.5, "hidden_norms_cls": [2 * h for h in H]}
    vit["bp_grad_per_sample_l2_med"] = [2 * g for g in per_n]
    for path, content in found.items():
        if path.startswith("dfa_residual_penalty"):
            continue
        expected = resmlp if "evolution" in path or "no_outln" in path else vit if "_vit_" in path else student
        logs = ["fa_log"] if "fa_canonical" in path else ["bp_log", "dfa_log"]
        assert list(content) == logs
        for name in logs:
            own = {**expected, "gamma_dfa": 0.125} if name == "dfa_log" else expected
            assert content[name] == [{"epoch": epoch, **own} for epoch in (0, 1, 2)]


def test_the_penalised_run_names_its_setting(records, tmp_path):
    found, _ = export(records, tmp_path, "dfa_residual_penalty")
    (content,) = found.values()
    config = content["config"]
    assert (config["lambda"], config["penalty"], config["credit_norm"], config["N"]) == (0.01, 0.01, "none", 1024)
    assert (config["rule"], config["epochs"], config["seed"]) == ("dfa", 30, 42)
    assert content["final_acc"] == 0.5
    entry = {"epoch": 2, "h_L_norm": 4e8, "g_2_norm": 1e-3 / 1024, "g_L_norm": 4.096e-5 / 1024, "test_acc": 0.5}
    assert content["log"][-1] == entry


def test_a_normalised_run_is_not_taken_for_the_plain_one(records, tmp_path):
    normalised = [replace(r, spec=replace(r.spec, credit_norm="batch")) if is_run(r) else r for r in records]
    found, missing = export(normalised, tmp_path, "snapshot_no_outln_v1")
    path = "snapshot_no_outln_v1/snapshot_noLN_s42.json"
    assert (len(missing), path in missing[0], path in found, len(found)) == (1, True, False, 3)


def test_a_diverged_run_ends_at_its_last_finite_snapshot_and_so_do_all_of_its_kind(records, tmp_path):
    changed = []
    for record in records:
        if is_run(record, seed=123):
            record = lost(record, 2, h_norm=(*H[:-1], None))
            record = replace(record, provenance=replace(record.provenance, status="diverged", diverged_epoch=2))
        changed.append(record)
    found, missing = export(changed, tmp_path, "snapshot_no_outln_v1")
    assert missing == []
    for path, content in found.items():
        alone = "fa_canonical" in path
        epochs = [0, 1, 2] if alone else [0, 1]
        for name in ["fa_log"] if alone else ["bp_log", "dfa_log"]:
            assert [entry["epoch"] for entry in content[name]] == epochs
        assert ("config" in content) is not alone
    said = found["snapshot_no_outln_v1/snapshot_noLN_s123.json"]["config"]
    assert re.findall(r"\d+", said["dfa_log"] + said["epochs"]) == ["2", "1", "1"]
    assert said["dfa_log"].startswith("diverged")
    assert set(found["snapshot_no_outln_v1/snapshot_noLN_s42.json"]["config"]) == {"epochs"}


@pytest.mark.parametrize("value", [None, math.inf, math.nan])
def test_every_number_is_finite(records, tmp_path, value):
    changed = [lost(r, 1, g_norm=(value, *G[1:])) if is_run(r, norm=True) else r for r in records]
    found, _ = export(changed, tmp_path, "snapshot_evolution_v2")
    (content,) = found.values()
    assert [entry["epoch"] for entry in content["dfa_log"]] == [0]
    assert "epoch 1" in content["config"]["dfa_log"]
    changed = [lost(r, 0, h_norm=(value, *H[1:])) if is_run(r, norm=True) else r for r in records]
    found, missing = export(changed, tmp_path / "none", "snapshot_evolution_v2")
    assert (found, "dfa, seed 42" in missing[0]) == ({}, True)


def test_other_seeds_of_the_transformer_are_exported_and_thinned_logs_share_epochs(records, tmp_path):
    wanted = [{**w, "seed": 7} for w in snapshot_vit("paper").runs if w["seed"] == 42]
    more = [run_of(w, epochs=(0, 2), token={"h_norm": H, "g_norm": G}) for w in wanted]
    found, missing = export([*records, *more], tmp_path, "snapshot_vit_v1")
    assert missing == []
    assert "snapshot_vit_v1/snapshot_vit_s7.json" in found
    pairs = [content for path, content in found.items() if "fa_canonical" not in path]
    assert {tuple(e["epoch"] for e in c[name]) for c in pairs for name in ("bp_log", "dfa_log")} == {(0, 2)}


def test_what_has_no_class_token_is_not_exported_of_all_tokens(records, tmp_path):
    bare = [replace(s, class_token=None) for s in next(r for r in records if r.spec.net == "vit").snapshots]
    changed = [replace(r, snapshots=tuple(bare)) if r.spec.net == "vit" and r.spec.seed == 42 else r for r in records]
    found, missing = export(changed, tmp_path, "snapshot_vit_v1")
    assert set(found) == {f"snapshot_vit_v1/snapshot_vit_s{seed}.json" for seed in (123, 456)}
    assert sorted(line.split("snapshot_vit_v1/")[1].split(" ")[0] for line in missing) == [
        "snapshot_fa_canonical_s42.json",
        "snapshot_vit_s42.json",
    ]


def test_what_is_missing_is_named_and_the_rest_written(records, tmp_path):
    found, missing = export([r for r in records if r.spec.net == "student" and r.spec.rule != "fa"], tmp_path)
    assert set(found) == {"snapshot_synth_v1/snapshot_synth_a1.0_L4_s42.json"}
    named = {line.split("results/")[1].split(" ")[0] for line in missing}
    assert named == FILES - set(found)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_written_schema_is_that_of_the_shape_and_holds_what_is_exported(name, records, tmp_path):
    shape = shape_of(name)
    stored = json.loads((SCHEMAS / f"{name}.json").read_text())
    assert stored == json.loads(json.dumps(shape.json_schema()))
    found, _ = export(records, tmp_path, name)
    assert found
    for content in found.values():
        shape.validate_python(content, strict=True)
        log = next(key for key in content if key.endswith("log"))
        spoilt = {**content, log: [{**content[log][0], "epoch": -1}]}
        with pytest.raises(ValueError, match="epoch"):
            shape.validate_python(spoilt)


def test_scales_have_their_own_runs(records, tmp_path):
    assert write_exports(records, tmp_path, scale="test", names=FAMILIES)[0] == []
    resmlp = runs_of(snapshot_resmlp("test"), taps={"h_norm": H[:4], "g_norm": G[:4]})
    written, _ = write_exports(resmlp, tmp_path, scale="test", names=("snapshot_evolution_v2", "snapshot_no_outln_v1"))
    assert sorted(path.name for path in written) == [
        "snapshot_evolution_s42.json",
        "snapshot_noLN_s123.json",
        "snapshot_noLN_s42.json",
    ]
