"""The test kit: every promise of the contract has a rule that breaks it and is told so, and one that keeps it."""

import math

import pytest
import torch

import creditscope as cs
from creditscope.rules import make_rule, rule_class
from creditscope.rules._pass import advanced, draw_counter, gaussian_probe
from creditscope.testing import assert_rule


class Broadcast(cs.TapRule):
    """a_l = B_l e: what the others spoil."""

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(math.prod(shape), classes, generator=generator) for shape in tap_shapes]

    def credit(self, ctx):
        return [(ctx.error @ B.T).view_as(h) for h, B in zip(ctx.states, ctx.feedback, strict=False)]


class Centred(Broadcast):
    """Less the mean over rows: rows interact."""

    def credit(self, ctx):
        return [a - a.mean(0) for a in super().credit(ctx)]


class SaysSo(Centred):
    rows_interact = True


class SaysSoForNothing(Broadcast):
    rows_interact = True


class ScaledByTheMask(Broadcast):
    def credit(self, ctx):
        share = 1.0 if ctx.mask is None else ctx.mask.double().mean()
        return [a / share for a in super().credit(ctx)]


class WithoutLength(Broadcast):
    """A row without a loss has no error to divide by the length of."""

    def credit(self, ctx):
        size = ctx.error.norm(dim=1, keepdim=True)
        return [(ctx.error / size @ B.T).view_as(h) for h, B in zip(ctx.states, ctx.feedback, strict=True)]


class Noisy(Broadcast):
    """With noise that is counted, as it should be."""

    draws_noise = learns_feedback = True
    passes = 0.0

    def draw_feedback(self, tap_shapes, classes, generator):
        return [*super().draw_feedback(tap_shapes, classes, generator), draw_counter(generator)]

    def learn_feedback(self, ctx):
        return [*ctx.feedback[:-1], advanced(ctx.feedback[-1])]

    def credit(self, ctx):
        told = super().credit(ctx)
        return [a + 0.1 * gaussian_probe(ctx.feedback[-1], a.shape, a.dtype, i) for i, a in enumerate(told)]


class NoisyInSecret(Noisy):
    draws_noise = False


class SaysThatItIsNoisy(Broadcast):
    draws_noise = True


class ForgetsToCount(Noisy):
    def learn_feedback(self, ctx):
        return ctx.feedback


class CountsCalls(Broadcast):
    """Every call gives another credit."""

    def __init__(self):
        self.calls = 0

    def credit(self, ctx):
        self.calls += 1
        return [a * self.calls for a in super().credit(ctx)]


class Learns(Broadcast):
    """B_l moves towards what the states say."""

    learns_feedback = True

    def learn_feedback(self, ctx):
        pairs = zip(ctx.states, ctx.feedback, strict=True)
        return [0.9 * B + 0.1 * h.flatten(1).T @ ctx.error / len(h) for h, B in pairs]


class LearnsAnotherShape(Learns):
    def learn_feedback(self, ctx):
        return [B.mean(0, keepdim=True) for B in super().learn_feedback(ctx)]


class LearnsWhileMeasured(Noisy):
    """The count goes on in credit, which does not look at it, and learning does."""

    draws_noise = False

    def learn_feedback(self, ctx):
        *B, counter = ctx.feedback
        return [*(b + 0.1 * gaussian_probe(counter, b.shape, b.dtype, i) for i, b in enumerate(B)), advanced(counter)]

    def credit(self, ctx):
        ctx.feedback[-1].add_(torch.tensor([0, 1]))
        return Broadcast.credit(self, ctx)


class RemembersByItself(Learns):
    """How many steps there were is known to the rule alone."""

    def __init__(self):
        self.steps = 0

    def learn_feedback(self, ctx):
        self.steps += 1
        return [B * (1 + 0.1 / self.steps) for B in super().learn_feedback(ctx)]


class KeepsWhatItDrew(Broadcast):
    def draw_feedback(self, tap_shapes, classes, generator):
        self.B = super().draw_feedback(tap_shapes, classes, generator)
        return []

    def credit(self, ctx):
        return [(ctx.error @ B.to(h).T).view_as(h) for h, B in zip(ctx.states, self.B, strict=True)]


class LooksAtTheModule(Broadcast):
    """The module's own head is that of one seed; what the others have is handed in with the pass."""

    def credit(self, ctx):
        scale = ctx.forward.net.head.weight.detach().square().mean()
        return [a * scale for a in super().credit(ctx)]


class AsksForANumber(Broadcast):
    def credit(self, ctx):
        return [a / 2 if float(a.abs().max()) > 1e-3 else a for a in super().credit(ctx)]


class MovesWeights(Learns):
    def learn_feedback(self, ctx):
        ctx.forward.tensors["blocks.0.w1.bias"].add_(0.1)
        return super().learn_feedback(ctx)


class LearnsNothingGood(Learns):
    def learn_feedback(self, ctx):
        return [B / 0 for B in super().learn_feedback(ctx)]


class NotANumber(Broadcast):
    def credit(self, ctx):
        return [a / 0 for a in super().credit(ctx)]


class ForTokens(Broadcast):
    """The last dimension is taken for the features, which that of images is not."""

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(shape[-1], classes, generator=generator) for shape in tap_shapes]

    def credit(self, ctx):
        told = [ctx.error @ B.T for B in ctx.feedback]
        return [
            a if h.ndim == 2 else a.unsqueeze(1).expand(*h.shape[:2], -1) for a, h in zip(told, ctx.states, strict=True)
        ]


@pytest.mark.parametrize("rule", [Broadcast, Learns, Noisy, SaysSo])
@pytest.mark.slow
def test_rules_that_keep_their_promises(rule):
    assert_rule(rule)
    assert_rule(rule())


SPOILT = {
    Centred: "must not depend on the other rows",
    SaysSoForNothing: "depend on the other rows of a rule that sets rows_interact, but it does not",
    ScaledByTheMask: r"rows with a loss to get the same credit at tap 0",
    WithoutLength: "finite credit at tap 0 under a mask",
    NoisyInSecret: "does not depend on a counter",
    SaysThatItIsNoisy: "other credit after another draw",
    ForgetsToCount: "other credit after a step of training",
    CountsCalls: "same credit twice at tap 0",
    LearnsAnotherShape: r"'feedback.0' of shape \(12, 5\), but got \(1, 5\)",
    LearnsWhileMeasured: "whether a run is measured or not",
    RemembersByItself: "saved and loaded in between or not",
    KeepsWhatItDrew: "saved and loaded in between or not",
    LooksAtTheModule: "of a stack to learn",
    AsksForANumber: r"vmap can map over seeds, but got: .*stack=False",
    MovesWeights: "frozen 'blocks.0.w1.bias' to stay",
    LearnsNothingGood: "finite gradient for",
    NotANumber: "finite credit at tap 0, but",
}


@pytest.mark.parametrize("rule", SPOILT, ids=lambda rule: rule.__name__)
def test_rules_that_break_them(rule):
    with pytest.raises(AssertionError, match=SPOILT[rule]):
        assert_rule(rule, tokens=False)


def test_a_rule_that_cannot_be_mapped_is_fine_seed_by_seed():
    assert_rule(AsksForANumber, stack=False)


def test_a_rule_that_is_not_for_images_is_told_so():
    assert_rule(ForTokens, images=False)
    with pytest.raises(AssertionError, match=r"\(rows, channels, y, x\), but got: .*'ForTokens'.*images=False"):
        assert_rule(ForTokens)


@pytest.mark.parametrize("rule", ["kaft", "dfa_gnn"])
def test_a_rule_for_graphs_is_checked_on_one(rule):
    assert_rule(rule)


def test_a_spoilt_rule_for_graphs_is_refused():
    class CountsCalls(rule_class("dfa_gnn")):
        calls = 0

        def credit(self, ctx):
            self.calls += 1
            return [a * self.calls for a in super().credit(ctx)]

    with pytest.raises(AssertionError, match="same credit twice"):
        assert_rule(CountsCalls)


@pytest.mark.parametrize(
    ("rule", "options"),
    [
        ("local", {"loss": "sim"}),
        ("local", {"loss": "predsim"}),
        pytest.param("ldrl", {"feedback": "learned"}, marks=pytest.mark.slow),
        ("dni", {"hidden": 0, "labels": False}),
        ("dtp", {"skip": False}),
    ],
    ids=str,
)
@pytest.mark.slow
def test_options_keep_the_promises_too(rule, options):
    assert_rule(make_rule(rule, options))
