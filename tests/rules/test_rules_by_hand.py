"""What makes each rule what it is, against the same written out: NumPy, or plain autograd on explicit layers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from creditscope.losses import row_errors
from creditscope.measure.observation import observe
from creditscope.rng import generator
from creditscope.rules import Credit, CreditContext, Layer, apply_rule, rule_class
from creditscope.rules._layers import FeedbackConv2d, Transport, learn_memories
from creditscope.rules._pass import Forward, advanced, draw_counter, gaussian_probe
from creditscope.rules._small_nets import adam, draw_moments, mlp
from creditscope.rules.local import similarities
from creditscope.taps import gradients_at, watch_forward

ROWS, INPUTS, WIDTH, CLASSES = 6, 4, 5, 3
TAPS = ("0", "1", "2")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Linear(WIDTH, WIDTH)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.tanh(self.w(h))


class Tried:
    """A rule on a stem, two blocks and a head, in float64, with all that its credit looks at."""

    def __init__(self, rule: str, **options):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(INPUTS, WIDTH), Block(), Block(), nn.Linear(WIDTH, CLASSES)).double()
        self.x, self.y = torch.randn(ROWS, INPUTS).double(), torch.randint(CLASSES, (ROWS,))
        self.rule = rule_class(rule)(**options)
        self.applied = apply_rule(self.rule, self.net, TAPS, self.x, generator(0, "feedback")).applied

    @property
    def context(self) -> CreditContext:
        forward = watch_forward(self.net, TAPS, self.x)
        errors = row_errors(forward.output, self.y)
        (top,) = gradients_at(forward.states[-1:], forward.output, errors.error)
        return self.applied._each_seed(lambda ctx: ctx, forward, errors, top, "none")

    def states(self, x: Tensor | None = None, shift: list[Tensor] | None = None) -> tuple[list[Tensor], Tensor]:
        """What every tap hands on, and the logits, layer by layer."""
        found, h = [], self.x if x is None else x
        for tap in range(3):
            h = self.net[tap](h)
            h = h if shift is None else h + shift[tap]
            found.append(h)
        return found, self.net[3](h)

    def slopes(self, shift: list[Tensor] | None = None) -> list[Tensor]:
        """∂ of the summed loss by what is added at every tap."""
        start = shift or [torch.zeros(ROWS, WIDTH).double()] * 3
        given = [s.clone().requires_grad_() for s in start]
        loss = nn.functional.cross_entropy(self.states(shift=given)[1], self.y, reduction="sum")
        return list(torch.autograd.grad(loss, given))


def assert_all_close(found, wanted, **how):
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), **how)


def test_drtp_tells_every_row_of_a_class_minus_its_column():
    tried = Tried("drtp")
    for a, B in zip(tried.rule.credit(tried.context), tried.applied.feedback, strict=True):
        torch.testing.assert_close(a, -B.T[tried.y])


class TestSettling:
    def settled(self, tried: Tried, beta: float, steps: int, rate: float) -> list[Tensor]:
        errors = [torch.zeros(ROWS, WIDTH).double()] * 3
        for _ in range(steps):
            slopes = tried.slopes(errors)
            errors = [e - rate * (e + beta * g) for e, g in zip(errors, slopes, strict=True)]
        return errors

    @pytest.mark.parametrize("steps", [1, 3])
    def test_pc_and_ep_descend_on_the_energy(self, steps):
        pc = Tried("pc", beta=2.0, steps=steps, rate=0.3)
        told = pc.rule.credit(pc.context)
        assert_all_close(told, [-e / 2 for e in self.settled(pc, 2.0, steps, 0.3)])
        if steps == 1:
            assert_all_close(told, [0.3 * g for g in pc.slopes()])
        up, down = (self.settled(pc, beta, steps, 0.3) for beta in (0.5, -0.5))
        ep = Tried("ep", beta=0.5, steps=steps, rate=0.3)
        assert_all_close(ep.rule.credit(ep.context), [-(a - b) for a, b in zip(up, down, strict=True)])
        alone = Tried("ep", beta=0.5, steps=steps, rate=0.3, centred=False)
        assert_all_close(alone.rule.credit(alone.context), [-2 * a for a in up])

    def test_settled_states_are_handed_on_with_their_errors(self):
        tried = Tried("pc", steps=3, inputs="settled")
        told = tried.rule.credit(tried.context)
        assert isinstance(told, Credit)
        assert_all_close(told.handed_on, tried.states(shift=self.settled(tried, 1.0, 3, 0.3))[0])


class TestForwardGradient:
    def told(self, tried: Tried) -> tuple[list[Tensor], list[Tensor]]:
        probes = [gaussian_probe(tried.applied.feedback[0], (2, ROWS, WIDTH), torch.float64, tap) for tap in range(3)]
        slopes = [(p * g).sum(-1, keepdim=True) for p, g in zip(probes, tried.slopes(), strict=True)]
        return probes, slopes

    def test_a_row_s_probe_is_weighed_by_its_own_slope(self):
        tried = Tried("forward_gradient", probes=2)
        probes, slopes = self.told(tried)
        wanted = [(s * p).mean(0) for s, p in zip(slopes, probes, strict=True)]
        assert_all_close(tried.rule.credit(tried.context), wanted)

    def test_all_taps_at_once_add_their_slopes(self):
        tried = Tried("forward_gradient", probes=2, joint=True)
        probes, slopes = self.told(tried)
        assert_all_close(tried.rule.credit(tried.context), [(sum(slopes) * p).mean(0) for p in probes])

    def test_where_rows_mix_the_slope_is_that_of_the_whole_loss(self):
        tried = Tried("forward_gradient", probes=2)
        probes, slopes = self.told(tried)
        wanted = [(s.sum(1, keepdim=True) * p).mean(0) for s, p in zip(slopes, probes, strict=True)]
        assert_all_close(tried.rule.credit(replace(tried.context, net_mixes_rows=True)), wanted)


class TestPEPITA:
    def by_hand(self, tried: Tried):
        """States of both passes, and the output of the second."""
        moved = tried.x + tried.context.error @ tried.applied.feedback[0].T
        with torch.no_grad():
            return tried.states()[0], *tried.states(moved)

    def test_credit_is_the_difference_of_both_passes(self):
        tried = Tried("pepita", scale=2.0)
        first, second, _ = self.by_hand(tried)
        told = tried.rule.credit(tried.context)
        assert_all_close(told.at_taps, [h - m for h, m in zip(first, second, strict=True)])
        assert_all_close(told.handed_on, second)

    def test_blocks_and_head_learn_at_the_second_pass_and_so_it_is_measured(self):
        tried = Tried("pepita", scale=2.0)
        first, second, output = self.by_hand(tried)
        told = [h - m for h, m in zip(first, second, strict=True)]
        error = output.softmax(-1) - nn.functional.one_hot(tried.y, CLASSES)
        wanted = {"3.weight": error.T @ second[-1], "3.bias": error.sum(0)}
        for tap in (1, 2):
            slope = 1 - (second[tap] - second[tap - 1]) ** 2
            wanted[f"{tap}.w.weight"] = (told[tap] * slope).T @ second[tap - 1]
        seen = observe(tried.net, tried.applied, tried.x, tried.y, noise=False)
        tried.applied.backward(tried.x, lambda output: row_errors(output, tried.y))
        for name, gradient in wanted.items():
            torch.testing.assert_close(tried.net.get_parameter(name).grad, gradient.detach() / ROWS)
        for name, p in tried.net.named_parameters():
            torch.testing.assert_close(seen.rule_weights[name] / ROWS, p.grad)


class TestSmallNets:
    def test_adam_is_torch_s(self):
        torch.manual_seed(0)
        mine, theirs = torch.randn(4, 3).double(), nn.Parameter(torch.empty(4, 3).double())
        theirs.data.copy_(mine)
        optimiser = torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.3)
        weights, moments = [mine], {name: tree_map(torch.Tensor.double, m) for name, m in draw_moments([mine]).items()}
        for _ in range(5):
            gradient = torch.randn(4, 3).double()
            theirs.grad = gradient.clone()
            optimiser.step()
            weights, moments = adam(weights, [gradient], moments, 0.1, 0.3)
        torch.testing.assert_close(weights[0], theirs.detach())

    def test_dni_learns_what_the_stage_above_sends_down(self):
        """Linear nets at 0: the first step of Adam moves each bias by the rate, up the mean of what it should say."""
        tried = Tried("dni", hidden=0, rate=0.01)
        exact = tried.slopes()
        learned = tried.rule.learn_feedback(tried.context)["M"]
        torch.testing.assert_close(learned[1][1], 0.01 * exact[1].sum(0).sign())
        assert not learned[0][1].any()  # the tap above it says nothing yet
        ctx = replace(tried.context, feedback={"M": learned})
        told = tried.rule.credit(ctx)
        seen = torch.cat([ctx.states[1], nn.functional.one_hot(tried.y, CLASSES)], dim=1)
        assert_all_close(told[1:], [seen @ learned[1][0].T + learned[1][1], exact[2]])

    def test_dtp_corrects_targets_by_the_difference_of_two_inverses(self):
        tried = Tried("dtp", step=0.2)
        ctx = tried.context
        g, h = ctx.top_gradient, ctx.states
        beta = 0.2 * h[2].norm(dim=1, keepdim=True) / g.norm(dim=1, keepdim=True)
        target, wanted = h[2] - beta * g, [g]
        for tap in (1, 0):
            G = ctx.feedback["G"][tap]
            target = h[tap] + (target + mlp(G, target)) - (h[tap + 1] + mlp(G, h[tap + 1]))
            wanted.insert(0, (h[tap] - target) / beta)
        assert_all_close(tried.rule.credit(ctx), wanted)

    def test_ldrl_mirrors_the_jacobian_of_each_stage(self):
        tried = Tried("ldrl", mean_rate=0.2)
        ctx = tried.context
        learned = tried.rule.learn_feedback(ctx)["B"]
        for tap in (0, 1):
            xi = gaussian_probe(ctx.feedback["counter"], (ROWS, WIDTH), torch.float64, tap)
            W, b = tried.net[tap + 1].w.weight, tried.net[tap + 1].w.bias
            pushed = xi + (1 - torch.tanh(ctx.states[tap] @ W.T + b) ** 2) * (xi @ W.T)
            mean = torch.einsum("ni,no->io", xi, pushed) / ROWS
            torch.testing.assert_close(learned[tap], (0.8 * ctx.feedback["B"][tap] + 0.2 * mean).detach())

    def test_bridges_see_state_depth_and_error(self):
        """The state bridge adds to the state what its net says, and the head reads that; the credit bridge sums V."""
        state, credit = Tried("state_bridge", hidden=7), Tried("credit_bridge", hidden=7)
        for tried, name in ((state, "G"), (credit, "V")):
            ctx = tried.context
            told = tried.rule.credit(ctx)
            for tap in (0, 1):
                h = ctx.states[tap].clone().requires_grad_()
                seen = torch.cat([h, torch.full((ROWS, 1), tap / 2).double(), ctx.error], dim=1)
                said = mlp(ctx.feedback[name], seen)
                if name == "G":
                    said = nn.functional.cross_entropy(tried.net[3](h + said), tried.y, reduction="sum")
                torch.testing.assert_close(told[tap], torch.autograd.grad(said.sum(), h)[0])
            torch.testing.assert_close(told[2], tried.slopes()[2])

    def test_the_running_mean_of_a_credit_bridge_is_slow(self):
        tried = Tried("credit_bridge", hidden=7, mean_rate=0.25)
        before = tried.context.feedback
        after = tried.rule.learn_feedback(tried.context)
        assert_all_close(after["mean"], [0.75 * m + 0.25 * w for m, w in zip(before["mean"], after["V"], strict=True)])
        assert not torch.equal(after["V"][0], before["V"][0])


class TestLocal:
    def test_similarities_are_correlations(self):
        x = torch.from_numpy(np.random.default_rng(0).normal(size=(ROWS, 9)) + 3)
        torch.testing.assert_close(similarities(x, None), torch.from_numpy(np.corrcoef(x)), rtol=0, atol=1e-7)
        mask = torch.arange(ROWS) < 4
        assert not similarities(x, mask)[4:].any()

    def test_credit_is_that_of_the_tap_s_own_head(self):
        tried = Tried("local")
        heads = {"A": [torch.randn(CLASSES, WIDTH).double() for _ in TAPS], "b": [torch.randn(CLASSES).double()] * 3}
        ctx = replace(tried.context, feedback={"heads": heads})
        for h, a, A, b in zip(ctx.states, tried.rule.credit(ctx), heads["A"], heads["b"], strict=True):
            error = (h @ A.T + b).softmax(-1) - nn.functional.one_hot(tried.y, CLASSES)
            torch.testing.assert_close(a, error @ A)


class TestDirectFeedback:
    def test_dkp_steps_down_the_outer_product_with_decay(self):
        plain, fancy = Tried("dkp", rate=0.1, decay=0.5, optimiser="sgd"), Tried("dkp", rate=0.1, decay=0.5)
        ctx = plain.context
        for h, B, learned in zip(ctx.states, ctx.feedback["B"], plain.rule.learn_feedback(ctx)["B"], strict=True):
            torch.testing.assert_close(learned, B - 0.1 * (h.T @ ctx.error / ROWS + 0.5 * B))
        ctx = fancy.context
        for h, B, learned in zip(ctx.states, ctx.feedback["B"], fancy.rule.learn_feedback(ctx)["B"], strict=True):
            torch.testing.assert_close(learned, 0.95 * B - 0.1 * (h.T @ ctx.error).sign(), rtol=0, atol=1e-6)

    def test_fdfa_follows_the_mean_jacobian_of_tokens(self):
        tokens, rate, rule = 3, 0.2, rule_class("fdfa")(rate=0.2)
        B, counter = rule.draw_feedback([(tokens, WIDTH)], CLASSES, generator(0, "feedback"))
        pushed, probes = torch.randn(ROWS, CLASSES, generator=generator(0, "pushed")).double(), []

        class Pushed(CreditContext):
            def push_forward(self, tangents):
                probes.append(tangents[0][0])
                return pushed[None, None]

        unused, states = torch.zeros(ROWS, CLASSES), [torch.zeros(ROWS, tokens, WIDTH).double()]
        learned, _ = rule.learn_feedback(Pushed(unused, unused, unused, states, [B.double(), counter], None, None))
        mean = torch.einsum("ntd,nc->dc", probes[0], pushed) / (ROWS * tokens)
        torch.testing.assert_close(learned, (1 - rate) * B.double() + rate * mean)


class TestLayerFeedback:
    W = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 7)))

    def test_sign_feedback_has_the_weight_s_own_mean_size(self):
        rule = rule_class("sign_fa")()
        memory = rule.draw_memory(Layer("a", self.W, 7, 4, False), generator(0, "f"))
        W = self.W.numpy()
        np.testing.assert_allclose(rule.transport(self.W, memory), np.abs(W).mean() * np.sign(W))
        np.testing.assert_allclose(rule.transport(3 * self.W, memory), 3 * np.abs(W).mean() * np.sign(W))

    def test_a_weight_mirror_begins_with_all_rows_that_it_remembers(self):
        rule = rule_class("wm")(rate=0.1, rows=5)
        noise = torch.randn(95, 7, generator=generator(0, "f")).double().numpy()
        found = rule.draw_memory(Layer("a", self.W, 7, 4, False), generator(0, "f"))
        np.testing.assert_allclose(found, self.W.numpy() @ noise.T @ noise / 95, rtol=1e-6)
        xi = torch.randn(5, 7, generator=generator(1, "f")).double()
        after = rule.learn(self.W, found, lambda shape: xi)
        np.testing.assert_allclose(after, 0.9 * found + 0.1 * self.W @ xi.T @ xi / 5)

    def test_kolen_pollack_begins_at_the_weight_s_own_scale(self):
        W = 0.01 * torch.randn(300, 200, generator=generator(0, "w"))
        memory = rule_class("kp")().draw_memory(Layer("a", W, 200, 300, False), generator(0, "f"))
        assert float(memory.std()) == pytest.approx(0.01, rel=0.02)
        assert abs(float((memory * W).mean())) < 1e-6  # another draw

    def test_a_layer_s_noise_is_another_at_every_step(self):
        rule, counter = rule_class("sign_fa")(variant="br"), draw_counter(generator(0, "f"))
        tensors, sizes = (self.W, torch.ones_like(self.W), counter), []
        for step in range(3):
            found = learn_memories(rule, {"a": FeedbackConv2d}, {"a": tensors})
            tensors = (self.W, found["a.feedback"], found["a.counter"])
            noise = gaussian_probe(advanced(counter, step), (4, 7), torch.float64)
            sizes.append(float(tensors[1].mean()))
            torch.testing.assert_close(tensors[1] / sizes[-1], noise.abs() / noise.abs().mean())

    def test_fans_of_a_grouped_kernel(self):
        layer = nn.Conv2d(4, 6, 3, groups=2)
        assert FeedbackConv2d.fans(layer) == (2 * 9, 3 * 9)

    @pytest.mark.parametrize("mode", ["zeros", "circular"])
    def test_a_kernel_pads_as_the_plain_one(self, mode):
        torch.manual_seed(0)
        padding = "same" if mode == "zeros" else 1
        plain = nn.Conv2d(2, 3, 3, padding=padding, padding_mode=mode).double()
        layer = FeedbackConv2d(plain, plain.weight.detach().clone(), Transport(rule_class("fa")()))
        x = torch.randn(2, 2, 5, 5).double().requires_grad_()
        found, wanted = layer(x), plain(x)
        torch.testing.assert_close(found, wanted)
        delta = torch.randn_like(found)
        inputs = (x, plain.weight)
        assert_all_close(torch.autograd.grad(found, inputs, delta), torch.autograd.grad(wanted, inputs, delta))


class TestPass:
    def forward(self) -> tuple[Tried, Forward, list[Tensor]]:
        tried = Tried("dfa")
        return tried, tried.context.forward, [torch.randn(ROWS, WIDTH).double() for _ in TAPS]

    def test_states_are_what_stages_compute_of_what_they_are_handed(self):
        tried, forward, other = self.forward()
        found = forward(at=other)
        wanted = [tried.net[0](tried.x), tried.net[1](other[0]), tried.net[2](other[1])]
        assert_all_close([*found.states, found.output], [*wanted, tried.net[3](other[2])])
        assert_all_close(forward.stages(other), [*wanted[1:], tried.net[3](other[2])])

    def test_a_shift_is_added_also_to_what_is_put_in_place(self):
        tried, forward, other = self.forward()
        shifts = [None, 0.5 * other[1], None]
        h = [tried.net[0](tried.x)]
        h.append(tried.net[1](h[0]))
        h.append(tried.net[2](h[1] + shifts[1]))
        found = forward(shift=shifts)
        assert_all_close([*found.states, found.output], [*h, tried.net[3](h[2])])
        both = forward(at=[None, other[1], None], shift=shifts)
        torch.testing.assert_close(both.states[2], tried.net[2](1.5 * other[1]))
        torch.testing.assert_close(both.states[1], h[1])
