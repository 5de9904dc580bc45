"""CS003, one direction for all: how much of the reference gradient is one direction that all rows share (a tip)."""

from creditscope.auditing.checks import Finding, Moment, RunCheck, Thresholds, register_check
from creditscope.text import number


@register_check("cs003_one_direction")
class OneDirection(RunCheck):
    """(‖Σg‖² − Σ‖g‖²)/((n−1)Σ‖g‖²) per tap; normal early in training and under class imbalance, so never an issue."""

    code, title, line = "CS003", "one direction for all rows", "reference"
    value_is = "largest `common` over the taps"
    value_limit = "common"
    when = "more than {common:g} of the reference is one direction for all rows: a tip"
    why = (
        "Where all rows want the same change, any credit with that one direction has a large cosine, whatever it "
        "knows of the single row."
    )
    remedy = (
        "Read the cosine at that tap beside the permuted one (`permuted_cos`: credit of another row): what remains "
        "of the difference is what the credit knows of the row. Balance the classes, or look later in training."
    )
    sufficient = False
    advisory = True

    def judge(self, moment: Moment, limits: Thresholds) -> Finding:
        shares = {tap: share for tap, share in enumerate(moment.snapshot.taps.common) if share is not None}
        if not shares:
            return self.skipped(f"common was not measured ({moment.remedy()})")
        tap, most = max(shares.items(), key=lambda item: item[1])
        said = f"{number(most, '.2f')} of the gradient at tap {tap} is one direction shared by all rows"
        if most > limits.common:
            above = f"above {limits.common:g}: a cosine there can come from that one direction"
            return self.tip(f"{said}, {above}", value=most)
        return self.passed(f"at most {said}", value=most)
