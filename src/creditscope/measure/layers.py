"""Layer by layer, over all rows at once: gradients at the pre-activations Z_l, sizes of the states H_l, linear probes.

For nets that name their pre-activations (`pre_activations`, globs of the modules that give Z_0 .. Z_{L−1}). H_0 is the
net's first argument, H_1 .. H_{L−1} are its taps, H_L is its output. All seeds of a stack are measured at once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from creditscope.errors import CreditscopeError
from creditscope.losses import errors_function
from creditscope.measure.numerics import row_norms
from creditscope.measure.observation import exactly
from creditscope.measure.probe import probe_layers
from creditscope.stack import Batch, Net, StackedNet, as_arguments, pattern_of
from creditscope.taps import leave_untouched, resolve_taps, watch_forward


def layer_names(net: Net) -> tuple[str, ...]:
    """The modules that give Z_0 .. Z_{L−1}; none if the net does not name them."""
    pattern = pattern_of(net)
    declared = getattr(pattern, "pre_activations", ())
    return resolve_taps(pattern, declared) if declared else ()


def measure_layers(
    net: Net,
    taps: Sequence[str],
    inputs: Any,
    target: Tensor,
    *,
    mask: Tensor | None = None,
    probe: tuple[Batch, Batch] | None = None,
) -> dict[str, Tensor]:
    """The fields of `LayerMeasures`, with the seeds of a stack first; `probe` holds rows to train and to test on."""
    names = layer_names(net)
    if len(names) != len(taps) + 1:
        raise CreditscopeError(
            f"Expected pre_activations to name {len(taps) + 1} modules, one for each tap and one for the output, but "
            f"got {', '.join(names)}."
        )
    seeds = (net.seeds,) if isinstance(net, StackedNet) else ()

    def joined(values: Sequence[Tensor]) -> Tensor:
        """One value per layer as the last axis; what all seeds share is repeated."""
        return torch.stack([value.expand(seeds) for value in values], dim=-1)

    with leave_untouched(net) as buffers, exactly(net):
        forward = watch_forward(net, names, inputs, buffers)
        errors = errors_function(net, target, mask=mask)(forward.output)
        gradients = torch.autograd.grad(forward.output, forward.states, errors.error)
        found = {"z_grad": joined([row_norms(g.flatten(-2)) / errors.count for g in gradients])}
        del forward, gradients
        states = _states(net, taps, inputs, buffers)
        found["rms"] = joined([_rms(h.double()) for h in states])
        found["dispersion"] = joined([_rms(_centred(h.double())) for h in states])
        if probe is not None:
            known, unknown = (
                states if batch.inputs is inputs else _states(net, taps, batch.inputs, buffers) for batch in probe
            )
            found["probe"] = joined(_probe(known, unknown, *probe))
            rows = torch.tensor(len(probe[1].only_scored(probe[1].target)))
            found["probe_rows"] = joined([rows.to(target.device)])[..., 0]
    return found


def _states(net: Net, taps: Sequence[str], inputs: Any, buffers: dict[str, Tensor]) -> list[Tensor]:
    """H_0 .. H_L."""
    with torch.no_grad():
        forward = watch_forward(net, taps, inputs, buffers)
    return [as_arguments(inputs)[0], *(h.detach() for h in forward.states), forward.output.detach()]


def _rms(h: Tensor) -> Tensor:
    """√(mean of all entries squared) of (…, rows, features)."""
    flat = h.flatten(-2)
    return row_norms(flat) / flat.shape[-1] ** 0.5


def _centred(h: Tensor) -> Tensor:
    return h - h.mean(-2, keepdim=True)


def _probe(states: Sequence[Tensor], others: Sequence[Tensor], train: Batch, test: Batch) -> list[Tensor]:
    """Probe accuracy of every layer, trained on some rows and tested on others; NaN where nothing varies over rows."""
    y, y_test = (batch.only_scored(batch.target) for batch in (train, test))
    known, unknown = ([batch.only_scored(h, dim=-2) for h in of] for of, batch in ((states, train), (others, test)))
    found = probe_layers([*zip(known, unknown, strict=True)], y, y_test, states[-1].shape[-1])
    # a tap's own probe says the share of one class there
    varies = [(h.amax(-2) > h.amin(-2)).any(-1) for h in known]
    return [torch.where(seen, accuracy, torch.nan) for seen, accuracy in zip(varies, found, strict=True)]
