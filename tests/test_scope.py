"""`watch` on models of other people: transformers, BatchNorm in train mode, dropout, autocast; nothing touched."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.rules import rule_class

pytestmark = pytest.mark.usefixtures("own_stream")


class Classifier(nn.Module):
    """torch's own encoder, batch first, with a mean-pooled head."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


def tokens(dropout: float = 0.0) -> tuple[Classifier, torch.Tensor, torch.Tensor]:
    return Classifier(dropout), torch.randn(12, 7, 16), torch.randint(5, (12,))


def images() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """A convolutional net with batch norm that works in place, and rows for it."""
    blocks = [
        nn.Sequential(nn.Conv2d(inputs, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)) for inputs in (3, 8)
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    return nn.Sequential(*blocks, head), torch.randn(16, 3, 6, 6), torch.randint(4, (16,))


def linears(middle: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6), *([middle] if middle else []), nn.Linear(6, 3))


def few(rows: int = 30) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 4), torch.arange(rows) % 3


def fingerprint(model: nn.Module) -> dict[str, torch.Tensor]:
    state = {f"state {k}": v.clone() for k, v in model.state_dict().items()}
    state |= {f"grad {k}": p.grad.clone() for k, p in model.named_parameters() if p.grad is not None}
    state |= {f"mode {k}": torch.tensor(m.training) for k, m in model.named_modules()}
    state |= {f"hooks {k}": torch.tensor(len(m._forward_hooks)) for k, m in model.named_modules()}
    state |= {f"needs {k}": torch.tensor(p.requires_grad) for k, p in model.named_parameters()}
    return state | {"random": torch.get_rng_state()}


def assert_untouched(model: nn.Module, before: dict[str, torch.Tensor]) -> None:
    after = fingerprint(model)
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert torch.equal(value, after[key]), key


def give_gradients(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    nn.functional.cross_entropy(model(x), y).backward()


def finding(scope: cs.Scope, code: str):
    """What a check says of a watched model."""
    (found,) = [f for f in scope.audit().methods[0].findings if f.code == code]
    return found


def test_transformer_encoder_unchanged():
    model, x, y = tokens()
    give_gradients(model, x, y)
    model.eval()
    before = fingerprint(model)
    scope = cs.watch(model, taps="encoder.layers.*")
    taken = scope.snapshot(x, y)
    assert_untouched(model, before)
    assert taken.taps.cos == pytest.approx((1, 1, 1))
    facts = scope.records[0].facts
    assert facts.taps == ("encoder.layers.0", "encoder.layers.1", "encoder.layers.2")
    assert (facts.tap_shapes[0], facts.residual, facts.rows_interact) == ((7, 16), (False, True, True), False)
    # the mean over 7 tokens sends Wᵀe/7 to each, unchanged to the last layer's output
    e = torch.softmax(model(x), -1) - nn.functional.one_hot(y, 5)
    expected = (e @ model.head.weight / 7).norm(dim=1) * 7**0.5
    np.testing.assert_allclose(taken.taps.g_norm[-1], np.median(expected.detach()), rtol=1e-4)
    assert finding(scope, "CS103").outcome == "passed"
    assert scope.audit().methods[0].verdict.word != "trustworthy"


def test_credit_of_ones_own_on_tokens_is_compared_with_the_gradient():
    """Ones for every feature of every token; the gradient at the last layer is Wᵀe/7 for each of 7 tokens."""
    model, x, y = tokens()
    seen: list = []

    def credit(ctx):
        seen.append(ctx)
        return [torch.ones_like(h) for h in ctx.states]

    taken = cs.watch(model, taps="encoder.layers.*", credit=credit).snapshot(x, y)
    assert seen[0].error.shape == (12, 5)
    assert seen[0].top_gradient.shape == (12, 7, 16)
    g = (seen[0].error @ model.head.weight).detach()
    assert taken.taps.cos[-1] == pytest.approx(float((g.sum(1) / g.norm(dim=1) / 4).mean()), abs=1e-6)
    assert taken.taps.rows_used == (12, 12, 12)


def test_batch_norm_makes_rows_interact_in_train_mode_and_nothing_is_touched():
    model, x, y = images()
    model[0][0].bias.requires_grad_(False)
    give_gradients(model, x, y)
    model[0].eval()
    for training in (True, False):
        model[1].train(training)
        before = fingerprint(model)
        scope = cs.watch(model, taps=["0", "1"])
        scope.snapshot(x, y)
        assert_untouched(model, before)
        assert scope.records[0].facts.rows_interact == training


def test_dropout_has_one_set_of_masks_for_credit_and_reference():
    model, x, y = tokens(dropout=0.4)
    model.train()
    before = fingerprint(model)
    # credit that is the reference of the same forward: any other mask would give a cosine below 1
    scope = cs.watch(model, taps="encoder.layers.*", credit=lambda ctx: [*ctx.states[:-1], ctx.top_gradient])
    taken = scope.snapshot(x, y)
    assert taken.taps.cos[-1] == pytest.approx(1, abs=1e-6)
    assert_untouched(model, before)
    # and the float64 twin draws the same masks, so what differs is rounding alone
    assert max(taken.taps.g_noise) < 1e-4


def test_feedback_and_reference_share_dropout_masks():
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    cs.convert(model, "fa", taps=["0", "2"], inputs=x)
    for layer in (model[0], model[2], model[4]):
        layer.feedback.copy_(layer.weight.detach())
    taken = cs.watch(model, taps=["0", "2"]).snapshot(x, y)
    assert taken.taps.cos == pytest.approx((1, 1), abs=1e-6)


def test_a_converted_model_is_measured_against_its_true_gradient():
    model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 3))
    x, y = torch.randn(200, 6), torch.randint(3, (200,))
    report = cs.convert(model, "fa", taps=["1", "3"], inputs=x)
    assert report.names("exact") == ["4.weight", "4.bias"]
    taken = cs.watch(model, taps=["1", "3"]).snapshot(x, y)
    assert all(abs(c) < 0.9 for c in taken.taps.cos)
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    start = float(nn.functional.cross_entropy(model(x), y).detach())
    for _ in range(150):
        optimiser.zero_grad()
        give_gradients(model, x, y)
        optimiser.step()
    assert float(nn.functional.cross_entropy(model(x), y).detach()) < 0.8 * start
    later = cs.watch(model, taps=["1", "3"]).snapshot(x, y)
    assert later.taps.cos[1] > taken.taps.cos[1] + 0.1  # weights have turned towards the feedback


def test_callers_without_gradients_measure_the_same():
    model, x, y = images()
    model.eval()
    plain = cs.watch(model, taps=["0", "1"]).snapshot(x, y)
    with torch.no_grad():
        assert cs.watch(model, taps=["0", "1"]).snapshot(x, y) == plain
        assert not torch.is_grad_enabled()
    with torch.inference_mode(), pytest.raises(CreditscopeError, match="inference_mode"):
        cs.watch(model, taps=["0", "1"]).snapshot(x, y)


def test_frozen_parameters_are_listed_and_measured_around():
    model, x, y = tokens()
    for p in model.encoder.parameters():
        p.requires_grad_(False)
    scope = cs.watch(model, taps="encoder.layers.*")
    taken = scope.snapshot(x, y)
    assert taken.taps.rows_used == (12, 12, 12)
    assert [w.name for w in scope.records[0].facts.weights] == ["head.weight", "head.bias"]
    assert len(scope.parameters.names("frozen")) == sum(1 for _ in model.encoder.parameters())
    model.encoder.layers[0].linear1.weight.requires_grad_(True)
    with pytest.raises(CreditscopeError, match="trainable parameters"):
        scope.snapshot(x, y)


def test_snapshots_pile_up_and_go_forward():
    scope, (x, y) = cs.watch(linears(nn.Linear(6, 6)), taps=["0", "1"]), few(10)
    with pytest.raises(CreditscopeError, match="one snapshot"):
        scope.audit()
    with pytest.raises(CreditscopeError, match="snapshot"):
        _ = scope.parameters
    with pytest.raises(CreditscopeError, match="from 0 on, but got -1"):
        scope.snapshot(x, y, epoch=-1)
    scope.snapshot(x, y, epoch=5, tier="quick")
    scope.snapshot(x, y)
    for epoch, said in ((2, "after 6,.* got 2"), (6, "after 6,.* got 6"), (7.5, r"7\.5")):
        with pytest.raises(CreditscopeError, match=said):
            scope.snapshot(x, y, epoch=epoch, tier="quick")
    assert [s.epoch for s in scope.snapshots] == [5, 6]
    assert finding(scope, "CS109").outcome == "issue"  # it was not trained in between


def test_a_printed_snapshot_is_a_table_of_taps():
    scope = cs.watch(linears(Detached()), taps="1", stem="0", rule="dfa")
    x, y = few()
    title, header, *rows = str(scope.snapshot(x, y, tier="quick")).splitlines()
    taken = scope.snapshots[0]
    assert title.startswith("epoch 0 · loss ")
    assert header.split() == ["tap", "‖h‖", "growth", "‖g‖", "noise", "cos", "z"]
    for tap, row in enumerate(rows):
        cells, (low, high) = row.split(), taken.taps.h_rms
        assert (len(cells), cells[0], cells[4]) == (7, str(tap), "–")  # the quick tier measures no noise
        assert float(cells[1]) == pytest.approx(taken.taps.h_norm[tap], rel=0.01)
        assert float(cells[3]) == pytest.approx(taken.taps.g_norm[tap], rel=0.05)
        assert cells[2] == (f"{high / low:.2f}" if tap else "–")  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]
    assert len(rows) == len({len(row) for row in (header, *rows)}) + 1
    assert len(repr(taken)) > 10 * len(str(taken))


def test_a_printed_snapshot_holds_where_a_tap_has_no_gradient():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    nn.init.zeros_(model[1].weight)
    taken = cs.watch(model, taps="0").snapshot(*few(10))
    assert (taken.taps.cos, taken.taps.rows_no_gradient) == ((None,), (10,))
    header, cells = (line.split() for line in str(taken).splitlines()[1:3])
    assert header == ["tap", "‖h‖", "growth", "‖g‖", "noise"]  # of backprop no cosine is told
    assert [cells[0], *cells[4:]] == ["0", "–"]


@pytest.mark.parametrize(
    ("options", "given", "said"),
    [
        ({"taps": "block.*"}, {}, r"tap, but got 'block\.\*'"),
        ({"taps": []}, {}, "tap"),
        ({"taps": "0", "stem": "0"}, {}, "stem '0'"),
        ({"rule": "fa"}, {}, r"creditscope\.convert"),
        ({"rule": "dfa", "credit": lambda ctx: []}, {}, "got both"),
        ({"loss": nn.functional.cross_entropy}, {}, r"\(16,\), but got shape"),
        ({}, {"target": np.arange(16) % 4}, r"ndarray. .*as_tensor\(target\)"),
        ({}, {"target": torch.arange(16) % 5}, "0 to 3, but got 0 to 4"),
        ({}, {"target": torch.rand(16)}, r"torch\.float32"),
        ({}, {"target": torch.zeros(15, dtype=torch.long)}, "16 rows and 15 targets"),
        ({}, {"mask": [True] * 16}, "mask .*list"),
        ({}, {"mask": torch.ones(16)}, r"\(16,\)"),
        ({}, {"mask": torch.ones(15, dtype=torch.bool)}, r"\(15,\)"),
        ({}, {"inputs": torch.randn(1, 3, 6, 6), "target": torch.zeros(1, dtype=torch.long)}, "at least 2 rows"),
    ],
)
def test_bad_input_is_explained(options, given, said):
    model, x, y = images()
    with pytest.raises(CreditscopeError, match=said):
        cs.watch(model, **{"taps": "0"} | options).snapshot(**{"inputs": x, "target": y} | given)


class Head(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


@pytest.mark.parametrize(
    ("model", "x", "said"),
    [
        (
            nn.Sequential(nn.TransformerEncoderLayer(16, 4, 32), Head(lambda h: h.mean(0)[:, :5])),
            torch.randn(7, 12, 16),
            "batch first",
        ),
        (nn.Sequential(nn.Linear(4, 3), Head(lambda h: {"a": h, "b": h})), torch.randn(12, 4), "output="),
        (nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)), torch.randn(12, 4), r"\(rows, classes\), but got \(\d+,\)"),
    ],
)
def test_models_that_cannot_be_measured_are_refused(model, x, said):
    with pytest.raises(CreditscopeError, match=said):
        cs.watch(model, taps="0").snapshot(x, torch.arange(12) % 3)


def test_regression_with_a_loss_of_ones_own():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(30, 4), torch.randn(30, 2)
    scope = cs.watch(model, taps="1", loss=lambda output, target: (output - target).square().sum(1))
    taken = scope.snapshot(x, y)
    g = 2 * (model(x) - y) @ model[2].weight
    np.testing.assert_allclose(taken.taps.g_norm[0], np.median(g.norm(dim=1).detach()), rtol=1e-5)
    assert taken.accuracy is None
    constant = (y - y.mean(0)).square().sum(1).mean()  # the best one
    assert taken.output.best_constant_loss == pytest.approx(float(constant), rel=1e-5)


class Detached(nn.Module):
    """A residual block whose branch gets no gradient."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Linear(6, 6)

    def forward(self, h):
        return h + self.branch(h).detach()


def test_a_detached_branch_is_named():
    scope = cs.watch(linears(Detached()), taps="1", stem="0")
    scope.snapshot(*few())
    assert scope.parameters.names("unused") == ["1.branch.weight", "1.branch.bias"]
    assert "1.branch.weight, 1.branch.bias" in finding(scope, "CS103").message


def test_a_diverged_model_is_called_so_and_its_rows_do_not_interact():
    model = linears()
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    scope = cs.watch(model, taps="0")
    scope.snapshot(*few())
    assert not scope.records[0].facts.rows_interact
    assert (finding(scope, "CS102").outcome, finding(scope, "CS102").where) == ("issue", "0")


@pytest.mark.parametrize("rule", ["fa", "dfa"])
def test_both_refusals_to_convert_tell_how_to_train_by_a_tap_rule(rule):
    model = nn.Sequential(nn.Conv1d(3, 4, 1), nn.Flatten(), nn.Linear(24, 3))
    with pytest.raises(CreditscopeError, match=r"creditscope\.attach\(model, rule='dfa', taps=…\)\.$"):
        cs.convert(model, rule, taps="0", inputs=torch.randn(4, 3, 6))


@pytest.mark.parametrize(("rule", "options"), [("kp", {}), ("wm", {}), ("sign_fa", {"variant": "br"})])
def test_feedback_that_moves_is_not_left_to_a_plain_backward(rule, options):
    with pytest.raises(CreditscopeError, match=r"creditscope\.attach"):
        cs.convert(linears(nn.Linear(6, 6)), rule, taps="1", inputs=few(12)[0], **options)


def test_convert_takes_a_stem_and_a_class_as_watch_does():
    (x, y), layer = few(12), nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    plain, other = linears(layer), linears(copy.deepcopy(layer))
    cs.convert(plain, "fa", taps="1", stem="0", inputs=x)
    report = cs.convert(other, rule_class("fa"), taps="1", stem="0", inputs=x, head="exact")
    assert report.names("rule") == ["0.weight", "0.bias"]
    assert [type(layer).__name__ for layer in (plain[2], other[2])] == ["FeedbackLinear", "Linear"]
    assert len(cs.watch(plain, taps="1", stem="0").snapshot(x, y, tier="quick").taps.cos) == 2
