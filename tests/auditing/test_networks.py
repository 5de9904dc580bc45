"""Checks of a network on small nets of every kind: each names its fault, first and at its place, and spares others."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import creditscope as cs
from creditscope.auditing.checks import Moment

ROWS, INPUTS, WIDTH, CLASSES = 192, 16, 32, 4
Model = Callable[[], nn.Module]


def data() -> tuple[Tensor, Tensor]:
    drawn = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, INPUTS, generator=drawn)
    return x, (x @ torch.randn(INPUTS, CLASSES, generator=drawn)).argmax(1)


class Residual(nn.Module):
    """h + scale · ReLU(W h), with something done to the skip, or to the branch."""

    def __init__(self, *, skip=lambda h: h, branch=lambda f: f, scale: float = 1.0):
        super().__init__()
        self.linear, self.skip, self.branch = nn.Linear(WIDTH, WIDTH), skip, branch
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, h: Tensor) -> Tensor:
        return self.skip(h) + self.scale * self.branch(functional.relu(self.linear(h)))


class Attention(nn.Module):
    """A pre-norm block of attention and an MLP over tokens, with or without its skips."""

    def __init__(self, *, skip: bool = True):
        super().__init__()
        self.attend = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.first, self.second, self.skip = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), float(skip)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, h: Tensor) -> Tensor:
        z = self.first(h)
        h = self.skip * h + self.attend(z, z, z)[0]
        return self.skip * h + self.mlp(self.second(h))


class Tokens(nn.Module):
    """Inputs as tokens, blocks, a mean over tokens, a head."""

    def __init__(self, *blocks: nn.Module, zero_head: bool = False):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Linear(1, WIDTH), nn.ModuleList(blocks), nn.Linear(WIDTH, CLASSES)
        self.places = nn.Parameter(0.5 * torch.randn(INPUTS, WIDTH))
        if zero_head:
            nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.unsqueeze(-1)) + self.places
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean(1))


def plain(depth: int = 4, act: Any = nn.ReLU, *, classes: int = CLASSES, end: tuple[nn.Module, ...] = ()) -> nn.Module:
    blocks = [nn.Sequential(nn.Linear(WIDTH, WIDTH), act()) for _ in range(depth)]
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), *blocks, nn.Linear(WIDTH, classes), *end)


def residual(third: Model = Residual, others: Model = Residual) -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, WIDTH), others(), others(), third(), others(), nn.Linear(WIDTH, CLASSES))


def scaled(model: nn.Module, factor: float, name: str = "") -> nn.Module:
    with torch.no_grad():
        for own, p in model.named_parameters():
            if p.ndim > 1 and own.startswith(name):
                p.mul_(factor)
    return model


def killed(units: int = 29) -> nn.Module:
    model = plain()
    with torch.no_grad():
        model[2][0].bias[:units] = -50.0
    return model


def adam(model: nn.Module, lr: float = 2e-3, without: str = "-", **options: Any) -> torch.optim.Optimizer:
    held = [p for name, p in model.named_parameters() if p.requires_grad and not name.startswith(without)]
    return torch.optim.Adam(held, lr, **options)


def examine(
    make: Model,
    optimiser: Any = adam,
    *,
    steps: int = 20,
    target: Any = lambda y: y,
    taps: Any = None,
    loss: Any = None,
):
    """A scope of three snapshots, the first before training."""
    torch.manual_seed(0)
    model, (x, y) = make(), data()
    y, blocks = target(y), [str(i) for i in range(1, 5)]
    scope = cs.watch(model, taps=taps or (["blocks.*"] if isinstance(model, Tokens) else blocks), loss=loss)
    chosen = optimiser(model)
    for epoch in range(3):
        if epoch:
            for _ in range(steps):
                chosen.zero_grad()
                lost = functional.cross_entropy(model(x), y) if loss is None else loss(model(x), y).mean()
                lost.backward()
                chosen.step()
        scope.snapshot(x, y, epoch=epoch, tier="quick")
    return scope


def first(scope) -> tuple[str, str]:
    """The first thing to do, and where."""
    (method,) = scope.audit().methods
    found = {f.code: f for f in method.findings}
    return (method.verdict.codes[0], found[method.verdict.codes[0]].where) if method.verdict.codes else ("", "")


def nll(output: Tensor, target: Tensor) -> Tensor:
    return functional.nll_loss(output, target, reduction="none")


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().mean(1)


def binary(output: Tensor, target: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(output, target, reduction="none").mean(1)


def sgd(model: nn.Module, lr: float = 0.05, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr, **options)


FAULTS: dict[str, tuple[Any, str, str]] = {
    "softmax before cross-entropy": (partial(examine, partial(plain, end=(nn.Softmax(-1),))), "CS101", "6"),
    "sigmoid before cross-entropy": (partial(examine, partial(plain, end=(nn.Sigmoid(),))), "CS101", "6"),
    "logits for a likelihood": (partial(examine, plain, loss=nll), "CS101", "5"),
    "too many classes": (partial(examine, partial(plain, classes=60)), "CS101", "5"),
    "one target": (partial(examine, plain, target=torch.zeros_like), "CS101", "5"),
    "sigmoid twice": (
        partial(
            examine,
            partial(plain, classes=1, end=(nn.Sigmoid(),)),
            target=lambda y: (y > 1).float()[:, None],
            loss=binary,
        ),
        "CS101",
        "6",
    ),
    "logarithm of what is negative": (
        partial(examine, partial(residual, partial(Residual, branch=lambda f: torch.log(f - 1)))),
        "CS102",
        "3",
    ),
    "detached block": (partial(examine, partial(residual, lambda: nn.Sequential(Cut(), Residual()))), "CS103", "3.0"),
    "detached skip": (partial(examine, partial(residual, partial(Residual, skip=Tensor.detach))), "CS103", "3"),
    "detached branch": (partial(examine, partial(residual, partial(Residual, branch=Tensor.detach))), "CS103", "3"),
    "rounded": (partial(examine, lambda: nn.Sequential(*plain()[:3], Round(), *plain()[3:])), "CS103", "2.0"),
    "weights too large": (partial(examine, lambda: scaled(plain(), 9.0)), "CS104", "0"),
    "head too large": (partial(examine, lambda: scaled(residual(), 300.0, "5"), steps=1), "CS104", "5"),
    "deep sigmoid": (
        partial(examine, partial(plain, 14, nn.Sigmoid), taps=[f"{i}" for i in range(1, 15)]),
        "CS105",
        "13.0",
    ),
    "dead units": (partial(examine, killed), "CS106", "2.0"),
    "saturated tanh": (
        partial(examine, lambda: scaled(plain(act=nn.Tanh), 40.0, "2"), partial(sgd, lr=1e-3)),
        "CS107",
        "2.0",
    ),
    "attention without skips": (
        partial(examine, lambda: Tokens(*(Attention(skip=False) for _ in range(6)))),
        "CS108",
        "blocks.3.attend",
    ),
    "units all alike": (partial(examine, lambda: constant(plain(), "3", "4")), "CS108", "3.0"),
    "a layer not in the optimiser": (partial(examine, plain, partial(adam, without="2.")), "CS109", "2.0"),
    "another model's optimiser": (partial(examine, plain, lambda model: adam(plain())), "CS109", ""),
    "decay": (partial(examine, plain, partial(sgd, lr=0.1, weight_decay=2.0), steps=60), "CS109", "0"),
    "learning rate too low": (partial(examine, residual, partial(sgd, lr=1e-8)), "CS110", ""),
    "learning rate too high": (partial(examine, plain, partial(adam, lr=2.0)), "CS110", ""),
    "diverged": (partial(examine, residual, partial(sgd, lr=200.0)), "CS110", "0"),
}


class Cut(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h.detach()


class Round(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return (10 * h).round()


def constant(model: nn.Module, *names: str) -> nn.Module:
    with torch.no_grad():
        for own, p in model.named_parameters():
            if own.startswith(names):
                p.fill_(0.1)
    return model


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_first_and_at_its_place(fault):
    make, code, where = FAULTS[fault]
    assert first(make()) == (code, where)


def frozen() -> nn.Module:
    model = residual()
    for p in [*model[0].parameters(), *model[1].parameters()]:
        p.requires_grad_(False)
    return model


def two_heads() -> nn.Module:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.other = residual(), nn.Linear(INPUTS, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.other(x)
            return self.body(x)

    return Two()


def tied() -> nn.Module:
    model = plain()
    model[3][0].weight = model[2][0].weight
    return model


HEALTHY: dict[str, Any] = {
    "plain": partial(examine, plain),
    "tanh": partial(examine, partial(plain, act=nn.Tanh)),
    "GELU": partial(examine, partial(plain, act=nn.GELU)),
    "residual": partial(examine, residual),
    "tokens": partial(examine, lambda: Tokens(*(Attention() for _ in range(3)))),
    "a head that starts at zero": partial(examine, lambda: Tokens(*(Attention() for _ in range(3)), zero_head=True)),
    "scales that start at zero": partial(examine, partial(residual, *[partial(Residual, scale=0.0)] * 2)),
    "a few dead units": partial(examine, partial(killed, 10)),
    "log-softmax before cross-entropy": partial(examine, partial(plain, end=(nn.LogSoftmax(-1),))),
    "log-probabilities for a likelihood": partial(examine, partial(plain, end=(nn.LogSoftmax(-1),)), loss=nll),
    "frozen": partial(examine, frozen),
    "tied": partial(examine, tied),
    "two heads": partial(examine, two_heads, taps=["body.1", "body.2", "body.3"]),
    "dropout": partial(
        examine, lambda: nn.Sequential(*plain()[:3], nn.Dropout(0.5), *plain()[3:]), taps=["1", "2", "4"]
    ),
    "batch norm": partial(
        examine, lambda: plain(act=lambda: nn.Sequential(nn.BatchNorm1d(WIDTH), nn.ReLU())), partial(sgd, lr=0.05)
    ),
    "squares": partial(examine, partial(plain, classes=1), target=lambda y: y.float()[:, None], loss=squared),
    "squares of a sigmoid": partial(
        examine,
        partial(plain, classes=1, end=(nn.Sigmoid(),)),
        target=lambda y: (y > 1).float()[:, None],
        loss=squared,
    ),
    "one class is rare": partial(
        examine, partial(plain, classes=2), target=lambda y: (torch.arange(len(y)) % 64 == 0).long()
    ),
    "fitted": partial(examine, residual, partial(adam, lr=1e-2), steps=150),
    "fine tuning": partial(examine, residual, partial(adam, lr=2e-5)),
    "straight through": partial(
        examine, partial(residual, partial(Residual, branch=lambda f: f + (f.round() - f).detach()))
    ),
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_fires_on_a_healthy_net_at_the_start_or_later(name):
    scope = HEALTHY[name]()
    assert first(scope) == ("", ""), [f.message for f in scope.audit().methods[0].findings if f.is_issue]
    assert scope.audit().methods[0].verdict.word == "healthy"
    later, scope.snapshots = scope.snapshots, scope.snapshots[:1]
    assert scope.audit().methods[0].verdict.word == "not trained yet"
    scope.snapshots = later


@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_rescaling_a_stream_without_changing_the_function_changes_no_relative_gradient(factor):
    """Each ReLU layer times c, the next one over c: the function stays, ‖∇W‖ moves by c, ‖∇W‖·‖W‖ does not."""
    torch.manual_seed(0)
    model, found = plain(6, act=nn.ReLU), []
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.zero_()
    for _ in range(2):
        scope = cs.watch(model, taps=[str(i) for i in range(1, 7)])
        scope.snapshot(*data(), epoch=0, tier="quick")
        found.append([row.gradient for row in scope.audit().methods[0].modules])
        with torch.no_grad():
            for stage, power in ((0, 1), (3, 1), (5, -1), (7, -1)):
                layer = model[stage] if stage in (0, 7) else model[stage][0]
                layer.weight.mul_(factor**power)
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_causes_stand_before_what_follows_from_them():
    scope = FAULTS["weights too large"][0]()
    findings = [f for f in scope.audit().methods[0].findings if f.is_issue]
    assert list(scope.audit().methods[0].verdict.codes) == [f.code for f in sorted(findings, key=lambda f: f.rank)]
    (cut,) = FAULTS["detached block"][0]().audit().methods
    assert "CS105" not in cut.verdict.codes  # what is cut does not vanish


def test_what_came_before_a_step_is_not_what_came_after_it():
    scope = cs.watch(
        nn.Sequential(nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 3)), taps="1"
    )
    for step in (0, 5, 9):
        scope.snapshot(torch.randn(20, 4), torch.arange(20) % 3, step=step, tier="quick")
    (record,) = scope.records
    assert [s.step for s in Moment.of(record, record.snapshots[1]).history] == [0, 5]


def train_blocks(parameters: Callable, *, sign: float = 1.0, lr: float = 1e-2) -> cs.Audit:
    """A net of four blocks whose optimiser holds what it is given, at five moments of training."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(nn.Linear(20, 32), *blocks, nn.Linear(32, 3))
    x = torch.randn(200, 20)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    scope, optimiser = cs.watch(model), torch.optim.SGD(parameters(model), lr=lr)
    scope.snapshot(x, y, step=0, tier="quick")
    for step in range(1, 81):
        optimiser.zero_grad()
        (sign * functional.cross_entropy(model(x), y)).backward()
        optimiser.step()
        if step % 20 == 0:
            scope.snapshot(x, y, step=step, tier="quick")
    return scope.audit()


def test_an_optimiser_that_holds_the_head_alone_is_named():
    """Most weights stand still, so their median update is zero: that of the one that moves decides."""
    (judged,) = train_blocks(lambda model: model[-1].parameters(), lr=0.1).methods
    assert (judged.verdict.word, judged.verdict.codes[0]) == ("ill", "CS109")
    assert {f.code: f.where for f in judged.findings}["CS109"] == "0"


def test_a_loss_of_the_wrong_sign_is_named():
    (judged,) = train_blocks(lambda model: model.parameters(), sign=-1.0, lr=0.03).methods
    assert (judged.verdict.word, judged.verdict.codes[0]) == ("ill", "CS110")


def test_what_cannot_be_watched_is_refused_in_words():
    with pytest.raises(cs.CreditscopeError, match="a model"):
        cs.watch(lambda x: x)
    frozen = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False)
    with pytest.raises(cs.CreditscopeError, match="requires_grad_"):
        cs.watch(frozen, taps="1").snapshot(torch.randn(4, 4), torch.arange(4) % 3)
