"""Whether the tests notice faults: each mutation of `MUTATIONS` is applied, alone, to a copy of the tree, and the tests
named beside it are run there.

*Noticed* means that one of them fails; a mutation that *survived* lacks a test. Before the first, all these tests must
pass without one. Refused is a text that is not found exactly once: the code has changed, and so must the list.

`python bench/mutations.py` runs all of them, `--only WORD …` those whose file or words contain one of the words.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src/creditscope")
NOT_COPIED = (".*", "__pycache__", "*.egg-info", "build", "dist", "out")
FAILED = 1
"""How pytest ends if a test failed; other codes say that none was run."""


class Mutation(NamedTuple):
    """One fault: a text of a file and what stands there instead; and the tests that should fail."""

    fault: str
    file: str
    """In the package."""
    old: str
    new: str
    tests: Sequence[str]
    """Below tests/, as pytest names them."""


MUTATIONS = (
    # -- survived once -----------------------------------------------------------------------------------------------
    Mutation(
        "a snapshot on the last test rows",
        "train/data.py",
        "Batch(self._inputs(self.x_test[:rows]), self.y_test[:rows])",
        "Batch(self._inputs(self.x_test[-rows:]), self.y_test[-rows:])",
        ["train/test_data.py::test_a_snapshot_is_of_the_first_test_rows"],
    ),
    Mutation(
        "the gradient of an update is that after the step",
        "train/run.py",
        "mask=batch.mask, tensors=before)",
        "mask=batch.mask)",
        ["train/test_run.py::test_the_update_is_compared_with_the_gradient_before_the_step"],
    ),
    Mutation(
        "a figure takes the first seeds of each rule",
        "record/pick.py",
        "kept = {seed: record for seed, record in cell.runs.items() if seed in seeds}",
        "kept = dict(list(cell.runs.items())[: len(seeds)])",
        ["record/test_pick.py::test_shared_seeds_are_the_same_ones_not_the_first_of_each"],
    ),
    Mutation(
        "diverged seeds in the curves of a report",
        "report/curves.py",
        "records, size = drawn_records(method), is_size(quantity)",
        "records, size = list(method.runs.values()), is_size(quantity)",
        ["report/test_report_drawing.py::TestChart::test_a_curve_is_of_the_seeds_that_did_not_diverge"],
    ),
    Mutation(
        "cosines far below chance are within it",
        "report/history.py",
        'in_null=np.abs(means.get("cos", np.nan)) <',
        'in_null=means.get("cos", np.full(1, np.nan)) <',
        ["report/test_report_drawing.py::TestHeatmap::test_cells_within_chance_are_dotted_and_exact_ones_never"],
    ),
    Mutation(
        "the arithmetic mean of sizes in a cell",
        "report/history.py",
        "mean_over_seeds(found, size=is_size(name))",
        "mean_over_seeds(found, size=False)",
        ["report/test_report_drawing.py::TestHeatmap::test_a_cell_of_sizes_is_their_geometric_mean_over_seeds"],
    ),
    Mutation(
        "pseudo-errors scaled up where few are kept",
        "rules/_spread.py",
        "kept.sum().clamp(min=1)).clamp(max=1)",
        "kept.sum().clamp(min=1))",
        ["rules/test_graph_rules.py::test_pseudo_errors_are_never_scaled_up"],
    ),
    Mutation(
        "a probe standardised with test rows",
        "measure/probe.py",
        "mean, sd = x.mean(0), x.std(0, correction=0)",
        "mean, sd = torch.cat([x, x_test]).mean(0), torch.cat([x, x_test]).std(0, correction=0)",
        ["measure/test_probe.py::test_features_are_standardised_by_training_rows_alone"],
    ),
    Mutation(
        "many probes standardised with test rows",
        "measure/probe.py",
        "mean, sd = x.mean(-2, keepdim=True), x.std(-2, correction=0, keepdim=True)",
        "mean, sd = (f(torch.cat([x, x_test], -2), dim=-2, keepdim=True) for f in (torch.mean, torch.std))",
        ["measure/test_probe.py::test_features_are_standardised_by_training_rows_alone"],
    ),
    Mutation(
        "a block that works in place is skipped without a copy",
        "measure/ablation.py",
        "kept[:] = [h.clone()]",
        "kept[:] = [h]",
        ["measure/test_ablation.py::test_a_block_that_works_in_place_is_skipped_too"],
    ),
    Mutation(
        "directions of ρ that are not the run's",
        "measure/moves.py",
        'generator(twin.subject.seed, "directions")',
        'generator(0, "directions")',
        ["measure/test_functional_net.py::test_rho_against_differences_taken_by_hand"],
    ),
    Mutation(
        "an export without a class token takes all tokens",
        "paper/exports/_logs.py",
        "taps = snapshot.class_token if self.class_token else snapshot.taps",
        "taps = (self.class_token and snapshot.class_token) or snapshot.taps",
        ["paper/test_exports_logs.py::test_what_has_no_class_token_is_not_exported_of_all_tokens"],
    ),
    # -- streams that are one ----------------------------------------------------------------------------------------
    *(
        Mutation(f"{fault} one stream", file, old, new, ["train/test_run.py::test_streams_differ"])
        for fault, file, old, new in (
            ("init and feedback are", "train/run.py", '(spec.seed, "feedback")', '(spec.seed, "init")'),
            ("init and order are", "train/data.py", '(seed, "order", epoch)', '(seed, "init", epoch)'),
            ("feedback and order are", "train/data.py", '(seed, "order", epoch)', '(seed, "feedback", epoch)'),
            ("init and fresh feedback are", "measure/fresh_feedback.py", '"fresh feedback", draw', '"init", draw'),
            ("own and fresh feedback are", "measure/fresh_feedback.py", '"fresh feedback", draw', '"feedback", draw'),
            ("order and fresh feedback are", "measure/fresh_feedback.py", '"fresh feedback", draw', '"order", draw'),
            ("all epochs have", "train/data.py", '(seed, "order", epoch)', '(seed, "order")'),
            ("order and crops are", "train/data.py", '(seed, "augmentation", epoch)', '(seed, "order", epoch)'),
            ("order and targets are", "train/data.py", '(seed, "redrawn targets", epoch)', '(seed, "order", epoch)'),
            ("all purposes have", "rng.py", "{seed}/{purpose}/{epoch}", "{seed}/{epoch}"),
        )
    ),
)


def main() -> None:
    """Print a row for each mutation; the exit code says whether one survived."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], help="those whose file or words contain one of these")
    words = parser.parse_args().only
    chosen = [m for m in MUTATIONS if any(word in f"{m.file} {m.fault}" for word in words)]
    for mutation in chosen:
        mutated(mutation, ROOT)
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(ROOT, Path(folder) / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))
        code, said = run_tests(copy, dict.fromkeys(test for m in chosen for test in m.tests))
        if code:
            sys.exit(f"{said}\nExpected these tests to pass without a mutation, but pytest ended with {code}.")
        noticed = [is_noticed(mutation, copy) for mutation in chosen]
    print(f"{sum(noticed)} of {len(noticed)} noticed")
    sys.exit(not all(noticed))


def mutated(mutation: Mutation, tree: Path) -> str:
    """The file with the fault in it."""
    text = (tree / PACKAGE / mutation.file).read_text()
    if (found := text.count(mutation.old)) != 1 or mutation.old == mutation.new:
        raise ValueError(
            f"Expected {mutation.old!r} once in {mutation.file}, to be changed, but got it {found} times. "
            "Mend the list in bench/mutations.py."
        )
    return text.replace(mutation.old, mutation.new)


def is_noticed(mutation: Mutation, tree: Path) -> bool:
    """Whether one of its tests fails; prints its row, with the first that does."""
    file = tree / PACKAGE / mutation.file
    before = file.read_text()
    file.write_text(mutated(mutation, tree))
    try:
        code, said = run_tests(tree, mutation.tests)
    finally:
        file.write_text(before)
    failures = [line.removeprefix("FAILED tests/") for line in said.splitlines() if line.startswith("FAILED ")]
    by = failures[0] if failures else " ".join(mutation.tests)
    word = {FAILED: "noticed", 0: "SURVIVED"}.get(code, f"pytest ended with {code}")
    print(f"{word:9} {mutation.file:28} {mutation.fault:52} {by}", flush=True)
    return code == FAILED


def run_tests(tree: Path, tests: Iterable[str]) -> tuple[int, str]:
    """How pytest ends in that tree, whose package comes before any that is installed, and what it prints."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    wanted = [f"tests/{test}" for test in tests]
    done = subprocess.run([*command, *wanted], cwd=tree, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    main()
