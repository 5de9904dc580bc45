"""CS002, reference unresolved: the exact gradient drowns in rounding, or most rows have no error left."""

from creditscope.auditing.checks import Finding, Moment, RunCheck, Thresholds, register_check
from creditscope.auditing.thresholds import PUBLISHED_FLOOR
from creditscope.text import amount, name_all


@register_check("cs002_unresolved_reference")
class UnresolvedReference(RunCheck):
    """Judged by recomputation in float64, not by size; the published floor on size is a tip."""

    code, title, line = "CS002", "reference gradient unresolved", "reference"
    value_is = "worst g_noise over the taps"
    value_limit = "noise"
    when = "the reference drowns in rounding, or most rows have no error left"
    why = "A cosine with rounding noise says nothing."
    remedy = (
        "Measure in float64 (`--precision float64`), or evaluate on rows that are not fitted yet (an earlier snapshot)."
    )

    pooled_size = "rounding noise of the gradient at worst"
    pooled_tip = "so it is resolved, although ‖g_L‖ is under the published floor in most seeds"

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        """Noise first, then rows without error, then the published floor."""
        facts, snapshot = moment.facts, moment.snapshot
        top = snapshot.taps.g_norm[-1]
        published = top is not None and top < PUBLISHED_FLOOR
        if snapshot.rows_covered and snapshot.rows_fitted / snapshot.rows_covered > limits.fitted_rows:
            return self.issue(
                f"{snapshot.rows_fitted:,} of {snapshot.rows_covered:,} rows have no resolvable error left",
                published=published,
            )
        if not any(snapshot.taps.rows_used):
            lost = [tap for tap, size in enumerate(snapshot.taps.h_norm) if size is None]
            why = f"the state is not finite at {name_all('tap', lost)}: the net has diverged"
            return self.issue(why if lost else "no row has a finite gradient at any tap", published=published)
        noise = {tap: value for tap, value in enumerate(snapshot.taps.g_noise) if value is not None}
        if not noise and facts.precision == "float64":
            return self.not_applicable("the run is in float64 already; there is nothing finer to compare with")
        if not noise:
            off = moment.spec is not None and not moment.spec.noise
            remedy = "run without --no-noise" if off else moment.remedy()
            why = [note for note in snapshot.notes if note.startswith("g_noise")]
            return self.skipped("; ".join(why) or f"g_noise was not measured ({remedy})")
        tap, worst = max(noise.items(), key=lambda item: item[1])
        others = {"value": worst, "published": published}
        said = f"rounding noise {amount(worst, 2)} of the gradient at worst (tap {tap})"
        if worst > limits.noise:
            return self.issue(f"{said}; the limit is {limits.noise:g}", **others)
        unknown = [tap for tap in range(len(facts.taps)) if tap not in noise]
        if unknown:
            return self.skipped(f"no usable rows at {name_all('tap', unknown)}")
        if top is not None and top < limits.floor:
            floor = "the published floor" if published else f"a floor of {amount(limits.floor)}"
            return self.tip(f"{said}, so it is resolved, although ‖g_L‖ = {amount(top, 2)} is under {floor}", **others)
        return self.passed(said, **others)
