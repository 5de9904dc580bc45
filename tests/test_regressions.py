"""Things that once went wrong: shared weights, fitted rows, converted models, diverged baselines, rule files."""

import copy

import numpy as np
import pytest
import torch
from builders import make_family, make_record, write_record
from torch import nn

import creditscope as cs
from creditscope.auditing import audit
from creditscope.errors import CreditscopeError
from creditscope.losses import row_errors
from creditscope.measure.noise import measure_noise
from creditscope.measure.observation import exact_weight_gradients, observe
from creditscope.record import load_records
from creditscope.rng import generator
from creditscope.rules import FeedbackLinear, apply_rule, rule_class
from creditscope.train.plan import plan_run, plan_runs
from creditscope.train.run import build_run
from creditscope.train.training import train_run


class Tied(nn.Module):
    """Two blocks that share one matrix, and a stem tied to the head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(5, 5, bias=False)
        self.inner = nn.Linear(5, 5)
        self.a, self.b = Block(self.inner), Block(self.inner)
        self.head = nn.Linear(5, 5, bias=False)
        self.head.weight = self.stem.weight

    def forward(self, x):
        return self.head(self.b(self.a(self.stem(x))))


class Block(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, h):
        return h + torch.tanh(self.inner(h))


def test_shared_parameters_are_measured_as_they_are_trained():
    torch.manual_seed(0)
    net, x, y = Tied().double(), torch.randn(9, 5).double(), torch.randint(5, (9,))
    applied = apply_rule(rule_class("dfa")(), net, ("stem", "a", "b"), x, generator(0, "f")).applied
    applied.backward(x, lambda output: row_errors(output, y))
    seen = observe(net, applied, x, y)
    for name, p in net.named_parameters():
        torch.testing.assert_close(seen.rule_weights[name] / 9, p.grad)


def test_a_layer_of_two_names_stays_one_layer_and_hooks_are_kept():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    net[1].again = net[0]
    hits = []
    net[0].register_forward_hook(lambda *args: hits.append(1))
    cs.convert(net, "fa", taps="1", inputs=torch.randn(5, 4))
    assert net[1].again is net[0]
    assert isinstance(net[0], FeedbackLinear)
    hits.clear()
    net(torch.randn(5, 4))
    assert hits == [1]


def test_reparametrised_layers_are_refused():
    for wrap in (nn.utils.parametrizations.weight_norm, nn.utils.parametrizations.spectral_norm):
        net = nn.Sequential(wrap(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 3))
        with pytest.raises(CreditscopeError, match="Expected"):
            cs.convert(net, "fa", taps="1", inputs=torch.randn(5, 4))


def test_a_converted_model_is_watched_under_its_own_rule_only():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3))
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    cs.convert(net, "fa", taps=["1", "3"], inputs=x, head="exact")
    with pytest.raises(CreditscopeError, match="converted to, but got 'bp'"):
        cs.watch(net, taps=["1", "3"], rule="bp")
    by_name, by_default = cs.watch(net, taps=["1", "3"], rule="fa"), cs.watch(net, taps=["1", "3"])
    assert by_name.snapshot(x, y) == by_default.snapshot(x, y)
    assert by_name.records[0].facts.exact_taps == (1,)  # above it only the exact head lies
    other = cs.watch(net, taps=["0", "1"])
    other.snapshot(x, y)
    assert other.records[0].facts.exact_taps == ()


def test_a_converted_model_trains_under_autocast():
    x = torch.randn(8, 4, requires_grad=True)
    layer = nn.Sequential(nn.Linear(4, 3))
    cs.convert(layer, "fa", taps="0", inputs=x.detach())
    output = layer(x)
    delta = torch.randn(8, 3).to(torch.float16)  # what autocast sends down
    from creditscope.rules._feedback_linear import LinearWithFeedback

    class Ctx:
        saved_tensors = (x.detach(), layer[0].weight.detach(), layer[0].feedback)
        needs_input_grad = (True, True, True)
        transport = layer[0].transport

    down, grad_weight, _, *_ = LinearWithFeedback.backward(Ctx, delta)
    assert down.dtype == grad_weight.dtype == output.dtype == torch.float32
    torch.testing.assert_close(down, delta.float() @ layer[0].feedback)


def test_fitted_rows_are_counted_and_left_out():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3))
    x, y = torch.randn(40, 2), torch.randint(3, (40,))
    grown = copy.deepcopy(net)
    with torch.no_grad():
        grown[2].bias += torch.tensor([95.0, 0.0, 0.0])  # rows of class 0 keep an error of about 1e-41
    taken = cs.watch(grown, taps="1", rule="dfa").snapshot(x, y)
    fitted = int((y == 0).sum())
    assert 0 < taken.rows_fitted <= fitted
    assert taken.taps.rows_used[0] <= 40 - taken.rows_fitted
    alone = cs.watch(grown, taps="1", rule="dfa").snapshot(x[y != 0], y[y != 0])
    np.testing.assert_allclose(taken.taps.cos, alone.taps.cos, rtol=1e-3)


def test_an_overflowed_gradient_is_noise():
    g64 = torch.randn(1, 4, 3, dtype=torch.float64)
    g = g64.float()
    keep = torch.ones(4, dtype=torch.bool)
    assert float(measure_noise(g, g64, keep)) < 1e-6
    g[0, :3] = torch.inf
    assert float(measure_noise(g, g64, keep)) > 1e20


def test_the_update_is_compared_with_the_gradient_of_its_own_step():
    spec = plan_run(rule="bp", task="digits", net_options={"depth": 2, "width": 16}, epochs=2, optimiser="sgd",
                    weight_decay=0.0, snapshot_every=1, noise=False)  # fmt: skip
    run, taken = build_run(spec), []
    train_run(run, on_snapshots=taken.extend)
    np.testing.assert_allclose(taken[-1].weights.update_cos, 1, atol=1e-2)  # plain SGD steps along −∇ exactly
    assert sum(taken[-1].weights.decrease_share) == pytest.approx(1)


def test_exact_weight_gradients_touch_nothing():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    x, y = torch.randn(10, 4), torch.randint(3, (10,))
    before = {k: v.clone() for k, v in net.state_dict().items()}
    found = exact_weight_gradients(net, x, y)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())
    nn.functional.cross_entropy(net(x), y).backward()
    for name, p in net.named_parameters():
        torch.testing.assert_close(found[name], p.grad, rtol=1e-4, atol=1e-6)


def test_a_diverged_baseline_skips_use_of_depth():
    records = make_family("dfa", accuracy=0.7)
    whole = {m.method: m for m in audit(records).methods}
    broken = [r for r in records if r.spec.rule != "bp" or r.spec.frozen]
    broken += [make_record(rule="bp", seed=s, diverged=1, accuracy=0.1) for s in (1, 2, 3)]
    judged = {m.method: m for m in audit(broken).methods}
    name = next(n for n in whole if n != "BP")
    found = {f.code: f for f in judged[name].findings}["CS004"]
    assert (str(found.outcome), "diverged" in found.message) == ("skipped", True)
    bp = next(m for n, m in judged.items() if n != name)
    assert bp.verdict.word == "not measured"
    assert bp.accuracy is None


def test_published_thresholds_do_not_move_with_ours():
    record = make_record(taps={"h_rms": [1.0, 1.1, 1.2, 1.3, 1.4]})
    found = {f.code: f for f in audit([record], limits=cs.Thresholds(growth=1.01)).methods[0].findings}
    assert str(found["CS001"].outcome) == "issue"
    assert found["CS001"].published is False


def test_each_seed_has_a_verdict_of_its_own():
    records = [make_record(seed=1), make_record(seed=2, taps={"h_rms": [1, 1, 99, 99, 99]})]
    (method,) = audit(records).methods
    assert method.seed_verdicts[1].word == "trustworthy"
    assert method.seed_verdicts[2].codes == ("CS001",)


def test_a_record_that_was_cut_short_is_not_complete(tmp_path):
    folder = write_record(tmp_path, make_record())
    lines = (folder / "snapshots.jsonl").read_text().splitlines(keepends=True)
    (folder / "snapshots.jsonl").write_text("".join(lines[:-1]))
    problems: list[str] = []
    assert load_records(tmp_path, problems=problems) == []
    assert "Expected snapshots to epoch 1, but the last is 0" in problems[0]
    with pytest.raises(CreditscopeError, match="the last is 0"):
        load_records(tmp_path)


def test_built_in_names_are_taken():
    with pytest.raises(CreditscopeError, match="'dfa' is a built-in one"):

        @cs.register_rule("dfa")
        class Mine(cs.TapRule):
            def credit(self, ctx):
                return []


def test_an_edited_net_is_another_run():
    def make(hidden):
        class Net(nn.Module):
            stem_tap, block_taps = None, "layers.*"

            def __init__(self, input_shape, classes):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(64, hidden)])
                self.head = nn.Linear(hidden, classes)

            def forward(self, x):
                return self.head(self.layers[0](x))

        return Net

    from creditscope.registry import NETS

    cs.register_net("mine_for_test")(make(4))
    assert len(plan_run(task="digits", net="mine_for_test").net_source) > 0
    assert plan_run(task="digits").net_source == ""
    NETS._registered.pop("mine_for_test")


def test_a_rule_file_may_use_dataclasses_and_its_own_folder(tmp_path):
    (tmp_path / "helper_for_rule.py").write_text("SCALE = 2.0\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "import creditscope as cs\n"
        "from helper_for_rule import SCALE\n"
        "@dataclass\n"
        "class Note:\n"
        "    text: str = 'x'\n"
        "class Mine(cs.TapRule):\n"
        "    def credit(self, ctx):\n"
        "        return [SCALE * h for h in ctx.states]\n"
    )
    assert rule_class(f"{tmp_path / 'mine.py'}:Mine").name == "Mine"
    (tmp_path / "broken.py").write_text("def :\n")
    with pytest.raises(CreditscopeError, match="it failed: SyntaxError"):
        rule_class(f"{tmp_path / 'broken.py'}:Mine")


def test_a_mistyped_field_names_fields_and_options():
    with pytest.raises(CreditscopeError, match=r"got 'epoch'\. Choices: .*depth.*epochs"):
        plan_runs(rules=["bp"], seeds=[1], epoch=3)


def test_wrong_targets_are_explained():
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    x = torch.randn(6, 4)
    scope = cs.watch(net, taps="0")
    for target, text in (
        (torch.tensor([0, 1, 2, 3, 0, 1]), "Expected labels from 0 to 2, but got 0 to 3"),
        (torch.rand(6), r"Expected one class label per row for cross-entropy, but got targets of torch\.float32"),
        (torch.zeros(5, dtype=torch.long), "one target per row, but got 6 rows and 5 targets"),
    ):
        with pytest.raises(CreditscopeError, match=text):
            scope.snapshot(x, target)
    unlabelled = torch.tensor([0, 1, 2, -100, -100, 1])
    taken = scope.snapshot(x, unlabelled, mask=unlabelled >= 0)
    assert taken.rows_covered == 4
    with pytest.raises(CreditscopeError, match="besides the stem"):
        cs.watch(net, taps="0", stem="0")


def test_views_of_mixed_settings_are_refused():
    from creditscope.record.view import to_xarray

    with pytest.raises(CreditscopeError, match="2 settings"):
        to_xarray([make_record(), make_record(lr=0.5)])


def test_convolutions_cannot_be_declared_away():
    net = nn.Sequential(nn.Conv1d(2, 4, 1), nn.Flatten(), nn.Linear(16, 3))
    net.added_parameters = ("0.weight",)
    with pytest.raises(CreditscopeError, match=r"belongs to a Conv1d.*by a tap rule \(dfa, block_fa\)"):
        cs.convert(net, "fa", taps="0", inputs=torch.randn(5, 2, 4))


def test_a_measured_rule_is_not_shown_as_one_that_trained():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    scope = cs.watch(net, taps="1", rule="dfa")
    scope.snapshot(torch.randn(30, 4), torch.randint(3, (30,)))
    (method,) = scope.audit().methods
    assert method.method == "DFA, measured only"
    assert method.verdict.lines[2].answer != "yes"


def test_interacting_rows_are_said():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
    scope = cs.watch(net, taps="0")
    scope.snapshot(torch.randn(30, 4), torch.randint(3, (30,)))
    assert "Rows interact" in str(scope.audit())
    net.eval()
    scope.snapshot(torch.randn(30, 4), torch.randint(3, (30,)))
    assert "Rows interact" not in str(scope.audit())


def test_a_rule_sees_the_target():
    class DRTP(cs.TapRule):
        """Random projections of the one-hot target (Frenkel et al., 2021)."""

        def draw_feedback(self, tap_shapes, classes, generator):
            return [torch.randn(shape[0], classes, generator=generator) for shape in tap_shapes]

        def credit(self, ctx):
            hot = nn.functional.one_hot(ctx.target, ctx.output.shape[1]).to(ctx.output.dtype)
            return [-hot @ B.T for B in ctx.feedback]

    from creditscope.testing import assert_rule

    assert_rule(DRTP, tokens=False)


def test_nets_state_their_taps_as_class_attributes():
    with pytest.raises(CreditscopeError, match="class attributes stem_tap"):

        @cs.register_net("no_taps_for_test")
        class NoTaps(nn.Module):
            pass

    with pytest.raises(CreditscopeError, match=r"to be among .*but got \['vector'\]"):

        @cs.register_net("typo_for_test")
        class Typo(nn.Module):
            stem_tap, block_taps, accepts = None, "blocks.*", ("vector",)


def test_one_mistake_is_said_once(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import creditscope as cs\nclass Bad(cs.TapRule):\n    def credit(self, ctx):\n        return ctx.nothing\n"
    )
    with pytest.raises(CreditscopeError, match="and 1 more failed") as caught:
        cs.run(
            task="digits", rule=f"{tmp_path / 'bad.py'}:Bad", seeds=2, epochs=1, width=8, depth=1, out=tmp_path, jobs=1
        )
    assert str(caught.value).count("has no attribute 'nothing'") == 1


@pytest.mark.parametrize("width", [80, 150])
def test_tables_fit_their_width(width):
    import io

    from rich.console import Console

    text = io.StringIO()
    audit(make_family("dfa")).show(Console(file=text, width=width, highlight=False))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    flat = " ".join(text.getvalue().split())
    assert "…" not in flat
    for word in ("accuracy", "frozen, BP stem", "growth", "verdict", "CS010"):
        assert word in flat
