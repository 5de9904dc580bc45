"""Credit drawn anew: by fresh feedback, against draws taken by hand; by noise, against means in closed form."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from subjects import make_net, make_subject, seen_of
from turning import haar_frame

from creditscope.measure import functional_net
from creditscope.measure.fresh_feedback import (
    Draws,
    _redrawn_weights,
    fresh_cosines,
    measure_draws,
    measure_fresh,
    own_credits,
)
from creditscope.measure.functional_net import subjects_of
from creditscope.measure.numerics import UnitRows
from creditscope.measure.observation import gather_facts, rule_facts
from creditscope.measure.snapshot import take_snapshots
from creditscope.record.schema import OWN_DRAWS
from creditscope.rng import generator
from creditscope.rules import TapRule, apply_rule
from creditscope.rules._pass import advanced, draw_counter, gaussian_probe
from creditscope.stack import StackedNet
from creditscope.testing import assert_rule

WIDTH = 16
RULES = [("dfa", {}), ("block_fa", {}), ("fa", {}), ("fa", {"head": "exact"}), ("fa", {"scale": "match-init"})]


@pytest.fixture(scope="module")
def learnt():
    return make_net(depth=2, width=WIDTH)


def prepared(learnt, rule, rows: int = 1024, **options):
    """A subject, what is seen of it, and its gradients."""
    net, x, y = learnt
    subject = make_subject(copy.deepcopy(net), x[:rows], y[:rows], rule, **options)
    seen = seen_of(subject)
    return subject, seen, [UnitRows.of(g) for g in seen.exact]


class TestFreshFeedback:
    @pytest.mark.parametrize(("rule", "options"), RULES)
    def test_the_same_draw_gives_the_same_cosines(self, learnt, rule, options):
        subject, seen, gradients = prepared(learnt, rule, **options)
        own, stream = subject.applied.rule, generator(0, "feedback")
        facts = gather_facts(own, apply_rule(own, subject.net, subject.taps, learnt[1][:8], stream), stem_tap=True)
        again = fresh_cosines(subject, seen, gradients, [generator(0, "feedback")])
        np.testing.assert_allclose(again[0], take_snapshots(seen, facts, epoch=0)[0].taps.cos, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("rule", ["dfa", "fa"])
    def test_fresh_feedback_knows_nothing(self, learnt, rule):
        found = measure_fresh(*prepared(learnt, rule))
        assert int(found["fresh_draws"]) == 20
        assert (found["fresh_sd"] > 0).all()
        assert (found["fresh_cos"].abs() < 4 * found["fresh_sd"] / 20**0.5).all()

    def test_mean_and_sd_are_over_the_draws(self, learnt):
        """DFA's credit e Bᵀ with B drawn here from the named streams; ddof 1."""
        subject, seen, gradients = prepared(learnt, "dfa")
        cosines = []
        for draw in range(20):
            stream, drawn = generator(subject.seed, "fresh feedback", draw), []
            for h, g in zip(seen.states, seen.exact, strict=True):
                a = (seen.errors.error @ (torch.randn(h.shape[-1], 4, generator=stream) / 2).T).double().numpy()
                g = g.double().numpy()
                drawn.append(np.mean((a * g).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(g, axis=1)))
            cosines.append(drawn)
        found = measure_fresh(subject, seen, gradients)
        np.testing.assert_allclose(found["fresh_cos"], np.mean(cosines, axis=0), atol=1e-5)
        np.testing.assert_allclose(found["fresh_sd"], np.std(cosines, axis=0, ddof=1), rtol=1e-3)

    @pytest.mark.parametrize(("rule", "options"), RULES)
    def test_draws_at_once_and_one_by_one_agree(self, learnt, rule, options, monkeypatch):
        given, found = prepared(learnt, rule, 64, **options), []
        for entries in (1, 2**24):
            monkeypatch.setitem(functional_net.TOGETHER, "cpu", entries)
            found.append(fresh_cosines(*given, [generator(0, "fresh feedback", draw) for draw in range(5)]))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)

    def test_exact_credit_stays_exact_and_a_rule_without_feedback_has_none(self, learnt):
        found = measure_fresh(*prepared(learnt, "block_fa"))
        assert float(found["fresh_cos"][-1]) == pytest.approx(1, abs=1e-6)
        assert measure_fresh(*prepared(learnt, "bp")) == {}

    def test_matrices_keep_their_size_when_weights_have_grown(self, learnt):
        """`match-init` feedback is scaled by the weights at the start, not by those of now."""
        subject, _, _ = prepared(learnt, "fa", 64, scale="match-init")
        grown = copy.deepcopy(subject.tensors)
        grown["blocks.0.w1.weight"] *= 50
        (drawn,) = _redrawn_weights(replace(subject, tensors=grown), [generator(1, "fresh")])
        for name, fresh in drawn.items():
            torch.testing.assert_close(fresh.norm(), subject.tensors[name].norm(), rtol=1e-5, atol=0)
            assert not torch.allclose(fresh, subject.tensors[name])

    def test_the_net_keeps_its_layers_and_its_feedback(self, learnt):
        given = prepared(learnt, "fa", 64)
        net = given[0].net
        before, layers = copy.deepcopy(net.state_dict()), [id(module) for module in net.modules()]
        measure_fresh(*given)
        assert layers == [id(module) for module in net.modules()]
        assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())


class ForwardGradient(TapRule):
    """a_L = (v·g_L) v with one Gaussian v for all rows, drawn anew in every step; g_L itself at the other taps."""

    needs_feedback = needs_top_gradient = learns_feedback = draws_noise = True

    def draw_feedback(self, tap_shapes, classes, generator):
        return [torch.randn(3, generator=generator), draw_counter(generator)]

    def learn_feedback(self, ctx):
        return [ctx.feedback[0], advanced(ctx.feedback[1])]

    def credit(self, ctx):
        g = ctx.top_gradient
        v = gaussian_probe(ctx.feedback[1], g.shape[1:], g.dtype)
        along = (v * g).flatten(1).sum(1).view(-1, *[1] * (g.ndim - 1)) * v
        return [*(g for _ in ctx.states[:-1]), along]


class OfItsOwn(ForwardGradient):
    """The same with a draw for every row, so that a batch has as many as rows."""

    def credit(self, ctx):
        g = ctx.top_gradient
        v = gaussian_probe(ctx.feedback[1], g.shape, g.dtype)
        return [*(g for _ in ctx.states[:-1]), (v * g).sum(1, keepdim=True) * v]


class TestForwardGradient:
    def test_it_is_unbiased_and_almost_all_noise(self, learnt):
        """E‖a‖² = (d + 2)‖g‖² and ‖E a‖² = ‖g‖²: a share (d + 1)/(d + 2) of it is noise."""
        subject, seen, _ = prepared(learnt, OfItsOwn(), 512)
        found = measure_draws(subject, seen)
        beta, se, noise = (float(found[name][-1]) for name in ("beta", "beta_se", "draw_noise"))
        assert 0 < se < 0.2
        assert abs(beta - 1) < 4 * se
        assert noise == pytest.approx((WIDTH + 1) / (WIDTH + 2), abs=0.02)
        a, g = seen.credits[-1].double(), seen.exact[-1].double()
        cos = (a * g).sum(1) / a.norm(dim=1) / g.norm(dim=1)
        assert 0 < float(cos.mean()) < 0.4  # of one draw: |v̂·ĝ|, about √(2/πd)

    def test_against_numpy(self, learnt):
        subject, seen, _ = prepared(learnt, ForwardGradient(), 512)
        _, counter = subject.applied.feedback
        g = seen.exact[-1].double().numpy()
        draws = []
        for step in range(1, OWN_DRAWS + 1):
            v = gaussian_probe(counter + torch.tensor([0, step]), (WIDTH,), torch.float32).double().numpy()
            draws.append((g @ v)[:, None] * v)
        draws = np.array(draws)
        betas = (draws * g).sum((1, 2)) / (g**2).sum()
        noise = ((draws - draws.mean(0)) ** 2).sum() / (OWN_DRAWS - 1) / (draws**2).sum((1, 2)).mean()
        found = measure_draws(subject, seen)
        np.testing.assert_allclose(found["beta"][-1], betas.mean(), rtol=1e-4)
        np.testing.assert_allclose(found["beta_se"][-1], betas.std(ddof=1) / OWN_DRAWS**0.5, rtol=1e-4)
        np.testing.assert_allclose(found["draw_noise"][-1], noise, rtol=1e-4)

    def test_draws_are_the_same_again_and_other_than_the_one_in_use(self, learnt):
        subject, seen, _ = prepared(learnt, ForwardGradient(), 512)
        first, second = (list(own_credits(subject, seen)) for _ in range(2))
        assert len(first) == OWN_DRAWS
        for one, other in zip(first, second, strict=True):
            assert all(map(torch.equal, one, other))
        tops = [seen.credits[-1], *(credits[-1] for credits in first)]
        assert not any(torch.equal(a, b) for i, a in enumerate(tops) for b in tops[:i])

    def test_a_stack_is_measured_as_its_seeds_are(self, learnt):
        alone = [make_subject(copy.deepcopy(learnt[0]), *learnt[1:], ForwardGradient(), seed=s) for s in (1, 2)]
        feedback = [torch.stack(b) for b in zip(*(s.applied.feedback for s in alone), strict=True)]
        stack = StackedNet.of([s.net for s in alone])
        applied = replace(alone[0].applied, net=stack, feedback=feedback)
        together = subjects_of(stack, applied, [1, 2], inputs=learnt[1], target=learnt[2])
        for one, other in zip(alone, together, strict=True):
            wanted, found = measure_draws(one, seen_of(one)), measure_draws(other, seen_of(one))
            torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)

    def test_it_holds_what_rules_promise(self):
        assert_rule(ForwardGradient)
        assert rule_facts(ForwardGradient()).draws_noise

    def test_a_weight_rule_s_next_draws_are_those_of_its_next_steps(self, learnt):
        subject, seen, _ = prepared(learnt, "sign_fa", rows=64, variant="br")
        applied, name = subject.applied, "blocks.0.w1"
        counter, memory = (subject.tensors[f"{name}.{part}"] for part in ("counter", "feedback"))
        for steps in (1, 2):
            noise = gaussian_probe(advanced(counter, steps), tuple(memory.shape), memory.dtype).abs()
            found = applied.next_memories(steps, subject.tensors)[f"{name}.feedback"]
            torch.testing.assert_close(found / found.mean(), noise / noise.mean())
        draws = [credits[0] for credits, _ in zip(own_credits(subject, seen), range(3), strict=False)]
        assert all(not torch.allclose(draws[i], draws[j], rtol=0.1) for i, j in ((0, 1), (0, 2), (1, 2)))

    def test_noise_that_does_not_move_is_told(self):
        class Still(ForwardGradient):
            learns_feedback = False

        class Fixed(ForwardGradient):
            def redraw(self, feedback, draw):
                return feedback

        for rule, what in ((Still, "a step of training"), (Fixed, "another draw")):
            with pytest.raises(AssertionError, match=f"credit after {what}"):
                assert_rule(rule)


def test_exact_credit_has_no_noise_and_a_rule_that_draws_none_is_not_measured(learnt):
    subject, seen, _ = prepared(learnt, ForwardGradient(), 512)
    found = measure_draws(subject, replace(seen, exact=[seen.exact[-1]] * 3))
    np.testing.assert_allclose(found["beta"][:-1], 1)
    np.testing.assert_array_equal(found["draw_noise"][:-1], 0)
    np.testing.assert_array_equal(found["beta_se"][:-1], 0)
    for rule in ("dfa", "grape", "bp"):
        subject, seen, _ = prepared(learnt, rule, 64)
        assert measure_draws(subject, seen) == {}
        assert not rule_facts(subject.applied.rule).draws_noise


@pytest.mark.parametrize(("credit", "gradient"), [(1e-30, 1e30), (1e30, 1e-30), (1e30, 1e30), (1e-38, 1e-38)])
def test_at_any_scale(credit, gradient):
    stream = torch.Generator().manual_seed(0)
    g, a = torch.randn(7, 5, generator=stream), torch.randn(4, 7, 5, generator=stream)
    found, wanted = Draws(g * gradient), Draws(g)
    for one in a:
        found.add(one * credit)
        wanted.add(one)
    np.testing.assert_allclose(float(found.noise), float(wanted.noise), rtol=1e-5)
    betas = [float(b) * (gradient / credit) for b in found.betas]
    np.testing.assert_allclose(betas, [float(b) for b in wanted.betas], rtol=1e-5)


def test_without_a_gradient_there_is_no_beta_and_without_credit_no_share():
    draws = Draws(torch.zeros(3, 2))
    for size in (1.0, 2.0):
        draws.add(torch.full((3, 2), size))
    assert all(b.isnan() for b in draws.betas)
    assert float(draws.noise) == pytest.approx(0.2)
    nothing = Draws(torch.ones(3, 2))
    nothing.add(torch.zeros(3, 2))
    nothing.add(torch.zeros(3, 2))
    assert nothing.noise.isnan()


def test_the_null_is_that_of_the_mean_of_the_draws_turned_at_random():
    """Against many rotations; and it grows with the credit, as β does."""
    stream = torch.Generator().manual_seed(0)
    gradient = torch.randn(40, 12, generator=stream, dtype=torch.float64)
    mean = 3 * torch.randn(40, 12, generator=stream, dtype=torch.float64) + gradient
    found = {size: Draws(gradient) for size in (1.0, 100.0)}
    for size, draws in found.items():
        draws.add(size * mean)
    turned = torch.stack([(mean @ haar_frame(12, 12, stream) * gradient).sum() for _ in range(2000)])
    expected = float(turned.std() / gradient.square().sum())
    assert float(found[1.0].null_sd) == pytest.approx(expected, rel=0.06)
    assert float(found[100.0].null_sd) == pytest.approx(100 * float(found[1.0].null_sd))
