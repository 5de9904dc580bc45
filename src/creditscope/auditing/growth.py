"""Growth of the stream over a block: RMS(h_l) / RMS(h_{l−1}) at residual taps of equal shape."""

from creditscope.record import Facts, Snapshot


def growths(facts: Facts, snapshot: Snapshot) -> dict[int, float]:
    """Over every residual stage of equal shape, by tap."""
    rms, found = snapshot.taps.h_rms, {}
    for tap in comparable_taps(facts):
        above, below = rms[tap], rms[tap - 1]
        if above is not None and below:
            found[tap] = above / below
    return found


def largest_growth(facts: Facts, snapshot: Snapshot) -> float | None:
    """Over one block; None where no two taps can be compared."""
    return max(growths(facts, snapshot).values(), default=None)


def comparable_taps(facts: Facts) -> list[int]:
    """Residual taps of the same shape as the tap before."""
    return [t for t, adds in enumerate(facts.residual) if adds and facts.tap_shapes[t] == facts.tap_shapes[t - 1]]
