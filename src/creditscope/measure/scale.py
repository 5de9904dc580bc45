"""Sizes of states and gradients, in units that do not depend on the batch."""

from torch import Tensor

from creditscope.measure.numerics import (
    flat_rows,
    median_where,
    quartiles_where,
    row_norms,
    total_norm,
    usable,
)


def measure_scale(h: Tensor, g: Tensor, e: Tensor) -> dict[str, Tensor]:
    """Quartiles over rows of ‖h‖ and ‖g‖, RMS of h, and g_rel = median ‖g‖·‖h‖/‖e‖, which is free of scale."""
    h_norms, g_norms, e_norms = (row_norms(flat_rows(t.detach())) for t in (h, g, e))
    h_low, h_mid, h_high = quartiles_where(h_norms, h_norms.isfinite())
    g_low, g_mid, g_high = quartiles_where(g_norms, usable(g_norms))
    return {
        "h_norm": h_mid,
        "h_norm_q25": h_low,
        "h_norm_q75": h_high,
        "h_rms": total_norm(h.detach()) / h.numel() ** 0.5,
        "g_norm": g_mid,
        "g_norm_q25": g_low,
        "g_norm_q75": g_high,
        "g_rel": median_where(g_norms / e_norms * h_norms, usable(g_norms) & usable(e_norms)),
    }
