"""A test kit for rules: `assert_rule` checks a rule of your own as the built-in ones are checked."""

import copy
from dataclasses import replace

import torch
from torch import Tensor

from creditscope.losses import row_errors
from creditscope.measure.observation import Observation, observe
from creditscope.nets.resmlp import ResMLP
from creditscope.nets.vit import ViT
from creditscope.rng import generator, global_stream
from creditscope.rules import Application, AppliedRule, Rule, apply_rule, make_rule
from creditscope.stack import pattern_of
from creditscope.taps import resolve_taps

ROWS, CLASSES, DEPTH, WIDTH = 16, 5, 3, 12
TriedNet = type[ResMLP] | type[ViT]
INPUTS: dict[type, tuple[int, ...]] = {ResMLP: (10,), ViT: (1, 4, 8)}
"""The nets rules are tried on, with the shape of an input: states are vectors in the one, tokens in the other."""


def assert_rule(rule: str | type[Rule] | Rule, *, tokens: bool = True) -> None:
    """Raise AssertionError if a rule breaks what training and measuring rely on.

    Checked on a small residual MLP and on a small ViT: the same seed gives the same feedback and credit; one credit per
    tap of the state's shape; credit is per sample (a row's credit does not depend on how many rows there are); taps it
    declares exact are; every trained parameter gets a finite gradient; frozen parts do not move; noise that a rule says
    it draws is another at every step (rows are then not compared); the global random stream is untouched.
    `tokens=False` leaves out the ViT, for a rule that is not for states (rows, tokens, features).

    >>> from creditscope.testing import assert_rule
    >>> assert_rule("dfa")
    """
    _check_on(ResMLP, rule)
    if tokens:
        try:
            _check_on(ViT, rule)
        except Exception as error:
            raise AssertionError(
                "Expected a rule that also holds where states are tokens, (rows, tokens, features), but got: "
                f"{error} A rule for vectors alone is checked by assert_rule(…, tokens=False)."
            ) from error


def _check_on(net: TriedNet, rule: str | type[Rule] | Rule) -> None:
    before = torch.get_rng_state()
    first, second = _apply(net, make_rule(rule)), _apply(net, make_rule(rule))
    seen = _check_credit(first, second)
    if first.applied.rule.draws_noise:
        _check_noise(first, seen)
    else:
        for tap, (a, b) in enumerate(zip(seen.credits, _observe(first, ROWS // 2).credits, strict=True)):
            assert torch.allclose(a[: len(b)], b, rtol=1e-4, atol=1e-6), (
                f"Expected credit per sample at tap {tap}: a row's credit must not depend on the number of rows, "
                "but it does. Do not divide by the rows; training does."
            )
    _backward(first)
    for name, parameter in first.applied.net.named_parameters():
        assert parameter.grad is not None, f"Expected a gradient for {name!r}, but got none."
        assert torch.isfinite(parameter.grad).all(), f"Expected a finite gradient for {name!r}, but got NaN."
    _check_frozen(_apply(net, make_rule(rule), train_last=0))
    assert torch.equal(before, torch.get_rng_state()), (
        "Expected the global random stream to stay untouched, but the rule drew from it; use the generator it is given."
    )


def _data(net: type) -> tuple[Tensor, Tensor]:
    stream = generator(0, "testing")
    x = torch.randn(ROWS, *INPUTS[net], generator=stream)
    return x, torch.randint(CLASSES, (ROWS,), generator=stream)


def _apply(net_class: TriedNet, rule: Rule, *, train_last: int = -1) -> Application:
    with global_stream(0, "init"):
        net = net_class(INPUTS[net_class], CLASSES, depth=DEPTH, width=WIDTH)
        for name, parameter in net.named_parameters():
            if name.endswith("w2.weight"):  # away from the near-identity start, so that the blocks matter
                torch.nn.init.normal_(parameter, std=0.2)
    taps = resolve_taps(net, [net.stem_tap, net.block_taps])
    return apply_rule(rule, net, taps, _data(net_class)[0], generator(0, "feedback"), train_last=train_last)


def _observe(application: Application, rows: int = ROWS) -> Observation:
    x, y = _data(type(application.applied.net))
    return observe(application.applied.net, application.applied, x[:rows], y[:rows], noise=False)


def _backward(application: Application) -> None:
    x, y = _data(type(application.applied.net))
    application.applied.backward(x, lambda output: row_errors(output, y))


def _check_credit(first: Application, second: Application) -> Observation:
    """The same feedback and credit twice; finite, and exact where it is said to be."""
    ours, theirs = ({**pattern_of(a.applied.net).state_dict(), **a.applied.tensors()} for a in (first, second))
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), f"Expected the same seed to give the same {name!r}, but it differs."
    seen = _observe(first)
    for tap, (a, b) in enumerate(zip(seen.credits, _observe(second).credits, strict=True)):
        assert torch.equal(a, b), f"Expected the same credit twice at tap {tap}, but it differs; is something drawn?"
        assert torch.isfinite(a).all(), f"Expected finite credit at tap {tap}, but got NaN or infinity."
        assert tap not in first.exact_taps or torch.allclose(a, seen.exact[tap], rtol=1e-4, atol=1e-7), (
            f"Expected the exact gradient at tap {tap}, which exact_taps names, but the credit differs from it."
        )
    return seen


def _check_noise(application: Application, seen: Observation) -> None:
    applied = application.applied
    for what, other in {"another draw": _redrawn(applied), "a step of training": applied}.items():
        if other is applied:
            _backward(application)
        drawn = _observe(replace(application, applied=other))
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


def _check_frozen(application: Application) -> None:
    net = pattern_of(application.applied.net)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    optimiser = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1.0)
    _backward(application)
    optimiser.step()
    frozen = application.report.names("frozen")
    for name in frozen:
        assert torch.equal(before[name], net.get_parameter(name)), f"Expected frozen {name!r} to stay, but it moved."
    assert any(not torch.equal(before[n], p) for n, p in net.named_parameters() if n not in frozen), (
        "Expected stem and head to learn while the blocks are frozen, but nothing moved."
    )
