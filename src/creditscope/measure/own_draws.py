"""A rule's own draws: of a rule that draws noise in every step, what its credit is on average, and how much is noise.

The draws are those of the next steps, which the weights have not learnt from: they know nothing of them.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from creditscope.measure.alignment import measure_alignment
from creditscope.measure.fresh_feedback import of_feedback
from creditscope.measure.functional_net import Subject
from creditscope.measure.numerics import flat_rows
from creditscope.measure.observation import Observation
from creditscope.record.schema import OWN_DRAWS
from creditscope.rules import AppliedTapRule


def measure_draws(subject: Subject, seen: Observation) -> dict[str, Tensor]:
    """β, its standard error, its null and the share of draw noise per tap; nothing for a rule that draws none."""
    applied = subject.applied
    if not isinstance(applied, AppliedTapRule) or not applied.rule.draws_noise:
        return {}
    taps = [Draws(g) for g in seen.exact]
    for credits in own_credits(subject, applied, seen, OWN_DRAWS):
        for tap, a in zip(taps, credits, strict=True):
            tap.add(a)
    beta = torch.stack([torch.stack(tap.betas) for tap in taps], 1)
    return {
        "beta": beta.mean(0),
        "beta_se": beta.std(0) / len(beta) ** 0.5,
        "beta_null_sd": torch.stack([tap.null_sd for tap in taps]),
        "draw_noise": torch.stack([tap.noise for tap in taps]),
    }


def own_credits(subject: Subject, applied: AppliedTapRule, seen: Observation, draws: int) -> Iterator[list[Tensor]]:
    """The credit at every tap by each of the next draws, on what was seen."""
    for draw in range(1, draws + 1):
        feedback = applied.rule.redraw(applied.feedback, draw)
        yield [one.squeeze(0) for one in of_feedback(subject, applied, seen, [feedback], list)]


class Draws:
    """Draws of the credit at one tap, one after the other, in float64 and in units of the gradient's largest entry.

    Only their running mean is kept. Their spread is summed with it, so that none of it is lost where it is small.
    """

    def __init__(self, gradient: Tensor):
        gradient = gradient.double()
        largest = gradient.abs().amax()
        self.unit = torch.where(largest == 0, 1.0, largest)
        self.gradient = gradient / self.unit
        self.betas: list[Tensor] = []
        """⟨a, g⟩/‖g‖² over all rows, of every draw; NaN without a gradient."""
        self.mean = torch.zeros_like(gradient)
        self.spread = self.square = gradient.new_zeros(())

    def add(self, credit: Tensor) -> None:
        """One more."""
        a = credit.double() / self.unit
        self.betas.append((a * self.gradient).sum() / self.gradient.square().sum())
        before = a - self.mean
        self.mean = self.mean + before / len(self.betas)
        self.spread = self.spread + (before * (a - self.mean)).sum()
        self.square = self.square + a.square().sum()

    @property
    def null_sd(self) -> Tensor:
        """Of ⟨ā, g⟩/‖g‖² under a random rotation of ā: that of their cosine, times ‖ā‖/‖g‖."""
        mean, gradient = flat_rows(self.mean), flat_rows(self.gradient)
        null = measure_alignment(mean, gradient, tuple(self.gradient.shape[1:]))["null_sd_F"]
        return null * mean.norm() / gradient.norm()

    @property
    def noise(self) -> Tensor:
        """Σ_k ‖a_k − ā‖²/(K − 1) over the mean of ‖a_k‖²; NaN without credit."""
        draws = len(self.betas)
        return self.spread / (draws - 1) / (self.square / draws)
