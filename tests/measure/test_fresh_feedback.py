"""Feedback drawn anew: cosines of draws taken by hand, at once or one by one, and a net that stays as it is."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from subjects import make_net, make_subject, seen_of

from creditscope.measure import functional_net
from creditscope.measure.fresh_feedback import _redrawn_weights, fresh_cosines, measure_fresh
from creditscope.measure.instruments import Needs
from creditscope.measure.observation import gather_facts
from creditscope.measure.snapshot import take_snapshots
from creditscope.rng import generator
from creditscope.rules import apply_rule


@pytest.fixture(scope="module")
def learnt():
    return make_net(depth=2)


def gradients_of(subject, seen):
    needs = Needs(seen, gather(subject), keys=torch.rand(len(subject.target)), feedback={}, subject=subject)
    return needs.gradient_rows


def gather(subject):
    """Facts of a subject whose net is converted already."""
    application = apply_rule(
        subject.applied.rule, subject.net, subject.taps, subject.inputs[:8], generator(0, "feedback")
    )
    return gather_facts(subject.applied.rule, application, stem_tap=True)


RULES = [("dfa", {}), ("block_fa", {}), ("fa", {}), ("fa", {"head": "exact"}), ("fa", {"scale": "match-init"})]


class TestFresh:
    @pytest.mark.parametrize(("rule", "options"), RULES)
    def test_the_same_draw_gives_the_same_cosines(self, learnt, rule, options):
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x, y, rule, **options)
        seen = seen_of(subject)
        own = take_snapshots(seen, gather(subject), epoch=0)[0].taps.cos
        again = fresh_cosines(subject, seen, gradients_of(subject, seen), [generator(0, "feedback")])
        np.testing.assert_allclose(again[0], own, rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("rule", ["dfa", "fa"])
    def test_fresh_feedback_knows_nothing(self, learnt, rule):
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x, y, rule)
        seen = seen_of(subject)
        found = measure_fresh(subject, seen, gradients_of(subject, seen))
        assert int(found["fresh_draws"]) == 20
        assert (found["fresh_sd"] > 0).all()
        assert (found["fresh_cos"].abs() < 4 * found["fresh_sd"] / 20**0.5).all()

    def test_mean_and_sd_are_over_the_draws(self, learnt):
        """DFA's credit e Bᵀ with B drawn here from the named streams; ddof 1."""
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x, y, "dfa")
        seen = seen_of(subject)
        cosines = []
        for draw in range(20):
            stream, drawn = generator(subject.seed, "fresh feedback", draw), []
            for h, g in zip(seen.states, seen.exact, strict=True):
                a = (seen.errors.error @ (torch.randn(h.shape[-1], 4, generator=stream) / 2).T).double().numpy()
                g = g.double().numpy()
                drawn.append(np.mean((a * g).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(g, axis=1)))
            cosines.append(drawn)
        found = measure_fresh(subject, seen, gradients_of(subject, seen))
        np.testing.assert_allclose(found["fresh_cos"], np.mean(cosines, axis=0), atol=1e-5)
        np.testing.assert_allclose(found["fresh_sd"], np.std(cosines, axis=0, ddof=1), rtol=1e-3)

    @pytest.mark.parametrize(("rule", "options"), RULES)
    def test_draws_at_once_and_one_by_one_agree(self, learnt, rule, options, monkeypatch):
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x[:64], y[:64], rule, **options)
        seen = seen_of(subject)
        gradients = gradients_of(subject, seen)
        found = []
        for entries in (1, 2**24):
            monkeypatch.setitem(functional_net.TOGETHER, "cpu", entries)
            streams = [generator(0, "fresh feedback", draw) for draw in range(5)]
            found.append(fresh_cosines(subject, seen, gradients, streams))
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)

    def test_exact_credit_stays_exact_and_a_rule_without_feedback_has_none(self, learnt):
        net, x, y = learnt
        subject = make_subject(net, x, y, "block_fa")
        seen = seen_of(subject)
        found = measure_fresh(subject, seen, gradients_of(subject, seen))
        assert float(found["fresh_cos"][-1]) == pytest.approx(1, abs=1e-6)
        plain = make_subject(net, x, y, "bp")
        assert measure_fresh(plain, seen, gradients_of(subject, seen)) == {}

    def test_matrices_keep_their_size_when_weights_have_grown(self, learnt):
        """`match-init` feedback is scaled by the weights at the start, not by those of now."""
        net, x, y = learnt
        subject = make_subject(copy.deepcopy(net), x[:64], y[:64], "fa", scale="match-init")
        grown = copy.deepcopy(subject.tensors)
        grown["blocks.0.w1.weight"] *= 50
        (drawn,) = _redrawn_weights(replace(subject, tensors=grown), [generator(1, "fresh")])
        for name, fresh in drawn.items():
            torch.testing.assert_close(fresh.norm(), subject.tensors[name].norm(), rtol=1e-5, atol=0)
            assert not torch.allclose(fresh, subject.tensors[name])

    def test_the_net_keeps_its_layers_and_its_feedback(self, learnt):
        net, x, y = learnt
        converted = copy.deepcopy(net)
        subject = make_subject(converted, x[:64], y[:64], "fa")
        before = {name: t.clone() for name, t in converted.state_dict().items()}
        layers = [id(module) for module in converted.modules()]
        seen = seen_of(subject)
        measure_fresh(subject, seen, gradients_of(subject, seen))
        assert layers == [id(module) for module in converted.modules()]
        assert all(torch.equal(t, before[name]) for name, t in converted.state_dict().items())
