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
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
    # -- measure -------------------------------------------------------------------------------------------------------
    Mutation(
        "credit and gradient change places in the ratio",
        "measure/alignment.py",
        "median_where(norm_a / norm_g, keep)",
        "median_where(norm_g / norm_a, keep)",
        ["measure/test_numerics.py::test_rows_of_each_kind_against_numpy"],
    ),
    Mutation(
        "cos_F over rows with both alone",
        "measure/alignment.py",
        "relative_sizes(norm_a, has_a), relative_sizes(norm_g, has_g)",
        "relative_sizes(norm_a, keep), relative_sizes(norm_g, keep)",
        ["measure/test_numerics.py::test_rows_of_each_kind_against_numpy"],
    ),
    Mutation(
        "ranks over all rows",
        "measure/alignment.py",
        "few = min(n, RANK_ROWS)",
        "few = n",
        ["measure/test_numerics.py::test_ranks_are_over_the_first_rows"],
    ),
    Mutation(
        "drift counts a batch with itself",
        "measure/alignment.py",
        "square().sum(-1) - k) / (k * (k - 1))",
        "square().sum(-1)) / (k * k)",
        ["measure/test_alignment.py::TestCommon::test_drift_against_numpy"],
    ),
    Mutation(
        "every seed permutes alike",
        "measure/instruments.py",
        'generator(seed, "permutation")',
        'generator(0, "permutation")',
        ["measure/test_alignment.py::TestPermuted::test_every_seed_has_an_order_of_its_own"],
    ),
    Mutation(
        "rotations without the sign fix",
        "measure/nulls.py",
        "return q * r.diagonal().sign()",
        "return q",
        ["measure/test_nulls.py::test_haar_frames_are_orthogonal_and_centred"],
    ),
    Mutation(
        "the largest rotation for the 99 % point",
        "measure/nulls.py",
        ".values[..., -1].to(moment.dtype)",
        ".values[..., 0].to(moment.dtype)",
        ["measure/test_nulls.py::test_the_quantile_of_few_features_is_that_of_other_rotations"],
    ),
    Mutation(
        "a zero gradient underflows",
        "measure/weights.py",
        " & (largest != 0)",
        "",
        ["measure/test_numerics.py::test_underflow_and_zero_are_told_apart"],
    ),
    Mutation(
        "the null of Γ is the mean sd",
        "measure/snapshot.py",
        ".norm() / len(over)",
        ".mean()",
        ["measure/test_snapshot.py::test_gamma_and_its_null_against_numpy"],
    ),
    Mutation(
        "g_rel has the units of the stream",
        "measure/snapshot.py",
        "g_norms / e_norms * h_norms",
        "g_norms / e_norms",
        ["measure/test_snapshot.py::test_scales_of_state_and_gradient_against_numpy"],
    ),
    Mutation(
        "noise of fitted rows counts",
        "measure/snapshot.py",
        "usable(reference) & keep)",
        "usable(reference))",
        ["measure/test_snapshot.py::test_noise_is_the_error_over_the_true_size"],
    ),
    Mutation(
        "a step's gradient divided by the snapshot's rows",
        "measure/snapshot.py",
        "for name in exact], 1)",
        "for name in exact], rows)",
        ["measure/test_snapshot.py::test_sizes_of_the_last_step_are_those_it_was_given"],
    ),
    Mutation(
        "a step uphill counts as descent",
        "measure/moves.py",
        ".amax(-1).clamp(min=0)",
        ".amax(-1)",
        ["measure/test_functional_net.py::test_descent_against_steps_taken_by_hand"],
    ),
    Mutation(
        "noise of draws over K",
        "measure/fresh_feedback.py",
        "self.spread / (draws - 1)",
        "self.spread / draws",
        ["measure/test_fresh_feedback.py::TestForwardGradient::test_it_is_unbiased_and_almost_all_noise"],
    ),
    Mutation(
        "fresh feedback of another size",
        "measure/fresh_feedback.py",
        "return (unit.scaled * (Direction.of(own).norm / unit.length)).view_as(fresh)",
        "return fresh.to(own)",
        ["measure/test_fresh_feedback.py::TestFreshFeedback::test_matrices_keep_their_size_when_weights_have_grown"],
    ),
    Mutation(
        "float64 gradients through feedback",
        "measure/observation.py",
        "            with exactly(net):\n                tensors",
        "            if True:\n                tensors",
        ["measure/test_snapshot.py::test_noise_is_that_of_the_exact_gradient_whatever_feedback_the_net_carries"],
    ),
    Mutation(
        "statistics of a norm beside a block stay",
        "measure/ablation.py",
        "return beside or set(sorted(around",
        "return set(sorted(around",
        ["measure/test_ablation.py::TestBatchNorm"],
    ),
    # -- rules ---------------------------------------------------------------------------------------------------------
    Mutation(
        "a chain normalised under sample-mean",
        "rules/_applied.py",
        '"none" if how == "sample-mean" else how',
        "how",
        ["rules/test_published_conventions.py::test_credit_and_weight_gradients_match_the_derivation"],
    ),
    Mutation(
        "eps of a mean loss without its rows",
        "rules/_applied.py",
        'EPS if how == "sample" else EPS * batch',
        "EPS",
        ["rules/test_published_conventions.py::test_credit_and_weight_gradients_match_the_derivation"],
    ),
    Mutation(
        "the head measured at the first pass",
        "rules/_applied.py",
        "error = errors.at(at.output).error",
        "error = errors.error",
        ["rules/test_rules_by_hand.py::TestPEPITA"],
    ),
    Mutation(
        "the head trained at the first pass",
        "rules/_applied.py",
        "[errors_of(at.output).gradient], at.states",
        "[errors.gradient], at.states",
        ["rules/test_rules_by_hand.py::TestPEPITA"],
    ),
    Mutation(
        "a penalty pulls at one end",
        "rules/_applied.py",
        "pulls[i - 1] -= 2 * self.penalty * f",
        "pulls[i - 1] -= 0 * f",
        ["rules/test_derivations.py::test_penalty_under_backprop_is_a_term_of_the_loss"],
    ),
    Mutation(
        "feedback steps against its weight",
        "rules/_applied.py",
        "memory.grad = parameters[name].grad",
        "memory.grad = -parameters[name].grad",
        ["train/test_run.py::test_kolen_pollack_feedback_meets_its_weight_as_decay_says"],
    ),
    Mutation(
        "a rule's own draws are one",
        "rules/_applied.py",
        "advanced(counter, steps)) for name",
        "counter) for name",
        [
            "measure/test_fresh_feedback.py::TestForwardGradient::test_a_weight_rule_s_next_draws_are_those_of_its_next_steps"
        ],
    ),
    Mutation(
        "a layer draws the same noise in every step",
        "rules/_layers.py",
        'found[f"{name}.counter"] = advanced(counter)',
        'found[f"{name}.counter"] = counter',
        ["rules/test_rules_by_hand.py::TestLayerFeedback"],
    ),
    Mutation(
        "a kernel's groups not counted",
        "rules/_layers.py",
        "layer.weight.shape[0] * places // layer.groups",
        "layer.weight.shape[0] * places",
        ["rules/test_rules_by_hand.py::TestLayerFeedback"],
    ),
    Mutation(
        "a kernel's padding by name or mode",
        "rules/_layers.py",
        'if self.padding_mode != "zeros" or isinstance(padding, str):',
        "if isinstance(padding, str):",
        ["rules/test_rules_by_hand.py::TestLayerFeedback"],
    ),
    Mutation(
        "feedback of any shape is taken",
        "rules/_layers.py",
        "if memory.shape != layer.weight.shape:",
        "if False:",
        ["rules/test_rule_refusals.py", "rules/test_feedback_alignment.py"],
    ),
    Mutation(
        "a pass gives states as they were replaced",
        "rules/_pass.py",
        "            states.append(h)\n",
        "            states.append(h if instead is None else instead)\n",
        ["rules/test_rules_by_hand.py::TestPass"],
    ),
    Mutation(
        "a shift replaces",
        "rules/_pass.py",
        "return h if added is None else h + added",
        "return h if added is None else added",
        ["rules/test_rules_by_hand.py::TestPass"],
    ),
    Mutation(
        "DRTP uphill",
        "rules/drtp.py",
        "error=-one_hot(ctx)",
        "error=one_hot(ctx)",
        ["rules/test_rules_by_hand.py::test_drtp_tells_every_row_of_a_class_minus_its_column"],
    ),
    Mutation(
        "PC without its own error",
        "rules/pc.py",
        "e - rate * (e + g)",
        "e - rate * g",
        ["rules/test_rules_by_hand.py::TestSettling"],
    ),
    Mutation(
        "PC hands on states without errors",
        "rules/pc.py",
        "[h + e for h, e in zip(settled, errors, strict=True)]",
        "settled",
        ["rules/test_rules_by_hand.py::TestSettling"],
    ),
    Mutation(
        "EP's difference over one β",
        "rules/ep.py",
        "(b - a) / (2 * self.beta)",
        "(b - a) / self.beta",
        ["rules/test_rules_by_hand.py::TestSettling"],
    ),
    Mutation(
        "slopes of rows where rows mix",
        "rules/forward_gradient.py",
        "if ctx.net_mixes_rows:",
        "if False:",
        ["rules/test_rules_by_hand.py::TestForwardGradient"],
    ),
    Mutation(
        "PEPITA's input moved the other way",
        "rules/pepita.py",
        "moved = x + (ctx.error",
        "moved = x - (ctx.error",
        ["rules/test_rules_by_hand.py::TestPEPITA"],
    ),
    Mutation(
        "Adam's second moment forgets sooner",
        "rules/_small_nets.py",
        "0.999 * v + 0.001 * g * g",
        "0.99 * v + 0.01 * g * g",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_adam_is_torch_s"],
    ),
    Mutation(
        "DNI learns the stage above that",
        "rules/dni.py",
        "torch.zeros_like(outputs[-1])))[:-1]",
        "torch.zeros_like(outputs[-1])))[1:]",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_dni_learns_what_the_stage_above_sends_down"],
    ),
    Mutation(
        "DTP without the difference",
        "rules/dtp.py",
        "target = below + self.inverse(G, target) - self.inverse(G, above)",
        "target = self.inverse(G, target)",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_dtp_corrects_targets_by_the_difference_of_two_inverses"],
    ),
    Mutation(
        "L-DRL learns the Jacobian, not its transpose",
        "rules/ldrl.py",
        "xi.T @ u / len(xi)",
        "u.T @ xi / len(xi)",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_ldrl_mirrors_the_jacobian_of_each_stage"],
    ),
    Mutation(
        "the state bridge does not add",
        "rules/state_bridge.py",
        "return h + features_back(mlp",
        "return features_back(mlp",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_bridges_see_state_depth_and_error"],
    ),
    Mutation(
        "bridges are told another depth",
        "rules/state_bridge.py",
        "tap / (len(ctx.states) - 1)",
        "tap / len(ctx.states)",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_bridges_see_state_depth_and_error"],
    ),
    Mutation(
        "the credit bridge's mean follows at once",
        "rules/credit_bridge.py",
        "(1 - self.mean_rate) * m + self.mean_rate * w",
        "self.mean_rate * m + (1 - self.mean_rate) * w",
        ["rules/test_rules_by_hand.py::TestSmallNets::test_the_running_mean_of_a_credit_bridge_is_slow"],
    ),
    Mutation(
        "similarities not centred",
        "rules/local.py",
        "    x = x - x.mean(1, keepdim=True)\n",
        "",
        ["rules/test_rules_by_hand.py::TestLocal"],
    ),
    Mutation(
        "DKP without decay",
        "rules/dkp.py",
        'ctx.feedback["moments"], self.rate, self.decay)',
        'ctx.feedback["moments"], self.rate)',
        ["rules/test_rules_by_hand.py::TestDirectFeedback"],
    ),
    Mutation(
        "FDFA sums tokens",
        "rules/fdfa.py",
        "p = p.mean(1) if",
        "p = p.sum(1) if",
        ["rules/test_rules_by_hand.py::TestDirectFeedback"],
    ),
    Mutation(
        "sign feedback of one size",
        "rules/sign_fa.py",
        "return now * memory * weight.sign()",
        "return memory * weight.sign()",
        ["rules/test_rules_by_hand.py::TestLayerFeedback"],
    ),
    Mutation(
        "a weight mirror begins with one step's rows",
        "rules/wm.py",
        "rows = round((2 - self.rate) / self.rate * self.rows)",
        "rows = self.rows",
        ["rules/test_rules_by_hand.py::TestLayerFeedback"],
    ),
    Mutation(
        "Kolen–Pollack begins at unit scale",
        "rules/kp.py",
        "generator=generator) * float(layer.weight.std())",
        "generator=generator)",
        ["rules/test_rules_by_hand.py::TestLayerFeedback"],
    ),
    # -- train ---------------------------------------------------------------------------------------------------------
    Mutation(
        "a begun run changes its engine",
        "train/groups.py",
        "begun_by(root, spec) or chosen",
        "chosen",
        ["train/test_groups.py::TestEngines"],
    ),
    Mutation(
        "all seeds drop alike",
        "train/run.py",
        "seed_dropout(net, spec.seed)",
        "seed_dropout(net, 0)",
        ["train/test_run.py::test_seeds_differ_and_repeat"],
    ),
    Mutation(
        "a rule's own decay ignored",
        "train/run.py",
        "decay = own if own is not None and name in converted else decay",
        "decay = float(decay)",
        ["train/test_run.py::test_kolen_pollack_feedback_meets_its_weight_as_decay_says"],
    ),
    Mutation(
        "feedback that follows is not stepped",
        "train/run.py",
        "extend([p, *([follow[name]] if name in follow else [])])",
        "extend([p])",
        ["train/test_run.py::test_kolen_pollack_feedback_meets_its_weight_as_decay_says"],
    ),
    Mutation(
        "a step's error over all rows",
        "train/run.py",
        "(errors.error.square().sum((-2, -1)) / errors.count).sqrt()",
        "errors.error.square().sum((-2, -1)).sqrt()",
        ["train/test_run.py::test_an_epoch_s_loss_is_the_mean_over_its_steps_and_its_last_error_that_of_a_row"],
    ),
    Mutation(
        "an epoch's loss is its last step's",
        "train/run.py",
        "torch.stack(losses).double()",
        "torch.stack(losses[-1:]).double()",
        ["train/test_run.py::test_an_epoch_s_loss_is_the_mean_over_its_steps_and_its_last_error_that_of_a_row"],
    ),
    Mutation(
        "no snapshot is untrained",
        "train/snapshots.py",
        "untrained=epoch == 0",
        "untrained=False",
        ["train/test_run.py::test_update_of_the_last_step_points_downhill_under_backprop"],
    ),
    Mutation(
        "a probe sees the border",
        "train/data.py",
        "x = x[..., pad : x.shape[-2] - pad, pad : x.shape[-1] - pad]",
        "x = x[..., : x.shape[-2] - 2 * pad, : x.shape[-1] - 2 * pad]",
        ["train/test_data.py::test_a_probe_is_trained_on_whole_images_without_their_border"],
    ),
    # -- auditing ------------------------------------------------------------------------------------------------------
    Mutation(
        "any shrinking stream is a tip",
        "auditing/checks/cs001_overwritten_stream.py",
        "least * limits.growth < 1",
        "least < 1",
        ["auditing/test_checks_credit.py::TestOverwrittenStream"],
    ),
    Mutation(
        "fitted rows over all rows",
        "auditing/checks/cs002_unresolved_reference.py",
        "snapshot.rows_fitted / snapshot.rows_covered > limits.fitted_rows",
        "snapshot.rows_fitted / snapshot.rows > limits.fitted_rows",
        ["auditing/test_checks_reference.py::TestUnresolvedReference"],
    ),
    Mutation(
        "worse than frozen by the lower bound",
        "auditing/checks/cs004_depth_not_used.py",
        "if high < -limits.depth_loss:",
        "if low < -limits.depth_loss:",
        ["auditing/test_checks_depth.py::TestDepthNotUsed"],
    ),
    Mutation(
        "the published gain over the better baseline",
        "auditing/checks/cs004_depth_not_used.py",
        '"published": found.own_gain < PUBLISHED_GAIN',
        '"published": found.gain < PUBLISHED_GAIN',
        ["auditing/test_checks_depth.py::TestDepthNotUsed"],
    ),
    Mutation(
        "open taps count as below",
        "auditing/checks/cs006_hidden_layers.py",
        "(len(carrying) + len(unclear)) / len(taps) <=",
        "len(carrying) / len(taps) <=",
        ["auditing/test_checks_credit.py::TestHiddenLayers"],
    ),
    Mutation(
        "unused weights vanish",
        "auditing/checks/cs007_vanishing_weight_gradients.py",
        'if flag and w.role != "unused"]',
        "if flag]",
        ["auditing/test_checks_reference.py::TestVanishingWeightGradients"],
    ),
    Mutation(
        "idle by the lower bound",
        "auditing/checks/cs008_descent_disagrees.py",
        'a.answer == "carries" and beyond[a.tap].high <= 0]',
        'a.answer == "carries" and beyond[a.tap].low <= 0]',
        ["auditing/test_checks_credit.py::TestDescentDisagrees"],
    ),
    Mutation(
        "a probe of what the head reads",
        "auditing/checks/cs009_information_without_gradient.py",
        "list(facts.gamma_taps[:-1])",
        "list(facts.gamma_taps)",
        ["auditing/test_checks_depth.py::TestInformationWithoutGradient"],
    ),
    Mutation(
        "the untrained net's probe ignored",
        "auditing/checks/cs009_information_without_gradient.py",
        "max(facts.best_constant + limits.probe_gain, before[tap] or 0.0)",
        "facts.best_constant + limits.probe_gain",
        ["auditing/test_checks_depth.py::TestInformationWithoutGradient"],
    ),
    Mutation(
        "a mean clears chance",
        "auditing/checks/cs010_at_chance.py",
        "if low > best:",
        "if value > best:",
        ["auditing/test_checks_depth.py::TestAtChance"],
    ),
    Mutation(
        "fewer blocks than BP's most",
        "auditing/checks/cs011_idle_blocks.py",
        "own.high < limits.trained_share * bp.low",
        "own.high < limits.trained_share * bp.high",
        ["auditing/test_checks_blocks.py::TestIdleBlocks"],
    ),
    Mutation(
        "descent without its null",
        "auditing/checks/cs012_updates_do_not_descend.py",
        " and more.low > 0]",
        "]",
        ["auditing/test_checks_credit.py::TestUpdatesDoNotDescend"],
    ),
    Mutation(
        "Bonferroni for Holm",
        "auditing/stats.py",
        "level / (len(p) - rank)",
        "level / len(p)",
        ["auditing/test_stats.py::test_holm_by_hand"],
    ),
    Mutation(
        "diverged runs in the trained depth",
        "auditing/depth.py",
        ' for r in records if r.provenance.status != "diverged"]',
        " for r in records]",
        ["auditing/test_checks_blocks.py::TestTrainedDepth"],
    ),
    Mutation(
        "the better baseline by seeds that are not compared",
        "auditing/depth.py",
        "_mean([frozen[name][seed] for seed in seeds])",
        "_mean(list(frozen[name].values()))",
        ["auditing/test_checks_depth.py::TestDepthNotUsed"],
    ),
    Mutation(
        "cos_F may be far below cos",
        "auditing/tap_credit.py",
        " and other.high >= limits.weighted_share * cos.mean)",
        ")",
        ["auditing/test_tap_credit.py::TestWeighted"],
    ),
    Mutation(
        "the null of a mean is the mean null",
        "auditing/tap_credit.py",
        "math.sqrt(sum(sd * sd for sd in sds)) / len(sds)",
        "sum(sds) / len(sds)",
        ["auditing/test_tap_credit.py::TestThreeAnswers"],
    ),
    Mutation(
        "one run's descent by the spread of a mean",
        "auditing/tap_credit.py",
        "math.sqrt(1 + 1 / turns)",
        "math.sqrt(1 / turns)",
        ["auditing/test_checks_credit.py::TestDescentDisagrees"],
    ),
    # -- record --------------------------------------------------------------------------------------------------------
    Mutation(
        "growth over stages that do not add",
        "record/table.py",
        "if adds and facts.tap_shapes[t] ==",
        "if t and facts.tap_shapes[t] ==",
        ["record/test_table.py::test_growth_is_over_residual_stages_of_equal_shape_alone"],
    ),
    Mutation(
        "the record of more snapshots is the richer",
        "record/table.py",
        "return record.finished, tier, record.spec.noise, not lacks(record), len(record.snapshots)",
        "return record.finished, len(record.snapshots), record.spec.noise, not lacks(record), tier",
        ["record/test_pick.py"],
    ),
    Mutation(
        "records on other rows stand for each other",
        "record/spec.py",
        "            and self.eval_rows == other.eval_rows\n",
        "",
        ["record/test_schema.py::TestSpec"],
    ),
    Mutation(
        "a bundle drops the first weights",
        "record/load.py",
        "s.epoch != before[0].epoch and s.epoch & (s.epoch - 1) != 0",
        "s.epoch == before[0].epoch or s.epoch & (s.epoch - 1) != 0",
        ["record/test_load.py::TestRoundTrip"],
    ),
    Mutation(
        "what was left out before is forgotten",
        "record/load.py",
        "record.left_out + len(record.snapshots) - len(kept)",
        "len(record.snapshots) - len(kept)",
        ["record/test_load.py::TestRoundTrip"],
    ),
    Mutation(
        "a half-made record replaces the finished one kept",
        "record/store.py",
        'stored is not None and stored.status != "running"',
        "stored is not None",
        ["record/test_store.py::test_a_finished_record_is_kept_beside_however_often_a_new_one_is_begun"],
    ),
    Mutation(
        "later fields change the names of earlier runs",
        "record/spec.py",
        " if n not in LATER_FIELDS or v != LATER_FIELDS[n]}",
        "}",
        ["record/test_schema.py::TestSpec"],
    ),
    # -- report --------------------------------------------------------------------------------------------------------
    Mutation(
        "a band begins at the mean",
        "report/curves.py",
        "values.min(0).tolist(), values.max(0).tolist()",
        "mean.tolist(), values.max(0).tolist()",
        [
            "report/test_report_drawing.py::TestChart::test_a_curve_is_the_mean_over_seeds_within_the_lowest_and_the_highest"
        ],
    ),
    Mutation(
        "a curve of the first tap",
        "report/curves.py",
        "getattr(snapshot.taps, quantity)[-1]",
        "getattr(snapshot.taps, quantity)[0]",
        [
            "report/test_report_drawing.py::TestChart::test_a_curve_is_the_mean_over_seeds_within_the_lowest_and_the_highest"
        ],
    ),
    Mutation(
        "the noise of the best seed",
        "report/history.py",
        '"g_noise": np.fmax.reduce',
        '"g_noise": np.fmin.reduce',
        [
            "report/test_report_drawing.py::TestHeatmap::test_beside_a_cell_stand_fewest_rows_worst_noise_and_the_null_of_the_mean"
        ],
    ),
    Mutation(
        "before minus after",
        "report/comparison.py",
        "paired_interval(new, old)",
        "paired_interval(old, new)",
        ["report/test_report_page.py::TestAgainst"],
    ),
    Mutation(
        "most rows used",
        "report/layers.py",
        "min(t.rows_used[at] for t in lasts)",
        "max(t.rows_used[at] for t in lasts)",
        ["report/test_report_page.py::test_the_final_values_say_the_fewest_rows_used_and_the_most_without_gradient"],
    ),
    # -- plots ---------------------------------------------------------------------------------------------------------
    Mutation(
        "sd with ddof 0",
        "plots/_quantities.py",
        "masked.std(axis=0, ddof=1)",
        "masked.std(axis=0, ddof=0)",
        ["plots/test_plots_taps.py::TestSizes"],
    ),
    Mutation(
        "a null band of exact credit",
        "plots/_taps.py",
        "    found[:, list(line.facts.exact_taps)] = np.nan\n",
        "",
        ["plots/test_plots_taps.py::TestCredit"],
    ),
    Mutation(
        "arithmetic means of sizes",
        "plots/_taps.py",
        "[mean_sd(take_log(line.per_tap(quantity)))",
        "[mean_sd(np.log10(line.per_tap(quantity).mean(0, keepdims=True)))",
        ["plots/test_plots_taps.py::TestSizes"],
    ),
    Mutation(
        "diverged seeds in a tap's mean",
        "plots/_lines.py",
        "for r in self.whole]\n        return np.array(found",
        "for r in self.method.runs.values()]\n        return np.array(found",
        ["plots/test_plots_taps.py"],
    ),
    Mutation(
        "diverged seeds in the mean of courses",
        "plots/_runs.py",
        "[found[seed] for seed in found if seed not in line.method.diverged]",
        "list(found.values())",
        ["plots/test_plots_runs.py"],
    ),
    Mutation(
        "the arithmetic mean of norms over epochs",
        "plots/_runs.py",
        "10 ** np.log10(v).mean() if log else v.mean()",
        "v.mean()",
        ["plots/test_plots_runs.py"],
    ),
    Mutation(
        "diverged runs on the ladder",
        "plots/_runs.py",
        "list(accuracies(runs).values())",
        "[r.last.accuracy for r in runs.values()]",
        ["plots/test_plots_runs.py::TestLadder::test_runs_that_diverged_are_on_no_rung"],
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
    with copied() as tree:
        code, said = run_tests(tree, dict.fromkeys(test for m in chosen for test in m.tests))
        if code:
            sys.exit(f"{said}\nExpected these tests to pass without a mutation, but pytest ended with {code}.")
        noticed = [is_noticed(mutation, tree) for mutation in chosen]
    print(f"{sum(noticed)} of {len(noticed)} noticed")
    sys.exit(not all(noticed))


@contextmanager
def copied() -> Iterator[Path]:
    """The tree in a folder of its own, which is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        yield shutil.copytree(ROOT, Path(folder) / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))


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
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "250"}
    wanted = [f"tests/{test}" for test in tests]
    done = subprocess.run([*command, *wanted], cwd=tree, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


if __name__ == "__main__":
    main()
