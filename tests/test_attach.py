"""`attach`: any rule in a training loop of one's own, on models of others."""

import copy
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from attached import as_object, by_stages, chain, gpt2, gradients, next_token, rows, sentences
from torch import nn
from torch.nn import functional

import creditscope as cs
from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.nets.gcn import GCN
from creditscope.nets.resnet import ResNet
from creditscope.nets.vit import ViT
from creditscope.registry import RULES
from creditscope.rules import layers_with_feedback, make_rule, rule_class

pytestmark = pytest.mark.usefixtures("own_stream")
TAPS = {"taps": "blocks.*", "stem": "stem"}
ON_CHAIN = ("stem", "blocks.0", "blocks.1")
FOR_GRAPHS = {name for name in RULES.names() if getattr(rule_class(name), "needs_graph", False)}
EVERY_RULE = sorted(set(RULES.names()) - FOR_GRAPHS)


def attach_to_chain(rule, model=None, **options):
    model = model or chain()
    return cs.attach(model, rule, **{**TAPS, "inputs": rows()[0], **options}), model


def assert_same_bits(ours: dict, theirs: dict) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name


def assert_close(ours: dict, theirs: dict, tolerance: float = 1e-12) -> None:
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=tolerance, msg=name)


def step(trainer, optimiser, x, y) -> float:
    optimiser.zero_grad()
    loss = trainer.backward(x, y).mean()
    optimiser.step()
    return float(loss)


def images(count: int = 24, shape=(1, 8, 8), classes: int = 3):
    """A bright patch at a place that says which class it is."""
    y = torch.arange(count) % classes
    x = 0.3 * torch.randn(count, *shape)
    for row, label in zip(x, y, strict=True):
        row[:, :, 2 * label : 2 * label + 2] += 1
    return x, y


MODELS = {
    "resnet": lambda: (ResNet((1, 8, 8), 3, depth=3, width=4), *images(), None, TAPS),
    "resnet, batch norm": lambda: (ResNet((1, 8, 8), 3, depth=3, width=4, norm="batch"), *images(), None, TAPS),
    "vit": lambda: (ViT((1, 8, 8), 3, depth=2, width=8, heads=2), *images(), None, {**TAPS, "stem": "embed"}),
    "gpt2": lambda: (gpt2(), sentences(), sentences(), next_token, {"taps": "transformer.h.*"}),
}


class TestBackprop:
    """The bits of PyTorch, over several steps of an optimiser."""

    @pytest.mark.parametrize("name", MODELS)
    def test_is_bit_by_bit_that_of_pytorch(self, name):
        model, x, y, loss, taps = MODELS[name]()
        plain = copy.deepcopy(model)
        trainer = cs.attach(model, "bp", loss=loss, **taps)
        optimisers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, plain)]
        for _ in range(3):
            ours = trainer.backward(x, y).mean()
            out = plain(x)
            theirs = functional.cross_entropy(out, y) if loss is None else loss(out.logits, y).mean()
            theirs.backward()
            assert float(ours) == pytest.approx(float(theirs.detach()), rel=1e-6)
            assert_same_bits(gradients(model), gradients(plain))
            for optimiser in optimisers:
                optimiser.step()
                optimiser.zero_grad()
        assert_same_bits(model.state_dict(), plain.state_dict())

    def test_draws_the_same_dropout_from_the_first_step_on(self):
        model, tokens = gpt2(resid_pdrop=0.2), sentences()
        plain = copy.deepcopy(model)
        torch.manual_seed(5)
        cs.attach(model, "bp", taps="transformer.h.*", loss=next_token).backward(tokens, tokens)
        torch.manual_seed(5)
        next_token(plain(tokens).logits, tokens).mean().backward()
        assert_same_bits(gradients(model), gradients(plain))

    def test_under_autocast(self):
        (x, y), model = rows(), chain().float()
        plain = copy.deepcopy(model)
        with torch.autocast("cpu", torch.bfloat16):
            attach_to_chain("bp", model, inputs=None)[0].backward(x.float(), y)
            loss = functional.cross_entropy(plain(x.float()), y)
        loss.backward()
        assert_same_bits(gradients(model), gradients(plain))

    def test_of_a_regression(self):
        (x, _), (trainer, model) = rows(), attach_to_chain("bp", loss=lambda o, t: (o - t).square().mean(1))
        t = torch.randn(12, 3).double()
        plain = copy.deepcopy(model)
        losses = trainer.backward(x, t)
        ((plain(x) - t).square().mean(1)).mean().backward()
        assert_same_bits(gradients(model), gradients(plain))
        assert losses.tolist() == (plain(x) - t).square().mean(1).tolist()
        assert not losses.requires_grad

    def test_of_the_rows_in_a_mask_alone(self):
        nodes = 17
        edges = sp.random_array((nodes, nodes), density=0.2, rng=np.random.default_rng(0)) > 0
        graph = Adjacency.normalised(((edges + edges.T) > 0).astype(float))
        x, y, mask = torch.randn(nodes, 4), torch.randint(3, (nodes,)), torch.arange(nodes) % 3 == 0
        y[1] = -1  # no label
        model = GCN((4,), 3, depth=3, width=6)
        plain = copy.deepcopy(model)
        losses = cs.attach(model, "bp", taps="layers.*").backward((x, graph), y, mask=mask)
        out = plain(x, graph)
        functional.cross_entropy(out[mask], y[mask]).backward()
        assert_same_bits(gradients(model), gradients(plain))
        torch.testing.assert_close(losses, functional.cross_entropy(out[mask], y[mask], reduction="none"))
        for rule in sorted(FOR_GRAPHS):
            model.zero_grad()
            cs.attach(model, rule, taps="layers.*").backward((x, graph), y, mask=mask)
            assert all(p.grad.isfinite().all() and p.grad.abs().sum() > 0 for p in model.parameters())

    def test_adds_to_gradients_that_are_there(self):
        (x, y), (trainer, model) = rows(), attach_to_chain("bp")
        plain = copy.deepcopy(model)
        for half in (slice(0, 6), slice(6, 12)):
            trainer.backward(x[half], y[half])
            functional.cross_entropy(plain(x[half]), y[half]).backward()
        assert_same_bits(gradients(model), gradients(plain))


class TestEveryRule:
    @pytest.mark.parametrize("rule", EVERY_RULE)
    def test_fills_all_gradients_and_adds_to_those_that_are_there(self, rule):
        (x, y), (trainer, model) = rows(), attach_to_chain(rule)
        list(trainer.parameters())
        trainer.backward(x, y)
        first = gradients(model)
        assert first.keys() == dict(model.named_parameters()).keys()
        assert all(g.isfinite().all() for g in first.values())
        again, _ = attach_to_chain(rule, chain())
        list(again.parameters())
        again.backward(x, y)
        assert_same_bits(gradients(again.model), first)  # the same seed is the same step
        if not trainer.rule.learns_feedback:
            trainer.backward(x, y)
            assert_close(gradients(model), {name: 2 * g for name, g in first.items()})

    @pytest.mark.parametrize("rule", EVERY_RULE)
    def test_leaves_the_model_as_it_was(self, rule):
        model = chain()
        before = {name: (id(module), module.training) for name, module in model.named_modules()}
        weights = {name: p.clone() for name, p in model.state_dict().items()}
        parameters = [id(p) for p in model.parameters()]
        trainer, _ = attach_to_chain(rule, model)
        list(trainer.parameters())
        trainer.backward(*rows())
        model.eval()
        model.train()
        assert trainer.detach() is model
        assert {name: (id(module), module.training) for name, module in model.named_modules()} == before
        assert [id(p) for p in model.parameters()] == parameters
        assert_same_bits(dict(model.state_dict()), weights)  # no optimiser stepped
        assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
        model.zero_grad()
        functional.cross_entropy(model(rows()[0]), rows()[1]).backward()
        assert_close(gradients(model), bp_gradients())
        with pytest.raises(CreditscopeError, match="detached"):
            trainer.backward(*rows())

    @pytest.mark.parametrize("rule", EVERY_RULE)
    def test_is_measured_as_it_stands_and_learns_nothing_there(self, rule):
        (x, y), (trainer, _model) = rows(), attach_to_chain(rule)
        optimiser = torch.optim.SGD(trainer.parameters(), lr=0.05)
        for _ in range(2):
            step(trainer, optimiser, x, y)
        before = {name: t.clone() for name, t in trainer.state_dict().items()}
        taken = trainer.watch.snapshot(x, y, epoch=1)
        assert_same_bits(trainer.state_dict(), before)
        assert len(taken.taps.cos) == 3
        assert "measured only" not in trainer.watch.records[0].facts.rule.label
        assert trainer.watch.audit().methods[0].taps == ON_CHAIN

    def test_is_measured_with_the_feedback_that_it_learned(self):
        (x, y), (trainer, model) = rows(), attach_to_chain("dkp", rate=0.1)
        drawn = trainer.watch.snapshot(x, y).taps.cos
        for _ in range(5):
            trainer.backward(x, y)
        B = [trainer.state_dict()[f"feedback.B.{i}"] for i in range(3)]
        by_hand = cs.watch(model, credit=lambda ctx: [ctx.error @ b.T for b in B], **TAPS).snapshot(x, y).taps.cos
        learned = trainer.watch.snapshot(x, y).taps.cos
        assert learned == pytest.approx(by_hand, abs=1e-12)
        assert min(abs(a - b) for a, b in zip(learned, drawn, strict=True)) > 0.01  # the weights are the same

    @pytest.mark.parametrize("rule", EVERY_RULE)
    def test_goes_on_where_its_tensors_were_saved(self, rule):
        x, y = rows()
        trainer, model = attach_to_chain(rule)
        optimiser = torch.optim.SGD(trainer.parameters(), lr=0.05)
        for _ in range(3):
            step(trainer, optimiser, x, y)
        saved = copy.deepcopy((model.state_dict(), trainer.state_dict()))
        after = [step(trainer, optimiser, x, y) for _ in range(3)]
        other, model = attach_to_chain(rule, chain(), seed=9)
        optimiser = torch.optim.SGD(other.parameters(), lr=0.05)
        model.load_state_dict(saved[0])
        other.load_state_dict(saved[1])
        assert [step(other, optimiser, x, y) for _ in range(3)] == after


def bp_gradients():
    model = chain()
    functional.cross_entropy(model(rows()[0]), rows()[1]).backward()
    return gradients(model)


class TestGradients:
    """Against hooks and autograd, or NumPy."""

    def test_of_dfa_are_those_of_each_stage_alone(self):
        (x, y), (trainer, model) = rows(), attach_to_chain("dfa")
        B = list(trainer.state_dict().values())

        def call():
            logits = model(x)
            return logits, functional.cross_entropy(logits, y, reduction="none")

        expected = by_stages(model, ON_CHAIN, call, lambda states, e: [e @ b.T for b in B])
        trainer.backward(x, y)
        assert_close(gradients(model), expected)

    def test_of_sign_feedback_in_numpy(self):
        (x, y), model = rows(), nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
        trainer = cs.attach(model, "sign_fa", taps="1")
        trainer.backward(x, y)
        W1, b1, W2, b2 = (p.detach().numpy() for p in model.parameters())
        h = np.tanh(x.numpy() @ W1.T + b1)
        exp = np.exp(h @ W2.T + b2)
        e = exp / exp.sum(1, keepdims=True) - np.eye(3)[y]
        down = (e @ (np.abs(W2).mean() * np.sign(W2))) * (1 - h**2)
        np.testing.assert_allclose(model[2].weight.grad, e.T @ h / 12, atol=1e-14)
        np.testing.assert_allclose(model[0].weight.grad, down.T @ x.numpy() / 12, atol=1e-14)

    @pytest.mark.parametrize("name", MODELS)
    def test_of_feedback_that_is_the_weights_are_the_exact_ones(self, name):
        model, x, y, loss, taps = MODELS[name]()
        x, model = x.double() if x.is_floating_point() else x, model.double()
        plain = copy.deepcopy(model)
        cs.attach(model, "fa", loss=loss, scale="init", **taps).backward(x, y)
        cs.attach(plain, "bp", loss=loss, **taps).backward(x, y)
        assert len(layers_with_feedback(model)) > 3
        assert_close(gradients(model), gradients(plain), 1e-13)

    def test_of_tokens_are_each_token_s_own(self):
        """DFA in a language model: what a token is told is B of the errors at that token."""
        model, tokens = gpt2().double(), sentences()
        taps = ("transformer.h.0", "transformer.h.1")
        trainer = cs.attach(model, "dfa", taps="transformer.h.*", loss=next_token, inputs=tokens)
        B = list(trainer.state_dict().values())

        def call():
            logits = model(tokens).logits
            return logits, next_token(logits, tokens)

        expected = by_stages(model, taps, call, lambda states, e: [torch.einsum("rtv,dv->rtd", e, b) for b in B])
        trainer.backward(tokens, tokens)
        assert_close(gradients(model), expected)

    @pytest.mark.parametrize("kind", ["chain", "gpt2"])
    def test_of_local_heads_are_those_of_their_own_losses(self, kind):
        if kind == "chain":
            model, (x, y), taps, loss = chain(), rows(), ON_CHAIN, None
        else:
            model, x, taps, loss = gpt2().double(), sentences(), ("transformer.h.0", "transformer.h.1"), next_token
            y = x
        trainer = cs.attach(model, "local", taps=list(taps), loss=loss, rate=0.1)
        trainer.backward(x, y)
        ours, heads = gradients(model), trainer.state_dict()
        per_row = loss or (lambda logits, y: functional.cross_entropy(logits, y, reduction="none"))

        def call():
            out = model(x)
            logits = out if loss is None else out.logits
            return logits, per_row(logits, y)

        def credit(states, e):
            found = []
            for i, h in enumerate(states):
                h = h.requires_grad_()
                A, b = heads[f"feedback.heads.A.{i}"], heads[f"feedback.heads.b.{i}"]
                found.append(torch.autograd.grad(per_row(h @ A.T + b, y).sum(), h)[0])
            return found

        assert_close(ours, by_stages(model, taps, call, credit))
        assert float(ours["blocks.0.w.weight" if kind == "chain" else "transformer.wpe.weight"].abs().max()) > 0

    def test_of_a_head_that_learns_at_states_handed_on_are_taken_once(self):
        """Also if the rule looks at the gradient there before: ∂W of the head is that at the moved state alone."""

        class Moved(cs.TapRule):
            needs_top_gradient = hands_on = True

            def credit(self, ctx):
                states = [*ctx.states[:-1], ctx.states[-1] - ctx.top_gradient]
                return cs.Credit([torch.zeros_like(h) for h in states], states)

        (x, y), (trainer, model) = rows(), attach_to_chain(Moved)
        h = model.stem(x).detach()
        for block in model.blocks:
            h = block(h).detach()
        e = torch.softmax(model.head(h), 1) - functional.one_hot(y, 3)
        moved = (h - e @ model.head.weight).detach()
        (expected,) = torch.autograd.grad(functional.cross_entropy(model.head(moved), y), [model.head.weight])
        trainer.backward(x, y)
        torch.testing.assert_close(model.head.weight.grad, expected, rtol=0, atol=1e-14)

    @pytest.mark.parametrize("rule", ["bp", "dfa", "pc", "dtp", "forward_gradient", "fa"])
    def test_are_the_same_if_blocks_return_more_than_their_state(self, rule):
        (x, y), (trainer, model) = rows(), attach_to_chain(rule)
        pairs, other = attach_to_chain(rule, chain(pair=True))
        for each in (trainer, pairs):
            each.backward(x, y)
        assert_same_bits(gradients(other), gradients(model))
        taken = [each.watch.snapshot(x, y).taps.cos for each in (trainer, pairs)]
        assert taken[0] == taken[1]

    def test_agree_with_watch_on_the_same_seed(self):
        """Feedback is drawn from the seed as `watch` draws it."""
        (x, y), (trainer, _) = rows(), attach_to_chain("dfa", seed=4)
        trainer.backward(x, y)
        by_watch = cs.watch(chain(), rule="dfa", seed=4, **TAPS).snapshot(x, y).taps.cos
        assert trainer.watch.snapshot(x, y).taps.cos == by_watch


class TestTraining:
    """In a loop of one's own the loss falls, on a ResNet, a ViT and a GPT-2."""

    RULES = ("bp", "sign_fa", "fa", "dfa", "local")

    @pytest.mark.parametrize("rule", RULES)
    @pytest.mark.parametrize("name", MODELS)
    def test_loss_falls(self, name, rule):
        torch.manual_seed(0)
        model, x, y, loss, taps = MODELS[name]()
        own = {"scale": "match-init"} if (name, rule) == ("gpt2", "fa") else {}  # its weights start at .02
        trainer = cs.attach(model, rule, loss=loss, **taps, **own)
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = [step(trainer, optimiser, x, y) for _ in range(25)]
        assert losses[-1] < 0.85 * losses[0]
        assert (len(layers_with_feedback(model)) > 0) == (rule in ("sign_fa", "fa"))
        trainer.watch.snapshot(x, y, tier="quick")
        plain = trainer.detach()
        assert not layers_with_feedback(plain)

    def test_gpt2_is_converted_in_all_its_layers(self):
        model = gpt2()
        trainer = cs.attach(model, "fa", taps="transformer.h.*", loss=next_token, inputs=sentences())
        assert len(layers_with_feedback(model)) == 2 * 4 + 1
        assert trainer.report.names("rule") == [name for name, _ in model.named_parameters()]
        trainer.detach()
        trainer = cs.attach(model, "fa", taps="transformer.h.*", loss=next_token, inputs=sentences(), head="exact")
        assert "lm_head" not in layers_with_feedback(model)
        assert trainer.report.names("exact") == [
            f"transformer.{name}.{of}" for name in ("h.1.mlp.c_proj", "ln_f") for of in ("weight", "bias")
        ]
        trainer.detach()
        assert type(model.transformer.h[0].attn.c_attn).__name__ == "Conv1D"
        assert model.lm_head.weight is model.transformer.wte.weight

    @pytest.mark.parametrize("rule", ["kp", "wm"])
    def test_feedback_of_a_tied_head_moves(self, rule):
        model, tokens = gpt2(), sentences()
        trainer = cs.attach(model, rule, taps="transformer.h.*", loss=next_token, inputs=tokens)
        optimiser = torch.optim.SGD(trainer.parameter_groups(), lr=0.1)
        before = {name: t.clone() for name, t in trainer.state_dict().items() if name.endswith("feedback")}
        losses = [step(trainer, optimiser, tokens, tokens) for _ in range(10)]
        assert losses[-1] < losses[0]
        assert not any(torch.equal(t, trainer.state_dict()[name]) for name, t in before.items())

    def test_timm(self):
        timm = pytest.importorskip("timm")
        model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3, depth=2)
        x, y = images(12, shape=(3, 32, 32))
        trainer = cs.attach(model, "dfa", taps="blocks.*")
        optimiser = torch.optim.AdamW(model.parameters(), lr=0.001)
        losses = [step(trainer, optimiser, x, y) for _ in range(10)]
        assert losses[-1] < losses[0]


class TestCalls:
    @pytest.mark.parametrize("given", ["tuple", "dict"])
    def test_inputs_may_be_arguments_or_keywords(self, given):
        (x, y), (trainer, model) = rows(), attach_to_chain("dfa")
        other, same = attach_to_chain("dfa", inputs=None)
        trainer.backward(x, y)
        inputs = (x,) if given == "tuple" else {"x": x, "scale": 1.0}
        other.backward(inputs, y)
        assert_same_bits(gradients(same), gradients(model))
        assert other.watch.snapshot(inputs, y).taps.cos == trainer.watch.snapshot(x, y).taps.cos

    @pytest.mark.parametrize("rule", ["pc", "fdfa", "local"])
    def test_keywords_reach_further_passes(self, rule):
        """x · ½ is exact, so the model may halve what it is given."""
        (x, y), (trainer, model) = rows(), attach_to_chain(rule)
        other, same = attach_to_chain(rule, inputs=None)
        trainer.backward(0.5 * x, y)
        other.backward({"x": x, "scale": 0.5}, y)
        assert_same_bits(gradients(same), gradients(model))

    @pytest.mark.parametrize(
        ("gives", "output"),
        [
            (as_object, None),
            (lambda logits: {"logits": logits}, None),
            (lambda logits: ("first", logits), lambda out: out[1]),
        ],
    )
    def test_logits_are_taken_out_of_what_the_model_returns(self, gives, output):
        (x, y), (trainer, model) = rows(), attach_to_chain("fa")
        options = {} if output is None else {"output": output}
        other, same = attach_to_chain("fa", chain(gives=gives), **options)
        trainer.backward(x, y)
        other.backward(x, y)
        assert_same_bits(gradients(same), gradients(model))
        assert other.watch.snapshot(x, y).taps.cos == trainer.watch.snapshot(x, y).taps.cos
        assert other.watch.records[0].facts.taps == ON_CHAIN

    def test_a_tokenizer_s_batch_is_keywords(self):
        from transformers import BatchEncoding

        tokens, model = sentences(), gpt2()
        trainer = cs.attach(model, "local", taps="transformer.h.*", loss=next_token)
        losses = trainer.backward(
            BatchEncoding({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}), tokens
        )
        torch.testing.assert_close(losses, next_token(model(tokens).logits, tokens).detach())

    @pytest.mark.parametrize("rule", ["dfa", "local", "fa"])
    def test_the_model_may_change_its_precision_later(self, rule):
        (x, y), (trainer, model) = rows(), attach_to_chain(rule, chain().float(), inputs=rows()[0].float())
        model.double()
        trainer.backward(x, y)
        assert {p.grad.dtype for p in model.parameters()} == {torch.float64}

    def test_a_mode_that_is_changed_is_the_model_s_own(self):
        model = ResNet((1, 8, 8), 3, depth=3, width=4, norm="batch")
        trainer = cs.attach(model, "dfa", **TAPS)
        trainer.watch.snapshot(*images())
        assert trainer.watch.records[0].facts.rows_interact
        trainer.watch.model.eval()
        assert not any(m.training for m in model.modules())

    @pytest.mark.slow
    def test_saves_and_draws(self, tmp_path):
        (x, y), (trainer, _) = rows(), attach_to_chain("local")
        trainer.watch.snapshot(x, y, epoch=0)
        trainer.backward(x, y)
        trainer.watch.snapshot(x, y, epoch=1, tier="full")
        assert len(cs.load_records(trainer.watch.save(tmp_path / "mine"))) == 1
        trainer.watch.plot()
        assert "local" in str(cs.audit(tmp_path / "mine"))


class TestKolenPollack:
    def test_difference_shrinks_by_rate_times_decay(self):
        (x, y), (trainer, model) = rows(), attach_to_chain("kp", decay=2.0)
        optimiser = torch.optim.SGD(trainer.parameter_groups(), lr=0.05)

        def differences():
            return {name: (m.weight - m.feedback).detach() for name, m in layers_with_feedback(model).items()}

        before = differences()
        for _ in range(7):
            step(trainer, optimiser, x, y)
        assert_close(differences(), {name: (1 - 0.05 * 2.0) ** 7 * d for name, d in before.items()}, 1e-13)

    def test_clipping_clips_feedback_as_its_weight(self):
        (x, y), (trainer, model) = rows(), attach_to_chain("kp")
        trainer_parameters = list(trainer.parameters())
        trainer.backward(x, y)
        nn.utils.clip_grad_norm_(trainer_parameters, 1e-3)
        for layer in layers_with_feedback(model).values():
            assert torch.equal(layer.weight.grad, layer.feedback.grad)
        total = torch.stack([p.grad.square().sum() for p in trainer_parameters]).sum().sqrt()
        assert float(total) == pytest.approx(1e-3, rel=1e-2)

    def test_accumulates_as_its_weight_does(self):
        (x, y), (trainer, model) = rows(), attach_to_chain("kp")
        list(trainer.parameters())
        for half in (slice(0, 6), slice(6, 12)):
            trainer.backward(x[half], y[half])
        for layer in layers_with_feedback(model).values():
            assert torch.equal(layer.weight.grad, layer.feedback.grad)

    def test_is_refused_without_rows_or_if_its_feedback_was_not_asked_for(self):
        with pytest.raises(CreditscopeError, match="Expected inputs= for rule 'kp'"):
            cs.attach(chain(), "kp", **TAPS)
        trainer, _ = attach_to_chain("kp")
        with pytest.raises(CreditscopeError, match=r"trainer\.parameters\(\)"):
            trainer.backward(*rows())

    @pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}])
    def test_an_optimiser_that_leaves_it_out_is_told_once(self, options):
        (x, y), (trainer, model) = rows(), attach_to_chain("kp")
        list(trainer.parameters())
        left_out = torch.optim.Adam(model.parameters(), **options)
        step(trainer, left_out, x, y)
        with pytest.warns(UserWarning, match="the weights moved and it did not"):
            step(trainer, left_out, x, y)
        step(trainer, left_out, x, y)
        trainer, _ = attach_to_chain("kp")
        whole = torch.optim.Adam(trainer.parameters(), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                step(trainer, whole, x, y)


class TestRefusals:
    def test_a_model_with_feedback_already(self):
        attach_to_chain("fa", model := chain())
        with pytest.raises(CreditscopeError, match="plain model"):
            attach_to_chain("dfa", model)

    def test_an_output_without_logits(self):
        with pytest.raises(CreditscopeError, match="Pass output="):
            attach_to_chain("dfa", chain(gives=lambda logits: {"a": logits, "b": logits}))

    def test_arguments_that_an_option_was_meant_for(self):
        with pytest.raises(CreditscopeError, match="make_rule"):
            attach_to_chain("local", loss="sim")
        with pytest.raises(CreditscopeError, match="make_rule"):
            attach_to_chain("pc", inputs="settled")
        trainer, _ = attach_to_chain(make_rule("local", {"loss": "sim"}))
        assert trainer.backward(*rows()).shape == (12,)

    def test_targets_that_are_no_labels(self):
        (x, y), (trainer, _) = rows(), attach_to_chain("dfa")
        for target, said in (
            (y.double(), "one class label"),
            (y + 5, "labels from 0 to 2"),
            (y[:5], "one target per row"),
        ):
            with pytest.raises(CreditscopeError, match=said):
                trainer.backward(x, target)
        with pytest.raises(CreditscopeError, match="a tensor"):
            trainer.backward(x, y.tolist())
        with pytest.raises(CreditscopeError, match="one value per row"):
            attach_to_chain("bp", loss=functional.cross_entropy)[0].backward(x, y)

    @pytest.mark.parametrize("rule", ["state_bridge", "drtp"])
    def test_rules_for_one_error_a_row_where_tokens_have_errors(self, rule):
        tokens = sentences()
        with pytest.raises(CreditscopeError, match=r"one error per row|one per row"):
            cs.attach(gpt2(), rule, taps="transformer.h.*", loss=next_token).backward(tokens, tokens)

    def test_what_is_not_known_yet(self):
        trainer, _ = attach_to_chain("dfa", inputs=None)
        with pytest.raises(CreditscopeError, match="before state_dict"):
            trainer.state_dict()
        with pytest.raises(CreditscopeError, match="before report"):
            _ = trainer.report

    def test_tensors_of_another_rule(self):
        trainer, _ = attach_to_chain("dfa")
        with pytest.raises(CreditscopeError, match=r"Expected the tensors of rule 'dfa'"):
            trainer.load_state_dict(attach_to_chain("local")[0].state_dict())

    def test_watch_alone_still_refuses_rules_that_learn(self):
        with pytest.raises(CreditscopeError, match=r"creditscope\.attach"):
            cs.watch(chain(), rule="local", **TAPS)


def test_rows_outside_of_a_mask_may_hold_anything_under_a_loss_of_ones_own():
    x, y, mask = torch.randn(8, 4), torch.randn(8, 3), torch.arange(8) < 5
    y[5:] = torch.nan
    for rule in ("bp", "dfa"):
        model = nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3))
        trainer = cs.attach(model, rule, taps="1", stem="0", loss=lambda output, y: (output - y).square().mean(1))
        trainer.backward(x, y, mask=mask)
        assert all(torch.isfinite(p.grad).all() for p in model.parameters())


class ByKeyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.block, self.head = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, *, scale, x):
        return self.head(torch.tanh(self.block(self.stem(x * scale))))


def test_a_second_pass_is_called_by_keyword_as_the_first():
    model, x = ByKeyword(), torch.randn(8, 4)
    trainer = cs.attach(model, "pepita", taps="block", stem="stem")
    trainer.backward({"x": x, "scale": torch.tensor(2.0)}, torch.arange(8) % 3)
    assert all(p.grad is not None for p in model.parameters())
