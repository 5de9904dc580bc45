"""What the instruments of a snapshot are made from; each need is computed when it is first asked for, and once."""

from collections.abc import Mapping
from functools import cached_property

from torch import Tensor

from creditscope.measure.functional_net import Twin, first_rows, make_twin
from creditscope.measure.numerics import UnitRows, flat_rows
from creditscope.measure.observation import Observation, fitted_rows
from creditscope.measure.subject import Subject
from creditscope.measure.weights import Products
from creditscope.record.schema import DESCENT_ROWS, Facts


class Needs:
    """Needs of one net, or, inside `vmap` and without a subject, of one seed of a stack."""

    def __init__(
        self,
        seen: Observation,
        facts: Facts,
        *,
        keys: Tensor,
        feedback: Mapping[str, tuple[Tensor, Tensor]],
        subject: Subject | None = None,
    ):
        self.seen, self.facts, self._subject = seen, facts, subject
        self.keys = keys
        """One random number per row: the order in which rows hand on their credit when it is permuted."""
        self.feedback = feedback
        """Weight and feedback of every converted layer, by the name of the weight."""

    @property
    def subject(self) -> Subject:
        """The net, to be run again."""
        assert self._subject is not None
        return self._subject

    @cached_property
    def gradient_rows(self) -> list[UnitRows]:
        """g at every tap, without rows that are fitted."""
        _, fitted = fitted_rows(self.seen.errors)
        return [UnitRows.of(flat_rows(g), ~fitted) for g in self.seen.exact]

    @cached_property
    def credit_rows(self) -> list[UnitRows]:
        """a at every tap."""
        return [UnitRows.of(flat_rows(a)) for a in self.seen.credits]

    @cached_property
    def rule_gradients(self) -> list[tuple[Tensor, Tensor | None]]:
        """BP's gradient of every trained weight, and the rule's where it is not the same."""
        seen = self.seen
        told = {w.name: seen.rule_weights.get(w.name) if w.role == "rule" else None for w in self.facts.weights}
        return [(seen.exact_weights[name], a) for name, a in told.items()]

    @cached_property
    def weight_products(self) -> list[Products]:
        """What the cosines of weight gradients are made of."""
        return [Products.exact(g) if a is None else Products.of(a, g) for g, a in self.rule_gradients]

    @cached_property
    def feedback_pairs(self) -> list[tuple[Tensor, Tensor] | None]:
        """W and B of every trained weight that has feedback; nothing at all if none has."""
        return [self.feedback.get(w.name) for w in self.facts.weights] if self.feedback else []

    @cached_property
    def twin(self) -> Twin:
        """The net as a function in float64, on all rows."""
        return make_twin(self.subject)

    @cached_property
    def small_twin(self) -> Twin:
        """The same on as many rows as descent takes."""
        small = first_rows(self.subject, DESCENT_ROWS)
        return self.twin if small is self.subject else make_twin(small)

    @property
    def notes(self) -> list[str]:
        """What is to be said of needs that were not met as they should be."""
        twins = [vars(self)[name] for name in ("twin", "small_twin") if name in vars(self)]
        return list(dict.fromkeys(twin.note for twin in twins if twin.note))
