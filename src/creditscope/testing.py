"""A test kit for rules: `assert_rule` checks a rule of your own as the built-in ones are checked."""

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from creditscope.errors import CreditscopeError
from creditscope.graph import Adjacency
from creditscope.losses import errors_function
from creditscope.measure.observation import Observation, observe
from creditscope.nets.gcn import GCN
from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import ViT
from creditscope.rng import generator, global_stream
from creditscope.rules import Application, AppliedRule, Rule, TapRule, apply_rule, make_rule
from creditscope.stack import StackedNet, pattern_of
from creditscope.taps import resolve_taps, watch_forward

ROWS, CLASSES, DEPTH, WIDTH = 16, 5, 3, 12
STEPS, RATE, SEEDS = 2, 0.05, 2
IN_FEEDBACK = "All that is drawn or learned belongs in the feedback, nothing in the rule itself."
Named = str | type[Rule] | Rule


class ConvBlock(nn.Module):
    """h + W2 ⋆ GELU(W1 ⋆ h)."""

    def __init__(self, width: int):
        super().__init__()
        self.w1, self.w2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.act = nn.GELU()

    def forward(self, h: Tensor) -> Tensor:
        return h + self.w2(self.act(self.w1(h)))


class ConvNet(nn.Module):
    """States are images of one size; the head reads their mean over places."""

    stem_tap, block_taps = "stem", "blocks.*"

    def __init__(self, input_shape: tuple[int, ...], classes: int, *, depth: int, width: int):
        super().__init__()
        self.stem = nn.Conv2d(input_shape[0], width, 3, padding=1)
        self.blocks = nn.ModuleList(ConvBlock(width) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(x)
        for block in self.blocks:
            h = block(h)
        return self.head(h.mean((2, 3)))


@dataclass(frozen=True)
class Case:
    """A net that rules are tried on, with the shape of a row of its inputs, and what its states are called."""

    net: Any
    shape: tuple[int, ...]
    states: str
    dtype: torch.dtype = torch.float32

    def data(self) -> tuple[Any, Tensor]:
        """Rows and labels; of a graph a ring of nodes with their Â."""
        stream = generator(0, "testing")
        x = torch.randn(ROWS, *self.shape, generator=stream).to(self.dtype)
        y = torch.randint(CLASSES, (ROWS,), generator=stream)
        if self.net is not GCN:
            return x, y
        from scipy.sparse import csr_array

        ring = np.roll(np.eye(ROWS), 1, axis=1)
        return (x, Adjacency.normalised(csr_array(ring + ring.T), "symmetric", self.dtype)), y

    def apply(self, rule: Named, *, train_last: int = -1, seed: int = 0) -> Application:
        """The rule, made anew, at work on a net of that seed; its feedback has the same."""
        with global_stream(seed, "init"):
            net = self.net(self.shape, CLASSES, depth=DEPTH, width=WIDTH)
            for name, p in net.named_parameters():
                if name.endswith("w2.weight"):  # away from the near-identity start, so that the blocks matter
                    nn.init.normal_(p, std=0.7 / math.sqrt(p[0].numel()))
        net = net.to(self.dtype)
        taps = resolve_taps(net, [*([net.stem_tap] if net.stem_tap else []), net.block_taps])
        own = copy.deepcopy(make_rule(rule))
        return apply_rule(own, net, taps, self.data()[0], generator(seed, "feedback"), train_last=train_last)


VECTORS = Case(ResMLP, (10,), "vectors")
TOKENS = Case(ViT, (1, 4, 8), "tokens, (rows, tokens, features)")
IMAGES = Case(ConvNet, (1, 4, 6), "images, (rows, channels, y, x)")
GRAPH = Case(GCN, (10,), "nodes of a graph")


def assert_rule(rule: Named, *, tokens: bool = True, images: bool | None = None, stack: bool = True) -> None:
    """Raise AssertionError if a rule breaks what training and measuring rely on.

    Checked on a residual MLP, a ViT and a convolutional net, all small (a rule that sets `needs_graph`: on a GCN):

    - the same seed gives the same feedback and credit, and the global random stream is untouched;
    - one finite credit per tap, of the state's shape, exact at taps that are said to be;
    - credit is per sample: a row's depends neither on the others nor on how many there are, unless the rule sets
      `rows_interact`, in which case it must;
    - rows with a loss get the same credit if others have none (a mask);
    - noise is another at every step if the rule sets `draws_noise`, and none is drawn if it does not;
    - every trained parameter gets a finite gradient, and frozen parts do not move;
    - a run ends with the same bits whether it is measured or not, and saved and loaded in between or not;
    - many seeds stacked learn as each alone.

    `tokens=False` is for a rule of vectors alone, `images=False` for one that does not take images (if nothing is said,
    `images` is as `tokens`), `stack=False` for one that `torch.vmap` cannot map, and that is trained seed by seed.

    >>> from creditscope.testing import assert_rule
    >>> assert_rule("dfa")
    """
    before = torch.get_rng_state()
    if getattr(make_rule(rule), "needs_graph", False):
        _check_on(GRAPH, rule, stack)
    else:
        _check_on(VECTORS, rule, stack)
        wanted = {"tokens": (TOKENS, tokens), "images": (IMAGES, tokens if images is None else images)}
        for option, (case, asked) in wanted.items():
            if asked:
                _check_also(case, rule, stack, option)
    assert torch.equal(before, torch.get_rng_state()), (
        "Expected the global random stream to stay untouched, but the rule drew from it; use the generator it is given."
    )


def _check_also(case: Case, rule: Named, stack: bool, option: str) -> None:
    try:
        _check_on(case, rule, stack)
    except Exception as error:
        raise AssertionError(
            f"Expected a rule that also holds where states are {case.states}, but got: {error} A rule that is not for "
            f"such states is checked by assert_rule(…, {option}=False)."
        ) from error


def _check_on(case: Case, rule: Named, stack: bool) -> None:
    first, second = case.apply(rule), case.apply(rule)
    seen = _check_credit(case, first, second)
    _check_noise(case, second, seen)
    if not first.anatomy.rows_interact:
        _check_rows(case, first, seen)
    _check_mask(case, first, seen)
    _check_learned(case, first)
    _backward(case, first)
    for name, parameter in first.applied.net.named_parameters():
        assert parameter.grad is not None, f"Expected a gradient for {name!r}, but got none."
        assert torch.isfinite(parameter.grad).all(), f"Expected a finite gradient for {name!r}, but got NaN."
    _check_frozen(case, case.apply(rule, train_last=0))
    _check_training(case, rule)
    if stack:
        _check_stack(replace(case, dtype=torch.float64), rule)


# -- one moment ------------------------------------------------------------------------------------------------------


def _observe(case: Case, application: Application, rows: int = ROWS) -> Observation:
    x, y = case.data()
    return _observe_on(application, x if isinstance(x, tuple) else x[:rows], y[:rows])


def _observe_on(application: Application, x: Any, y: Tensor, mask: Tensor | None = None) -> Observation:
    return observe(application.applied.net, application.applied, x, y, mask=mask, noise=False)


def _check_credit(case: Case, first: Application, second: Application) -> Observation:
    """The same feedback and credit twice; finite, and exact where it is said to be."""
    ours, theirs = _tensors(first), _tensors(second)
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), f"Expected the same seed to give the same {name!r}, but it differs."
    seen, again, other = (_observe(case, application) for application in (first, first, second))
    for tap, (a, *same) in enumerate(zip(seen.credits, again.credits, other.credits, strict=True)):
        assert all(torch.equal(a, b) for b in same), (
            f"Expected the same credit twice at tap {tap}, but it differs; is something drawn?"
        )
        assert torch.isfinite(a).all(), f"Expected finite credit at tap {tap}, but got NaN or infinity."
        assert tap not in first.exact_taps or torch.allclose(a, seen.exact[tap], rtol=1e-4, atol=1e-7), (
            f"Expected the exact gradient at tap {tap}, which exact_taps names, but the credit differs from it."
        )
    return seen


def _check_rows(case: Case, application: Application, seen: Observation) -> None:
    """The first rows beside others, and alone; noise is drawn for as many rows as there are, and then not compared."""
    rule, half, (x, y) = application.applied.rule, ROWS // 2, case.data()
    others = _observe_on(application, torch.cat([x[:half], -x[half:]]), torch.cat([y[:half], (y[half:] + 1) % CLASSES]))
    interacts = [*_unlike(others, seen, half)]
    if rule.rows_interact:
        assert interacts, (
            "Expected a row's credit to depend on the other rows of a rule that sets rows_interact, but it does not."
        )
        return
    assert not interacts, (
        f"Expected credit per sample at tap {interacts[0]}: a row's credit must not depend on the other rows, but it "
        "does. Set rows_interact if it is meant to."
    )
    if not rule.draws_noise:
        fewer = [*_unlike(_observe(case, application, half), seen, half)]
        assert not fewer, (
            f"Expected credit per sample at tap {fewer[0]}: a row's credit must not depend on the number of rows, but "
            "it does. Do not divide by the rows; training does."
        )


def _check_mask(case: Case, application: Application, seen: Observation) -> None:
    (x, y), mask = case.data(), torch.arange(ROWS) % 3 != 0
    masked = _observe_on(application, x, torch.where(mask, y, -1), mask)
    for tap, a in enumerate(masked.credits):
        assert torch.isfinite(a).all(), f"Expected finite credit at tap {tap} under a mask, but got NaN or infinity."
    if application.applied.rule.rows_interact or application.anatomy.rows_interact:
        return
    unlike = [*_unlike(masked, seen, ROWS, mask)]
    assert not unlike, (
        f"Expected rows with a loss to get the same credit at tap {unlike[0]} if other rows have none (ctx.mask), but "
        "it differs."
    )


def _unlike(found: Observation, seen: Observation, rows: int, mask: Tensor | None = None) -> Iterator[int]:
    """Taps at which the credit of the first rows, of those in the mask, is another."""
    for tap, (a, b) in enumerate(zip(found.credits, seen.credits, strict=True)):
        pair = (t[:rows] if mask is None else t[mask] for t in (a, b))
        if not torch.allclose(*pair, rtol=1e-4, atol=1e-6 * float(b.abs().max())):
            yield tap


def _check_noise(case: Case, application: Application, seen: Observation) -> None:
    """Credit of another draw, and after a step of training, is another; or the same, of a rule that draws none."""
    applied = application.applied
    if not applied.rule.draws_noise:
        if isinstance(applied.rule, TapRule):
            again = _observe(case, replace(application, applied=_redrawn(applied)))
            assert not [*_unlike(again, seen, ROWS)], (
                "Expected credit that does not depend on a counter among the feedback, because the rule does not set "
                "draws_noise, but it does."
            )
        return
    for what, other in {"another draw": _redrawn(applied), "a step of training": applied}.items():
        if other is applied:
            _backward(case, application)
        drawn = _observe(case, replace(application, applied=other))
        assert any(not torch.equal(*pair) for pair in zip(drawn.credits, seen.credits, strict=True)), (
            f"Expected other credit after {what} of a rule that sets draws_noise, but it is the same. Keep a counter "
            "among the feedback, and set learns_feedback."
        )


def _redrawn(applied: AppliedRule) -> AppliedRule:
    """With the noise of the next step."""
    if applied.rule.local:
        return replace(applied, feedback=applied.rule.redraw(applied.feedback, 1))
    net = copy.deepcopy(pattern_of(applied.net))
    net.load_state_dict({**net.state_dict(), **applied.next_memories(1)})
    return replace(applied, net=net)


def _check_learned(case: Case, application: Application) -> None:
    """What a tap rule learns has the shapes of what it drew: a copy would stretch it to them."""
    applied, (x, y) = application.applied, case.data()
    if not (isinstance(applied.rule, TapRule) and applied.rule.learns_feedback):
        return
    forward = watch_forward(applied.net, applied.anatomy.taps, x)
    errors = errors_function(applied.net, y)(forward.output)
    learned = applied.learned(forward, errors, torch.zeros_like(forward.states[-1]))
    for (name, own), new in zip(applied.tensors().items(), learned, strict=True):
        assert own.shape == new.shape, (
            f"Expected learn_feedback to return {name!r} of shape {tuple(own.shape)}, but got {tuple(new.shape)}."
        )


# -- steps of training -----------------------------------------------------------------------------------------------


def _backward(case: Case, application: Application) -> None:
    x, y = case.data()
    application.applied.backward(x, errors_function(application.applied.net, y))


def _train(case: Case, application: Application) -> None:
    """One step of plain gradient descent; feedback that follows its weight is stepped, too."""
    applied = application.applied
    trained = [p for p in applied.net.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD([*trained, *chain(*applied.followers().values())], lr=RATE)
    optimiser.zero_grad(set_to_none=True)
    _backward(case, application)
    optimiser.step()


def _tensors(application: Application) -> dict[str, Tensor]:
    """Copies of weights, buffers and feedback."""
    net, own = pattern_of(application.applied.net), application.applied.tensors()
    return {name: t.detach().clone() for name, t in {**net.state_dict(), **own}.items()}


@torch.no_grad()
def _load(application: Application, saved: dict[str, Tensor]) -> None:
    own = application.applied.tensors()
    for name, tensor in own.items():
        tensor.copy_(saved[name])
    pattern_of(application.applied.net).load_state_dict({n: t for n, t in saved.items() if n not in own})


def _check_training(case: Case, rule: Named) -> None:
    plain, measured = case.apply(rule), case.apply(rule)
    for _ in range(STEPS):
        _observe(case, measured)
        for application in (plain, measured):
            _train(case, application)
    _assert_same(plain, measured, "whether a run is measured or not", "Credit must change neither feedback nor rule.")
    resumed = case.apply(rule, seed=1)
    _load(resumed, _tensors(plain))
    for _ in range(STEPS):
        for application in (plain, resumed):
            _train(case, application)
    _assert_same(plain, resumed, "whether a run is saved and loaded in between or not", IN_FEEDBACK)


def _assert_same(one: Application, other: Application, when: str, why: str) -> None:
    theirs = _tensors(other)
    for name, tensor in _tensors(one).items():
        assert torch.equal(tensor, theirs[name]), f"Expected the same {name!r} {when}, but it differs. {why}"


def _check_frozen(case: Case, application: Application) -> None:
    before = _tensors(application)
    _train(case, application)
    after, frozen = _tensors(application), application.report.names("frozen")
    for name in frozen:
        assert torch.equal(before[name], after[name]), f"Expected frozen {name!r} to stay, but it moved."
    trained = [n for n, _ in application.applied.net.named_parameters() if n not in frozen]
    assert any(not torch.equal(before[name], after[name]) for name in trained), (
        "Expected stem and head to learn while the blocks are frozen, but nothing moved."
    )


# -- many seeds ------------------------------------------------------------------------------------------------------


def _check_stack(case: Case, rule: Named) -> None:
    alone = [case.apply(rule, seed=seed) for seed in range(SEEDS)]
    together = _stacked([case.apply(rule, seed=seed) for seed in range(SEEDS)])
    try:
        for _ in range(STEPS):
            _train(case, together)
        seen = _observe(case, together)
    except (RuntimeError, CreditscopeError) as error:
        raise AssertionError(
            "Expected a rule that torch.vmap can map over seeds, but got: "
            f"{' '.join(str(error).split())[:300]} A rule that it cannot map is trained seed by seed, and checked by "
            "assert_rule(…, stack=False)."
        ) from error
    net = together.applied.net
    assert isinstance(net, StackedNet)
    for seed, application in enumerate(alone):
        for _ in range(STEPS):
            _train(case, application)
        stacked = {**net.state_of(seed), **{name: t[seed] for name, t in together.applied.tensors().items()}}
        for name, tensor in _tensors(application).items():
            assert _close(stacked[name], tensor), (
                f"Expected seed {seed} of a stack to learn {name!r} as it does alone, but it differs. {IN_FEEDBACK}"
            )
        for tap, (a, b) in enumerate(zip(seen.credits, _observe(case, application).credits, strict=True)):
            assert _close(a[seed], b), f"Expected the credit of seed {seed} at tap {tap} of a stack, but got another."


def _stacked(each: Sequence[Application]) -> Application:
    net = StackedNet.of([pattern_of(one.applied.net) for one in each])
    return replace(each[0], applied=each[0].applied.stacked(net, [one.applied for one in each]))


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-8, atol=1e-10)
