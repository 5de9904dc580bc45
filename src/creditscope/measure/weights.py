"""What each weight is told: the rule's gradient against the exact one, and the update that was applied."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from creditscope.measure.nulls import turn_all
from creditscope.measure.numerics import angles, row_norms
from creditscope.record.schema import Facts


@dataclass(frozen=True)
class Direction:
    """A vector as its largest entry times a scaled copy, so that no square overflows or vanishes."""

    scaled: Tensor
    largest: Tensor
    length: Tensor

    @classmethod
    def of(cls, vector: Tensor) -> "Direction":
        flat = vector.detach().reshape(-1)
        low, high = torch.aminmax(flat)
        largest = torch.maximum(-low, high)
        scaled = flat / torch.where(largest == 0, 1.0, largest)
        return cls(scaled, largest, torch.linalg.vector_norm(scaled))

    @property
    def norm(self) -> Tensor:
        return self.length * self.largest

    def cosine(self, other: "Direction") -> Tensor:
        """NaN where one has no direction."""
        inner = (self.scaled * other.scaled).sum()  # `dot` of a single seed rounds differently from that of many
        return inner / (self.length * other.length)


def may_be_rounding(gradients: Iterable[Tensor], *, seeds: int = 1) -> Tensor:
    """(weights, seeds): whether a gradient is below √eps of the net's largest; rounding leaves eps of a sum."""
    sizes = torch.stack([row_norms(g.detach().reshape(seeds, -1)) for g in gradients])
    return sizes < sizes.amax(0) * torch.finfo(sizes.dtype).eps ** 0.5


def find_rounding(exact: Mapping[str, Tensor], exact64: Mapping[str, Tensor]) -> Tensor | None:
    """Per weight, whether its gradient may be rounding and is: off by as much as that in float64 is large, or more.

    None if no gradient was computed in float64, because none may be, or none could be.
    """
    if not exact64:
        return None
    small = may_be_rounding(exact.values()).squeeze(-1)
    off = {name: (exact[name].double() - g).norm() >= g.norm() for name, g in exact64.items()}
    return small & torch.stack([off.get(name, torch.zeros_like(small[0])) for name in exact])


def leave_out(values: Tensor, rounding: Tensor | None) -> Tensor:
    """NaN for what is measured against rounding."""
    return values if rounding is None else torch.where(rounding, torch.nan, values)


def gradient_sizes(directions: list[Direction], rows: Tensor | int) -> dict[str, Tensor]:
    """Per weight, of a gradient summed over rows: norm of its mean, and the two kinds of zero.

    All zero: every element is 0. Underflow: not all zero, but the plain float32 √Σx² is 0, which is so exactly
    when the square of the largest element is.
    """
    largest = torch.stack([d.largest for d in directions]) / rows
    return {
        "norm": torch.stack([d.norm for d in directions]) / rows,
        "all_zero": largest == 0,
        "underflow": (largest.float().square() == 0) & (largest != 0),
    }


def plain_norm(gradient: Tensor) -> Tensor:
    """√Σx² in float32 as it stands, which underflows when every entry is below 1e-23 or so."""
    return gradient.float().square().sum().sqrt()


def measure_update(update: Mapping[str, Tensor], exact: Mapping[str, Direction]) -> dict[str, Tensor]:
    """Cosine of the update with −∇ per weight, and its share of the first-order decrease −⟨Δθ, ∇⟩, NaN if none."""
    cos, decrease = [], []
    for name, gradient in exact.items():
        applied = Direction.of(update[name])
        cos.append(-applied.cosine(gradient))
        decrease.append((cos[-1] * applied.norm).double() * gradient.norm.double())
    shares = torch.stack(decrease)
    total = shares.nansum()
    return {"update_cos": torch.stack(cos), "decrease_share": shares / torch.where(total > 0, total, torch.nan)}


@dataclass(frozen=True)
class Products:
    """What the cosine of two gradients A and G of a weight, and its null, are made of.

    For matrices (out, in), ⟨RA, G⟩ = ⟨R, G Aᵀ⟩ with R Haar-distributed has mean 0 and variance ‖G Aᵀ‖²_F / out. A bias
    is a matrix with one column.
    """

    inner: Tensor
    """⟨A, G⟩ of both over their largest entries."""
    variance: Tensor
    """‖G Aᵀ‖²_F / out, likewise."""
    a: Direction
    g: Direction

    @classmethod
    def of(cls, a: Tensor, g: Tensor) -> "Products":
        directions = Direction.of(a), Direction.of(g)
        first, second = (_output_first(d.scaled.view(a.shape)) for d in directions)
        outputs, inputs = first.shape
        if inputs < outputs:  # the same by smaller products
            square = ((second.mT @ second) * (first.mT @ first)).sum().clamp(min=0)
        else:
            square = (second @ first.mT).square().sum()
        return cls((first * second).sum(), square / outputs, *directions)

    @classmethod
    def exact(cls, g: Tensor) -> "Products":
        """Of a weight that is given the gradient itself: nothing of it turns."""
        direction = Direction.of(g)
        square = direction.length.double().square()
        return cls(square, torch.zeros_like(square), direction, direction)

    @property
    def z(self) -> Tensor:
        """The cosine in sd of its null; NaN where the gradient is exact."""
        return torch.where(self.variance > 0, self.inner / self.variance.sqrt(), torch.nan)


def stage_alignment(weights: Sequence[Products]) -> tuple[Tensor, Tensor]:
    """Cosine of the gradients of several weights as one vector, and the sd of its null, which turns each on its own."""

    def gather(read: Callable[[Products], Tensor]) -> Tensor:
        return torch.stack([read(p).double() for p in weights])

    a, g = gather(lambda p: p.a.largest), gather(lambda p: p.g.largest)
    a, g = (x / torch.where(x.amax() > 0, x.amax(), 1.0) for x in (a, g))
    inner = (a * g * gather(lambda p: p.inner)).sum()
    variance = ((a * g).square() * gather(lambda p: p.variance)).sum()
    size = (a * gather(lambda p: p.a.length)).norm() * (g * gather(lambda p: p.g.length)).norm()
    return inner / size, variance.sqrt() / size


def _output_first(x: Tensor) -> Tensor:
    """A weight as a matrix (outputs, others): biases are one column, what is added to states has its features last."""
    if x.ndim < 2:
        return x.reshape(-1, 1)
    return x.reshape(-1, x.shape[-1]).mT if x.ndim == 3 and x.shape[0] == 1 else x.flatten(1)


def turned_weights(weights: Mapping[str, Tensor], generator: torch.Generator, turns: int) -> list[dict[str, Tensor]]:
    """Gradients of weights, so many times, each turned on its output side by a Haar rotation; drawn on the CPU."""
    by_output = [_output_first(x).mT for x in weights.values()]
    return [
        {name: _as_weight(t, x) for (name, x), t in zip(weights.items(), turned, strict=True)}
        for turned in turn_all(by_output, generator, turns)
    ]


def _as_weight(by_output: Tensor, x: Tensor) -> Tensor:
    """A matrix (others, outputs) in the shape of the weight x that it stands for."""
    return (by_output if x.ndim == 3 and x.shape[0] == 1 else by_output.mT).reshape(x.shape)


def weight_angle(weight: Tensor, feedback: Tensor) -> Tensor:
    """Angle in degrees of a weight and its feedback, as vectors; NaN where one has no direction."""
    w, b = ((d.scaled / d.length).unsqueeze(0) for d in map(Direction.of, (weight, feedback)))
    return angles(w, b, (w * b).sum(-1)).squeeze(0)


def measure_weight_z(products: list[Products], rounding: Tensor | None = None) -> dict[str, Tensor]:
    """Of every trained weight, NaN where its gradient is rounding; nothing if there is none."""
    return {"z": leave_out(torch.stack([p.z for p in products]), rounding)} if products else {}


def measure_stages(products: list[Products], facts: Facts) -> dict[str, Tensor]:
    """`stage_alignment` of the weights of each stage that ends at a tap; NaN where none is trained."""
    if not products:
        return {}
    nothing = torch.full_like(products[0].inner, torch.nan, dtype=torch.float64)
    by_stage: list[list[Products]] = [[] for _ in facts.taps]
    for p, weight in zip(products, facts.weights, strict=True):
        if 0 <= weight.stage < len(by_stage):
            by_stage[weight.stage].append(p)
    cos, sd = zip(*(stage_alignment(own) if own else (nothing, nothing) for own in by_stage), strict=True)
    return {"stage_cos": torch.stack(cos), "stage_null_sd": torch.stack(sd)}


def measure_angles(pairs: list[tuple[Tensor, Tensor] | None]) -> dict[str, Tensor]:
    """`weight_angle` and ‖W − B‖/‖W‖ of every weight that has feedback; nothing if none has."""
    first = next((w for w, _ in filter(None, pairs)), None)
    if first is None:
        return {}
    nothing = torch.full_like(first.flatten()[0], torch.nan)
    angles = torch.stack([weight_angle(*pair) if pair else nothing for pair in pairs])
    return {"feedback_angle": angles, "feedback_gap": torch.stack([_gap(*pair) if pair else nothing for pair in pairs])}


def _gap(weight: Tensor, feedback: Tensor) -> Tensor:
    return Direction.of(weight - feedback).norm / Direction.of(weight).norm
