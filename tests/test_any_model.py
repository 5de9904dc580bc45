"""`cs.watch(model)`: one line, no wrapper, and nothing of the model or its surroundings is another afterwards."""

import copy
import random

import numpy as np
import pytest
import torch
from any_models import PATIENTS, Patient, Words, labels
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as registry
from torch.utils.checkpoint import checkpoint

import creditscope as cs
from creditscope.errors import CreditscopeError

pytestmark = [
    pytest.mark.usefixtures("own_stream"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning"),  # of torch_geometric
]


def surroundings(model: nn.Module) -> dict[str, object]:
    """All that a snapshot could leave changed."""
    found: dict[str, object] = {f"state {k}": v.clone() for k, v in model.state_dict().items()}
    for name, p in model.named_parameters():
        found |= {f"grad {name}": None if p.grad is None else p.grad.clone(), f"needs {name}": p.requires_grad}
        found[f"hooks of {name}"] = list((p._backward_hooks or {}).items())
    for name, m in model.named_modules():
        found |= {f"mode {name}": m.training, f"own {name}": sorted(vars(m))}
        for kind in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
            found[f"{kind} {name}"] = list(getattr(m, kind).items())
    for kind in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks"):
        found[kind] = list(getattr(registry, kind).items())
    found |= {"python": random.getstate(), "numpy": str(np.random.get_state()), "torch": torch.get_rng_state()}
    return found | {"grad mode": torch.is_grad_enabled()}


def assert_untouched(model: nn.Module, before: dict[str, object]) -> None:
    after = surroundings(model)
    assert after.keys() == before.keys()
    for key, value in before.items():
        assert torch.equal(value, after[key]) if isinstance(value, Tensor) else value == after[key], key


def call(patient: Patient):
    given = patient.inputs
    return (
        patient.model(**given)
        if isinstance(given, dict)
        else patient.model(*given if isinstance(given, tuple) else [given])
    )


def logits(returned) -> Tensor:
    if isinstance(returned, dict):
        return returned["logits"] if "logits" in returned else returned["out"]
    return returned[0] if isinstance(returned, tuple) else returned


def loss_by_hand(output: Tensor, patient: Patient) -> Tensor:
    target = patient.target
    if patient.model.__class__.__name__ == "GPT2LMHeadModel":
        return functional.cross_entropy(output[:, :-1].flatten(0, 1), target[:, 1:].flatten())
    return functional.cross_entropy(output, target)


@pytest.mark.parametrize("name", PATIENTS)
class TestOneLine:
    def test_measures_and_judges(self, name):
        """The loss, and gradients at taps and weights, by autograd and hooks alone."""
        patient = PATIENTS[name]()
        patient.model.eval()
        scope = cs.watch(patient.model)
        taken = scope.snapshot(patient.inputs, patient.target, tier="quick")
        assert list(scope.taps) == list(scope.records[0].facts.taps) == patient.taps
        states: dict[str, Tensor] = {}

        def keep(tap):
            def hook(module, args, output):
                h = output[0] if isinstance(output, tuple) else output
                h = h * 1.0  # a module after it may work in place
                states[tap] = h
                return (h, *output[1:]) if isinstance(output, tuple) else h

            return hook

        hands = [patient.model.get_submodule(tap).register_forward_hook(keep(tap)) for tap in patient.taps]
        loss = loss_by_hand(logits(call(patient)), patient)
        for hand in hands:
            hand.remove()
        assert taken.loss == pytest.approx(float(loss.detach()), rel=1e-5)
        weights = dict(patient.model.named_parameters())
        found = torch.autograd.grad(loss, [*states.values(), *weights.values()], allow_unused=True)
        rows = len(patient.target)
        for tap, g in enumerate(found[: len(states)]):
            norms = (g * rows).flatten(1).norm(dim=1)  # per row, of a mean over rows
            assert taken.taps.g_norm[tap] == pytest.approx(np.median(norms[norms > 0]), rel=1e-3), patient.taps[tap]
        known = dict(zip([w.name for w in scope.records[0].facts.weights], taken.weights.exact_norm, strict=True))
        for weight, g in zip(weights, found[len(states) :], strict=True):
            assert known[weight] == pytest.approx(0 if g is None else float(g.norm()), rel=1e-3, abs=1e-7), weight
        assert scope.audit().methods[0].verdict.word in (
            "healthy",
            "ill",
            "not trained yet",
            "not measured",
            "undecided",
        )

    def test_touches_nothing(self, name):
        patient = PATIENTS[name]()
        patient.model.train()
        loss_by_hand(logits(call(patient)), patient).backward()
        before = surroundings(patient.model)
        cs.watch(patient.model).snapshot(patient.inputs, patient.target)
        assert_untouched(patient.model, before)


class TestTaps:
    def test_are_listed_and_said(self):
        patient = PATIENTS["ResNet-18"]()
        scope = cs.watch(patient.model)
        assert "confirmed" in repr(scope)
        scope.snapshot(patient.inputs, patient.target, tier="quick")
        assert "8 × ResNetBasicLayer" in repr(scope)
        choices = cs.suggest_taps(patient.model, patient.inputs)
        assert list(choices[0].taps) == patient.taps
        assert len(choices) > 1

    def test_end_layers_of_a_plain_sequence_and_leave_the_output_out(self):
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 8), nn.ReLU())
        net.append(nn.Linear(8, 3))
        scope = cs.watch(net)
        scope.snapshot(torch.randn(10, 4), labels(10), tier="quick")
        assert scope.taps == ("2", "5")

    def test_that_run_twice_or_never_are_left_for_the_next_choice(self):
        class Shared(nn.Module):
            def __init__(self):
                super().__init__()
                self.act, self.first, self.second = nn.Tanh(), nn.Linear(4, 8), nn.Linear(8, 8)
                self.unused, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

            def forward(self, x):
                return self.head(self.act(self.second(self.act(self.first(x)))))

        scope = cs.watch(Shared())
        scope.snapshot(torch.randn(10, 4), labels(10), tier="quick")
        assert scope.taps == ("first", "second")

    def test_a_stem_goes_with_them(self):
        net = nn.Sequential(
            nn.Linear(4, 8), *[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2)], nn.Linear(8, 3)
        )
        scope = cs.watch(net, stem="0")
        scope.snapshot(torch.randn(10, 4), labels(10), tier="quick")
        assert scope.records[0].facts.taps == ("0", "1", "2")
        assert scope.records[0].facts.gamma_taps == (1, 2)

    def test_of_a_model_without_any_are_asked_for(self):
        with pytest.raises(CreditscopeError, match="taps="):
            cs.watch(nn.Linear(4, 3))
        with pytest.raises(CreditscopeError, match="taps="):
            cs.watch(nn.Sequential(nn.Linear(4, 3))).snapshot(torch.randn(5, 4), labels(5))

    def test_with_time_before_rows_are_said_even_if_both_are_as_many(self):
        """Eight rows of eight words: sizes alone do not tell them apart."""
        model, ids = Words(batch_first=False), labels(8, 8, classes=13)
        scope = cs.watch(model)
        taken = scope.snapshot(ids, labels(8), tier="quick")
        assert scope.taps == ("embed",)
        assert any("layers.0" in note and "batch_first" in note for note in taken.notes)
        with pytest.raises(CreditscopeError, match="batch_first"):
            cs.watch(model, taps="layers.*").snapshot(ids, labels(8), tier="quick")


class TestOutputs:
    @pytest.mark.parametrize(
        ("gives", "output"),
        [
            (lambda h: (torch.zeros(()), h), None),
            (lambda h: {"loss": h.sum(), "logits": h}, None),
            (lambda h: {"a": h, "b": -h}, "a"),
            (lambda h: (-h, h), 1),
            (lambda h: [-h, {"deep": h}], lambda given: given[1]["deep"]),
        ],
    )
    def test_are_found_or_picked(self, gives, output):
        class Gives(nn.Sequential):
            def forward(self, input):
                return gives(super().forward(input))

        layers = [nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)]
        x, y = torch.randn(10, 4), labels(10)
        plain = cs.watch(nn.Sequential(*layers), taps="1").snapshot(x, y)
        assert cs.watch(Gives(*layers), taps="1", output=output).snapshot(x, y).taps == plain.taps

    def test_that_are_not_there_are_said(self):
        net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
        with pytest.raises(CreditscopeError, match="nowhere"):
            cs.watch(net, output="nowhere").snapshot(torch.randn(5, 4), labels(5))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, h: Tensor) -> Tensor:
        return h + torch.relu(self.norm(self.linear(h)))


class Stream(nn.Module):
    """Blocks with batch norm; `reentrant` is the kind of checkpoint around each."""

    def __init__(self, reentrant: bool | None = None):
        super().__init__()
        self.stem, self.head, self.reentrant = nn.Linear(4, 8), nn.Linear(8, 3), reentrant
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h) if self.reentrant is None else checkpoint(block, h, use_reentrant=self.reentrant)
        return self.head(h)


@pytest.fixture
def stream():
    model = Stream()
    x, y = torch.randn(20, 4), labels(20)
    return model, x, y, cs.watch(model).snapshot(x, y)


class TestWrapped:
    @pytest.mark.parametrize("reentrant", [True, False])
    def test_checkpoints_keep_what_they_compute(self, stream, reentrant):
        model, x, y, plain = stream
        other = Stream(reentrant)
        other.load_state_dict(model.state_dict())
        before = surroundings(other)
        assert cs.watch(other).snapshot(x, y) == plain
        assert_untouched(other, before)
        other.zero_grad()
        functional.cross_entropy(other(x), y).backward()  # and are checkpoints again
        functional.cross_entropy(model(x), y).backward()
        for own, theirs in zip(other.parameters(), model.parameters(), strict=True):
            assert torch.equal(own.grad, theirs.grad)

    def test_gradient_checkpointing_of_transformers(self):
        patient = PATIENTS["GPT-2"]()
        plain = cs.watch(patient.model).snapshot(patient.inputs, patient.target, tier="quick")
        patient.model.gradient_checkpointing_enable({"use_reentrant": False})
        patient.model.train()
        assert cs.watch(patient.model).snapshot(patient.inputs, patient.target, tier="quick").taps == plain.taps

    def test_compiled_models_run_as_they_are_written(self, stream):
        model, x, y, plain = stream
        scope = cs.watch(torch.compile(model, backend="eager"))
        assert (scope.snapshot(x, y), scope.taps) == (plain, ("blocks.0", "blocks.1", "blocks.2"))
        for i, block in enumerate(model.blocks):
            model.blocks[i] = torch.compile(block, backend="eager")
        assert cs.watch(model).snapshot(x, y).taps == plain.taps

    def test_data_parallel_models_by_their_own_names(self, stream):
        model, x, y, plain = stream
        wrapped = nn.DataParallel(model)
        initial = copy.deepcopy(wrapped.state_dict())
        for taps in (None, "blocks.*", "module.blocks.*"):
            scope = cs.watch(wrapped, taps=taps, initial=initial)
            assert scope.snapshot(x, y).taps.g_norm == plain.taps.g_norm
            assert scope.taps == ("blocks.0", "blocks.1", "blocks.2")

    def test_distributed_models(self, stream, tmp_path):
        from torch import distributed

        model, x, y, plain = stream
        distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
        try:
            assert cs.watch(nn.parallel.DistributedDataParallel(model)).snapshot(x, y) == plain
        finally:
            distributed.destroy_process_group()


class TestQuiet:
    def test_hooks_of_the_user_are_silent_and_stay(self, stream):
        model, x, y, plain = stream
        called: list[str] = []

        def note(*_):
            called.append("called")

        hands = [model.register_forward_hook(note), model.head.register_forward_pre_hook(note)]
        hands += [model.blocks[0].register_forward_hook(note) for _ in range(2)]
        hands += [model.blocks[1].register_full_backward_hook(note), model.stem.weight.register_hook(note)]
        hands += [registry.register_module_forward_hook(note), registry.register_module_forward_pre_hook(note)]
        try:
            before = surroundings(model)
            assert cs.watch(model).snapshot(x, y) == plain
            assert called == []
            assert_untouched(model, before)
            functional.cross_entropy(model(x), y).backward()
            assert len(called) > 8
        finally:
            for hand in hands:
                hand.remove()

    def test_hooks_that_make_a_weight_are_part_of_the_model(self):
        """Weight norm of the old kind makes the weight in a hook: without it, its direction would get no gradient."""
        with pytest.warns(FutureWarning):
            layer = nn.utils.weight_norm(nn.Linear(4, 8))
        net = nn.Sequential(layer, nn.Tanh(), nn.Linear(8, 3))
        scope = cs.watch(net, taps="1")
        taken = scope.snapshot(torch.randn(10, 4), labels(10), tier="quick")
        known = dict(zip([w.name for w in scope.records[0].facts.weights], taken.weights.exact_norm, strict=True))
        assert known["0.weight_v"] > 0

    def test_streams_of_python_and_numpy_are_put_back(self):
        class Draws(nn.Sequential):
            def forward(self, input):
                return super().forward(input) * (1 + random.random() + np.random.rand())

        net = Draws(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        rows = torch.randn(10, 4), labels(10)
        before = surroundings(net)
        cs.watch(net, taps="1").snapshot(*rows)
        assert_untouched(net, before)


class TestOddModels:
    def test_tied_weights_are_one(self):
        patient = PATIENTS["GPT-2"]()
        scope = cs.watch(patient.model)
        scope.snapshot(patient.inputs, patient.target, tier="quick")
        names = [w.name for w in scope.records[0].facts.weights]
        assert "transformer.wte.weight" in names
        assert "lm_head.weight" not in names

    def test_a_frozen_backbone_and_a_head_in_another_format(self, stream):
        model, x, y, plain = stream
        for p in (*model.stem.parameters(), *model.blocks.parameters()):
            p.requires_grad_(False)

        class Wider(nn.Linear):
            def forward(self, input):
                return super().forward(input.double())

        head = Wider(8, 3)
        head.load_state_dict(model.head.state_dict())
        model.head = head.double()
        scope = cs.watch(model)
        taken = scope.snapshot(x, y, tier="quick")
        assert [w.name for w in scope.records[0].facts.weights] == ["head.weight", "head.bias"]
        np.testing.assert_allclose(taken.taps.g_norm, plain.taps.g_norm, rtol=1e-4)
        assert len(scope.records[0].facts.frozen_weights) == 14

    def test_a_module_that_begins_to_work_in_place_is_seen_and_the_state_kept(self):
        class Either(nn.Module):
            in_place = False

            def forward(self, h):
                return h.relu_() if self.in_place else h.relu()

        net = nn.Sequential(nn.Linear(4, 8), Either(), nn.Linear(8, 3))
        x, y = torch.randn(20, 4), labels(20)
        scope = cs.watch(net, taps="0")
        taken = [scope.snapshot(x, y, tier="quick") for _ in range(3)]
        net[1].in_place = True
        later = scope.snapshot(x, y, tier="quick")
        assert later.taps == taken[-1].taps

    def test_what_is_known_of_a_model_is_read_again_once_it_is_another(self):
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Linear(8, 3))
        scope = cs.watch(net, taps=["0", "2"])
        for training in (True, True, True, False, True):
            net.train(training)
            scope.snapshot(torch.randn(20, 4), labels(20), tier="quick")
            assert scope.records[0].facts.rows_interact == training

    def test_rows_that_come_to_interact_are_told_from_the_next_power_of_two_on(self):
        """Batch norm behind a scale of zero: at the start no row depends on another."""

        class Behind(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.scale = nn.BatchNorm1d(8), nn.Parameter(torch.zeros(()))

            def forward(self, h):
                return h + self.scale * self.norm(h)

        net = nn.Sequential(nn.Linear(4, 8), Behind(), nn.Linear(8, 3))
        scope, rows = cs.watch(net, taps=["0", "1"]), (torch.randn(20, 4), labels(20))
        seen = []
        for _ in range(6):
            scope.snapshot(*rows, tier="quick")
            seen.append(scope.records[0].facts.rows_interact)
            nn.init.ones_(net[1].scale)
        assert (seen[0], seen[-1]) == (False, True)


class Routed(nn.Module):
    """Experts that get rows by the sign of their first feature."""

    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(2))

    def forward(self, x):
        h, first = self.stem(x), x[:, 0] > 0
        out = torch.zeros_like(h)
        out[first], out[~first] = self.experts[0](h[first]), self.experts[1](h[~first])
        return self.head(h + out)


def test_a_module_that_sees_some_rows_alone_is_no_tap():
    """Although it gets every one of the few rows by which a model is looked at."""
    x, y = torch.randn(40, 4), torch.arange(40) % 3
    x[:, 0] = torch.where(torch.arange(40) < 30, 1.0, -1.0)
    scope = cs.watch(Routed())
    scope.snapshot(x, y, tier="quick")
    assert not any(name.startswith("experts") for name in scope.taps)
    named = cs.watch(Routed(), taps="experts.0")
    with pytest.raises(cs.CreditscopeError, match=r"'experts.0' to have the 40 rows"):
        named.snapshot(x, y, tier="quick")
