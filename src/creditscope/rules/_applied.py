"""A rule at work on a net: how credit becomes gradients in training, and what is measured of it.

Tap rules make the credit a_l at taps, and each stage then learns from its own, with its input held fixed. Weight rules
are one backward pass through layers with feedback. Credit at taps is normalised as the run asks: not (the textbook
rule), by the RMS of the batch, or by that of each sample. The published convention, sample-mean, is the last on credit
of the mean loss: eps is 1e-6 of a loss that was divided by the rows of a training batch, so 1e-6 times these rows in
the per-sample units used here, and credit that is small is hardly normalised. A chain, in which credit is made from
the credit above, it leaves as it is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_flatten_with_path, tree_map

from creditscope.anatomy import Anatomy
from creditscope.errors import CreditscopeError, UnknownNameError
from creditscope.losses import RowErrors, losses_per_row
from creditscope.record.spec import CreditNorm
from creditscope.rules._layers import WithFeedback, layers_with_feedback, learn_memories, transport_of, weight_names
from creditscope.rules._pass import Forward as Again
from creditscope.rules._pass import advanced, detached_tensors
from creditscope.rules._rule import Credit, CreditContext, Feedback, TapRule, WeightRule
from creditscope.rules._tree import leaves_of, same_structure
from creditscope.stack import Net, PerSeed, StackedNet, as_arguments, call_net, pattern_of, with_first
from creditscope.taps import Forward, cut_forward, watch_forward

EPS = 1e-6


class Given(NamedTuple):
    """What a rule's `credit` gives; no states, or no inputs: those of the forward."""

    credits: list[Tensor]
    handed_on: list[Tensor]
    inputs: list[Tensor]
    """One tensor, the first argument of the net."""


class Told(NamedTuple):
    """What a rule tells on the rows of one forward."""

    credits: list[Tensor]
    """At every tap, before any normalisation."""
    weights: dict[str, Tensor]
    """What training would put in `.grad`, times the rows; weights left out get the exact gradient."""
    handed_on: list[Tensor]
    """The states that stages would learn at; none: the forward's own."""


def normalise_credit(a: Tensor, how: CreditNorm, batch: int = 1) -> Tensor:
    """a / (RMS(a) + 1e-6) with the RMS over the batch or over each row; a itself for "none".

    `batch` is how many rows a training step has; it counts for "sample-mean" alone.

    >>> import torch
    >>> [f"{a:.3f}" for a in normalise_credit(torch.tensor([[3.0, 4.0], [30.0, 40.0]]), "sample").flatten()]
    ['0.849', '1.131', '0.849', '1.131']
    """
    if how == "none":
        return a
    if how == "batch":
        return a / (a.square().mean().sqrt() + EPS)
    if how in ("sample", "sample-mean"):
        over = tuple(range(1, a.ndim))
        eps = EPS if how == "sample" else EPS * batch
        return a / (a.square().mean(dim=over, keepdim=True).sqrt() + eps)
    raise UnknownNameError("credit normalisation", how, get_args(CreditNorm))


@dataclass
class AppliedRule:
    """A rule bound to one net, or to all seeds of a stack; its own tensors then have the seed axis in front."""

    rule: Any
    net: Net
    anatomy: Anatomy
    feedback: Feedback = field(default_factory=list)
    """A tap rule's own tensors (a weight rule's sit in the net's buffers)."""
    credit_norm: CreditNorm = "none"
    penalty: float = 0.0
    batch: int = 1
    """Rows of a training step, however many there are here."""

    def tensors(self) -> dict[str, Tensor]:
        """The feedback by name, to be saved beside the weights."""
        flat, _ = tree_flatten_with_path(self.feedback)
        return {".".join(["feedback", *(str(_key(part)) for part in path)]): tensor for path, tensor in flat}

    def of_seed(self, net: Net, place: Any) -> "AppliedRule":
        """The rule of one seed of a stack, on its own net."""
        return replace(self, net=net, feedback=tree_map(lambda b: b[place], self.feedback))

    def stacked(self, net: StackedNet, each: Sequence["AppliedRule"]) -> "AppliedRule":
        """The rule of all these, on the stack of their nets."""
        return replace(self, net=net, feedback=tree_map(lambda *b: torch.stack(b), *(one.feedback for one in each)))

    def followers(self) -> dict[str, list[Tensor]]:
        """Feedback that the optimiser steps with its weight, by the weight's name; of a tied one that of all layers."""
        found: dict[str, list[Tensor]] = {}
        if not self.rule.follows:
            return found
        buffers = dict(self.net.named_buffers())
        for name, weight in self._weight_names.items():
            found.setdefault(weight, []).append(buffers[f"{name}.feedback"])
        return found

    def backward(self, inputs: Any, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """One step of learning: the rule's own tensors first, then `.grad` of the trained parameters."""
        return self._by_taps(inputs, errors_of) if self.rule.local else self._by_backward(inputs, errors_of)

    def measure(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> Told:
        """What the rule tells on the rows of a watched forward; nothing is learned."""
        measure = self._measure_taps if self.rule.local else self._measure_backward
        return measure(forward, errors, exact, parameters)

    # -- tap rules ---------------------------------------------------------------------------------------------------

    def _by_taps(self, inputs: Any, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """From one forward and no discarded product; one forward more for a rule that hands other states on."""
        rule: TapRule = self.rule
        forward = cut_forward(self.net, self.anatomy.taps, inputs, top_gradient=rule.needs_top_gradient)
        errors = errors_of(forward.output)
        n, top = errors.count, None
        roots, gradients = [forward.output], [errors.gradient]
        if rule.needs_top_gradient:
            last = forward.passed[-1]
            if rule.hands_on:  # the head learns at other states, once these are known
                (found,) = torch.autograd.grad(roots, [last], gradients, allow_unused=True)
            else:
                torch.autograd.backward(roots, gradients)
                found = last.grad
            if found is None:
                raise CreditscopeError(
                    "Expected the head to depend on the last tap, but it does not. Tap a module that it reads."
                )
            top, roots, gradients = found * n, [], []
        self.learn(forward, errors, top)
        credits, handed_on, other = self.credits(forward, errors, top, self.credit_norm)
        states = forward.states
        if handed_on:
            at = cut_forward(self.net, self.anatomy.taps, self._called_with(inputs, other), instead=handed_on)
            roots, gradients, states = [at.output], [errors_of(at.output).gradient], at.states
        for state, credit in zip(states, self._applied(forward, credits), strict=True):
            if state.requires_grad:  # a frozen stage has no root
                roots.append(state)
                gradients.append(credit / n)
        if roots:
            torch.autograd.backward(roots, gradients)
        return errors

    def learn(self, forward: Forward, errors: RowErrors, top: Tensor | None) -> None:
        """Move the feedback, in place, if the rule learns it; the net and its buffers stay as they are."""
        if self.rule.learns_feedback and (own := leaves_of(self.feedback)):
            torch._foreach_copy_(own, self.learned(forward, errors, top))

    @torch.no_grad()
    def learned(self, forward: Forward, errors: RowErrors, top: Tensor | None) -> list[Tensor]:
        """What the feedback would become."""

        def learn(context: CreditContext) -> list[Tensor]:
            learned = self.rule.learn_feedback(context)
            if not same_structure(learned, self.feedback):
                own, got = (tree_flatten(tree)[1] for tree in (self.feedback, learned))
                raise CreditscopeError(
                    f"Expected learn_feedback of rule {self.rule.name!r} to return what draw_feedback does, {own}, "
                    f"but got {got}."
                )
            return leaves_of(learned)

        return self._each_seed(learn, forward, errors, top, "none")

    def credits(
        self, forward: Forward, errors: RowErrors, top: Tensor | None, how: CreditNorm, feedback: Feedback | None = None
    ) -> Given:
        """Credit, and what stages learn at; chains are normalised by link."""

        def credit(context: CreditContext) -> Given:
            given = self.rule.credit(context)
            if isinstance(given, Credit) is not self.rule.hands_on:
                says = "hands_on = True" if self.rule.hands_on else "hands_on = False"
                raise CreditscopeError(
                    f"Expected a Credit of rule {self.rule.name!r} if, and only if, it sets hands_on = True, but got a "
                    f"{type(given).__name__} with {says}."
                )
            given = given if isinstance(given, Credit) else Credit(given, [])
            handed_on = self._checked("state handed on", given.handed_on, context)
            other = [] if given.inputs is None else [given.inputs]
            return Given(self._checked("credit", given.at_taps, context), handed_on, other)

        return self._each_seed(credit, forward, errors, top, "none" if how == "sample-mean" else how, feedback)

    def _checked(self, what: str, given: Sequence[Tensor], context: CreditContext) -> list[Tensor]:
        """One tensor per tap, of the state's shape; states handed on may be left out."""
        shapes = [tuple(a.shape) if isinstance(a, Tensor) else type(a).__name__ for a in given]
        if shapes != context.state_shapes and (what == "credit" or shapes or self.rule.hands_on):
            raise CreditscopeError(
                f"Expected rule {self.rule.name!r} to give one {what} per tap of the state's shape, "
                f"{context.state_shapes}, but got {shapes}."
            )
        return list(given)

    def _each_seed(
        self,
        function: Callable[[CreditContext], Any],
        forward: Forward,
        errors: RowErrors,
        top: Tensor | None,
        chain: CreditNorm,
        feedback: Feedback | None = None,
    ) -> Any:
        """What a function makes of the context of one net, or of every seed's own share of a stack."""
        net, taps = pattern_of(self.net), self.anatomy.taps

        def one_seed(inputs, error, output, target, states, feedback, top, tensors) -> Any:
            return function(
                CreditContext(
                    error=error,
                    output=output,
                    target=target,
                    states=states,
                    feedback=feedback,
                    top_gradient=top,
                    inputs=inputs,
                    mask=errors.mask,
                    class_token=self.anatomy.class_token,
                    net_mixes_rows=self.anatomy.rows_interact,
                    normalise=lambda a: normalise_credit(a, chain),
                    forward=Again(net, taps, inputs, tensors, states if forward.states_only else None),
                    loss=lambda output: losses_per_row(output, target, errors.loss_function, errors.mask),
                )
            )

        named = None  # the net as it is, if a pass can leave nothing behind in it
        if isinstance(self.net, StackedNet) or forward.tensors or self._has_buffers:
            named = detached_tensors(self.net) | {name: t.detach() for name, t in (forward.tensors or {}).items()}
        states, feedback = [h.detach() for h in forward.states], self.feedback if feedback is None else feedback
        top = top if self.rule.needs_top_gradient else None
        seen = (errors.error, errors.output, errors.target, states, feedback, top, named)
        return self._each(one_seed, forward.inputs, *seen)

    def _each(self, function: Callable, inputs: Any, *arguments: Any) -> Any:
        """A function of one net, or of every seed of a stack."""
        if isinstance(self.net, StackedNet):
            return self.net.each(function, inputs, *arguments)
        return function(inputs, *arguments)

    def _called_with(self, inputs: Any, other: Sequence[Tensor]) -> Any:
        """The inputs, with another first argument if there is one: in a stack every seed then has its own."""
        if not other:
            return inputs
        if not isinstance(self.net, StackedNet):
            return with_first(inputs, other[0])
        if isinstance(inputs, PerSeed):
            return PerSeed((*other, *as_arguments(inputs.inputs)[1:]))
        shared = [t.expand(self.net.seeds, *t.shape) if isinstance(t, Tensor) else t for t in as_arguments(inputs)[1:]]
        return PerSeed((*other, *shared))

    def _measure_taps(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> Told:
        """Weight gradients by one backward that stops at every tap."""
        told, handed_on, other = self.credits(forward, errors, exact[-1], "none")
        credits = told
        if self.credit_norm != "none":
            told, handed_on, other = self.credits(forward, errors, exact[-1], self.credit_norm)
        at, error = forward, errors.error
        if handed_on:
            inputs = self._called_with(forward.inputs, other)
            at = watch_forward(self.net, self.anatomy.taps, inputs, forward.tensors, instead=handed_on)
            error = errors.at(at.output).error
        roots = [(at.output, error), *zip(at.states, self._applied(forward, told), strict=True)]
        outputs, gradients = zip(*((h, a) for h, a in roots if h.grad_fn is not None), strict=True)
        with at.gate.shut():
            found = torch.autograd.grad(
                outputs, list(parameters.values()), gradients, retain_graph=True, allow_unused=True
            )
        weights = {name: g for name, g in zip(parameters, found, strict=True) if g is not None}
        return Told(credits, weights, handed_on)

    def _applied(self, forward: Forward, credits: Sequence[Tensor]) -> list[Tensor]:
        """As training gives it: normalised, and with the penalty's pull."""
        applied = list(credits)
        if self.credit_norm != "none":
            applied = [
                self._each(lambda _, a: normalise_credit(a, self.credit_norm, self.batch), None, a) for a in credits
            ]
        if self.penalty:
            for i, f in self.anatomy.block_changes(forward):
                applied[i] = applied[i] + 2 * self.penalty * f
        return applied

    # -- weight rules ------------------------------------------------------------------------------------------------

    def _by_backward(self, inputs: Any, errors_of: Callable[[Tensor], RowErrors]) -> RowErrors:
        """One backward pass, after the memories of the layers have learned."""
        if self.rule.learns_feedback:
            own = self._named_tensors()
            if new := self.next_memories(tensors=own):
                torch._foreach_copy_([own[name] for name in new], list(new.values()))
        if self.penalty:
            forward = watch_forward(self.net, self.anatomy.taps, inputs)
            errors = errors_of(forward.output)
            roots, gradients = self._roots(forward, errors)
            torch.autograd.backward(roots, [g / errors.count for g in gradients])
        else:
            output = call_net(self.net, inputs)
            errors = errors_of(output)
            output.backward(errors.gradient)
        if follow := self.followers():
            parameters = dict(self.net.named_parameters())
            for name, memories in follow.items():
                for memory in memories:
                    memory.grad = parameters[name].grad
        return errors

    @torch.no_grad()
    def next_memories(self, steps: int = 0, tensors: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
        """Feedback and counters of all layers after the next step, or that of so many steps later, by buffer name."""
        rule: WeightRule = self.rule
        named = tensors or self._named_tensors()
        own = {
            name: tuple(named[one].detach() for one in (weight, f"{name}.feedback", f"{name}.counter"))
            for name, weight in self._weight_names.items()
        }
        if steps:
            own = {name: (w, m, advanced(counter, steps)) for name, (w, m, counter) in own.items()}
        device = next(iter(self.net.parameters())).device.type
        with torch.autocast(device, enabled=False):  # a running mean in half precision would stand still
            return self._each(lambda _, own: learn_memories(rule, self._layers, own), None, own)

    @cached_property
    def _has_buffers(self) -> bool:
        return any(True for _ in self.net.buffers())

    @cached_property
    def _layers(self) -> dict[str, WithFeedback]:
        return layers_with_feedback(self.net)

    @cached_property
    def _weight_names(self) -> dict[str, str]:
        return weight_names(self.net)

    def _named_tensors(self) -> dict[str, Tensor]:
        """Weights, feedback and counters of layers with feedback, by name; a net is not searched for them again."""
        if isinstance(self.net, StackedNet):
            return {**dict(self.net.named_parameters()), **dict(self.net.named_buffers())}
        found: dict[str, Tensor] = {}
        for name, layer in self._layers.items():
            found[self._weight_names[name]] = layer.weight
            found |= {f"{name}.feedback": layer.feedback, f"{name}.counter": layer.counter}
        return found

    def _measure_backward(
        self, forward: Forward, errors: RowErrors, exact: Sequence[Tensor], parameters: Mapping[str, Tensor]
    ) -> Told:
        """Both are the exact ones for backprop, so nothing is computed; a penalty costs one more backward."""
        credits, weights = list(exact), {}
        wanted = list(parameters.values())
        if transport_of(self.net) is not None:
            credited = wanted if not self.penalty else []
            found = torch.autograd.grad(
                forward.output, [*forward.states, *credited], errors.error, retain_graph=True, allow_unused=True
            )
            credits = [torch.zeros_like(h) if a is None else a for h, a in zip(exact, found, strict=False)]
            weights = dict(zip(parameters, found[len(exact) :], strict=False))
        if self.penalty:
            roots, gradients = self._roots(forward, errors)
            found = torch.autograd.grad(roots, wanted, gradients, retain_graph=True, allow_unused=True)
            weights = dict(zip(parameters, found, strict=True))
        return Told(credits, {name: g for name, g in weights.items() if g is not None}, [])

    def _roots(self, forward: Forward, errors: RowErrors) -> tuple[list[Tensor], list[Tensor]]:
        pulls = [torch.zeros_like(h) for h in forward.states]
        for i, f in self.anatomy.block_changes(forward):
            pulls[i] += 2 * self.penalty * f
            pulls[i - 1] -= 2 * self.penalty * f
        return [forward.output, *forward.states], [errors.error, *pulls]


def _key(part: Any) -> Any:
    """What a step into a list or dictionary is called."""
    return part.key if hasattr(part, "key") else part.idx
