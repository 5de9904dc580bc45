"""Sizes of states and gradients, in units that do not depend on the batch."""

from torch import Tensor

from creditscope.measure.numerics import median_where, quartiles_where, row_norms, usable


def measure_scale(h: Tensor, g_norms: Tensor, e_norms: Tensor) -> dict[str, Tensor]:
    """Quartiles over rows of ‖h‖ and ‖g‖, RMS of h, and g_rel = median ‖g‖·‖h‖/‖e‖, which is free of scale.

    h is (…, rows, features), the norms are (…, rows).
    """
    h_norms = row_norms(h)
    h_low, h_mid, h_high = quartiles_where(h_norms, h_norms.isfinite())
    g_low, g_mid, g_high = quartiles_where(g_norms, usable(g_norms))
    return {
        "h_norm": h_mid,
        "h_norm_q25": h_low,
        "h_norm_q75": h_high,
        "h_rms": row_norms(h_norms) / (h.shape[-2] * h.shape[-1]) ** 0.5,
        "g_norm": g_mid,
        "g_norm_q25": g_low,
        "g_norm_q75": g_high,
        "g_rel": median_where(g_norms / e_norms * h_norms, usable(g_norms) & usable(e_norms)),
    }
