"""Taps of a stack: states, credit and errors of every seed are those of its net alone."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from stacks import EITHER_INPUTS, NETS, SEEDS, close, draw, leaf, nets_of
from torch import Tensor, nn
from torch.nn import functional

from creditscope.losses import cross_entropy_errors, errors_function, row_errors
from creditscope.stack import PerSeed, StackedNet, pattern_of
from creditscope.taps import cut_forward, watch_forward

pytestmark = pytest.mark.usefixtures("own_stream")


class TestTaps:
    TAPS = ("stem", "blocks.0", "blocks.1")

    def inputs(self, per_seed: bool) -> tuple[Tensor | PerSeed, Callable[[int], Tensor]]:
        x = draw(per_seed)
        return (PerSeed(x) if per_seed else x), (lambda seed: x[seed] if per_seed else x)

    @EITHER_INPUTS
    def test_watched_states_and_their_gradients_are_those_of_the_nets(self, per_seed):
        nets = nets_of(NETS["resmlp"])
        stack, (x, own) = StackedNet.of(nets), self.inputs(per_seed)
        forward = watch_forward(stack, self.TAPS, x)
        delta = torch.randn_like(forward.output)
        found = torch.autograd.grad(forward.output, forward.states, delta)
        assert forward.order == self.TAPS
        for seed, net in enumerate(nets):
            alone = watch_forward(net, self.TAPS, own(seed))
            close(forward.output[seed], alone.output)
            wanted = torch.autograd.grad(alone.output, alone.states, delta[seed])
            for h, g, alone_h, w in zip(forward.states, found, alone.states, wanted, strict=True):
                close(h[seed], alone_h)
                close(g[seed], w)

    @pytest.mark.parametrize("shut", [True, False])
    def test_the_gate_shuts_the_taps_of_all_seeds(self, shut):
        nets = nets_of(NETS["resmlp"])
        stack, (x, own) = StackedNet.of(nets), self.inputs(True)
        forward = watch_forward(stack, self.TAPS, x)
        credits = [torch.randn_like(h) for h in forward.states]

        def gradients(seen, parameters: list, credits: list[Tensor]) -> tuple:
            with seen.gate.shut() if shut else nullcontext():
                return torch.autograd.grad(seen.states, parameters, credits, allow_unused=True)

        found = gradients(forward, list(stack.parameters()), credits)
        for seed, net in enumerate(nets):
            alone = watch_forward(net, self.TAPS, own(seed))
            wanted = gradients(alone, list(net.parameters()), [a[seed] for a in credits])
            for g, w in zip(found, wanted, strict=True):
                assert (g is None) == (w is None)
                if g is not None:
                    close(g[seed], w)

    @EITHER_INPUTS
    @pytest.mark.parametrize("top", [True, False], ids=["top gradient", "none"])
    def test_a_cut_stack_sends_every_stage_its_own_credit(self, top, per_seed):
        nets = nets_of(NETS["resmlp"])
        stack, (x, own) = StackedNet.of(nets), self.inputs(per_seed)
        forward = cut_forward(stack, self.TAPS, x, top_gradient=top)
        assert [h.requires_grad for h in forward.passed] == [False, False, top]
        roots = [*forward.states, forward.output]
        credits = [torch.randn_like(h) for h in roots]
        torch.autograd.backward(roots, credits)
        assert (forward.passed[-1].grad is not None) == top
        for seed, net in enumerate(nets):
            alone = cut_forward(net, self.TAPS, own(seed), top_gradient=top)
            torch.autograd.backward([*alone.states, alone.output], [a[seed] for a in credits])
            for (name, p), (_, q) in zip(stack.named_parameters(), net.named_parameters(), strict=True):
                torch.testing.assert_close(p.grad[seed], q.grad, rtol=1e-11, atol=1e-12, msg=name)
            if top:
                close(forward.passed[-1].grad[seed], alone.passed[-1].grad)

    def test_what_was_read_survives_a_module_that_works_in_place(self):
        nets = nets_of(lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)))
        x = draw(False)
        for forward in (watch_forward(StackedNet.of(nets), ["0"], x), cut_forward(StackedNet.of(nets), ["0"], x)):
            for seed, net in enumerate(nets):
                close(forward.states[0][seed], net[0](x))

    def test_a_tap_that_all_seeds_share_is_refused(self):
        stack = StackedNet.of(nets_of(lambda: nn.Sequential(nn.Identity(), nn.Linear(6, 5))))
        with pytest.raises(RuntimeError, match="all seeds share it"):
            watch_forward(stack, ["0"], leaf(9, 6).detach())
        forward = watch_forward(stack, ["0"], PerSeed(leaf(SEEDS, 9, 6).detach()))
        assert forward.states[0].shape == (SEEDS, 9, 6)
        assert not pattern_of(stack)[0]._forward_hooks


class TestErrors:
    @pytest.mark.parametrize("masked", [True, False])
    @pytest.mark.parametrize("own", [True, False], ids=["own targets", "shared targets"])
    def test_errors_with_a_seed_axis_are_those_of_every_seed(self, own, masked):
        logits = 5 * leaf(SEEDS, 9, 4).detach()
        target = torch.randint(4, (SEEDS, 9) if own else (9,))
        mask = torch.arange(9) % 3 > 0 if masked else None
        if mask is not None:
            target = torch.where(mask, target, -1)
        together = cross_entropy_errors(logits, target, mask)
        through = errors_function(StackedNet.of(nets_of(NETS["resmlp"])), target, mask=mask)(logits)
        assert torch.equal(together.error, through.error)
        for seed in range(SEEDS):
            alone = row_errors(logits[seed], target[seed] if own else target, mask=mask)
            for name in ("loss", "error", "covered", "output", "target", "mean_loss"):
                assert torch.equal(getattr(together, name)[seed], getattr(alone, name)), name
            assert int(together.count) == int(alone.count) == (6 if masked else 9)

    def test_they_are_the_gradients_of_the_cross_entropy(self):
        logits, target = leaf(SEEDS, 9, 4), torch.randint(4, (SEEDS, 9))
        losses = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(SEEDS, 9)
        (g,) = torch.autograd.grad(losses.sum(), logits)
        errors = cross_entropy_errors(logits, target)
        close(errors.error, g)
        close(errors.loss, losses)
        close(errors.mean_loss, losses.mean(-1))
