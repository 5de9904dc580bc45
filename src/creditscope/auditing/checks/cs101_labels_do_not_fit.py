"""CS101, labels or loss do not fit the output: a softmax twice, too many classes, targets that are all the same."""

from creditscope.auditing.checks import Finding, Thresholds, register_check
from creditscope.auditing.checks._network import NetworkCheck, NetworkMoment
from creditscope.record.schema import OutputMeasures

SQUASHERS, FEWEST_CLASSES = ("Sigmoid", "Hardsigmoid", "Softmax"), 5
"""Modules that give numbers from 0 to 1; logits of so many classes do not lie there by chance, those of two may."""
RARE = 1e-6
"""Probability that labels drawn evenly all lie in the lower part, under which they do not by chance."""


@register_check("cs101_labels_do_not_fit")
class LabelsDoNotFit(NetworkCheck):
    """Which loss it is, is read off its error, so that any function of outputs and targets can be judged."""

    code, title, line = "CS101", "labels or loss do not fit the output", "task"
    when = (
        "the loss applies what the output already has, labels use under {used_classes:g} of the classes, or are all one"
    )
    why = (
        "No optimiser helps a net that is asked for the wrong thing, and such a net often learns a little all the same."
    )
    remedy = (
        "Give cross-entropy logits, not probabilities; give a negative log-likelihood log-probabilities. Let the "
        "output have one entry a class, labels from 0 on, and look at the targets of a batch yourself."
    )
    order = 10

    def look(self, net: NetworkMoment, limits: Thresholds) -> Finding:
        output = net.snapshot.output
        assert output is not None
        if output.targets_differ is None:
            return self.not_applicable("the targets are neither labels nor as many numbers as the output has")
        if said := _misfit(output, net.modules[-1].fact.kind if net.modules else ""):
            return self.issue(said, where=_head(net))
        classes, largest = output.classes, output.largest_label
        if classes is None or largest is None or not _asks_for_classes(output):
            return self.passed("outputs, targets and loss fit")
        used = (int(largest) + 1) / classes
        if used <= limits.used_classes and used**net.snapshot.rows_covered < RARE and classes > 2:
            said = f"the output has {classes:,} classes, but labels go from 0 to {largest:.0f} only"
            return self.tip(said) if net.has_learnt else self.issue(said, where=_head(net))
        return self.passed(f"{classes:,} classes, labels to {largest:.0f}; outputs and loss fit")


def _misfit(output: OutputMeasures, last: str) -> str:
    """What does not fit, in words; `last` is the kind of the last module."""
    squashed = bool(output.bounded) and (last in SQUASHERS or (output.classes or 0) >= FEWEST_CLASSES)
    probabilities = (output.probabilities or 0) > 0.99
    if not output.targets_differ and (output.classes is None or _asks_for_classes(output)):
        return "every row has the same target"
    if output.classes == 1:
        return "one output for class labels: its softmax is 1 whatever it is, and so the loss is always 0"
    if probabilities and output.loss_has_softmax:
        return "the output is a softmax already (rows are not negative and sum to 1), and the loss applies another one"
    if squashed and output.loss_has_softmax:
        return (
            "all outputs lie between 0 and 1, as a sigmoid's do, and the loss applies a softmax: it wants any numbers"
        )
    if squashed and output.loss_has_sigmoid:
        return "the output is a sigmoid already (all lies between 0 and 1), and the loss applies another one"
    if output.loss_is_likelihood and (output.log_probabilities or 0) < 0.5:
        return "the loss is a negative log-likelihood, but the output is no log-probabilities: it can fall for ever"
    return ""


def _asks_for_classes(output: OutputMeasures) -> bool:
    """Whether the loss compares classes; targets that are whole numbers may be ages, counts or partners as well."""
    return bool(output.loss_has_softmax or output.loss_is_likelihood or output.classes == 1)


def _head(net: NetworkMoment) -> str:
    return net.modules[-1].name if net.modules else ""
