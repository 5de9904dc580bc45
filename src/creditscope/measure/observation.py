"""What every measurement is made from: one forward, the exact gradients, the rule's credit; and the facts of a run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from creditscope.casting import Casting
from creditscope.errors import CreditscopeError, raise_out_of_memory
from creditscope.losses import RowErrors, RowLoss, errors_function
from creditscope.measure.cuts import Cuts
from creditscope.measure.health import ModuleWatch, watch_modules
from creditscope.measure.numerics import flat_rows, row_norms
from creditscope.measure.weights import may_be_rounding
from creditscope.options import declared_options
from creditscope.record.schema import Facts, RuleFacts, WeightFact
from creditscope.rules import Application, AppliedRule, Rule, transport_of
from creditscope.stack import Net, StackedNet, call_net, pattern_of
from creditscope.taps import Forward, check_rows, gradients_at, leave_untouched, watch_forward

NOT_STACKED = ("errors", "notes", "modules", "unreached", "exact32", "lost", "asides")
"""Parts of an observation without an axis of seeds."""


@dataclass
class Observation:
    """Tensors of one moment; lists are per tap, dictionaries per weight and summed over the rows."""

    output: Tensor
    errors: RowErrors
    states: list[Tensor]
    exact: list[Tensor]
    """g_l, per sample."""
    credits: list[Tensor]
    """a_l, per sample, before normalisation."""
    weights: dict[str, Tensor]
    """The trained weights themselves."""
    exact_weights: dict[str, Tensor]
    rule_weights: dict[str, Tensor]
    """What training would put in `.grad` on these rows, times their number; weights left out get the exact one."""
    handed_on: list[Tensor] = field(default_factory=list)
    """The states that stages would learn at, if these are not the forward's."""
    exact64: list[Tensor] | None = None
    exact64_weights: dict[str, Tensor] = field(default_factory=dict)
    """Of weights whose gradient is so small beside the others' that it may be rounding."""
    exact32: list[Tensor] | None = None
    """g_l without the caller's autocast and loss scale, if there was such."""
    lost: list[Tensor] | None = None
    """Per weight, the share of entries of the gradient that are zero under them, and are not without."""
    modules: ModuleWatch | None = None
    """What modules showed in the forward, where that was asked for."""
    unreached: frozenset[str] = frozenset()
    """Weights that no gradient gets to."""
    asides: dict[str, Any] = field(default_factory=dict)
    """Numbers on the device that travel with the rest; plain ones once they did."""
    notes: list[str] = field(default_factory=list)

    @property
    def seeds(self) -> int | None:
        """How many, in a stack, where all tensors have an axis of seeds in front; None for one net."""
        return len(self.errors.loss) if self.errors.loss.ndim > 1 else None


def observe(
    net: Net,
    applied: AppliedRule,
    inputs: Any,
    target: Tensor,
    *,
    loss: RowLoss | None = None,
    mask: Tensor | None = None,
    noise: bool = True,
    health: bool = False,
    find_cuts: bool = True,
    casting: Casting | None = None,
) -> Observation:
    """One forward and two backwards (three with `noise`); credit and reference share the forward, masks and all.

    With `health` the modules of the net are looked at in that forward, too, and cut paths are found. With `casting`
    forward and gradients are what training sees under it, where the gradient is all that a rule tells; with `noise`
    float32 is beside them.
    """
    errors_of = errors_function(net, target, loss, mask)
    parameters = {name: p for name, p in net.named_parameters() if p.requires_grad}
    with leave_untouched(net) as buffers:
        stream = random_state(net)
        casting = casting if casting and is_plain(net, applied.rule) else None
        taps, copies = applied.anatomy.taps, not health or _needs_copies(net, applied)
        with casting.on() if casting else nullcontext():
            looked = health and partial(watch_modules, pattern_of(net), taps, len(target), find_cuts=find_cuts)
            forward, modules = _look_through(net, taps, inputs, buffers, looked, copies)
        if not copies and forward.overwritten:  # this time a module works in place
            _set_random_state(net, stream)
            own = {name: b.detach().clone() for name, b in net.named_buffers()}
            with casting.on() if casting else nullcontext():
                forward, modules = _look_through(net, taps, inputs, own, looked, True)
        drew_on_cuda = any(not torch.equal(*pair) for pair in zip(stream[1:], random_state(net)[1:], strict=True))
        output = forward.output.detach()
        errors = errors_of(_at_least_float32(output) if casting else output)
        observation = observe_forward(net, applied, forward, errors, parameters, casting)
        if modules is not None and find_cuts:
            modules.cut = modules.cuts.facts([parameters[name] for name in observation.unreached])
        observation.modules = modules and replace(modules, cuts=Cuts())  # without the graph
        del forward
        if noise and casting:
            _set_random_state(net, stream)
            _add_float32(observation, net, taps, inputs, errors_of, parameters)
        if noise:
            _set_random_state(net, stream)
            _add_float64(observation, net, applied.anatomy.taps, inputs, errors_of, drew_on_cuda)
    return observation


def observe_forward(
    net: Net,
    applied: AppliedRule,
    forward: Forward,
    errors: RowErrors,
    parameters: Mapping[str, Tensor],
    casting: Casting | None = None,
) -> Observation:
    """Credit and exact gradients of one watched forward, at its taps and for `parameters`, by two backwards."""
    if not isinstance(net, StackedNet):
        check_rows(forward, applied.anatomy.taps)
    wanted = [*forward.states, *parameters.values()]
    with exactly(net):
        keep = not is_plain(net, applied.rule) or bool(applied.penalty)
        factor = casting.factor(errors.count) if casting else None
        error = errors.error if factor is None else (errors.error * factor).to(forward.output.dtype)
        given = torch.autograd.grad(forward.output, wanted, error, retain_graph=keep, allow_unused=True)
        if factor is not None:
            given = [None if g is None else _at_least_float32(g) / factor for g in given]
    found = [torch.zeros_like(t) if g is None else g for t, g in zip(wanted, given, strict=True)]
    exact = found[: len(forward.states)]
    told = applied.measure(forward, errors, exact, parameters)
    return Observation(
        output=errors.output if casting else forward.output.detach(),
        errors=errors,
        states=[_at_least_float32(h.detach()) for h in forward.states],
        exact=[_at_least_float32(g) for g in exact],
        credits=[_at_least_float32(a) for a in told.credits],
        weights={name: p.detach() for name, p in parameters.items()},
        exact_weights=dict(zip(parameters, found[len(exact) :], strict=True)),
        rule_weights=told.weights,
        handed_on=told.handed_on,
        unreached=frozenset(name for name, g in zip(parameters, given[len(exact) :], strict=True) if g is None),
    )


def _look_through(
    net: Net, taps: Sequence[str], inputs: Any, buffers: dict[str, Tensor], looked: Any, copies: bool
) -> tuple[Forward, ModuleWatch | None]:
    """A watched forward, and what its modules show if they are looked at."""
    with looked() if looked else nullcontext() as modules:
        return watch_forward(net, taps, inputs, buffers, copies=copies), modules


def _needs_copies(net: Net, applied: AppliedRule) -> bool:
    """Whether states must be kept from modules that work in place, or from gradients that are to stop at taps."""
    return applied.anatomy.in_place or not is_plain(net, applied.rule)


def is_plain(net: Net, rule: Rule) -> bool:
    """Whether what a rule tells is the gradient itself, by one plain backward."""
    return rule.name == "bp" and transport_of(net) is None and not isinstance(net, StackedNet)


def fitted_rows(errors: RowErrors) -> tuple[Tensor, Tensor]:
    """‖e‖ of every row, and whether the row is fitted: ‖e‖ is no normal number any more, with all its digits."""
    e_norms = row_norms(flat_rows(errors.error))
    return e_norms, errors.covered & (e_norms < torch.finfo(e_norms.dtype).tiny)


def observation_of_seed(seen: Observation, seed: int) -> Observation:
    """One seed's share of what was seen of a stack, by its place; views, not copies."""
    return _with_tensors(seen, tree_map(lambda t: t[seed], _stacked_tensors(seen)))


def map_seeds(function: Callable, seen: Observation, *stacked: Any) -> Any:
    """`function` of each seed's share of what was seen, and of what else is stacked (None stays None), by `vmap`."""
    in_dims = (0, *(None if argument is None else 0 for argument in stacked))
    mapped = torch.vmap(lambda tensors, *own: function(_with_tensors(seen, tensors), *own), in_dims=in_dims)
    return mapped(_stacked_tensors(seen), *stacked)


def _stacked_tensors(seen: Observation) -> dict[str, Any]:
    """All that has a seed axis: not the notes, nor the mask, nor what was not measured."""
    observed = {name: v for name, v in vars(seen).items() if name not in NOT_STACKED and v is not None}
    errors = {name: v for name, v in vars(seen.errors).items() if isinstance(v, Tensor) and name != "mask"}
    return {"errors": errors, "observed": observed}


def _with_tensors(seen: Observation, tensors: dict[str, Any]) -> Observation:
    return replace(seen, errors=replace(seen.errors, **tensors["errors"]), **tensors["observed"])


def exact_weight_gradients(
    net: Net, inputs: Any, target: Tensor, *, mask: Tensor | None = None, tensors: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """BP's gradient of the mean loss for every trained weight, in the net's present mode; `.grad` is not touched.

    `tensors` are parameters and buffers to use instead of the net's own: those of a moment ago, say.
    """
    given = tensors or {}
    parameters = {name: given.get(name, p) for name, p in net.named_parameters() if p.requires_grad}
    with leave_untouched(net) as buffers, exactly(net):
        output = call_net(net, inputs, buffers | given)
        errors = errors_function(net, target, mask=mask)(output)
        found = gradients_at(list(parameters.values()), output, errors.error / errors.count)
    return dict(zip(parameters, found, strict=True))


def exactly(net: Net):
    """Inside, backward passes through `net` are exact whatever feedback it carries."""
    transport = transport_of(net)
    return transport.exactly() if transport else nullcontext()


def _add_float32(
    seen: Observation, net: Net, taps: Sequence[str], inputs: Any, errors_of: Callable, parameters: Mapping[str, Tensor]
) -> None:
    """The exact gradients as they are without autocast and loss scale, and what these lose."""
    own = {name: b.detach().clone() for name, b in net.named_buffers()}
    forward = watch_forward(net, taps, inputs, own)
    wanted = [*forward.states, *parameters.values()]
    found = gradients_at(wanted, forward.output, errors_of(forward.output).error)
    seen.exact32, weights = found[: len(taps)], found[len(taps) :]
    pairs = zip(weights, seen.exact_weights.values(), strict=True)
    seen.lost = [((cast == 0) & (whole != 0)).double().mean() for whole, cast in pairs]


def _add_float64(
    seen: Observation, net: Net, taps: Sequence[str], inputs: Any, errors_of: Callable, drew_on_cuda: bool
) -> None:
    """The exact gradient at every tap with weights, buffers and inputs in float64; or a note why there is none."""
    if seen.errors.loss.dtype == torch.float64:
        seen.notes.append("g_noise not measured: the net is in float64 already")
    elif drew_on_cuda:
        seen.notes.append("g_noise not measured: random layers on CUDA draw other masks in float64")
    else:
        try:
            with exactly(net):
                tensors = {n: double(t.detach()) for n, t in (*net.named_parameters(), *net.named_buffers())}
                small = {name: tensors[name].requires_grad_() for name in _smallest(seen)}
                forward = watch_in(torch.float64, net, taps, double(inputs), tensors)
                wanted = [*forward.states, *small.values()]
                found = gradients_at(wanted, forward.output, errors_of(forward.output).error)
                seen.exact64 = found[: len(forward.states)]
                seen.exact64_weights = dict(zip(small, found[len(forward.states) :], strict=True))
        except (RuntimeError, TypeError, CreditscopeError) as error:
            if isinstance(net, StackedNet):
                raise_out_of_memory(error)  # fewer seeds at once will have room
            seen.notes.append(f"g_noise not measured: the net does not run in float64 ({error})"[:300])


def _smallest(seen: Observation) -> list[str]:
    """Weights whose exact gradient may be rounding, in some seed; of others no float64 is needed."""
    if not seen.exact_weights:
        return []
    small = may_be_rounding(seen.exact_weights.values(), seeds=seen.seeds or 1).any(-1).tolist()
    return [name for name, is_small in zip(seen.exact_weights, small, strict=True) if is_small]


def watch_in(dtype: torch.dtype, net: Net, taps: Sequence[str], inputs: Any, tensors: dict[str, Tensor]) -> Forward:
    """A watched forward with tensors of a precision, which it must not leave."""
    forward = watch_forward(net, taps, inputs, tensors)
    if forward.output.dtype != dtype:
        raise CreditscopeError(f"Expected a forward that stays in float64, but it casts to {forward.output.dtype}.")
    return forward


def double(value: Any) -> Any:
    """Floating tensors in float64, others as copies, so that a forward that counts (BatchNorm) counts in the copy."""
    if isinstance(value, tuple):
        return tuple(map(double, value))
    if isinstance(value, Mapping):
        return {name: double(held) for name, held in value.items()}
    if isinstance(value, Tensor) and not value.is_floating_point():
        return value.clone()
    return value.double() if hasattr(value, "double") else value


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _cuda_devices(net: Net) -> list[torch.device]:
    if not torch.cuda.is_initialized():
        return []
    return sorted({p.device for p in net.parameters() if p.device.type == "cuda"}, key=str)


def random_state(net: Net) -> list[Tensor]:
    """The states of the random streams that a forward of this net may draw from."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(d) for d in _cuda_devices(net))]


def _set_random_state(net: Net, states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    for device, state in zip(_cuda_devices(net), states[1:], strict=True):
        torch.cuda.set_rng_state(state, device)


def rule_facts(rule: Rule) -> RuleFacts:
    """What a rule states of itself, and which of its options are not the default."""
    usual = declared_options(type(rule))
    unusual = {name: value for name, default in usual.items() if (value := getattr(rule, name, default)) != default}
    return RuleFacts(
        name=rule.name,
        label=rule.label or rule.name,
        variant=", ".join(f"{name} {value}" for name, value in unusual.items()),
        formula=rule.formula,
        approximates=rule.approximates,
        local=rule.local,
        needs_feedback=rule.needs_feedback or type(rule).__dict__.get("draw_feedback") is not None,
        draws_noise=rule.draws_noise,
        rows_interact=rule.rows_interact,
        learns_feedback=rule.learns_feedback,
        hands_on=rule.hands_on,
        passes=float(rule.passes),
    )


def gather_facts(rule: Rule, application: Application, **others: Any) -> Facts:
    """Facts of a rule at work on a net; `others` are those of the task or the caller."""
    anatomy, report = application.anatomy, application.report
    stage_of = {name: i for i, stage in reversed(list(enumerate(anatomy.stages))) for name in stage}
    weights = tuple(
        WeightFact(name=name, stage=stage_of.get(name, -1), role=role)
        for name, role in report.roles.items()
        if role != "frozen"
    )
    return Facts(
        rule=rule_facts(rule),
        taps=anatomy.taps,
        tap_shapes=anatomy.shapes,
        exact_taps=application.exact_taps,
        residual=anatomy.residual,
        rows_interact=anatomy.rows_interact,
        class_token=anatomy.class_token,
        weights=weights,
        frozen_weights=tuple(report.names("frozen")),
        classes=anatomy.classes,
        **others,
    )
