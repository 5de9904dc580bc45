"""`watch` on models of other people: transformers, BatchNorm in train mode, dropout, autocast; nothing touched."""

import numpy as np
import pytest
import torch
from torch import nn

import creditscope as cs
from creditscope.cli import main
from creditscope.errors import CreditscopeError
from creditscope.rules import rule_class


class Classifier(nn.Module):
    """torch's own encoder, batch first, with a mean-pooled head."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


def conv_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)),
    )


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


def test_transformer_encoder_unchanged():
    torch.manual_seed(0)
    model, x, y = Classifier(), torch.randn(12, 7, 16), torch.randint(5, (12,))
    give_gradients(model, x, y)
    model.eval()
    before = fingerprint(model)
    scope = cs.watch(model, taps="encoder.layers.*")
    taken = scope.snapshot(x, y)
    assert_untouched(model, before)
    assert taken.taps.cos == pytest.approx((1, 1, 1))
    facts = scope.records[0].facts
    assert facts.taps == ("encoder.layers.0", "encoder.layers.1", "encoder.layers.2")
    assert facts.tap_shapes[0] == (7, 16)
    assert facts.residual == (False, True, True)
    assert not facts.rows_interact
    # the mean over 7 tokens sends Wᵀe/7 to each, unchanged to the last layer's output
    e = torch.softmax(model(x), -1) - nn.functional.one_hot(y, 5)
    expected = (e @ model.head.weight / 7).norm(dim=1) * 7**0.5
    np.testing.assert_allclose(taken.taps.g_norm[-1], np.median(expected.detach()), rtol=1e-4)
    verdict = scope.audit().methods[0].verdict
    assert next(f for f in scope.audit().methods[0].findings if f.code == "CS004").outcome == "skipped"
    assert verdict.word != "trustworthy"


def test_credit_of_ones_own_on_tokens_is_compared_with_the_gradient():
    """Ones for every feature of every token; the gradient at the last layer is Wᵀe/7 for each of 7 tokens."""
    torch.manual_seed(0)
    model, x, y = Classifier(), torch.randn(12, 7, 16), torch.randint(5, (12,))
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


def test_batch_norm_in_train_mode():
    torch.manual_seed(0)
    model, x, y = conv_net(), torch.randn(16, 3, 6, 6), torch.randint(4, (16,))
    model.train()
    give_gradients(model, x, y)
    before = fingerprint(model)
    scope = cs.watch(model, taps=["0", "1"])
    scope.snapshot(x, y)
    assert_untouched(model, before)
    assert scope.records[0].facts.rows_interact
    model.eval()
    calm = cs.watch(model, taps=["0", "1"])
    calm.snapshot(x, y)
    assert not calm.records[0].facts.rows_interact


def test_dropout_has_one_set_of_masks_for_credit_and_reference():
    torch.manual_seed(0)
    model, x, y = Classifier(dropout=0.4), torch.randn(12, 7, 16), torch.randint(5, (12,))
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
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    x, y = torch.randn(20, 6), torch.randint(3, (20,))
    cs.convert(model, "fa", taps=["0", "2"], inputs=x)
    for layer in (model[0], model[2], model[4]):
        layer.feedback.copy_(layer.weight.detach())
    taken = cs.watch(model, taps=["0", "2"]).snapshot(x, y)
    assert taken.taps.cos == pytest.approx((1, 1), abs=1e-6)


def test_a_converted_model_is_measured_against_its_true_gradient():
    torch.manual_seed(0)
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


def test_no_grad_and_autocast_callers_measure_the_same():
    torch.manual_seed(0)
    model, x, y = conv_net().eval(), torch.randn(16, 3, 6, 6), torch.randint(4, (16,))
    plain = cs.watch(model, taps=["0", "1"]).snapshot(x, y)
    with torch.no_grad():
        assert cs.watch(model, taps=["0", "1"]).snapshot(x, y) == plain
        assert not torch.is_grad_enabled()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert cs.watch(model, taps=["0", "1"]).snapshot(x, y) == plain
        assert torch.is_autocast_enabled("cpu")
    with torch.inference_mode(), pytest.raises(CreditscopeError, match="inference_mode"):
        cs.watch(model, taps=["0", "1"]).snapshot(x, y)


def test_frozen_parameters_are_listed_and_measured_around():
    torch.manual_seed(0)
    model, x, y = Classifier(), torch.randn(12, 7, 16), torch.randint(5, (12,))
    for p in model.encoder.parameters():
        p.requires_grad_(False)
    scope = cs.watch(model, taps="encoder.layers.*")
    taken = scope.snapshot(x, y)
    assert taken.taps.rows_used == (12, 12, 12)
    assert [w.name for w in scope.records[0].facts.weights] == ["head.weight", "head.bias"]
    assert len(scope.parameters.names("frozen")) == sum(1 for _ in model.encoder.parameters())
    model.encoder.layers[0].linear1.weight.requires_grad_(True)
    with pytest.raises(CreditscopeError, match="same trainable parameters at every snapshot"):
        scope.snapshot(x, y)


def test_snapshots_pile_up_and_carry_their_epoch():
    torch.manual_seed(0)
    model, x, y = conv_net().eval(), torch.randn(16, 3, 6, 6), torch.randint(4, (16,))
    scope = cs.watch(model, taps=["0", "1"])
    with pytest.raises(CreditscopeError, match="Expected at least one snapshot"):
        scope.audit()
    scope.snapshot(x, y, epoch=3)
    scope.snapshot(x, y, epoch=7)
    assert [s.epoch for s in scope.snapshots] == [3, 7]
    findings = {f.code: f for f in scope.audit().methods[0].findings}
    assert findings["CS010"].outcome != "passed"  # it has learnt nothing
    assert findings["CS004"].outcome == findings["CS011"].outcome == "skipped"  # no baselines, nothing to put back to


def test_snapshots_go_forward():
    scope = cs.watch(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), taps="0")
    x, y = torch.randn(10, 4), torch.arange(10) % 3
    scope.snapshot(x, y, epoch=5, tier="quick")
    scope.snapshot(x, y, tier="quick")
    for epoch in (2, 6):
        with pytest.raises(CreditscopeError, match=f"Expected an epoch after 6, .* but got {epoch}"):
            scope.snapshot(x, y, epoch=epoch, tier="quick")
    with pytest.raises(CreditscopeError, match=r"Expected epoch to be a whole number, but got 7\.5"):
        scope.snapshot(x, y, epoch=7.5, tier="quick")  # pyright: ignore[reportArgumentType]
    assert [s.epoch for s in scope.snapshots] == [5, 6]


def test_a_printed_snapshot_is_a_table_of_taps():
    scope = cs.watch(nn.Sequential(nn.Linear(4, 6), Detached(), nn.Linear(6, 3)), taps="1", stem="0")
    x, y = torch.randn(30, 4), torch.arange(30) % 3
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
    taken = cs.watch(model, taps="0").snapshot(torch.randn(10, 4), torch.arange(10) % 3)
    assert (taken.taps.cos, taken.taps.rows_no_gradient) == ((None,), (10,))
    cells = str(taken).splitlines()[2].split()
    assert [cells[0], *cells[4:]] == ["0", "–", "–", "–"]


def test_bad_input_is_explained():
    model, x, y = conv_net(), torch.randn(16, 3, 6, 6), torch.randint(4, (16,))
    with pytest.raises(CreditscopeError, match=r"Expected the name of a tap, but got 'block\.\*'"):
        cs.watch(model, taps="block.*")
    with pytest.raises(CreditscopeError, match=r"one value per row, shape \(16,\), but got shape"):
        cs.watch(model, taps="0", loss=nn.functional.cross_entropy).snapshot(x, y)
    with pytest.raises(CreditscopeError, match=r"Call creditscope\.convert"):
        cs.watch(model, taps="0", rule="fa")
    with pytest.raises(CreditscopeError, match="a rule or a credit function, but got both"):
        cs.watch(model, taps="0", rule="dfa", credit=lambda ctx: [])
    with pytest.raises(
        CreditscopeError, match=r"target to be a tensor, but got ndarray. Use torch\.as_tensor\(target\)"
    ):
        cs.watch(model, taps="0").snapshot(x, y.numpy())
    with pytest.raises(CreditscopeError, match="mask to be a tensor, but got list"):
        cs.watch(model, taps="0").snapshot(x, y, mask=[True] * 16)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CreditscopeError, match="at least 2 rows"):
        cs.watch(model, taps="0").snapshot(x[:1], y[:1])
    sequence_first = nn.TransformerEncoderLayer(16, 4, 32)
    with pytest.raises(CreditscopeError, match="batch first"):
        cs.watch(nn.Sequential(sequence_first, Pool()), taps="0").snapshot(torch.randn(7, 12, 16), y[:12])


class Pool(nn.Module):
    def forward(self, h):
        return h.mean(0)[:, :5]


def test_regression_with_a_loss_of_ones_own():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    x, y = torch.randn(30, 4), torch.randn(30, 2)
    scope = cs.watch(model, taps="1", loss=lambda output, target: (output - target).square().sum(1))
    taken = scope.snapshot(x, y)
    g = 2 * (model(x) - y) @ model[2].weight
    np.testing.assert_allclose(taken.taps.g_norm[0], np.median(g.norm(dim=1).detach()), rtol=1e-5)
    assert taken.accuracy is None
    assert {f.code: str(f.outcome) for f in scope.audit().methods[0].findings}["CS010"] == "not applicable"


class Detached(nn.Module):
    """A residual block whose branch gets no gradient."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Linear(6, 6)

    def forward(self, h):
        return h + self.branch(h).detach()


def test_a_detached_branch_is_named():
    scope = cs.watch(nn.Sequential(nn.Linear(4, 6), Detached(), nn.Linear(6, 3)), taps="1", stem="0")
    scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3)
    assert scope.parameters.names("unused") == ["1.branch.weight", "1.branch.bias"]
    (found,) = [f for f in scope.audit().methods[0].findings if f.code == "CS007"]
    assert "nothing reaches 1.branch.weight, 1.branch.bias: detached, or not used" in found.message


def test_a_diverged_model_is_called_so_and_its_rows_do_not_interact():
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight.fill_(torch.nan)
    scope = cs.watch(model, taps="0")
    scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3)
    assert not scope.records[0].facts.rows_interact
    (found,) = [f for f in scope.audit().methods[0].findings if f.code == "CS002"]
    assert "the state is not finite at tap 0: the net has diverged" in found.message


WAY = r"@creditscope\.register_net, and call creditscope\.run\(net=…, rule='dfa'\)\.$"


class TestConvert:
    def model(self) -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 3))

    def test_both_refusals_tell_how_to_train_by_a_tap_rule(self):
        with pytest.raises(CreditscopeError, match=WAY):
            cs.convert(conv_net(), "fa", taps="0", inputs=torch.randn(4, 3, 6, 6))
        with pytest.raises(CreditscopeError, match=f"such as 'fa' to convert a model to, but got 'dfa'.*{WAY}"):
            cs.convert(conv_net(), "dfa", taps="0", inputs=torch.randn(4, 3, 6, 6))

    def test_a_stem_and_a_class_as_for_watch(self):
        x, y = torch.randn(12, 4), torch.arange(12) % 3
        plain, other = self.model(), self.model()
        cs.convert(plain, "fa", taps="1", stem="0", inputs=x)
        report = cs.convert(other, rule_class("fa"), taps="1", stem="0", inputs=x, head="exact")
        assert report.names("rule") == ["0.weight", "0.bias"]
        assert [type(layer).__name__ for layer in (plain[2], other[2])] == ["FeedbackLinear", "Linear"]
        assert len(cs.watch(plain, taps="1", stem="0").snapshot(x, y, tier="quick").taps.cos) == 2

    def test_an_unknown_option_is_named(self):
        with pytest.raises(CreditscopeError, match=r"option of rule 'fa', but got 'heead'\. Choices: head, scale"):
            cs.convert(self.model(), "fa", taps="1", inputs=torch.randn(12, 4), heead=1)


class TestSave:
    def watched(self) -> cs.Scope:
        scope = cs.watch(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), taps="0")
        for epoch in range(2):
            scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3, epoch=epoch, tier="quick")
        return scope

    def test_what_is_saved_is_judged_and_drawn_from_the_command_line(self, tmp_path, capsys):
        scope = self.watched()
        assert scope.save(tmp_path / "mine") == tmp_path / "mine"
        (record,) = cs.load_records(tmp_path)
        assert (record.spec, record.snapshots) == (None, tuple(scope.snapshots))
        assert (record.provenance.status, record.provenance.engine, record.name) == ("complete", "watch", "mine")
        main(["audit", str(tmp_path / "mine")])
        assert "watched model" in capsys.readouterr().out
        main(["report", "--records", str(tmp_path), "--out", str(tmp_path / "page.html")])
        assert "watched model" in (tmp_path / "page.html").read_text()

    def test_a_later_save_replaces_an_earlier_one(self, tmp_path):
        scope = self.watched()
        scope.save(tmp_path / "mine")
        scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3, tier="quick")
        scope.save(tmp_path / "mine")
        assert [s.epoch for s in cs.load_records(tmp_path)[0].snapshots] == [0, 1, 2]

    def test_a_run_is_not_overwritten(self, tmp_path):
        runs = cs.run(task="digits", rule="bp", seeds=1, depth=1, width=8, epochs=1, tier="quick", out=tmp_path)
        folder = runs.records[0].path
        assert folder is not None
        with pytest.raises(cs.CreditscopeError, match="but it holds a run"):
            self.watched().save(folder)
        assert cs.load_records(folder)[0].spec == runs.records[0].spec

    def test_its_record_is_drawn_as_a_report(self):
        runs = cs.Runs(self.watched().records)
        assert repr(runs) == "Runs(1: watched model)"
        with pytest.raises(CreditscopeError, match=r"watched models only.*scope\.save\(folder\).*creditscope report"):
            runs.plot()

    def test_two_models_are_two_methods_each_with_its_name(self, tmp_path):
        for name in ("before", "after"):
            self.watched().save(tmp_path / name)
        settings = [method.setting for method in cs.audit(tmp_path).methods]
        assert settings == ["watched model after", "watched model before"]

    def test_an_epoch_before_the_first_is_refused(self):
        scope = cs.watch(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)), taps="0")
        with pytest.raises(CreditscopeError, match="Expected an epoch from 0 on, but got -1"):
            scope.snapshot(torch.randn(30, 4), torch.arange(30) % 3, epoch=-1)
