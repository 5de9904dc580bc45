"""Labels of rows, tokens and pixels, masks of either, and losses in which rows are not apart."""

import numpy as np
import pytest
import torch
from any_models import PATIENTS, labels
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.losses import IGNORED, OverPlaces, couples_rows, row_errors

pytestmark = pytest.mark.usefixtures("own_stream")


def per_row(logits: Tensor, target: Tensor, keep: Tensor) -> np.ndarray:
    """Mean over what counts of −log p_y, row by row in NumPy; classes last."""
    x, y, k = logits.detach().double().numpy(), target.numpy(), keep.numpy()
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    return np.array([
        np.mean([-log_p[i][at][y[i][at]] for at in zip(*np.nonzero(k[i]), strict=True)]) if k[i].any() else 0.0
        for i in range(len(x))
    ])  # fmt: skip


class TestPlaces:
    @pytest.mark.parametrize("axis", [-1, 1])
    def test_loss_error_and_hits_by_hand(self, axis):
        logits, target = torch.randn(5, 4, 6, 3, dtype=torch.float64), labels(5, 4, 6)
        target[torch.rand(5, 4, 6) < 0.3] = IGNORED
        target[2] = IGNORED
        keep = target != IGNORED
        over, output = OverPlaces(axis), logits.movedim(-1, axis).requires_grad_()
        expected = per_row(logits, target, keep)
        np.testing.assert_allclose(over(output, target).detach(), expected, rtol=1e-10)
        losses, error = over.errors(output, target)
        np.testing.assert_allclose(losses, expected, rtol=1e-10)
        (by_autograd,) = torch.autograd.grad(over(output, target).sum(), output)
        torch.testing.assert_close(error, by_autograd, rtol=1e-10, atol=1e-12)
        right = (logits.argmax(-1) == target) & keep
        shares = right.flatten(1).sum(1) / keep.flatten(1).sum(1).clamp(min=1)
        torch.testing.assert_close(over.hits(output, target), shares.double())
        assert over.covers(target).tolist() == [True, True, False, True, True]

    def test_an_error_near_certainty_keeps_its_digits(self):
        """1 − p_y of float32 logits is rounding from 1e-7 on; its float64 is not."""
        logits = torch.zeros(2, 3, 4)
        logits[..., 0] = 40.0
        _, error = OverPlaces(-1).errors(logits, torch.zeros(2, 3, dtype=torch.int64))
        _, error64 = OverPlaces(-1).errors(logits.double(), torch.zeros(2, 3, dtype=torch.int64))
        torch.testing.assert_close(error.double(), error64, rtol=1e-5, atol=0)
        assert float(error.abs().max()) > 0

    def test_a_shift_asks_each_token_for_the_next(self):
        logits, target = torch.randn(5, 7, 3), labels(5, 7)
        plain, shifted = OverPlaces(-1), OverPlaces(-1, shift=1)
        torch.testing.assert_close(shifted(logits, target), plain(logits[:, :-1], target[:, 1:]))
        losses, error = shifted.errors(logits, target)
        torch.testing.assert_close(losses, plain(logits[:, :-1], target[:, 1:]))
        assert error.shape == logits.shape
        assert error[:, -1].abs().max() == 0


class Tagger(nn.Module):
    def __init__(self, classes: int = 3):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(13, 8), nn.ModuleList(nn.Linear(8, 8) for _ in range(2))
        self.head = nn.Linear(8, classes)

    def forward(self, ids):
        h = self.embed(ids)
        for block in self.blocks:
            h = h + torch.tanh(block(h))
        return self.head(h)


class TestWatched:
    def test_tokens_outside_a_mask_do_not_count(self):
        model, ids, target = Tagger(), labels(6, 9, classes=13), labels(6, 9)
        mask = torch.rand(6, 9) < 0.7
        mask[3] = False
        taken = cs.watch(model).snapshot(ids, target, mask=mask)
        expected = per_row(model(ids), target, mask)[[0, 1, 2, 4, 5]]
        assert taken.loss == pytest.approx(expected.mean(), rel=1e-5)
        assert (taken.rows, taken.rows_covered, taken.taps.rows_no_gradient[0]) == (6, 5, 1)
        hit = ((model(ids).argmax(-1) == target) & mask).sum(1) / mask.sum(1).clamp(min=1)
        assert taken.accuracy == pytest.approx(float(hit.sum() / 5), rel=1e-6)
        ignored = torch.where(mask, target, IGNORED)
        assert cs.watch(model).snapshot(ids, ignored) == taken
        free = torch.where(mask, ids, (ids + 1) % 13)  # nor does what is there, in a model without attention
        assert cs.watch(model).snapshot(free, torch.where(mask, target, 99), mask=mask).loss == taken.loss

    def test_rows_of_a_mask_are_rows_of_tokens(self):
        model, ids, target = Tagger(), labels(6, 9, classes=13), labels(6, 9)
        rows = torch.tensor([True, True, False, True, True, False])
        some, only = (cs.watch(model).snapshot(i, t, mask=m, tier="quick")
                      for i, t, m in ((ids, target, rows), (ids[rows], target[rows], None)))  # fmt: skip
        assert some.loss == pytest.approx(only.loss, rel=1e-6)
        np.testing.assert_allclose(some.taps.g_norm, only.taps.g_norm, rtol=1e-5)

    def test_best_constant_counts_rows_alike(self):
        model, ids = Tagger(), labels(2, 4, classes=13)
        target = torch.tensor([[0, 0, 0, 1], [2, IGNORED, IGNORED, IGNORED]])
        scope = cs.watch(model)
        scope.snapshot(ids, target, tier="quick")
        facts = scope.records[0].facts
        assert (facts.classes, facts.chance, facts.best_constant) == (3, pytest.approx(1 / 3), 0.5)

    def test_a_language_model_is_asked_for_the_next_token_unless_the_labels_are_that_already(self):
        patient = PATIENTS["GPT-2"]()
        ids = patient.target
        logits = patient.model(**patient.inputs).logits.detach()
        nexts = functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        for given in ((patient.inputs, ids), ({**patient.inputs, "labels": ids}, None)):
            taken = cs.watch(patient.model).snapshot(*given, tier="quick")
            assert taken.loss == pytest.approx(float(nexts), rel=1e-5)
            assert any("next" in note for note in taken.notes)
        moved = torch.cat([ids[:, 1:], torch.full((len(ids), 1), IGNORED)], 1)
        taken = cs.watch(patient.model).snapshot(patient.inputs, moved, tier="quick")
        assert taken.loss == pytest.approx(float(nexts), rel=1e-5)
        assert taken.notes == ()

    def test_labels_that_could_lie_along_either_axis_are_asked_about(self):
        with pytest.raises(CreditscopeError, match="loss="):
            cs.watch(Tagger(classes=9)).snapshot(labels(6, 9, classes=13), labels(6, 9))

    @pytest.mark.parametrize(
        ("target", "said"),
        [
            (labels(6, 8), "token or pixel"),
            (torch.full((6, 9), 3), "0 to 2"),
            (torch.full((6, 9), IGNORED), "none"),
            (torch.rand(6, 9), "loss="),
        ],
    )
    def test_others_are_refused(self, target, said):
        with pytest.raises(CreditscopeError, match=said):
            cs.watch(Tagger()).snapshot(labels(6, 9, classes=13), target)


def info_nce(output: Tensor, target: Tensor) -> Tensor:
    """Every row's other view is the row of `target`; all others are its negatives."""
    z = functional.normalize(output, dim=-1)
    return functional.cross_entropy(z @ functional.normalize(target, dim=-1).mT / 0.2 + z @ z.mT, torch.arange(len(z)),
                                    reduction="none")  # fmt: skip


def pairs(output: Tensor, target: Tensor) -> Tensor:
    """Rows 2i and 2i + 1 belong together: halves of the batch are apart, neighbours are not."""
    other = output.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
    return (output - other).square().sum(1)


def far_pairs(output: Tensor, target: Tensor) -> Tensor:
    """Rows i and i + n/2 belong together, both in one of every other row."""
    return (output - output.roll(len(output) // 2, 0)).square().sum(1)


def by_the_batch(output: Tensor, target: Tensor) -> Tensor:
    """Divided by a statistic of the batch, without a gradient through it."""
    losses = (output - target).square().sum(1)
    return losses / losses.detach().mean()


def apart(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum(1) * 1e6


def with_weights_of_rows(output: Tensor, target: Tensor) -> Tensor:
    """Holds something of every row, so that it cannot be asked of fewer."""
    return (output - target).square().sum(1) * torch.linspace(0.5, 2, 16)


class TestCoupledRows:
    @pytest.mark.parametrize(
        ("loss", "coupled"),
        [(info_nce, True), (pairs, True), (far_pairs, True), (by_the_batch, True), (apart, False),
         (with_weights_of_rows, False)],
    )  # fmt: skip
    def test_are_told(self, loss, coupled):
        output, target = torch.randn(16, 5), torch.randn(16, 5)
        assert couples_rows(loss, output, target) == coupled

    def test_an_info_nce_is_measured_with_rows_moved_together(self):
        """The positive control: what the exact gradient predicts of small moves is what they do."""
        net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5))
        x, z = torch.randn(16, 4), torch.randn(16, 5)
        scope = cs.watch(net, taps=["1", "3"], loss=info_nce)
        taken = scope.snapshot(x, z, tier="full")
        assert scope.records[0].facts.rows_interact
        assert any("other rows" in note for note in taken.notes)
        assert taken.taps.rho_exact == pytest.approx((1, 1), abs=0.01)
        h = net[:2](x).detach().requires_grad_()
        (g,) = torch.autograd.grad(info_nce(net[2:](h), z).sum(), h)
        assert taken.taps.g_norm[0] == pytest.approx(float(g.norm(dim=1).quantile(0.5)), rel=1e-4)

    def test_rows_apart_stay_apart(self):
        net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 5)), torch.randn(16, 4)
        scope = cs.watch(net, taps="1", loss=apart)
        scope.snapshot(x, torch.randn(16, 5), tier="quick")
        assert not scope.records[0].facts.rows_interact

    def test_a_loss_of_the_whole_batch_is_refused(self):
        net, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(16, 4)
        with pytest.raises(CreditscopeError, match="reduction='none'"):
            cs.watch(net, taps="1", loss=functional.cross_entropy).snapshot(x, labels(16))


def test_errors_of_a_loss_of_ones_own_are_as_they_were():
    output, target = torch.randn(6, 3), torch.randn(6, 3)
    found = row_errors(output, target, apart)
    torch.testing.assert_close(found.error, 2e6 * (output - target))
