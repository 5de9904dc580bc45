"""What a training step of each rule costs against the same rule written by hand in plain PyTorch, on one thread.

One seed of ResMLP in either, the same passes, small nets and sizes of noise, AdamW (foreach) for all; the plain steps
draw by `torch.randn` what ours hash from counters. Every plain step is first held to ours: from the same weights and
feedback, and on the same noise, two steps give the same gradients. `again` is the plain step against itself.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from cases import BATCH, MIDDLE, Case
from common import Spread, Table, Work, arguments, interleaved, over
from torch import Tensor, nn
from torch.func import jvp
from torch.nn import functional
from torch.utils._pytree import tree_flatten, tree_map

from creditscope.nets.resmlp import ResMLP
from creditscope.rules._pass import forward_mode, gaussian_probe
from creditscope.stack import as_arguments
from creditscope.train.data import RowData
from creditscope.train.run import Run

WIDE = replace(MIDDLE, name="ResMLP d = 512, L = 4, mnist1d's size", options={"depth": 4, "width": 512})
ROUNDS_OF_A_BUILD = 6
RATE, MEAN_RATE, OFF = 1e-3, 0.05, 5e-4
Draw = Callable[..., Tensor]


class Feedback(torch.autograd.Function):
    """A linear map whose backward goes through another matrix."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, matrix: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight, matrix)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> tuple[Tensor | None, ...]:
        x, weight, matrix = ctx.saved_tensors
        (delta,) = grad_outputs
        down = None
        if ctx.needs_input_grad[0]:
            down = delta @ (weight.abs().mean() * weight.sign() if matrix is None else matrix)
        return down, delta.T @ x, delta.sum(0), None


class FeedbackLinear(nn.Linear):
    """Its layer; without a matrix by the signs of its weight."""

    matrix: Tensor | None

    def forward(self, input: Tensor) -> Tensor:
        return Feedback.apply(input, self.weight, self.bias, self.matrix)  # pyright: ignore[reportReturnType]


@dataclass
class Plain:
    """All that a plain step needs."""

    net: ResMLP
    x: Tensor
    y: Tensor
    own: Any
    """The rule's tensors."""
    draw: Draw
    """From a shape and a place to Gaussian numbers."""
    optimiser: torch.optim.Optimizer
    adam: torch.optim.Optimizer | None = None
    """Of the rule's own nets."""

    def step(self, credit: Callable[["Plain"], None]) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        credit(self)
        self.optimiser.step()

    def cut(self, x: Tensor, at: list[Tensor] | None = None) -> tuple[list[Tensor], Tensor, Tensor]:
        """States of which each has a graph down to the one before it, a copy of the last, and the logits."""
        states = [self.net.stem(x)]
        for i, block in enumerate(self.net.blocks):
            states.append(block(states[-1].detach() if at is None else at[i]))
        top = (states[-1] if at is None else at[-1]).detach().requires_grad_()
        return states, top, self.net.head(self.net.norm(top))

    def error(self, output: Tensor) -> Tensor:
        return output.detach().softmax(-1) - self.one_hot()

    def one_hot(self) -> Tensor:
        return functional.one_hot(self.y, self.net.head.out_features).float()

    def learn(self, states: list[Tensor], credits: list[Tensor]) -> None:
        torch.autograd.backward(states, [a / len(self.y) for a in credits])

    def top_gradient(self, top: Tensor, output: Tensor) -> Tensor:
        """g_L, and the gradients of the head."""
        functional.cross_entropy(output, self.y).backward()
        assert top.grad is not None
        return top.grad * len(self.y)

    def move(self, loss: Tensor) -> None:
        """The rule's own nets down a loss."""
        assert self.adam is not None
        own = self.adam.param_groups[0]["params"]
        for w, g in zip(own, torch.autograd.grad(loss, own), strict=True):
            w.grad = g
        self.adam.step()


def backprop(p: Plain) -> None:
    functional.cross_entropy(p.net(p.x), p.y).backward()


def kp(p: Plain) -> None:
    backprop(p)
    for layer in layers(p.net):
        assert layer.matrix is not None
        layer.matrix.grad = layer.weight.grad


def wm(p: Plain) -> None:
    with torch.no_grad():
        for i, layer in enumerate(layers(p.net)):
            assert layer.matrix is not None
            noise = p.draw((BATCH, layer.in_features), i)
            layer.matrix.mul_(1 - MEAN_RATE).add_(
                functional.linear(noise, layer.weight).T @ noise, alpha=MEAN_RATE / BATCH
            )
    backprop(p)


def dfa(p: Plain, *, targets: bool = False) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    error = -p.one_hot() if targets else p.error(output)
    p.learn(states, [error @ B.T for B in p.own])


def dkp(p: Plain) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    error = p.error(output)
    for B, h in zip(p.own["B"], states, strict=True):
        B.grad = h.detach().T @ error / len(error)
    assert p.adam is not None
    p.adam.step()
    with torch.no_grad():
        credits = [error @ B.T for B in p.own["B"]]
    p.learn(states, credits)


def pushed(p: Plain, states: list[Tensor], probes: list[Tensor]) -> list[Tensor]:
    """The derivative of the logits along each probe, tap by tap through what lies above it."""

    def above(tap: int, h: Tensor) -> Tensor:
        for block in p.net.blocks[tap:]:
            h = block(h)
        return p.net.head(p.net.norm(h))

    pairs = enumerate(zip(states, probes, strict=True))
    with torch.no_grad(), forward_mode():
        return [jvp(partial(above, tap), (h.detach(),), (probe,))[1] for tap, (h, probe) in pairs]


def fdfa(p: Plain) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    error, matrices = p.error(output), p.own[:-1]
    probes = [p.draw(h.shape, i) for i, h in enumerate(states)]
    for B, probe, along in zip(matrices, probes, pushed(p, states, probes), strict=True):
        B.mul_(1 - MEAN_RATE).add_(probe.T @ along, alpha=MEAN_RATE / len(probe))
    p.learn(states, [error @ B.T for B in matrices])


def forward_gradient(p: Plain) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    error = p.error(output)
    probes = [p.draw(h.shape, i) for i, h in enumerate(states)]
    pairs = zip(pushed(p, states, probes), probes, strict=True)
    p.learn(states, [(along * error).sum(1, keepdim=True) * probe for along, probe in pairs])


def ldrl(p: Plain) -> None:
    states, top, output = p.cut(p.x)
    credits = [p.top_gradient(top, output)]
    with torch.no_grad(), forward_mode():
        for i, (block, h, B) in enumerate(zip(p.net.blocks, states, p.own["B"], strict=False)):
            noise = p.draw(h.shape, i)
            along = jvp(block, (h.detach(),), (noise,))[1]
            B.mul_(1 - MEAN_RATE).add_(noise.T @ along, alpha=MEAN_RATE / len(noise))
    for B in reversed(p.own["B"]):
        credits.append(credits[-1] @ B.T)
    p.learn(states, credits[::-1])


def mlp(weights: list[Tensor], x: Tensor) -> Tensor:
    for i in range(0, len(weights), 2):
        x = functional.linear(functional.gelu(x) if i else x, weights[i], weights[i + 1])
    return x


def dtp(p: Plain) -> None:
    states, top, output = p.cut(p.x)
    g, nets = p.top_gradient(top, output), p.own["G"]
    seen = [h.detach() for h in states]
    with torch.no_grad():
        moved = [h + 0.1 * h.square().mean().sqrt() * p.draw(h.shape, i) for i, h in enumerate(seen[:-1])]
        above = [block(h) for block, h in zip(p.net.blocks, moved, strict=True)]
    trios = zip(nets, moved, above, strict=True)
    p.move(torch.stack([(y + mlp(G, y) - h).square().sum() / len(h) for G, h, y in trios]).sum())
    with torch.no_grad():
        beta = 0.1 * seen[-1].norm(dim=1, keepdim=True) / g.norm(dim=1, keepdim=True)
        credits, target = [g], seen[-1] - beta * g
        for G, (below, up) in zip(reversed(nets), reversed(list(pairwise(seen))), strict=True):
            change = (target + mlp(G, target)) - (up + mlp(G, up))
            credits.append(-change / beta)
            target = below + change
    p.learn(states, credits[::-1])


def dni(p: Plain) -> None:
    states, top, output = p.cut(p.x)
    g, nets, label = p.top_gradient(top, output), p.own["M"], p.one_hot()
    seen = [torch.cat([h.detach(), label], 1) for h in states[:-1]]

    def told() -> list[Tensor]:
        with torch.no_grad():
            return [*(mlp(M, x) for M, x in zip(nets, seen, strict=True)), g]

    inputs = [h.detach().requires_grad_() for h in states[:-1]]
    outputs = [block(h) for block, h in zip(p.net.blocks, inputs, strict=True)]
    wanted = torch.autograd.grad(outputs, inputs, told()[1:])
    trios = zip(nets, seen, wanted, strict=True)
    p.move(torch.stack([(mlp(M, x) - w).square().sum() / len(x) for M, x, w in trios]).sum())
    p.learn(states, told())


def local(p: Plain) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    heads = list(zip(p.own["heads"]["A"], p.own["heads"]["b"], strict=True))
    inputs = [h.detach().requires_grad_() for h in states]

    def losses() -> Tensor:
        pairs = zip(inputs, heads, strict=True)
        return torch.stack([functional.cross_entropy(functional.linear(h, *head), p.y) for h, head in pairs]).sum()

    p.move(losses())
    found = torch.autograd.grad(losses(), inputs)
    torch.autograd.backward(states, found)


def settle(p: Plain, states: list[Tensor], beta: float) -> list[Tensor]:
    errors = [torch.zeros_like(h) for h in states]
    for _ in range(8):
        leaves = [e.requires_grad_() for e in errors]
        h = p.net.stem(p.x) + leaves[0]
        for block, e in zip(p.net.blocks, leaves[1:], strict=True):
            h = block(h) + e
        loss = beta * functional.cross_entropy(p.net.head(p.net.norm(h)), p.y, reduction="sum")
        slopes = torch.autograd.grad(loss, leaves)
        errors = [e.detach() - 0.3 * (e.detach() + g) for e, g in zip(leaves, slopes, strict=True)]
    return errors


def pc(p: Plain) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    p.learn(states, [-e for e in settle(p, states, 1.0)])


def ep(p: Plain) -> None:
    states, _, output = p.cut(p.x)
    functional.cross_entropy(output, p.y).backward()
    towards, away = (settle(p, states, beta) for beta in (0.01, -0.01))
    p.learn(states, [(b - a) / 0.02 for a, b in zip(towards, away, strict=True)])


def pepita(p: Plain) -> None:
    with torch.no_grad():
        first, _, output = p.cut(p.x)
        moved = p.x + p.error(output) @ p.own[0].T
        second, _, _ = p.cut(moved)
    states, _, output = p.cut(moved, second)
    functional.cross_entropy(output, p.y).backward()
    p.learn(states, [a - b for a, b in zip(first, second, strict=True)])


def placed(h: Tensor, depth: float, error: Tensor) -> Tensor:
    return torch.cat([h, h.new_full((len(h), 1), depth), error], 1)


def state_bridge(p: Plain) -> None:
    states, top, output = p.cut(p.x)
    g, G, error = p.top_gradient(top, output), p.own["G"], p.error(output)
    goal, last = states[-1].detach(), len(states) - 1
    inputs = [h.detach().requires_grad_() for h in states[:-1]]

    def bridged(i: int, h: Tensor) -> Tensor:
        return h + mlp(G, placed(h, i / last, error))

    off = [(bridged(i, h.detach()) - goal).square().sum() for i, h in enumerate(inputs)]
    p.move(torch.stack(off).mean() / goal.square().sum())
    credits = []
    for i, h in enumerate(inputs):
        logits = p.net.head(p.net.norm(bridged(i, h)))
        credits += torch.autograd.grad(functional.cross_entropy(logits, p.y, reduction="sum"), h)
    p.learn(states, [*credits, g])


def credit_bridge(p: Plain) -> None:
    states, top, output = p.cut(p.x)
    g, V, mean, error = p.top_gradient(top, output), p.own["V"], p.own["mean"], p.error(output)
    last = len(states) - 1
    inputs = [h.detach().requires_grad_() for h in states]

    def value(net: list[Tensor], i: int, h: Tensor) -> Tensor:
        return mlp(net, placed(h, i / last, error)).squeeze(1)

    with torch.no_grad():
        above = [value(mean, i, h) for i, h in enumerate(inputs) if i]
    (slope,) = torch.autograd.grad(value(V, last, inputs[-1]).sum(), inputs[-1], create_graph=True)
    ends = (slope - g).square().sum() / g.square().sum()
    along = [value(V, i, h.detach()) - up for i, (h, up) in enumerate(zip(inputs, above, strict=False))]
    p.move(ends + 0.1 * torch.stack(along).square().mean())
    with torch.no_grad():
        for m, w in zip(mean, V, strict=True):
            m.lerp_(w, 0.005)
    credits = [torch.autograd.grad(value(V, i, h).sum(), h)[0] for i, h in enumerate(inputs[:-1])]
    p.learn(states, [*credits, g])


CREDITS: dict[str, Callable[[Plain], None]] = {
    "bp": backprop, "fa": backprop, "sign_fa": backprop, "kp": kp, "wm": wm, "dfa": dfa,
    "drtp": partial(dfa, targets=True), "dkp": dkp, "fdfa": fdfa, "forward_gradient": forward_gradient, "ldrl": ldrl,
    "dtp": dtp, "dni": dni, "local": local, "pc": pc, "ep": ep, "pepita": pepita, "state_bridge": state_bridge,
    "credit_bridge": credit_bridge,
}  # fmt: skip
NETS_OF = {"dkp": "B", "dtp": "G", "dni": "M", "local": "heads", "state_bridge": "G", "credit_bridge": "V"}
"""What Adam moves, of the rule's own tensors."""


def layers(net: nn.Module) -> list[FeedbackLinear]:
    return [m for m in net.modules() if isinstance(m, FeedbackLinear)]


def write_plain(run: Run, rule: str, draw: Draw) -> Plain:
    """The plain step at the weights and feedback that a run has now."""
    assert isinstance(run.data, RowData)
    batch = run.data.train_batch(torch.arange(BATCH))
    (x,) = as_arguments(batch.inputs)
    net = ResMLP(tuple(x.shape[1:]), run.task.classes, **dict[str, Any](run.spec.net_options))
    tensors = {name: t.detach().clone() for name, t in run.net.state_dict().items()}  # pyright: ignore
    net.load_state_dict({name: tensors[name] for name in net.state_dict()})
    for name, layer in list(net.named_modules()):
        if f"{name}.feedback" in tensors and isinstance(layer, nn.Linear):
            layer.__class__ = FeedbackLinear
            layer.matrix = None if rule == "sign_fa" else tensors[f"{name}.feedback"]  # pyright: ignore
    groups = [{"params": list(net.parameters()), "weight_decay": run.spec.weight_decay}]
    if rule == "kp":
        with_own = [t for layer in layers(net) for t in (layer.weight, layer.matrix) if t is not None]
        known = {id(t) for t in with_own}
        others = [t for t in net.parameters() if id(t) not in known]
        groups = [{"params": with_own, "weight_decay": 1.0}, {**groups[0], "params": others}]
    own, adam = tree_map(torch.clone, deepcopy(run.application.applied.feedback)), None
    if rule in NETS_OF:
        moved = [t.requires_grad_() for t in tree_flatten(own[NETS_OF[rule]])[0]]
        rate, decay = (1e-4, 1e-6) if rule == "dkp" else (RATE, 0.0)
        adam = torch.optim.AdamW(moved, lr=rate, weight_decay=decay, foreach=True)
    optimiser = torch.optim.AdamW(groups, lr=run.spec.lr, foreach=True)
    return Plain(net, x, batch.target, own, draw, optimiser, adam)


def random(shape: tuple[int, ...], place: int) -> Tensor:
    return torch.randn(shape)


def same_noise(run: Run) -> Draw:
    """What the run itself draws at its next step: by the layer's counter or the rule's own."""
    applied = run.application.applied
    counters = [b.clone() for name, b in run.net.named_buffers() if name.endswith("counter")]
    own = [t.clone() for t in tree_flatten(applied.feedback)[0] if t.dtype == torch.int64]
    if run.spec.rule == "forward_gradient":  # whose counter is ahead when it draws
        own = [own[0] + torch.arange(2)]

    def draw(shape: tuple[int, ...], place: int) -> Tensor:
        counter, place = (own[0], place) if own else (counters[place], 0)
        return gaussian_probe(counter, shape, torch.float32, place)

    return draw


def our_step(run: Run) -> Work:
    assert isinstance(run.data, RowData)
    batch = run.data.train_batch(torch.arange(BATCH))
    return lambda: run.train_step(batch)


def furthest(case: Case, rule: str) -> float:
    """How far gradients of the plain step are from ours, relative to their norms, in two steps."""
    (run,) = case.runs(1, "cpu", rule)
    plain, step, off = write_plain(run, rule, random), our_step(run), 0.0
    for _ in range(2):
        plain.draw = same_noise(run)
        plain.step(CREDITS[rule])
        step()
        ours = {name: p.grad for name, p in run.net.named_parameters()}
        for name, p in plain.net.named_parameters():
            wanted = ours[name]
            assert p.grad is not None
            assert wanted is not None
            size = max(float(wanted.norm()), 1e-12)
            off = max(off, float((p.grad - wanted).norm()) / size)
    assert off < OFF, f"The plain step of {rule} is another rule: gradients are off by {off:.1e}."
    return off


def compare(case: Case, rule: str, rounds: int) -> dict[str, Spread]:
    task, times = case.task(), {"ours": [], "plain": [], "again": []}
    for _ in range(0, rounds, ROUNDS_OF_A_BUILD):
        (run,) = case.runs(1, "cpu", rule, task)
        works = {"ours": our_step(run)}
        for name in ("plain", "again"):
            works[name] = partial(write_plain(run, rule, random).step, CREDITS[rule])
        for name, seconds in interleaved(works, ROUNDS_OF_A_BUILD, "cpu").items():
            times[name] += seconds
    plain = Spread.of([1e3 * t for t in times["plain"]])
    return {"plain_ms": plain, "ratio": over(times, "ours", "plain"), "again": over(times, "again", "plain")}


def main() -> None:
    given = arguments(__doc__, rounds=30, only="")
    rules = given.only.split("+") if given.only else list(CREDITS)
    table = Table(f"A step of one seed over the same step by hand, batch {BATCH}, {given.rounds} rounds", "cpu")
    for case in (MIDDLE, WIDE):
        for rule in rules:
            off = furthest(case, rule)
            found = compare(case, rule, given.rounds)
            table.add(width=case.options["width"], rule=rule.ljust(18), **found, off=f"{off:.0e}")
    table.save(given.json)


if __name__ == "__main__":
    main()
