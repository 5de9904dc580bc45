"""CS007, weight gradients vanish: all elements exactly zero, or a float32 norm that underflows (told apart)."""

from creditscope.auditing.checks import Finding, Moment, RunCheck, Thresholds, register_check
from creditscope.text import first_few

NAMED = 3
"""Weights that a message names; the others are counted."""


@register_check("cs007_vanishing_weight_gradients")
class VanishingWeightGradients(RunCheck):
    """Speaks of the rule's gradient on the last training batch, and of BP's on the snapshot's rows."""

    code, title, line = "CS007", "weight gradients vanish", "reference"
    when = "a weight gets no gradient, or one whose norm underflows"
    why = "A weight that is told nothing learns nothing, and a printed norm of 0.0 is often only an underflow."
    remedy = (
        "Exactly zero: look for dead units, saturation, a detached branch. Underflow: rescale (initial gain, "
        "normalisation), and look at weight decay that outweighs the gradient."
    )

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Issue if a weight on the way to the output gets nothing although there is an error; before training a tip."""
        facts, snapshot = moment.facts, moment.snapshot
        weights = snapshot.weights
        if weights is None:
            return self.skipped("no weight gradients were measured")
        if snapshot.rows_fitted >= snapshot.rows_covered:
            return self.not_applicable("no row has an error to send down")
        trained = weights.step_all_zero[0] is not None and bool(snapshot.step_error)
        own = (weights.step_all_zero, weights.step_underflow) if trained else (weights.all_zero, weights.underflow)
        whose: dict[str, list[str]] = {}
        for name, zero, underflow in (
            ("the rule's gradient", *own),
            ("BP's gradient", weights.exact_all_zero, weights.exact_underflow),
        ):
            for what, flags in (("is exactly zero", zero), ("is not zero but its float32 norm underflows", underflow)):
                hit = [w.name for w, flag in zip(facts.weights, flags, strict=True) if flag and w.role != "unused"]
                if hit:
                    whose.setdefault(f"{what} for {first_few(hit, NAMED)}", []).append(name)
        if whose:
            owners = {what: names[0] if len(names) == 1 else f"{names[0]}, and BP's," for what, names in whose.items()}
            said = "; ".join(f"{owner} {what}" for what, owner in owners.items())
            if snapshot.untrained:
                return self.tip(f"before training {said}: so it is by design where a branch starts at zero")
            return self.issue(said)
        unused = [w.name for w in facts.weights if w.role == "unused"]
        said = f"all {len(facts.weights) - len(unused)} weights on the way to the output get a gradient"
        if unused:
            return self.tip(f"{said}, but nothing reaches {first_few(unused, NAMED)}: detached, or not used")
        return self.passed(said)
