"""Forward gradients against finite differences, the mean of their draws and the cosines in closed form."""

import math

import numpy as np
import pytest
import torch
from credited import ROWS, SHAPES, at_work, close, graph, learn, stream
from torch import Tensor, nn

from creditscope.measure.fresh_feedback import _of_feedback, measure_draws
from creditscope.measure.functional_net import subjects_of
from creditscope.measure.observation import Observation, observe
from creditscope.rules import AppliedRule
from creditscope.rules._pass import gaussian_probe

JOINT = pytest.mark.parametrize("joint", [False, True], ids=["tap by tap", "joint"])


def losses(net: nn.Module, taps: tuple[str, ...], x, y: Tensor, shifts: dict[str, Tensor]) -> Tensor:
    """Of every row, with shifts added at taps."""
    hooks = [net.get_submodule(tap).register_forward_hook(lambda _, __, h, tap=tap: h + shifts[tap]) for tap in shifts]
    with torch.no_grad():
        output = net(*x) if isinstance(x, tuple) else net(x)
    for hook in hooks:
        hook.remove()
    return nn.functional.cross_entropy(output, y, reduction="none")


def by_differences(applied: AppliedRule, x, y: Tensor, seen: Observation, mask: Tensor | None = None) -> list[Tensor]:
    """Node perturbation: the slope of the loss along each probe by a central difference, times that probe."""
    taps, rule, size = applied.anatomy.taps, applied.rule, 1e-5
    probes = [
        gaussian_probe(applied.feedback[0], (rule.probes, *h.shape), h.dtype, place)
        for place, h in enumerate(seen.states)
    ]
    found = [torch.zeros_like(h) for h in seen.states]
    for k in range(rule.probes):
        for place, tap in enumerate(taps):
            moved = {t: p[k] for t, p in zip(taps, probes, strict=True) if rule.joint or t == tap}
            sides = [losses(applied.net, taps, x, y, {t: s * size * p for t, p in moved.items()}) for s in (1, -1)]
            slope = (sides[0] - sides[1]) / (2 * size)
            if mask is not None:
                slope = slope[mask].sum().expand(len(slope))
            p = probes[place][k]
            found[place] += slope.view(-1, *[1] * (p.ndim - 1)) * p / rule.probes
    return found


@JOINT
@pytest.mark.parametrize("probes", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_credit_is_the_slope_along_the_probe_times_the_probe(shape, probes, joint):
    net, x, y, taps = SHAPES[shape]()
    applied = at_work("forward_gradient", net, x, taps, probes=probes, joint=joint)
    seen = observe(net, applied, x, y)
    for a, wanted in zip(seen.credits, by_differences(applied, x, y, seen), strict=True):
        close(a, wanted, atol=1e-7, rtol=1e-6)


@JOINT
def test_on_a_graph_the_slope_is_that_of_the_whole_loss(joint):
    net, inputs, y, mask, taps = graph()
    applied = at_work("forward_gradient", net, inputs, taps, joint=joint)
    seen = observe(net, applied, inputs, y, mask=mask)
    for a, wanted in zip(seen.credits, by_differences(applied, inputs, y, seen, mask), strict=True):
        close(a, wanted, atol=1e-7, rtol=1e-6)


def assert_unbiased(groups: Tensor, g: Tensor) -> None:
    """The mean of draws (groups, draws, …) lies off g by its standard error, in the mean over groups and entries."""
    error = groups.std(1) / groups.shape[1] ** 0.5
    z = (groups.mean(1) - g) / error
    print(f"z: largest {z.abs().max():.2f}, mean square {z.square().mean():.2f}, of {z.numel()}")
    assert z.square().mean() < 1.5
    assert (z.mean(0).abs() < 4.5 / len(z) ** 0.5).all()
    assert (error.square().sum(0) / len(groups) ** 2).sum().sqrt() < 0.15 * g.norm()


@JOINT
def test_the_mean_over_draws_is_the_gradient(joint):
    """Equal rows have probes of their own: each is another draw."""
    net, x, y = stream()
    x, y = x[:1].expand(2000, -1), y[:1].expand(2000)
    applied = at_work("forward_gradient", net, x[:ROWS], joint=joint)
    (subject,) = subjects_of(net, applied, [0], inputs=x, target=y)
    seen = observe(net, applied, x, y, noise=False)
    counters = [applied.rule.redraw(applied.feedback, draw) for draw in range(1, 21)]
    for a, g in zip(_of_feedback(subject, seen, counters, list), seen.exact, strict=True):
        assert_unbiased(a, g[0])


@JOINT
def test_the_mean_over_draws_is_the_gradient_where_rows_mix(joint):
    net, inputs, y, mask, taps = graph()
    applied = at_work("forward_gradient", net, inputs, taps, joint=joint)
    (subject,) = subjects_of(net, applied, [0], inputs=inputs, target=y, mask=mask)
    seen = observe(net, applied, inputs, y, mask=mask)
    counters = [applied.rule.redraw(applied.feedback, draw) for draw in range(1, 8001)]
    for a, g in zip(_of_feedback(subject, seen, counters, list, chunk=2000), seen.exact, strict=True):
        assert (g[~mask] != 0).any()
        assert_unbiased(a.unflatten(0, (20, -1)), g)


@pytest.mark.parametrize("probes", [1, 4, 16])
def test_cosines_are_as_the_closed_form_says(probes):
    net, x, y = stream(width=24, std=0.2)
    many, d = 3000, 24
    x, y = x[:1].expand(many, -1), y[:1].expand(many)
    seen = observe(net, at_work("forward_gradient", net, x[:ROWS], probes=probes), x, y, noise=False)
    expected = math.sqrt(probes / (probes + d + 1))
    if probes == 1:
        expected = math.exp(math.lgamma(d / 2) - math.lgamma((d + 1) / 2)) / math.sqrt(math.pi)
    found = [float(nn.functional.cosine_similarity(a, g).mean()) for a, g in zip(seen.credits, seen.exact, strict=True)]
    print(f"{probes} probes: cosines {found}, expected {expected}")
    np.testing.assert_allclose(found, expected, rtol=0.04)


def test_draws_are_others_at_every_step_tap_and_row_and_the_same_while_measuring():
    net, x, y = stream()
    applied = at_work("forward_gradient", net, x)
    first, again = (observe(net, applied, x, y).credits for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))
    learn(applied, x, y)
    second = observe(net, applied, x, y).credits
    directions = torch.cat([nn.functional.normalize(a, dim=1) for a in (*first, *second)])
    cosines = (directions @ directions.T).abs() - torch.eye(len(directions))
    assert cosines.max() < 1 - 1e-4  # no two rows, taps or steps share a probe


def test_a_step_learns_from_the_draw_that_is_measured_after_it():
    net, x, y = stream()
    applied = at_work("forward_gradient", net, x)
    learn(applied, x, y)
    a = observe(net, applied, x, y).credits[0]
    close(net.get_parameter("stem.weight").grad, a.T @ x / ROWS)


@JOINT
def test_the_instrument_of_own_draws_finds_no_bias(joint):
    net, x, y = stream(width=8, std=0.3)
    x, y = x.repeat(60, 1), y.repeat(60)
    applied = at_work("forward_gradient", net, x[:ROWS], joint=joint)
    (subject,) = subjects_of(net, applied, [0], inputs=x, target=y)
    found = measure_draws(subject, observe(net, applied, x, y))
    print({name: value.tolist() for name, value in found.items()})
    assert ((found["beta"] - 1).abs() < 4 * found["beta_se"]).all()
    assert (found["beta_se"] < 0.1).all()
    assert (found["draw_noise"] > 0.8).all()  # 1 − 1/(d + 2) of it, or more
